#!/usr/bin/env python3
"""Speed of `tilekernels convert` against cp, and its peak memory.

Makes a synthetic DeepSeek-style FP8 checkpoint, converts it to bf16, and copies a file of
(read + written) / 2 bytes with `cp --sparse=never --reflink=never`. Warm page cache; every round
runs both, in turn; medians. Prints one line of JSON.

    bench/convert_vs_cp.py build/release/tools/tilekernels [--gib 2] [--rounds 5] [--folder DIR]
"""

import argparse
import json
import os
import random
import shutil
import statistics
import struct
import subprocess
import sys
import time

ROWS, COLS = 7168, 4096  # one weight: 28 MiB, 56 x 32 scaling blocks
PIECE = 1 << 24


def codes(seed):
    """Random e4m3 codes without NaN."""
    table = bytes(b ^ 1 if b & 0x7F == 0x7F else b for b in range(256))
    return random.Random(seed).randbytes(PIECE).translate(table)


def make_checkpoint(folder, total_bytes, num_shards):
    """Writes the folder and returns the bytes of its tensors."""
    os.makedirs(folder)
    weight_bytes, scale_bytes = ROWS * COLS, (ROWS // 128) * (COLS // 128) * 4
    num_weights = max(num_shards, total_bytes // weight_bytes)
    piece = codes(1)
    scales = struct.pack("<f", 0.001953125 * 1.37) * (scale_bytes // 4)
    weight_map, written = {}, 0
    for shard in range(num_shards):
        name = f"model-{shard + 1:05d}-of-{num_shards:05d}.safetensors"
        header, offset = {}, 0
        mine = range(shard, num_weights, num_shards)
        for i in mine:
            weight = f"model.layers.{i}.mlp.up_proj.weight"
            for tensor, dtype, shape, size in (
                (weight + "_scale_inv", "F32", [ROWS // 128, COLS // 128], scale_bytes),
                (weight, "F8_E4M3", [ROWS, COLS], weight_bytes),
            ):
                header[tensor] = {"dtype": dtype, "shape": shape,
                                  "data_offsets": [offset, offset + size]}
                weight_map[tensor] = name
                offset += size
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(os.path.join(folder, name), "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for _ in mine:
                file.write(scales)
                for start in range(0, weight_bytes, PIECE):
                    file.write(piece[: min(PIECE, weight_bytes - start)])
        written += offset
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as file:
        json.dump({"metadata": {"total_size": written}, "weight_map": weight_map}, file)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump({"torch_dtype": "bfloat16", "quantization_config": {
            "activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
            "weight_block_size": [128, 128]}}, file)
    return written


def make_copy_source(path, size):
    piece = codes(2)
    with open(path, "wb") as file:
        while size > 0:
            size -= file.write(piece[: min(PIECE, size)])


def timed(command):
    start = time.perf_counter()
    if subprocess.run(command, stdout=subprocess.DEVNULL).returncode != 0:
        sys.exit(f"{command} failed")
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tool")
    parser.add_argument("--gib", type=float, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--folder", default=".")
    parser.add_argument("--sync", action="store_true",
                        help="wait for the disk in both: convert's default, and cp followed by sync")
    args = parser.parse_args()
    work = os.path.join(args.folder, f"convert_vs_cp.{os.getpid()}")
    os.makedirs(work)
    source, out = os.path.join(work, "in"), os.path.join(work, "out")
    report = os.path.join(work, "report.json")
    blob, copy = os.path.join(work, "blob"), os.path.join(work, "copy")
    convert = [args.tool, "convert", source, out, "--to", "bf16", "--quiet", "--json", report]
    cp = ["cp", "--sparse=never", "--reflink=never", blob, copy]
    if args.sync:
        cp = ["sh", "-c", " ".join(cp) + f" && sync {copy}"]
    else:
        convert.append("--no-sync")
    try:
        read = make_checkpoint(source, int(args.gib * 2**30), args.shards)
        timed(convert)
        written = sum(e.stat().st_size for e in os.scandir(out))
        shutil.rmtree(out)
        make_copy_source(blob, (read + written) // 2)
        timed(cp)
        os.remove(copy)
        os.sync()
        convert_s, cp_s, peaks = [], [], []
        for _ in range(args.rounds):
            cp_s.append(timed(cp))
            os.remove(copy)
            convert_s.append(timed(convert))
            with open(report) as file:  # VmHWM: ru_maxrss would count this script's memory too
                peaks.append(json.load(file)["peak_memory_bytes"] / 2**20)
            shutil.rmtree(out)
            if not args.sync:
                os.sync()  # no round pays for the writes of another
        print(json.dumps({
            "bench": "convert_vs_cp", "read_bytes": read, "written_bytes": written,
            "copied_bytes": (read + written) // 2, "sync": args.sync, "threads": os.cpu_count(),
            "convert_s": round(statistics.median(convert_s), 3),
            "cp_s": round(statistics.median(cp_s), 3),
            "convert_all_s": [round(s, 3) for s in convert_s],
            "cp_all_s": [round(s, 3) for s in cp_s],
            "share_of_cp": round(statistics.median(cp_s) / statistics.median(convert_s), 3),
            "peak_mib": round(max(peaks), 1)}))
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
