#!/usr/bin/env python3
"""Routing ops on the CPU against torch eager on as many threads.

    bench/ops_vs_torch.py build/release/tools/tilekernels [--threads 2] [--rounds 5] [--json]

Every round times torch in this process and the op by `tilekernels bench`, in turn; medians. The
row `torch.topk` of a gate is that one call, `torch eager` all that the gate does. Without torch it
prints `absent: torch`.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

EXPERTS, TOPK, HIDDEN = 256, 8, 7168
SCALING_FACTOR = 2.5


def gate(torch, logits, bias, scoring, num_groups=0, num_topk_groups=0):
    if scoring == "softmax":
        scores = torch.softmax(logits, -1)
    elif scoring == "sigmoid":
        scores = torch.sigmoid(logits)
    else:
        scores = torch.nn.functional.softplus(logits).sqrt()
    choice = scores if bias is None else scores + bias
    if num_groups:
        groups = choice.unflatten(-1, (num_groups, -1))
        chosen = groups.topk(2, -1)[0].sum(-1).topk(num_topk_groups, -1, sorted=False)[1]
        is_out = torch.ones(groups.shape[:2], dtype=torch.bool).scatter_(1, chosen, False)
        choice = groups.masked_fill(is_out.unsqueeze(-1), -float("inf")).flatten(1)
    topk_idx = choice.topk(TOPK, -1)[1]
    weights = scores.gather(-1, topk_idx)
    return topk_idx, weights / (weights.sum(-1, keepdim=True) + 1e-20) * SCALING_FACTOR


def gates(torch, num_tokens):
    """(case of the op, name, call)."""
    logits = torch.randn(num_tokens, EXPERTS)
    bias = torch.randn(EXPERTS)
    shape = f"tokens={num_tokens},experts={EXPERTS},topk={TOPK}"

    def topk():
        return torch.topk(logits, TOPK, -1)

    rows = [(f"topk_gate/{shape}", "torch.topk", topk)]
    for options, call in (
        (",bias", lambda: gate(torch, logits, bias, "sqrtsoftplus")),
        (",sigmoid,bias", lambda: gate(torch, logits, bias, "sigmoid")),
        (",sigmoid,groups=4of8,bias", lambda: gate(torch, logits, bias, "sigmoid", 8, 4)),
        (",softmax", lambda: gate(torch, logits, None, "softmax")),
    ):
        rows.append((f"moe_topk_gate/{shape}{options}", "torch.topk", topk))
        rows.append((f"moe_topk_gate/{shape}{options}", "torch eager", call))
    return rows


def reduction(torch, num_tokens):
    """reduce_fused: the weighted sum of the rows of a token's experts."""
    num_slots = num_tokens * TOPK
    x = torch.randn(num_slots, HIDDEN).bfloat16()
    weights = torch.rand(num_tokens, TOPK)
    positions = torch.randperm(num_slots).view(num_tokens, TOPK)
    case = (f"reduce_fused/tokens={num_tokens},topk={TOPK},experts={EXPERTS},hidden={HIDDEN},"
            "x=bf16,weights")

    def call():
        return (x[positions].float() * weights.unsqueeze(-1)).sum(1).bfloat16()

    return [(case, "torch eager", call)]


def torch_us(call, num_calls):
    times = []
    for _ in range(num_calls):
        begin = time.perf_counter_ns()
        call()
        times.append((time.perf_counter_ns() - begin) / 1e3)
    return statistics.median(times)


def op_us(tool, case, threads):
    run = subprocess.run([tool, "bench", case, "--json", "--min-time", "0.1"], check=True,
                         env={**os.environ, "TILEKERNELS_NUM_THREADS": str(threads)},
                         stdout=subprocess.PIPE, text=True)
    rows = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    return next(row for row in rows if row["case"] == case)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tool", help="the tilekernels command")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="one JSON object a row")
    args = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("absent: torch")
        return 0

    torch.set_num_threads(args.threads)
    torch.set_grad_enabled(False)
    for make, num_tokens in ((gates, 4096), (gates, 16384), (reduction, 128)):
        for case, name, call in make(torch, num_tokens):
            call()
            ours, theirs = [], []
            for _ in range(args.rounds):
                theirs.append(torch_us(call, 5))
                op = op_us(args.tool, case, args.threads)
                ours.append(op["us"])
            row = {"case": case, "target": op["target"], "threads": args.threads,
                   "us": statistics.median(ours), "against": name, "torch": torch.__version__,
                   "torch_us": statistics.median(theirs)}
            row["ratio"] = statistics.median(t / o for o, t in zip(ours, theirs))
            if args.json:
                print(json.dumps(row), flush=True)
            else:
                print(f"{case}: {row['us']:.0f} us, {name} {row['torch_us']:.0f} us, "
                      f"{row['ratio']:.1f} times as long", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
