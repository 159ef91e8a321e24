// How the CUDA kernel of topk_sum_and_topk_group_idx is cut: what its launch and its device text
// share. Device-safe.
#pragma once

#include "numerics/types.h"

namespace tilekernels {

struct TopkSumAndTopkGroupIdxTile {
  int32 lanes;  // of a group, a power of two: as many scores are loaded side by side
};

}  // namespace tilekernels
