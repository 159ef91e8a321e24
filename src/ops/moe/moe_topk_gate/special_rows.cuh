// moe_topk_gate on CUDA: rows that do not select: left out, routed at random, or fixed.
#pragma once

#include "ops/moe/moe_topk_gate/outputs.cuh"
#include "ops/moe/moe_topk_gate/scores.cuh"

namespace tilekernels {

// What a row without routed experts leaves in its other outputs.
inline void clear(const MoeTopkGateArgs& args, int64 token) {
  if (kShape.has_unmapped && device::lane_id() < kTopk) {
    args.unmapped_topk_idx[token * args.unmapped_stride + device::lane_id()] = -1;
  }
  if (kShape.has_scores) {
#pragma unroll 1
    for (uint32 e = device::lane_id(); e < kExperts; e += device::kWarpLanes) {
      args.scores[token * kExperts + e] = 0.0f;
    }
  }
}

inline void draw_experts(const MoeTopkGateArgs& args, int64 token) {
  const auto lane = static_cast<int32>(device::lane_id());
  int32 num_physical = kLogical;
  bool is_bad = false;
  if constexpr (kShape.has_map) {
    num_physical = 0;
#pragma unroll 1
    for (int32 i = lane; i < kLogical; i += device::kWarpLanes) {
      const int32 count = args.logical_count[i];
      is_bad |= count < 1 || count > kShape.num_copies;
      num_physical += numerics::min_of(numerics::max_of(count, 0), kShape.num_copies);
    }
    num_physical =
        static_cast<int32>(__reduce_add_sync(device::kAllLanes, static_cast<uint32>(num_physical)));
  }
  is_bad = __any_sync(device::kAllLanes, is_bad) || num_physical < kSlots;
  if (is_bad && lane == 0) {
    device::note_fault(args.fault, token, args.op_id, numerics::kFaultCountOutOfRange);
  }
  const bool has_id = lane < numerics::min_of(kSlots, num_physical);
  const RandomDraw draw = random_draw(args.ep_rank, token, lane);
  // Of the slots that wait: the lowest id goes to the first that wants it, later ones move up.
  constexpr uint32 kDone = ~uint32{0};
  uint32 wanted = has_id ? draw.number % static_cast<uint32>(num_physical - lane) : kDone;
  int64 id = -1;
#pragma unroll 1
  for (int32 k = 0; k < kSlots; ++k) {
    const uint32 lowest = __reduce_min_sync(device::kAllLanes, wanted);
    const uint32 lanes = __ballot_sync(device::kAllLanes, wanted == lowest);
    const int32 first = __ffs(static_cast<int32>(lanes)) - 1;
    if (wanted == kDone) continue;
    if (lane == first) {
      id = wanted;
      wanted = kDone;
    } else if (lane > first) {
      ++wanted;
    }
  }
  if (lane < kSlots) store_slot(args, token, id, has_id ? draw.weight : 0.0f);
}

// A row whose logits are not looked at: left out, or routed at random.
inline void route_unseen(const MoeTopkGateArgs& args, int64 token, bool is_left_out) {
  if (!is_left_out) {
    draw_experts(args, token);
  } else if (device::lane_id() < kSlots) {
    store_slot(args, token, -1, 0.0f);
  }
  clear(args, token);
}

template <bool kIsRegular>
inline Choice fixed_choice(const MoeTopkGateArgs& args, const Row& row) {
  if (device::lane_id() >= kTopk) return {-1, 0.0f};
  const int64 expert = args.unmapped_topk_idx[row.token * args.unmapped_stride + device::lane_id()];
  if (expert < 0 || expert >= kExperts) {
    device::note_fault(args.fault, row.token, args.op_id, numerics::kFaultIndexOutOfRange);
    return {-1, 0.0f};
  }
  const float logit = row.logits[expert];
  return {expert, kIsRegular ? regular_score_of(row, logit) : score_of(row, logit)};
}

}  // namespace tilekernels
