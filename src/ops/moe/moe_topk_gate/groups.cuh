// moe_topk_gate on CUDA: which groups of experts take part in the selection of a row.
#pragma once

#include "ops/moe/moe_topk_gate/room.cuh"
#include "ops/moe/moe_topk_gate/scores.cuh"
#include "runtime/cuda/device/topk.cuh"

namespace tilekernels {

// Bit g: group g takes part, from the key of the sum of each group in the lane of its number.
inline uint32 best_groups(int32 key) {
  const int32 rank = device::rank_among_lanes<kGroups>(key);
  return __ballot_sync(device::kAllLanes, static_cast<int32>(device::lane_id()) < kGroups &&
                                              rank < kShape.num_topk_groups);
}

inline bool is_in(uint32 groups, uint32 expert) {
  return kGroups == 0 || (groups >> (expert / kGroupSize) & 1) != 0;
}

inline device::TopTwo top_two_of(const float (&z)[kWidth]) {
  device::TopTwo top{z[0], -kInf};
#pragma unroll
  for (int32 j = 1; j < kWidth; ++j) {
    top = {fmaxf(top.first, z[j]), fmaxf(top.second, fminf(top.first, z[j]))};
  }
  return top;
}

// From the values z of a regular row, in the order of its loads.
inline uint32 best_groups_of_held(const float (&z)[kHeld][kWidth], Room& room) {
  const uint32 lane = device::lane_id();
  int32 key = numerics::kTopkTaken;
  if constexpr (kGroupsAreLanes) {
#pragma unroll
    for (uint32 i = 0; i < kHeld; ++i) {
      device::TopTwo top = top_two_of(z[i]);
#pragma unroll
      for (int32 step = 1; step < kGroupLanes; step *= 2) {
        top = device::merged(top, {__shfl_xor_sync(device::kAllLanes, top.first, step),
                                   __shfl_xor_sync(device::kAllLanes, top.second, step)});
      }
      if (lane % kGroupLanes == 0 && exists(i)) {
        room.group_sums[first_expert(i) / kGroupSize] = top.first + top.second;
      }
    }
    __syncwarp();
    if (static_cast<int32>(lane) < kGroups) key = numerics::topk_key(room.group_sums[lane]);
  } else {
#pragma unroll
    for (uint32 i = 0; i < kHeld; ++i) {
      const device::TopTwo top = top_two_of(z[i]);
      room.largest[i * device::kWarpLanes + lane][0] = top.first;
      room.largest[i * device::kWarpLanes + lane][1] = top.second;
    }
    __syncwarp();
    if (static_cast<int32>(lane) < kGroups) {
      device::TopTwo top{-kInf, -kInf};
#pragma unroll 4
      for (uint32 i = lane * kGroupLanes; i < (lane + 1) * kGroupLanes; ++i) {
        top = device::merged(top, {room.largest[i][0], room.largest[i][1]});
      }
      key = numerics::topk_key(top.first + top.second);
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
    int32 first = numerics::kTopkTaken;  // the two largest keys
    int32 second = numerics::kTopkTaken;
#pragma unroll 1
    for (uint32 e = begin; e < begin + kGroupSize; ++e) {
      const int32 next = numerics::topk_key(ranked(row, e));
      second = numerics::max_of(second, numerics::min_of(first, next));
      first = numerics::max_of(first, next);
    }
    key = numerics::topk_key(numerics::number_of_topk_key(first) +
                             numerics::number_of_topk_key(second));
  }
  return best_groups(key);
}

// The groups that take part; z of the others becomes -Inf.
inline uint32 close_groups(const Row& row, Held& held, Room& room, float& largest) {
  const uint32 groups = kGroupsAreLanes || kGroupsAreRuns ? best_groups_of_held(held.z, room)
                                                          : best_groups_of_any(row);
  largest = -kInf;
#pragma unroll(kHeld)
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
