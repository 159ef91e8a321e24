// How the CUDA kernel of topk_sum_and_topk_group_idx is cut: what its launch and its device text
// share. Device-safe.
#pragma once

#include "ops/moe/topk_sum_and_topk_group_idx/op.h"

namespace tilekernels {

struct TopkSumAndTopkGroupIdxTile {
  int32 lanes;  // of a group, a power of two: as many scores are loaded side by side
  int32 rows;   // of a warp whose lanes have parts of 16 bytes, or 0
};

/// Parts of four scores.
constexpr int32 parts_of_row(const TopkSumAndTopkGroupIdxShape& shape) {
  return shape.num_groups * (shape.group_size / 4);
}

/// Rows that a warp can take in parts: all lanes have some, those of a group lie side by side, and
/// each ends with a group of its own. 0 if none.
constexpr int32 rows_in_parts(const TopkSumAndTopkGroupIdxShape& shape) {
  const int32 lanes = shape.group_size / 4;  // of a group
  if (shape.group_size % 4 != 0 || lanes > 32 || power_of_two_from(lanes) != lanes ||
      power_of_two_from(shape.num_groups) != shape.num_groups || parts_of_row(shape) < 32) {
    return 0;
  }
  return numerics::min_of(lanes / (parts_of_row(shape) / 32), 4);
}

}  // namespace tilekernels
