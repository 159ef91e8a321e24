// Maxima over groups of lanes of a warp. Every lane of the warp takes part in each reduction.
#pragma once

#include "numerics/types.h"

namespace tilekernels::device {

constexpr int32 kWarpLanes = 32;
constexpr uint32 kAllLanes = 0xFFFFFFFF;

/// The lane of this thread; blocks have one dimension.
inline uint32 lane_id() { return threadIdx.x % kWarpLanes; }

/// The larger halves of two pairs of 16-bit numbers.
inline uint32 max_u16x2(uint32 a, uint32 b) {
  uint32 larger;
  asm("max.u16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
  return larger;
}

/// The maximum over the aligned group of kLanes lanes (a power of two) that the lane is in.
template <int32 kLanes>
inline uint32 group_max(uint32 x) {
  if constexpr (kLanes == kWarpLanes) return __reduce_max_sync(kAllLanes, x);
  for (int32 step = kLanes / 2; step > 0; step /= 2) {
    x = numerics::max_of(x, __shfl_xor_sync(kAllLanes, x, step));
  }
  return x;
}

/// The same for each half of a pair of 16-bit numbers.
template <int32 kLanes>
inline uint32 group_max_u16x2(uint32 x) {
  for (int32 step = kLanes / 2; step > 0; step /= 2) {
    x = max_u16x2(x, __shfl_xor_sync(kAllLanes, x, step));
  }
  return x;
}

}  // namespace tilekernels::device
