// How the CUDA kernel of topk_gate is cut: what its launch and its device text share. Device-safe.
#pragma once

#include "numerics/types.h"

namespace tilekernels {

struct TopkGateTile {
  int32 rows;  // of a block at most; a warp takes one
  int32 wide;  // 1: rows are loaded by 16 bytes
};

}  // namespace tilekernels
