// How the CUDA kernel of moe_topk_gate_backward is cut: what its launch and its device text share.
// Device-safe.
#pragma once

#include "ops/moe/moe_topk_gate_backward/op.h"

namespace tilekernels {

struct MoeTopkGateBackwardTile {
  int32 wide;  // 1: every row begins and ends at 16 bytes; 0: element by element
};

constexpr int32 kBackwardThreads = 128;  // a warp a row

}  // namespace tilekernels
