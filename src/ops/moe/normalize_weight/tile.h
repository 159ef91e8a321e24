// How the CUDA kernel of normalize_weight is cut: what its launch and its device text share.
// Device-safe.
#pragma once

#include "ops/moe/normalize_weight/op.h"

namespace tilekernels {

struct NormalizeWeightTile {
  int32 width;  // weights that a thread loads at once: 1, 2 or 4, a divisor of num_topk
};

constexpr int32 kNormalizeThreads = 128;

/// Neighbouring threads that share a row, a power of two; those beyond the row's end hold zeros.
constexpr int32 lanes_of_row(const NormalizeWeightShape& shape, const NormalizeWeightTile& tile) {
  return power_of_two_from(shape.num_topk / tile.width);
}

}  // namespace tilekernels
