// How the CUDA kernel of moe_topk_gate is cut: what its launch and its device text share.
// Device-safe.
#pragma once

#include "numerics/types.h"

namespace tilekernels {

struct MoeTopkGateTile {
  int32 rows;   // of a block at most; a warp takes one
  int32 width;  // logits that a lane loads at once: 1, 2 or 4, a divisor of num_experts
};

constexpr int32 kMaxHeldExperts = 1024;  // of a row that a warp holds in its registers

}  // namespace tilekernels
