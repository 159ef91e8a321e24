#!/usr/bin/env python3
"""Host microseconds of a call from Python with torch tensors, outputs allocated, on a GPU.

    bench/host_cost.py --tool build/release/tools/tilekernels [--json] [--record FILE]

Batches of 100 calls, each into an empty queue; the median of them. `above raw` is what a call costs
beyond cuLaunchKernel of an empty kernel, which the tool times on this machine in the same minute
(`tilekernels bench --backend cuda --host-cost`); so the launch itself is not counted. torch.empty of
the same outputs and an add of two small tensors stand beside it.
"""

import argparse
import gc
import json
import statistics
import subprocess
import sys
import time

CALLS = 100


def batch_us(torch, call):
    torch.cuda.synchronize()
    begin = time.perf_counter_ns()
    for _ in range(CALLS):
        call()
    return (time.perf_counter_ns() - begin) / CALLS / 1e3


def subjects(torch):
    """(name, call, its outputs as calls of torch.empty)."""
    from tilekernels import moe, quant

    scores = torch.randn(1, 256, device="cuda")
    x = torch.randn(1, 7168, device="cuda", dtype=torch.bfloat16)
    quantized = quant.per_token_cast(x, "e4m3", 128)
    ids = torch.empty(1, 8, dtype=torch.int64, device="cuda")
    device = torch.device("cuda:0")

    def empties(*outputs):
        specs = [(tuple(t.shape), t.dtype) for t in outputs]

        def make():
            for shape, dtype in specs:
                torch.empty(shape, dtype=dtype, device=device)

        return make

    back = quant.cast_back(quantized, "bf16", (1, 128))
    return [
        ("topk_gate 1x256, top 8", lambda: moe.topk_gate(scores, 8), empties(ids)),
        ("per_token_cast 1x7168 bf16 to e4m3, 1x128",
         lambda: quant.per_token_cast(x, "e4m3", 128), empties(*quantized)),
        ("per_token_cast 1x7168 bf16 to e4m3, 1x128, packed by column",
         lambda: quant.per_token_cast(x, "e4m3", 128, use_tma_aligned_col_major_sf=True,
                                      round_sf=True, use_packed_ue8m0=True),
         empties(*quantized)),
        ("per_block_cast 1x7168 bf16 to e4m3, 128x128",
         lambda: quant.per_block_cast(x, "e4m3", (128, 128)), empties(*quantized)),
        ("cast_back 1x7168 e4m3 to bf16, 1x128",
         lambda: quant.cast_back(quantized, "bf16", (1, 128)), empties(back)),
    ]


def raw_launch_us(tool):
    """What the tool times here for cuLaunchKernel of an empty kernel."""
    run = subprocess.run([tool, "bench", "topk_gate", "--backend", "cuda", "--host-cost", "--json"],
                         capture_output=True, text=True, check=True)
    rows = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    return statistics.median(r["raw_launch_ns"] for r in rows if "raw_launch_ns" in r) / 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tool", required=True, help="the tilekernels command")
    parser.add_argument("--batches", type=int, default=51)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--record", help="write the rows as JSON to this file")
    options = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("absent: torch")
        return 0
    if not torch.cuda.is_available():
        print("absent: CUDA")
        return 0

    raw_before = raw_launch_us(options.tool)
    small = torch.zeros(1, device="cuda")
    rows = []
    gc.disable()
    for name, call, empty in subjects(torch):
        for _ in range(20):
            call()
        samples = {"call_us": [], "empty_us": [], "add_us": []}
        for _ in range(options.batches):
            samples["call_us"].append(batch_us(torch, call))
            samples["empty_us"].append(batch_us(torch, empty))
            samples["add_us"].append(batch_us(torch, lambda: torch.add(small, small)))
        rows.append({"case": name, **{key: statistics.median(v) for key, v in samples.items()}})
    gc.enable()
    raw = statistics.median([raw_before, raw_launch_us(options.tool)])
    for row in rows:
        row["raw_launch_us"] = raw
        row["above_raw_launch_us"] = row["call_us"] - raw
    if options.json:
        for row in rows:
            print(json.dumps(row))
    else:
        print(f"raw empty cuLaunchKernel: {raw:.2f} us")
        for row in rows:
            print(f"{row['case']}: {row['call_us']:.2f} us, above raw {row['above_raw_launch_us']:.2f}"
                  f" us (torch.empty of the outputs {row['empty_us']:.2f}, torch.add of one number"
                  f" {row['add_us']:.2f})")
    if options.record:
        head = {"kind": "host cost of Python", "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                "python": sys.version.split()[0], "torch": torch.__version__,
                "gpu": torch.cuda.get_device_name(0), "results": rows}
        with open(options.record, "w", encoding="utf-8") as file:
            file.write(json.dumps(head, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
