// moe_topk_gate on the vector core: a row in three vector functions.
//
// `score_row` goes over the logits and leaves the scores and the keys of selection in UB,
// `select_…` takes the best as topk_ascend.h says, `finish_row` makes weights and ids of a lane a
// slot. The scalar unit reads each token's flags and sends it this way or another: tokens left out
// and random ones never come to the vector functions above; copies of experts and ranks of tensors,
// which take 64-bit remainders, are looked up by the scalar unit between selection and finish.
#pragma once

#include "ops/moe/moe_topk_gate/scalar_ascend.h"
#include "ops/moe/moe_topk_gate/steps_ascend.h"

namespace tilekernels::ascend::moe_topk_gate_kernel {

TILEKERNELS_CORE void load_row(State& state, int64 row) {
  const MoeTopkGateArgs& args = state.args;
  const MoeTopkGateShape& shape = state.shape;
  const Route route = state.route_of(row);
  if (route == Route::kNone || route == Route::kRandom) return;
  const Ub<float> slot = state.in.fill();
  copy_in(slot, gm(args.logits + row * shape.num_experts), {1, shape.num_experts * int64{4}});
  if (route == Route::kFixed) {
    copy_in(as_ub<uint32>(slot + padded(shape)),
            gm(args.unmapped_topk_idx + row * args.unmapped_stride),
            {1, shape.num_topk * int64{8}});
  }
  state.in.filled();
}

TILEKERNELS_CORE void store_row(State& state, int64 row, Route route, int32 unmapped_at) {
  const MoeTopkGateArgs& args = state.args;
  const MoeTopkGateShape& shape = state.shape;
  const Ub<uint32> out = state.out.empty();
  copy_out(gm(args.topk_idx + row * state.num_slots), out, {1, state.num_slots * int64{8}});
  copy_out(gm(args.topk_weights + row * state.num_slots), as_ub<float>(out + kWeightsAt),
           {1, state.num_slots * int64{4}});
  if (shape.has_unmapped && route != Route::kFixed) {
    copy_out(gm(args.unmapped_topk_idx + row * args.unmapped_stride), out + unmapped_at,
             {1, shape.num_topk * int64{8}});
  }
  if (shape.has_scores) {
    copy_out(gm(args.scores + row * shape.num_experts), as_ub<float>(out + kScoresAt),
             {1, shape.num_experts * int64{4}});
  }
  state.out.emptied();
}

TILEKERNELS_CORE void route_row(State& state, int64 row) {
  state.turn = static_cast<int32>((row - block_idx()) / block_num());
  const Route route = state.route_of(row);
  int32 unmapped_at = kUnmappedAt;
  if (route == Route::kRandom) draw_ids(state, row);
  const Ub<uint32> out = state.out.fill();
  if (route == Route::kNone || route == Route::kRandom) {
    vf_call<clear_row>("clear_row", out, static_cast<uint32>(state.num_slots));
    if (route == Route::kRandom) {
      take_ids(state, out);
      vf_call<take_given>("take_given", out + kWeightsAt, state.buffers.given + kIdWords,
                          static_cast<uint32>(state.num_slots));
    }
    if (state.shape.has_scores) {
      vf_call<fill<float>>("fill", as_ub<float>(out + kScoresAt), 0.0f,
                           static_cast<uint32>(padded(state.shape)));
    }
  } else {
    const Ub<float> saved = as_ub<float>(out + kScoresAt);
    const Ub<float> scores =
        score_and_select(state, row, route, state.shape.has_scores ? saved : state.buffers.scores);
    if (state.is_resolved) resolve_ids(state, row);
    if (!state.is_resolved) unmapped_at = 0;
    finish_slots(state, out + unmapped_at, as_ub<float>(out + kWeightsAt), scores);
    if (state.is_resolved) take_ids(state, out);
  }
  state.out.filled();
  store_row(state, row, route, unmapped_at);
}

TILEKERNELS_CORE void report_faults(const State& state) {
  report_fault_words(state.args.fault, state.buffers.faults, state.lowest_item, [&](int32 item) {
    return numerics::fault_word(block_idx() + item / kMaxKinds * block_num(), state.args.op_id,
                                item % kMaxKinds);
  });
}

TILEKERNELS_CORE void run(const MoeTopkGateArgs& args, const MoeTopkGateShape& shape,
                          const Tile& tile) {
  prologue();
  State state(args, shape, tile);
  if (shape.has_random) count_copies(state);
  pipeline(
      tile.stages, block_idx(), args.num_tokens, block_num(),
      [&](int64 row) { load_row(state, row); }, [&](int64 row) { route_row(state, row); });
  report_faults(state);
  barrier_all();
}

}  // namespace tilekernels::ascend::moe_topk_gate_kernel
