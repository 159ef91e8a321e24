// Selecting the largest scores of a row by one warp, in the order of numerics/topk_key.h.
#pragma once

#include "numerics/topk_key.h"
#include "runtime/cuda/device/warp.cuh"

namespace tilekernels::device {

/// Key and index of an element in one number: the larger ranks before. 0 ranks after all.
inline uint64 ranking(int32 topk_key, uint32 index) {
  const uint32 key = numerics::bit_cast<uint32>(topk_key) ^ 0x80000000;
  return static_cast<uint64>(key) << 32 | ~index;
}

/// The index in a ranking.
inline uint32 ranked_index(uint64 ranking) { return ~static_cast<uint32>(ranking); }

/// The maximum over the warp.
inline uint64 warp_max(uint64 x) {
  const auto high = static_cast<uint32>(x >> 32);
  const uint32 max_high = __reduce_max_sync(kAllLanes, high);
  const uint32 low = high == max_high ? static_cast<uint32>(x) : 0;
  return static_cast<uint64>(max_high) << 32 | __reduce_max_sync(kAllLanes, low);
}

/// A finite score that at least kTopk elements of the row reach, from the largest one of each lane,
/// and that few more do: the kTopk-th largest of the lanes' own. NaN if these have fewer different
/// ones. All scores are finite.
template <int32 kTopk>
inline float topk_threshold(float lane_max) {
  int32 key = numerics::topk_key_of_number(lane_max);
  int32 largest = key;
#pragma unroll
  for (int32 i = 0; i < kTopk; ++i) {
    largest = __reduce_max_sync(kAllLanes, key);
    if (key == largest) key = numerics::kTopkTaken;
  }
  return numerics::number_of_topk_key(largest);  // of kTopkTaken a NaN
}

/// How many of the first kCount lanes rank before this one: by a larger key, or by the same in a
/// lower lane.
template <int32 kCount>
inline int32 place_among_lanes(int32 key) {
  const auto lane = static_cast<int32>(lane_id());
  int32 place = 0;
#pragma unroll
  for (int32 other_lane = 0; other_lane < kCount; ++other_lane) {
    const int32 other = __shfl_sync(kAllLanes, key, other_lane);
    place += other > key || (other == key && other_lane < lane);
  }
  return place;
}

}  // namespace tilekernels::device
