// moe_topk_gate on the vector core: which vector functions a row takes.
#pragma once

#include "ops/moe/moe_topk_gate/groups_ascend.h"
#include "ops/moe/moe_topk_gate/outputs_ascend.h"
#include "ops/moe/moe_topk_gate/scores_ascend.h"
#include "ops/moe/moe_topk_gate/selection_ascend.h"
#include "ops/moe/moe_topk_gate/state_ascend.h"

namespace tilekernels::ascend::moe_topk_gate_kernel {

// The experts of a row that selects, to UB.
TILEKERNELS_CORE void select_best(const State& state) {
  const MoeTopkGateShape& shape = state.shape;
  constexpr int32 kChunk = chunk_of(kChunkRegs);
  const Buffers& b = state.buffers;
  const auto num_topk = static_cast<uint16>(shape.num_topk);
  if (shape.num_groups > 0) {
    const int32 group_size = shape.num_experts / shape.num_groups;
    const int32 parts = parts_of(shape.num_groups, group_size);
    int32 levels = 0;
    while (1 << levels < parts) ++levels;
    vf_call<choose_groups>("choose_groups", b.chosen, b.keys, static_cast<uint32>(shape.num_groups),
                           static_cast<uint32>(shape.num_groups * parts), group_size / parts,
                           static_cast<uint16>(levels), static_cast<uint16>(shape.num_topk_groups));
    vf_call<close_groups>("close_groups", b.open_keys, b.keys, b.group_of, b.chosen,
                          state.num_regs());
  }
  if (regs_of(shape) <= kMaxTopkRegs) {
    return with_regs(regs_of(shape), [&](auto regs) {
      vf_call<select_whole<decltype(regs)::value>>("select_whole", b.best, b.open_keys, b.places,
                                                   num_topk);
    });
  }
  // The first window has nothing before it and takes more experts.
  vf_call<select_window<true, false>>("select_window", b.best, b.open_keys, b.places, b.positions,
                                      0, num_topk);
  int32 first = kChunk;
  for (; first + kChunk + kCarry < shape.num_experts; first += kChunk) {
    vf_call<select_window<false, false>>("select_window", b.best, b.open_keys + first, b.places,
                                         b.positions, first, num_topk);
  }
  vf_call<select_window<false, true>>("select_window", b.best, b.open_keys + first, b.places,
                                      b.positions, first, num_topk);
}

// Scores and the experts of a row, to UB; the scores for copying out to `saved`. Returns where
// those of the experts are looked up.
TILEKERNELS_CORE Ub<float> score_and_select(State& state, int64 row, Route route, Ub<float> saved) {
  const MoeTopkGateShape& shape = state.shape;
  const Buffers& b = state.buffers;
  const int32 kind = shape.has_image_bias && state.is_set(state.args.image_token_mask, row) ? 1 : 0;
  const auto num_experts = static_cast<uint32>(shape.num_experts);
  const bool is_softmax = shape.scoring == kScoringSoftmax;
  const Ub<float> logits = state.in.empty();
  const Ub<float> scores = is_softmax ? b.scores : saved;
  const auto with = [&](auto function) {
    function(scores, b.keys, b.faults, logits, b.bias[kind], b.bias_step[kind], b.largest_logit,
             num_experts, state.turn);
  };
  if (is_softmax) {
    vf_call<find_largest>("find_largest", b.largest_logit, logits, num_experts);
    with([](auto... a) { vf_call<score_row<kScoringSoftmax, false>>("score_row", a...); });
  } else if (shape.scoring == kScoringSigmoid) {
    if (shape.has_scores) {
      with([](auto... a) { vf_call<score_row<kScoringSigmoid, true>>("score_row", a...); });
    } else {
      with([](auto... a) { vf_call<score_row<kScoringSigmoid, false>>("score_row", a...); });
    }
  } else if (shape.has_scores) {
    with([](auto... a) { vf_call<score_row<kScoringSqrtSoftplus, true>>("score_row", a...); });
  } else {
    with([](auto... a) { vf_call<score_row<kScoringSqrtSoftplus, false>>("score_row", a...); });
  }
  if (route == Route::kFixed) {
    vf_call<take_fixed>("take_fixed", b.best, b.faults, as_ub<uint32>(logits + padded(shape)),
                        static_cast<uint32>(shape.num_topk), shape.num_experts, state.turn);
  }
  state.in.emptied();
  if (is_softmax) {
    if (shape.num_experts <= 4 * kF32Lanes) {
      vf_call<sum_scores<4>>("sum_scores", b.sum, scores, num_experts);
    } else {
      vf_call<sum_scores<kRowSumRegs>>("sum_scores", b.sum, scores, num_experts);
    }
    if (shape.has_scores) {
      vf_call<divide_scores>("divide_scores", saved, scores, b.sum, num_experts);
    }
  }
  if (route == Route::kBest) {
    if (b.has_nan[kind]) state.note(numerics::kFaultNan);
    select_best(state);
  }
  return scores;
}

TILEKERNELS_CORE void take_ids(const State& state, Ub<uint32> out) {
  vf_call<take_given>("take_given", out, state.buffers.given,
                      static_cast<uint32>(2 * state.num_slots));
}

TILEKERNELS_CORE void finish_slots(const State& state, Ub<uint32> out_ids, Ub<float> out_weights,
                                   Ub<float> scores) {
  const MoeTopkGateShape& shape = state.shape;
  const Buffers& b = state.buffers;
  const auto with = [&](auto function) {
    function(out_ids, out_weights, b.best, scores, b.sum, b.order,
             static_cast<uint32>(shape.num_topk), static_cast<uint32>(state.num_slots),
             state.args.routed_scaling_factor);
  };
  if (shape.scoring == kScoringSoftmax) {
    if (shape.norm_topk_prob) {
      with([](auto... a) { vf_call<finish_row<true, true>>("finish_row", a...); });
    } else {
      with([](auto... a) { vf_call<finish_row<true, false>>("finish_row", a...); });
    }
  } else if (shape.norm_topk_prob) {
    with([](auto... a) { vf_call<finish_row<false, true>>("finish_row", a...); });
  } else {
    with([](auto... a) { vf_call<finish_row<false, false>>("finish_row", a...); });
  }
}

}  // namespace tilekernels::ascend::moe_topk_gate_kernel
