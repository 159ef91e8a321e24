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

/// The elements of a row among which its largest are. Written and read by one warp.
template <int32 kRoom>
struct Candidates {
  static constexpr int32 kUnroll = 4;  // of the comparisons
  static constexpr int32 kSlots = kRoom + kUnroll;
  alignas(16) float scores[kSlots];
  alignas(16) uint32 indices[kSlots];

  /// A slot to be written, and those behind it.
  struct Next {
    float* slot;
    inline void put(float score, uint32 index) {
      *slot = score;
      reinterpret_cast<uint32*>(slot)[kSlots] = index;
      ++slot;
    }
  };
  inline Next from(int32 slot) { return {scores + slot}; }

  /// How many of `kCount` others, from `first` on, rank before that element.
  template <int32 kCount>
  inline int32 count_before(int32 first, float score, uint32 index) const {
    uint32 before = 0;
#pragma unroll
    for (int32 i = 0; i < kCount; ++i) {
      const bool is_lower = indices[first + i] < index;
      const bool is_equal = scores[first + i] == score;
      if ((scores[first + i] > score) | (is_equal & is_lower)) before |= 1u << i;
    }
    return __popc(before);
  }
};

/// Gives every candidate whose place in the order is below kTopk to `take(place, index)`, each by
/// one lane. `count` is at least kTopk and at most kRoom; all scores are finite.
template <int32 kTopk, int32 kRoom, class Take>
inline void place_candidates(Candidates<kRoom>& candidates, int32 count, Take take) {
  constexpr int32 kFew = 16;
  const auto lane = static_cast<int32>(lane_id());
  const bool is_few = kTopk < kFew && count <= kFew;
  // Others than there are rank behind all.
  const int32 end = is_few ? kFew : count + Candidates<kRoom>::kUnroll;
  auto next = candidates.from(count + lane);
  if (count + lane < end) next.put(-numerics::bit_cast<float>(0x7F800000), 0);
  __syncwarp();
  if (is_few) {  // two lanes a candidate, each for half of the comparisons
    const int32 mine = lane % kFew;
    const float score = candidates.scores[mine];
    const uint32 index = candidates.indices[mine];
    int32 place =
        candidates.template count_before<kFew / 2>(lane / kFew * (kFew / 2), score, index);
    place += __shfl_xor_sync(kAllLanes, place, kFew);
    if (lane < count && place < kTopk) take(place, index);
    return;
  }
#pragma unroll 1
  for (int32 mine = lane; mine < count; mine += kWarpLanes) {
    const float score = candidates.scores[mine];
    const uint32 index = candidates.indices[mine];
    int32 place = 0;
#pragma unroll 1
    for (int32 other = 0; other < count; other += Candidates<kRoom>::kUnroll) {
      place += candidates.template count_before<Candidates<kRoom>::kUnroll>(other, score, index);
    }
    if (place < kTopk) take(place, index);
  }
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
