// moe_topk_gate on CUDA: which groups of experts take part in the selection of a row.
#pragma once

#include "ops/moe/moe_topk_gate/room.cuh"
#include "ops/moe/moe_topk_gate/scores.cuh"
#include "runtime/cuda/device/topk.cuh"

namespace tilekernels {

// Bit g: group g takes part, from the key of the sum of each group in the lane of its number.
inline uint32 best_groups(int32 key) {
  const int32 place = device::place_among_lanes<kGroups>(key);
  return __ballot_sync(device::kAllLanes, static_cast<int32>(device::lane_id()) < kGroups &&
                                              place < kShape.num_topk_groups);
}

inline bool is_in(uint32 groups, uint32 expert) {
  return kGroups == 0 || (groups >> (expert / kGroupSize) & 1) != 0;
}

// The two largest of some values.
struct Pair {
  float first;
  float second;
};

inline Pair larger(Pair a, Pair b) {
  return {fmaxf(a.first, b.first), fmaxf(fminf(a.first, b.first), fmaxf(a.second, b.second))};
}

inline Pair largest_of(const float (&z)[kWidth]) {
  Pair pair{z[0], -kInf};
#pragma unroll
  for (int32 j = 1; j < kWidth; ++j) {
    pair = {fmaxf(pair.first, z[j]), fmaxf(pair.second, fminf(pair.first, z[j]))};
  }
  return pair;
}

// The values z of a regular row in the order of its loads.
inline uint32 best_groups_of_held(const float (&z)[kHeld][kWidth], Room& room) {
  const uint32 lane = device::lane_id();
  int32 key = numerics::kTopkTaken;
  if constexpr (kGroupsAreLanes) {
    float* sums = reinterpret_cast<float*>(room.chosen);
#pragma unroll
    for (uint32 i = 0; i < kHeld; ++i) {
      Pair pair = largest_of(z[i]);
#pragma unroll
      for (int32 step = 1; step < kGroupLanes; step *= 2) {
        pair = larger(pair, {__shfl_xor_sync(device::kAllLanes, pair.first, step),
                             __shfl_xor_sync(device::kAllLanes, pair.second, step)});
      }
      if (lane % kGroupLanes == 0 && exists(i)) {
        sums[first_expert(i) / kGroupSize] = pair.first + pair.second;
      }
    }
    __syncwarp();
    if (static_cast<int32>(lane) < kGroups) key = numerics::topk_key(sums[lane]);
  } else {
#pragma unroll
    for (uint32 i = 0; i < kHeld; ++i) {
      const Pair pair = largest_of(z[i]);
      room.largest[i * device::kWarpLanes + lane][0] = pair.first;
      room.largest[i * device::kWarpLanes + lane][1] = pair.second;
    }
    __syncwarp();
    if (static_cast<int32>(lane) < kGroups) {
      Pair pair{-kInf, -kInf};
#pragma unroll 4
      for (uint32 i = lane * kGroupLanes; i < (lane + 1) * kGroupLanes; ++i) {
        pair = larger(pair, {room.largest[i][0], room.largest[i][1]});
      }
      key = numerics::topk_key(pair.first + pair.second);
    }
  }
  __syncwarp();
  return best_groups(key);
}

// Any row: a lane a group.
inline uint32 best_groups_of_any(const Row& row) {
  int32 key = numerics::kTopkTaken;
  if (static_cast<int32>(device::lane_id()) < kGroups) {
    const uint32 begin = device::lane_id() * kGroupSize;
    float first = ranked(row, begin);
    float second = ranked(row, begin + 1);
    if (numerics::topk_key(second) > numerics::topk_key(first)) {
      const float swapped = first;
      first = second;
      second = swapped;
    }
#pragma unroll 1
    for (uint32 e = begin + 2; e < begin + kGroupSize; ++e) {
      const float next = ranked(row, e);
      const int32 next_key = numerics::topk_key(next);
      if (next_key > numerics::topk_key(first)) {
        second = first;
        first = next;
      } else if (next_key > numerics::topk_key(second)) {
        second = next;
      }
    }
    key = numerics::topk_key(first + second);
  }
  return best_groups(key);
}

// The groups that take part; z of the others becomes -Inf.
inline uint32 close_groups(const Row& row, Held& held, Room& room, float& largest) {
  const uint32 groups = kGroupsAreLanes || kGroupsAreRuns ? best_groups_of_held(held.z, room)
                                                          : best_groups_of_any(row);
  largest = -kInf;
#pragma unroll(kHeldUnroll)
  for (uint32 i = 0; i < kLoads; ++i) {
    const uint32 at = kIsHeld ? i : 0;
    if constexpr (!kIsHeld) {
      look(load(row.logits, i), load_bias(row, i), i, held.z[0], held.scores[0]);
    }
#pragma unroll
    for (int32 j = 0; j < kWidth; ++j) {
      if (!is_in(groups, first_expert(i) + j)) held.z[at][j] = -kInf;
      largest = fmaxf(largest, held.z[at][j]);
    }
  }
  return groups;
}

}  // namespace tilekernels
