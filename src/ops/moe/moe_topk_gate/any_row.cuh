// moe_topk_gate on CUDA: the slow path, which is right for any row.
#pragma once

#include "ops/moe/moe_topk_gate/groups.cuh"
#include "ops/moe/moe_topk_gate/softmax.cuh"
#include "ops/moe/moe_topk_gate/special_rows.cuh"

namespace tilekernels {

// Any row, in full.
inline void route_any(const MoeTopkGateArgs& args, Row& row, bool is_fixed) {
  if constexpr (kIsSoftmax && kIsHeld) add_up<false>(row, nullptr);
  bool has_infinite = false;
  bool has_nan = false;
#pragma unroll 1
  for (uint32 e = device::lane_id(); e < kExperts; e += device::kWarpLanes) {
    const float logit = row.logits[e];
    const float score = kIsSoftmax && !kShape.has_scores ? 0.0f : score_of(row, logit);
    has_infinite |= !numerics::is_finite(logit);
    has_nan |= numerics::is_nan(ranked(row, logit, score, e));
    if (kShape.has_scores) {
      args.scores[row.token * kExperts + e] = numerics::canonical(score);
    }
  }
  if (has_infinite) {
    device::note_fault(args.fault, row.token, args.op_id, numerics::kFaultNotFinite);
  }
  if (has_nan && !is_fixed) {
    device::note_fault(args.fault, row.token, args.op_id, numerics::kFaultNan);
  }
  __syncwarp();
  Choice choice;
  if (is_fixed) {
    choice = fixed_choice<false>(args, row);
  } else {
    const uint32 groups = kGroups > 0 ? best_groups_of_any(row) : ~0u;
    const uint32 expert = device::select_of_any_row<kTopk>(kExperts, [&](uint32 e) {
      return is_in(groups, e) ? numerics::topk_key(ranked(row, e)) : numerics::kTopkTaken;
    });
    choice = {expert, score_of(row, row.logits[expert])};
  }
  store_choices(args, row, choice, is_fixed);
}

}  // namespace tilekernels
