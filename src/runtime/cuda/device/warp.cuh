// What the lanes of a warp find out together: maxima over groups of lanes, and prefix sums. Every
// lane of the warp takes part.
#pragma once

#include "numerics/types.h"

namespace tilekernels::device {

constexpr int32 kWarpLanes = 32;
constexpr uint32 kAllLanes = 0xFFFFFFFF;

/// The lane of this thread; blocks have one dimension.
inline uint32 lane_id() { return threadIdx.x % kWarpLanes; }

/// x, whose origin the compiler does not see: it keeps it in a register and does not compute it
/// again at every use.
inline uint32 kept(uint32 x) {
  asm("mov.u32 %0, %0;" : "+r"(x));
  return x;
}

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

/// Sums over the lower lanes of a warp, and over all of it.
struct PrefixSum {
  int32 before;
  int32 total;
};

/// The exclusive prefix sum of the lanes' counts, which are below 2^kBits.
template <int32 kBits>
inline PrefixSum prefix_sum(int32 count) {
  const uint32 lower_lanes = (1u << lane_id()) - 1;
  PrefixSum sum{0, 0};
#pragma unroll
  for (int32 bit = 0; bit < kBits; ++bit) {
    const uint32 lanes = __ballot_sync(kAllLanes, (count & 1 << bit) != 0);
    sum.before += __popc(lanes & lower_lanes) << bit;
    sum.total += __popc(lanes) << bit;
  }
  return sum;
}

}  // namespace tilekernels::device
