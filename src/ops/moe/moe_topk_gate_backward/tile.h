// How the CUDA kernel of moe_topk_gate_backward is cut: what its launch and its device text share.
// Device-safe.
#pragma once

#include "ops/moe/moe_topk_gate_backward/op.h"

namespace tilekernels {

struct MoeTopkGateBackwardTile {
  int32 wide;    // 1: every row begins and ends at 16 bytes; 0: element by element
  int32 rows;    // of a warp: 1, 2 or 4, each with 32 / rows lanes for its slots
  int32 staged;  // 1: a row's scores are loaded before its indices are known
};

constexpr int32 kBackwardThreads = 128;
constexpr int32 kBackwardWarps = kBackwardThreads / 32;

/// Few rows wait for memory, many for its bytes and for instructions.
constexpr int64 kBackwardFewRows = 1024;
/// A row of so many stays in registers.
constexpr int32 kBackwardKeptExperts = 512;

}  // namespace tilekernels
