// The sum of a row by one warp, in the order of numerics/row_sum.h.
#pragma once

#include "runtime/cuda/device/warp.cuh"

namespace tilekernels::device {

/// The largest power of two below x >= 2.
constexpr int32 power_of_two_below(int32 x) {
  int32 power = 1;
  while (2 * power < x) power *= 2;
  return power;
}

/// Neighbours are added pairwise, level by level; where one is missing, the other goes up as it is.
template <int32 kCount>
inline float sum_of_neighbours(const float* x) {
  if constexpr (kCount == 1) {
    return x[0];
  } else {
    constexpr int32 kHalf = power_of_two_below(kCount);
    return sum_of_neighbours<kHalf>(x) + sum_of_neighbours<kCount - kHalf>(x + kHalf);
  }
}

/// numerics::sum_partials, in every lane. A lane has those of columns (32 step + lane) kWidth + j:
/// its own levels come first, then five across lanes, and at last those across steps.
template <int32 kSteps, int32 kWidth>
inline float sum_partials(const float (&partials)[kSteps][kWidth]) {
  float sums[kSteps];
#pragma unroll
  for (int32 i = 0; i < kSteps; ++i) sums[i] = sum_of_neighbours<kWidth>(partials[i]);
#pragma unroll
  for (int32 lanes = 1; lanes < kWarpLanes; lanes *= 2) {
#pragma unroll
    for (int32 i = 0; i < kSteps; ++i) sums[i] += __shfl_xor_sync(kAllLanes, sums[i], lanes);
  }
  return sum_of_neighbours<kSteps>(sums) + 0.0f;
}

}  // namespace tilekernels::device
