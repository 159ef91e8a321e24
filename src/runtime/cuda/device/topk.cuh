// Selecting the largest scores of a row by one warp, in the order of numerics/topk_key.h.
#pragma once

#include "numerics/topk_key.h"
#include "runtime/cuda/device/math.cuh"
#include "runtime/cuda/device/warp.cuh"

namespace tilekernels::device {

/// Key and index of an element in one number: the larger ranks before. 0 ranks after all.
inline uint64 packed_key(int32 topk_key, uint32 index) {
  const uint32 key = numerics::bit_cast<uint32>(topk_key) ^ 0x80000000;
  return static_cast<uint64>(key) << 32 | ~index;
}

/// The index in a packed key.
inline uint32 index_of_key(uint64 packed_key) { return ~static_cast<uint32>(packed_key); }

/// The maximum over the warp.
inline uint64 warp_max(uint64 x) {
  const auto high = static_cast<uint32>(x >> 32);
  const uint32 max_high = __reduce_max_sync(kAllLanes, high);
  const uint32 low = high == max_high ? static_cast<uint32>(x) : 0;
  return static_cast<uint64>(max_high) << 32 | __reduce_max_sync(kAllLanes, low);
}

/// Of any row: the element that ranks next after the last one, kTopk times. Lane k gets the index
/// of the k-th. `key_of(index)` is asked for all indices below `num` every time.
template <int32 kTopk, class Key>
inline uint32 select_of_any_row(uint32 num, Key key_of) {
  uint32 chosen = 0;
  uint64 last = ~uint64{0};
#pragma unroll 1
  for (int32 k = 0; k < kTopk; ++k) {
    uint64 next = 0;
#pragma unroll 1
    for (uint32 i = lane_id(); i < num; i += kWarpLanes) {
      const uint64 candidate = packed_key(key_of(i), i);
      if (candidate < last && candidate > next) next = candidate;
    }
    last = warp_max(next);
    if (static_cast<int32>(lane_id()) == k) chosen = index_of_key(last);
  }
  return chosen;
}

/// Of a row whose values lie in registers: the kTopk largest, one after the other, by a loop of
/// little code. A warp that has its multiprocessor for itself waits for instructions as it does for
/// data. Value j of load i has the index first + i · step + j; none is NaN. Lane k gets the index
/// of the k-th.
template <int32 kTopk, int32 kLoads, int32 kWidth>
inline uint32 select_held(float (&values)[kLoads][kWidth], uint32 first, uint32 step) {
  constexpr int32 kCount = kLoads * kWidth;
  const auto value = [&](int32 i) -> float& { return values[i / kWidth][i % kWidth]; };
  const auto index_of = [&](int32 i) { return first + i / kWidth * step + i % kWidth; };
  uint32 chosen = 0;
#pragma unroll 1
  for (int32 rank = 0; rank < kTopk; ++rank) {
    float best[kCount];
#pragma unroll
    for (int32 i = 0; i < kCount; ++i) best[i] = value(i);
#pragma unroll
    for (int32 half = (kCount + 1) / 2, left = kCount; left > 1;
         left = half, half = (left + 1) / 2) {
#pragma unroll
      for (int32 i = 0; i + half < left; ++i) best[i] = fmaxf(best[i], best[i + half]);
    }
    uint32 mine = 0;  // the first of the lane's largest
#pragma unroll
    for (int32 i = kCount - 1; i >= 0; --i) {
      if (value(i) == best[0]) mine = index_of(i);
    }
    const int32 key = numerics::topk_key_of_number(best[0]);
    const int32 largest = __reduce_max_sync(kAllLanes, key);
    const uint32 index = __reduce_min_sync(kAllLanes, key == largest ? mine : ~0u);
    if (static_cast<int32>(lane_id()) == rank) chosen = index;
#pragma unroll
    for (int32 i = 0; i < kCount; ++i) {
      if (index == index_of(i)) value(i) = -numerics::bit_cast<float>(numerics::kInfBits);
    }
  }
  return chosen;
}

/// Room for the candidates of a row: random scores have about num_topk of them.
constexpr int32 candidate_room(int32 num_topk) { return num_topk <= 8 ? 64 : 192; }

/// As many as a row has mostly.
constexpr int32 few_candidates(int32 num_topk) { return num_topk <= 8 ? 16 : 32; }

/// The elements of a row among which its largest are. Written and read by one warp.
template <int32 kRoom>
struct Candidates {
  static constexpr int32 kUnroll = 4;  // of the comparisons
  static constexpr int32 kSlots = kRoom + kUnroll;
  static_assert(kSlots * 4 % 16 == 0, "indices lie kSlots words behind their scores");
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

/// Adds a lane's elements that have a bit in `mask` to `count` candidates; element j of load i has
/// the index first + i · step + j. Returns how many there are then, or, if there is no room for
/// them, any larger number than there is room for.
template <int32 kLoads, int32 kWidth, int32 kRoom>
inline int32 add_candidates(Candidates<kRoom>& candidates, int32 count,
                            const float (&scores)[kLoads][kWidth], uint32 mask, uint32 first,
                            uint32 step) {
  static_assert(kLoads * kWidth <= 32, "an element has a bit of the mask");
  const PrefixSum sum = prefix_sum<3>(__popc(mask));
  // A lane with most of the candidates is as rare as too many of them.
  const bool is_crowded = __any_sync(kAllLanes, __popc(mask) > 7);
  if (is_crowded || count + sum.total > kRoom) return kRoom + 1;
  auto next = candidates.from(count + sum.before);
  const uint32 first_of_lane = kept(first);
#pragma unroll
  for (int32 i = 0; i < kLoads; ++i) {
#pragma unroll
    for (int32 j = 0; j < kWidth; ++j) {
      if (mask & 1u << (i * kWidth + j)) {
        next.put(scores[i][j], first_of_lane + static_cast<uint32>(i) * step + j);
      }
    }
  }
  return count + sum.total;
}

/// Gives every candidate whose rank is below kTopk to `take(rank, index)`, each by
/// one lane; of at most kFew (16 or 32) candidates. False, and nothing given, where some are equal.
template <int32 kTopk, int32 kFew, int32 kRoom, class Take>
inline bool rank_few_candidates(Candidates<kRoom>& candidates, int32 count, Take take) {
  constexpr int32 kParts = kWarpLanes / kFew;  // lanes of a candidate; each compares with a part
  constexpr int32 kOthers = kFew / kParts;
  const auto lane = static_cast<int32>(lane_id());
  const bool is_candidate = lane < count;
  if (count + lane < kFew)
    candidates.scores[count + lane] = -numerics::bit_cast<float>(numerics::kInfBits);
  __syncwarp();
  const float score = candidates.scores[lane % kFew];
  const uint32 index = is_candidate ? candidates.indices[lane] : 0;
  const float* others = candidates.scores + lane / kFew * kOthers;
  constexpr float kZero = 0x1p23f;  // from which on the lowest bits are the number
  float ranks[4] = {kZero, 0.0f, 0.0f, 0.0f};
#pragma unroll
  for (int32 i = 0; i < kOthers; ++i) ranks[i % 4] += is_greater(others[i], score);
  const float sum = ranks[0] + ((ranks[1] + ranks[2]) + ranks[3]);
  auto rank =
      static_cast<int32>(numerics::bit_cast<uint32>(sum) - numerics::bit_cast<uint32>(kZero));
  if constexpr (kParts == 2) rank += __shfl_xor_sync(kAllLanes, rank, kFew);
  // Each pair was counted once, unless some are equal.
  const int32 pairs = __reduce_add_sync(kAllLanes, is_candidate ? rank : 0);
  if (2 * pairs != count * (count - 1)) return false;
  if (is_candidate && rank < kTopk) take(rank, index);
  return true;
}

/// The same of any number of candidates, from kTopk to kRoom. All scores are finite.
template <int32 kTopk, int32 kRoom, class Take>
inline void rank_many_candidates(Candidates<kRoom>& candidates, int32 count, Take take) {
  constexpr int32 kUnroll = Candidates<kRoom>::kUnroll;
  const auto lane = static_cast<int32>(lane_id());
  __syncwarp();
  if (lane < kUnroll) {  // they rank behind all
    candidates.from(count + lane).put(-numerics::bit_cast<float>(numerics::kInfBits), 0);
  }
  __syncwarp();
#pragma unroll 1
  for (int32 mine = lane; mine < count; mine += kWarpLanes) {
    const float score = candidates.scores[mine];
    const uint32 index = candidates.indices[mine];
    int32 rank = 0;
#pragma unroll 1
    for (int32 other = 0; other < count; other += kUnroll) {
      rank += candidates.template count_before<kUnroll>(other, score, index);
    }
    if (rank < kTopk) take(rank, index);
  }
}

/// By rank_few_candidates where it can, else by rank_many_candidates.
template <int32 kTopk, int32 kFew, int32 kRoom, class Take>
inline void rank_candidates(Candidates<kRoom>& candidates, int32 count, Take take) {
  if (__builtin_expect(count <= kFew && rank_few_candidates<kTopk, kFew>(candidates, count, take),
                       true)) {
    return;
  }
  rank_many_candidates<kTopk>(candidates, count, take);
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

/// The two largest of some numbers; NaN as soon as one is.
struct TopTwo {
  float first;
  float second;
};

inline TopTwo merged(const TopTwo& a, const TopTwo& b) {
  return {max_or_nan(a.first, b.first), fmaxf(fminf(a.first, b.first), fmaxf(a.second, b.second))};
}

/// How many of the first kCount lanes rank before this one: by a larger key, or by the same in a
/// lower lane.
template <int32 kCount>
inline int32 rank_among_lanes(int32 key) {
  const auto lane = static_cast<int32>(lane_id());
  int32 rank = 0;
#pragma unroll
  for (int32 other_lane = 0; other_lane < kCount; ++other_lane) {
    const int32 other = __shfl_sync(kAllLanes, key, other_lane);
    rank += other > key || (other == key && other_lane < lane);
  }
  return rank;
}

}  // namespace tilekernels::device
