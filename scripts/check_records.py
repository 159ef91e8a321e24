#!/usr/bin/env python3
"""Warns of GPU records that ran another device text than this build has; never fails for that.

Usage: scripts/check_records.py BUILD_FOLDER
"""

import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    texts = {}
    for path in pathlib.Path(sys.argv[1], "device_text").glob("*.cpp"):
        found = re.search(r'const Text (\w+)_text\{"\w+", "([0-9a-f]{64})"', path.read_text())
        if found:
            texts[found.group(1)] = found.group(2)
    kernels = {folder.parent.name for folder in ROOT.glob("src/ops/*/*/cuda.cuh")}
    if missing := kernels - set(texts):
        print(f"{sys.argv[1]} has no device text of {', '.join(sorted(missing))}: build it first")
        return 1
    recorded = set()
    old = 0
    for path in sorted((ROOT / "bench" / "results").glob("*.json")):
        record = json.loads(path.read_text())
        ran = {result.get("op") for result in record.get("results", [])
               if result.get("backend", "cuda") == "cuda" and result.get("has_kernel", True)}
        for op, digest in record.get("device_text", {}).items():
            if op not in ran:
                continue
            recorded.add((record["kind"], op))
            if texts.get(op) != digest:
                old += 1
                print(f"warning: {path.name} of {record['date'][:10]} is older than the device "
                      f"text of {op}")
    for op in sorted(kernels):
        for kind in ("verify", "bench"):
            if (kind, op) not in recorded:
                print(f"warning: no {kind} record of {op} on a GPU")
    print(f"{len(kernels)} ops with device text, {old} records older than theirs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
