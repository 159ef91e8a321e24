// moe_topk_gate on the vector core: what the scalar unit does, which is ids that take 64 bits.
#pragma once

#include "ops/moe/moe_topk_gate/state_ascend.h"

namespace tilekernels::ascend::moe_topk_gate_kernel {

// How many physical experts there are to draw from.
TILEKERNELS_CORE void count_copies(State& state) {
  const MoeTopkGateShape& shape = state.shape;
  const int32 num_logical = shape.num_experts + shape.num_shared;
  state.num_physical = num_logical;
  if (shape.has_map) {
    state.num_physical = 0;
    for (int32 i = 0; i < num_logical; ++i) {
      const int32 count = get_value(gm(state.args.logical_count), i);
      if (count < 1 || count > shape.num_copies) state.is_count_bad = true;
      state.num_physical += numerics::max_of(0, numerics::min_of(count, shape.num_copies));
    }
  }
  if (state.num_physical < state.num_slots) state.is_count_bad = true;
}

TILEKERNELS_CORE void give_id(const State& state, int32 slot, int64 id) {
  set_value(state.buffers.given, 2 * slot, static_cast<uint32>(id));
  set_value(state.buffers.given, 2 * slot + 1, static_cast<uint32>(id >> 32));
}

TILEKERNELS_CORE int64 physical(State& state, int64 row, int32 expert) {
  const MoeTopkGateArgs& args = state.args;
  const MoeTopkGateShape& shape = state.shape;
  int64 id = expert;
  if (shape.has_map && expert >= 0) {
    const int32 count = get_value(gm(args.logical_count), expert);
    if (count < 1 || count > shape.num_copies) {
      state.note(numerics::kFaultCountOutOfRange);
      id = -1;
    } else {
      id = get_value(gm(args.to_physical_map),
                     int64{expert} * shape.num_copies + choose_copy(args.ep_rank, row, count));
      if (id < 0) {
        state.note(numerics::kFaultPositionOutOfRange);
        id = -1;
      }
    }
  }
  if (!shape.has_tp) return id;
  return mask_by_tp(id, args.experts_per_rank, args.tp_rank, args.num_tp_ranks);
}

// The ids of all slots, by the scalar unit.
TILEKERNELS_CORE void resolve_ids(State& state, int64 row) {
  wait_for<Pipe::kV, Pipe::kS>();
  for (int32 slot = 0; slot < state.num_slots; ++slot) {
    give_id(state, slot, physical(state, row, get_value(state.buffers.best, slot)));
  }
  wait_for<Pipe::kS, Pipe::kV>();
}

// Random ids and weights, by the scalar unit.
TILEKERNELS_CORE void draw_ids(State& state, int64 row) {
  if (state.is_count_bad) state.note(numerics::kFaultCountOutOfRange);
  wait_for<Pipe::kV, Pipe::kS>();
  int64 taken[kWeightSlots];  // rising
  for (int32 slot = 0; slot < state.num_slots; ++slot) {
    int64 id = -1;
    float weight = 0;
    if (slot < state.num_physical) {
      const RandomDraw drawn = random_draw(state.args.ep_rank, row, slot);
      id = drawn.number % static_cast<uint32>(state.num_physical - slot);
      weight = drawn.weight;
      int32 place = 0;
      for (; place < slot && taken[place] <= id; ++place) ++id;
      for (int32 i = slot; i > place; --i) taken[i] = taken[i - 1];
      taken[place] = id;
    }
    give_id(state, slot, id);
    set_value(state.buffers.given, kIdWords + slot, numerics::bit_cast<uint32>(weight));
  }
  wait_for<Pipe::kS, Pipe::kV>();
}

}  // namespace tilekernels::ascend::moe_topk_gate_kernel
