// moe_topk_gate on CUDA: what the lanes of a row share, and what they choose.
#pragma once

#include "ops/moe/moe_topk_gate/row.cuh"
#include "runtime/cuda/device/topk.cuh"

namespace tilekernels {

constexpr int32 kRoom = device::candidate_room(kTopk);

struct alignas(16) Room {
  device::Candidates<kRoom> candidates;  // by z
  uint64 chosen[device::kWarpLanes];     // expert and score by slot
  float group_sums[kGroupsAreLanes ? device::kWarpLanes : 1];
  // The two largest z of each lane and load
  float largest[kGroupsAreRuns ? kLoads * device::kWarpLanes : 1][2];
  alignas(16) float scores[kIsKept ? kExperts : 1];  // by expert
};

struct Choice {
  int64 expert;  // -1: none
  float score;
};

inline uint64 pack(uint32 expert, float score) {
  return static_cast<uint64>(numerics::bit_cast<uint32>(score)) << 32 | expert;
}

inline Choice chosen_of_lane(const Room& room) {
  if (device::lane_id() >= kTopk) return {-1, 0.0f};
  const uint64 chosen = room.chosen[device::lane_id()];
  return {static_cast<uint32>(chosen),
          numerics::bit_cast<float>(static_cast<uint32>(chosen >> 32))};
}

}  // namespace tilekernels
