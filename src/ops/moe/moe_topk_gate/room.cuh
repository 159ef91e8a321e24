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
  // By expert
  alignas(16) float z[kIsShared ? kExperts : 1];
  alignas(16) float scores[kIsKept ? kExperts : 1];
  float row_largest;  // of kSumsApart
  float row_sum;
};

// Whether all warps of a row say so; all of them wait for each other. The vote after the barrier
// tells the compiler that lanes agree.
inline bool all_warps(bool is_so) {
  return __all_sync(device::kAllLanes, __syncthreads_and(is_so));
}

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
