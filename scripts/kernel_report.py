#!/usr/bin/env python3
"""Prints what the compiler made of each CUDA kernel, and fails where registers were spilled.

    tilekernels cache warm --arch sm_90a --all-cases --threads 2 --cubins FOLDER
    scripts/kernel_report.py FOLDER [--sass] [--every] [--widths N]

Registers, spills, stack and static shared memory are the compiler's own report (kernels.json).
Where nvdisasm is found (PATH, or PyPI's nvidia-cuda-nvdisasm in a virtual environment) the memory
instructions are counted by width: "LDG.128 x4" is four loads of 16 bytes a thread in the text.
That takes a third of a second a kernel, so it is done for N of each op only, spread over its list.
"""

import argparse
import collections
import concurrent.futures
import json
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
# LDG/STG global, LDS/STS shared, LDL/STL local (a spill), LDGSTS and UBLKCP asynchronous copies.
MEMORY = re.compile(
    r"\b(LDGSTS|LDG|STG|LDS|STS|LDL|STL|LDSM|RED|ATOMG|ATOMS|UBLKCP|LD|ST)((?:\.[A-Z0-9_]+)*)\s")
WIDTHS = {"U8": "8", "S8": "8", "U16": "16", "S16": "16", "64": "64", "128": "128", "256": "256"}
COUNTED = {"MUFU": "MUFU", "SHFL": "SHFL", "BAR": "BAR", "REDUX": "REDUX", "F2FP": "F2FP",
           "CALL": "CALL"}


def find_nvdisasm():
    found = shutil.which("nvdisasm")
    if found:
        return found
    places = [ROOT / ".venv", pathlib.Path(sys.prefix)]
    for place in places:
        for path in place.glob("lib/python*/site-packages/nvidia/**/bin/nvdisasm"):
            return str(path)
    cuda = pathlib.Path("/usr/local/cuda/bin/nvdisasm")
    return str(cuda) if cuda.exists() else None


def disassemble(nvdisasm, path):
    run = subprocess.run([nvdisasm, "-c", str(path)], capture_output=True, text=True, check=False)
    return run.stdout if run.returncode == 0 else None


def counts_of(text):
    """Counts instructions of a disassembly: memory by width, and the few that tell of cost."""
    counts = collections.Counter()
    for line in text.splitlines():
        line = re.sub(r"/\*.*?\*/", "", line).strip()
        line = re.sub(r"^@!?U?P\w+\s+", "", line)
        if not line or line.startswith(".") or not line.endswith(";"):
            continue
        counts["all"] += 1
        match = MEMORY.match(line)
        if match:
            parts = match.group(2).split(".")
            width = next((WIDTHS[p] for p in parts if p in WIDTHS), "32")
            counts[f"{match.group(1)}.{width}"] += 1
        else:
            name = line.split(".")[0].split(" ")[0]
            if name in COUNTED:
                counts[COUNTED[name]] += 1
    return counts


def text_of(counts):
    parts = [f"{name} x{count}" for name, count in sorted(counts.items()) if name != "all"]
    return f"{counts['all']} instructions: " + ", ".join(parts)


def some_of_each(kernels, count):
    """Up to `count` kernels of each op and architecture, evenly spread."""
    per_op = collections.defaultdict(list)
    for kernel in kernels:
        per_op[kernel["op"], kernel["arch"]].append(kernel)
    return [same[i * len(same) // count] for same in per_op.values()
            for i in range(count if len(same) > count else 0)] + [
                kernel for same in per_op.values() if len(same) <= count for kernel in same]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--sass", action="store_true", help="write each disassembly beside its cubin")
    parser.add_argument("--every", action="store_true",
                        help="a line for every kernel; else for those that were disassembled")
    parser.add_argument("--widths", type=int, default=8, metavar="N",
                        help="kernels of each op to disassemble; with --every all")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()

    try:
        kernels = json.loads((options.folder / "kernels.json").read_text())
    except (OSError, ValueError) as error:
        what = error.strerror if isinstance(error, OSError) else "no JSON"
        print(f"kernel_report: {options.folder}/kernels.json: {what}; it is made by "
              f"tilekernels cache warm --arch sm_90a --all-cases --threads 2 "
              f"--cubins {options.folder}", file=sys.stderr)
        return 2
    if not kernels:
        print("no kernels")
        return 1
    nvdisasm = find_nvdisasm()
    if nvdisasm is None:
        print("absent: nvdisasm (pip install nvidia-cuda-nvdisasm), so no widths")
    else:
        chosen = kernels if options.every else some_of_each(kernels, options.widths)
        paths = [options.folder / kernel["file"] for kernel in chosen]
        with concurrent.futures.ThreadPoolExecutor(options.threads) as pool:
            for kernel, path, sass in zip(
                    chosen, paths, pool.map(lambda p: disassemble(nvdisasm, p), paths)):
                if sass is None:
                    kernel["code"] = "not disassembled"
                    continue
                if options.sass:
                    path.with_suffix(".sass").write_text(sass)
                kernel["code"] = text_of(counts_of(sass))

    bad = [k for k in kernels if k["spill_bytes"] or k["stack_bytes"]]
    for kernel in kernels if options.every else [k for k in kernels if "code" in k or k in bad]:
        print(f"{kernel['op']} {kernel['arch']}: {kernel['registers']} registers, "
              f"{kernel['shared_bytes']} B shared ({kernel['file']}: {kernel['constants']})")
        if "code" in kernel:
            print(f"    {kernel['code']}")
    per_op = collections.defaultdict(list)
    for kernel in kernels:
        per_op[kernel["op"], kernel["arch"]].append(kernel)
    for (op, arch), same in sorted(per_op.items()):
        most = max(k["registers"] for k in same)
        print(f"{op} {arch}: {len(same)} kernels, at most {most} registers, "
              f"{max(k['shared_bytes'] for k in same)} B shared, "
              f"{sum(1 for k in same if k in bad)} spill or use a stack")
    for kernel in bad:
        print(f"SPILLS: {kernel['file']} {kernel['constants']}: {kernel['spill_bytes']} B spilled, "
              f"{kernel['stack_bytes']} B of stack")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
