// moe_topk_gate on CUDA: the few experts that may be among the best of a row, and their places.
#pragma once

#include "ops/moe/moe_topk_gate/groups.cuh"
#include "ops/moe/moe_topk_gate/room.cuh"
#include "ops/moe/moe_topk_gate/scores.cuh"
#include "runtime/cuda/device/topk.cuh"

namespace tilekernels {

// What at least kTopk elements reach, and few more; or NaN or -Inf.
inline float threshold_of(float largest) {
  constexpr int32 kParts = power_of_two_from(kTopk);
  if constexpr (kIsAlone && kParts > 1 && kParts < device::kWarpLanes) {
    // The least maximum of kParts groups of lanes, of neighbours or of those that lie apart
    float near = largest;
    float apart = largest;
#pragma unroll
    for (int32 step = 1; step < device::kWarpLanes / kParts; step *= 2) {
      near = fmaxf(near, __shfl_xor_sync(device::kAllLanes, near, step));
      apart = fmaxf(apart, __shfl_xor_sync(device::kAllLanes, apart, step * kParts));
    }
    const float threshold = numerics::number_of_topk_key(numerics::max_of(
        __reduce_min_sync(device::kAllLanes, numerics::topk_key_of_number(near)),
        __reduce_min_sync(device::kAllLanes, numerics::topk_key_of_number(apart))));
    if (threshold > -kInf) return threshold;
  }
  return device::topk_threshold<kTopk>(largest);
}

// Puts the experts whose z reaches the threshold into the room; returns how many there are, or, if
// the room does not take them, any larger number than it takes.
inline int32 gather_candidates(const Row& row, const float (&held)[kHeld][kWidth], uint32 groups,
                               float threshold, Room& room) {
  const uint32 lane = device::lane_id();
  constexpr int32 kBlock = numerics::min_of(kLoads, 32 / kWidth);  // a bit an element
  int32 count = 0;
#pragma unroll 1
  for (int32 first = 0; first < kLoads; first += kBlock) {
    uint32 mask = 0;
#pragma unroll
    for (int32 i = 0; i < kBlock; ++i) {
      if (kLoads % kBlock != 0 && first + i >= kLoads) break;
      float z[kWidth];
      float scores[kWidth];
      if constexpr (!kIsHeld) {
        look(load(row.logits, first + i), load_bias(row, first + i), first + i, z, scores);
      }
#pragma unroll
      for (int32 j = 0; j < kWidth; ++j) {
        bool is_candidate = (kIsHeld ? held[i][j] : z[j]) >= threshold;
        if (!kIsHeld && kGroups > 0) is_candidate &= is_in(groups, first_expert(first + i) + j);
        if (is_candidate) mask |= 1u << (i * kWidth + j);
      }
    }
    // Where a lane's candidates go: behind those of the lanes below it. Few lanes have more than 3.
    const auto mine = static_cast<uint32>(__popc(static_cast<int32>(mask)));
    auto place = static_cast<uint32>(count);
#pragma unroll
    for (int32 bit = 0; 1 << bit <= kBlock * kWidth; ++bit) {
      if (bit == 2 && !__any_sync(device::kAllLanes, mine > 3)) break;
      const uint32 lanes = __ballot_sync(device::kAllLanes, (mine >> bit & 1) != 0);
      place += static_cast<uint32>(__popc(lanes & ((1u << lane) - 1))) << bit;
      count += __popc(lanes) << bit;
    }
    if (count > kRoom) return count;
#pragma unroll 1
    while (mask != 0) {
      const uint32 bit = 31 - static_cast<uint32>(__clz(static_cast<int32>(mask)));
      room.elements[place++] = (first * kWidth + bit) * device::kWarpLanes + lane;
      mask ^= 1u << bit;
    }
  }
  return count;
}

inline uint32 expert_of(uint32 element) {
  const uint32 lane = element % device::kWarpLanes;
  const uint32 number = element / device::kWarpLanes;
  return number / kWidth * kStep + lane * kWidth + number % kWidth;
}

struct Scored {
  float z;
  float score;
};

// An expert of a regular row.
inline Scored scored(const Row& row, uint32 expert, const Room& room) {
  if constexpr (kIsKept) return {room.z[expert], room.scores[expert]};
  const float logit = row.logits[expert];
  const float score = regular_score_of(row, logit);
  return {ranked(row, logit, score, expert), score};
}

// Puts the kTopk best of any number of candidates into the room.
inline void rank_candidates(const Row& row, int32 count, Room& room) {
  const auto lane = static_cast<int32>(device::lane_id());
#pragma unroll 1
  for (int32 i = lane; i < count; i += device::kWarpLanes) {
    const uint32 expert = expert_of(room.elements[i]);
    const float z = scored(row, expert, room).z;
    room.rankings[i] = device::ranking(numerics::topk_key_of_number(z), expert);
  }
  if (lane < kUnroll) room.rankings[count + lane] = 0;
  __syncwarp();
#pragma unroll 1
  for (int32 i = lane; i < count; i += device::kWarpLanes) {
    const uint64 mine = room.rankings[i];
    int32 place = 0;
#pragma unroll 1
    for (int32 other = 0; other < count; other += kUnroll) {
#pragma unroll
      for (int32 k = 0; k < kUnroll; ++k) place += room.rankings[other + k] > mine;
    }
    if (place < kTopk) {
      const uint32 expert = device::ranked_index(mine);
      room.chosen[place] = pack(expert, scored(row, expert, room).score);
    }
  }
}

// The same of at most a candidate a lane; false where some rank alike.
inline bool rank_few_candidates(const Row& row, int32 count, Room& room) {
  const auto lane = static_cast<int32>(device::lane_id());
  const bool is_candidate = lane < count;
  const uint32 expert = is_candidate ? expert_of(room.elements[lane]) : 0;
  const auto [z, score] = scored(row, expert, room);
  float* all = reinterpret_cast<float*>(room.rankings);
  all[lane] = is_candidate ? z : -kInf;
  __syncwarp();
  constexpr float kZero = 0x1p23f;  // from which on the lowest bits are the number
  float places[kUnroll] = {kZero, 0.0f, 0.0f, 0.0f};
#pragma unroll(kIsAlone ? device::kWarpLanes / kUnroll : 1)
  for (int32 other = 0; other < (kIsAlone ? device::kWarpLanes : count); other += kUnroll) {
#pragma unroll
    for (int32 k = 0; k < kUnroll; ++k) places[k] += device::is_greater(all[other + k], z);
  }
  const float place = places[0] + ((places[1] + places[2]) + places[3]);
  const uint32 before = numerics::bit_cast<uint32>(place) - numerics::bit_cast<uint32>(kZero);
  // Each pair was counted once, unless some are equal.
  const uint32 pairs = __reduce_add_sync(device::kAllLanes, is_candidate ? before : 0);
  if (pairs != static_cast<uint32>(count * (count - 1) / 2)) {
    __syncwarp();
    return false;
  }
  if (is_candidate && before < kTopk) room.chosen[before] = pack(expert, score);
  return true;
}

}  // namespace tilekernels
