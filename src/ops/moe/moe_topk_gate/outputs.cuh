// moe_topk_gate on CUDA: weights and ids of a row from its choices.
#pragma once

#include "ops/moe/moe_topk_gate/room.cuh"
#include "runtime/cuda/device/fault.cuh"

namespace tilekernels {

inline void store_slot(const MoeTopkGateArgs& args, int64 token, int64 expert, float weight) {
  const int64 place = token * kSlots + device::lane_id();
  args.topk_idx[place] = expert;
  args.topk_weights[place] = weight;
}

// Where a logical expert lies.
inline int64 physical(const MoeTopkGateArgs& args, int64 token, int64 expert) {
  int64 id = expert;
  if (kShape.has_map && expert >= 0) {
    const int32 count = args.logical_count[expert];
    id = -1;
    if (count < 1 || count > kShape.num_copies) {
      device::note_fault(args.fault, token, args.op_id, numerics::kFaultCountOutOfRange);
    } else {
      const int32 copy = choose_copy(args.ep_rank, token, count);
      id = args.to_physical_map[expert * kShape.num_copies + copy];
      if (id < 0) {
        device::note_fault(args.fault, token, args.op_id, numerics::kFaultPositionOutOfRange);
        id = -1;
      }
    }
  }
  if (!kShape.has_tp) return id;
  return mask_by_tp(id, args.experts_per_rank, args.tp_rank, args.num_tp_ranks);
}

// Weights and ids from the choice of each lane.
inline void store_choices(const MoeTopkGateArgs& args, const Row& row, Choice choice,
                          bool is_fixed) {
  const auto lane = static_cast<int32>(device::lane_id());
  if (lane >= kTopk) choice.score = 0.0f;
  float weight = choice.score;
  if constexpr (kShape.norm_topk_prob) {
    float sum = choice.score;
#pragma unroll
    for (int32 step = power_of_two_from(kTopk) / 2; step > 0; step /= 2) {
      sum += __shfl_xor_sync(device::kAllLanes, sum, step);
    }
    weight = choice.score / (sum + kWeightEpsilon);
  }
  weight = lane < kTopk ? weight * args.routed_scaling_factor : 1.0f;
  if (lane >= kSlots) return;
  const int64 token = row.token;
  if (kShape.has_unmapped && !is_fixed && lane < kTopk) {
    args.unmapped_topk_idx[token * args.unmapped_stride + lane] = choice.expert;
  }
  const int64 expert = lane < kTopk ? choice.expert : kExperts + (lane - kTopk);
  store_slot(args, token, physical(args, token, expert), numerics::canonical(weight));
}

}  // namespace tilekernels
