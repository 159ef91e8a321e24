// moe_topk_gate on the vector core: the buffers of a core, and what its steps ask about them.
#pragma once

#include "ops/moe/moe_topk_gate/tables_ascend.h"

namespace tilekernels::ascend::moe_topk_gate_kernel {

struct Buffers {
  Ub<float> bias[2];   // of text and of image tokens
  int32 bias_step[2];  // 0: one register of zeros for all experts
  bool has_nan[2];
  Ub<float> scores;  // where no copy out takes them, and those that softmax has yet to divide
  Ub<int32> keys;
  Ub<int32> open_keys;  // without the experts of groups that are not chosen
  Ub<int32> group_of;
  Ub<int32> chosen;
  Ub<int32> places;
  Ub<int32> order;
  Ub<int32> best;       // the experts of every slot
  Ub<int32> positions;  // in a window
  Ub<uint32> given;     // by the scalar unit: ids, then weights
  Ub<float> largest_logit;
  Ub<float> sum;
  Ub<int32> faults;
};

enum class Route { kNone, kRandom, kFixed, kBest };

// A core with the rows that it routes, which are block_num() apart.
struct State {
  const MoeTopkGateArgs& args;
  const MoeTopkGateShape& shape;
  const int32 num_slots;
  const bool is_resolved;  // ids come from the scalar unit
  MutexPool pool{};
  InRing<float> in;  // logits, and a fixed row's experts behind them
  OutRing<uint32> out;
  Buffers buffers{};
  int32 turn = 0;
  int32 lowest_item = kNoFaultItem;
  int64 num_physical = 0;  // experts to draw from
  bool is_count_bad = false;

  TILEKERNELS_CORE State(const MoeTopkGateArgs& of, const MoeTopkGateShape& by, const Tile& tile)
      : args(of),
        shape(by),
        num_slots(by.num_topk + by.num_shared),
        is_resolved(by.has_map || by.has_tp),
        in(pool, "logits", tile.stages, padded(by) + kIdWords),
        out(pool, "out", tile.stages, out_words(by)) {
    allocate();
    load_biases();
    make_tables();
  }

  TILEKERNELS_CORE uint16 num_regs() const { return trips(regs_of(shape)); }
  TILEKERNELS_CORE bool is_set(const uint8* flags, int64 row) const {
    return get_value(gm(flags), row) != 0;
  }
  TILEKERNELS_CORE Route route_of(int64 row) const {
    if (shape.has_mask && !is_set(args.mask, row)) return Route::kNone;
    if (shape.has_random && is_set(args.force_random, row)) return Route::kRandom;
    if (shape.has_fixed && is_set(args.fix_routing_mask, row)) return Route::kFixed;
    return Route::kBest;
  }
  TILEKERNELS_CORE void note(int32 kind) {
    lowest_item = numerics::min_of(lowest_item, item_of(turn, kind));
  }

  TILEKERNELS_CORE void allocate() {
    const int64 row = padded(shape);
    Buffers& b = buffers;
    b.scores = ub_alloc<float>("own scores", row, kRowSumTail);
    b.keys = ub_alloc<int32>("keys", num_keys(shape));
    b.open_keys = b.keys;
    if (shape.num_groups > 0) {
      b.open_keys = ub_alloc<int32>("open keys", num_keys(shape));
      b.group_of = ub_alloc<int32>("groups of experts", row);
      b.chosen = ub_alloc<int32>("chosen groups", kF32Lanes);
    }
    const Ub<float> zeros = ub_alloc<float>("zeros", kF32Lanes);
    b.bias[0] = shape.has_bias ? ub_alloc<float>("bias", row) : zeros;
    b.bias[1] = shape.has_image_bias ? ub_alloc<float>("image_bias", row) : b.bias[0];
    b.bias_step[0] = shape.has_bias ? kF32Lanes : 0;
    b.bias_step[1] = shape.has_image_bias ? kF32Lanes : b.bias_step[0];
    vf_call<fill<float>>("fill", zeros, 0.0f, static_cast<uint32>(kF32Lanes));
    b.places = ub_alloc<int32>("places", kWhole);
    b.order = ub_alloc<int32>("order", kF32Lanes);
    b.best = ub_alloc<int32>("best", kF32Lanes);
    // Selection, then the scalar unit write here.
    b.given = ub_alloc<uint32>("given", kIdWords + kF32Lanes);
    b.positions = as_ub<int32>(b.given + kIdWords);
    b.largest_logit = ub_alloc<float>("largest logit", 1);
    b.sum = ub_alloc<float>("sum", 1);
    b.faults = alloc_faults();
  }

  TILEKERNELS_CORE void load_biases() {
    Buffers& b = buffers;
    const bool is_there[2] = {shape.has_bias != 0, shape.has_image_bias != 0};
    const float* const from[2] = {args.bias, args.image_bias};
    const Ub<int32> has_nan[2] = {as_ub<int32>(b.sum), as_ub<int32>(b.largest_logit)};
    b.has_nan[0] = b.has_nan[1] = false;
    if (!is_there[0] && !is_there[1]) return;
    for (int32 i = 0; i < 2; ++i) {
      if (is_there[i]) copy_in(b.bias[i], gm(from[i]), {1, shape.num_experts * int64{4}});
    }
    wait_for<Pipe::kMte2, Pipe::kV>();
    for (int32 i = 0; i < 2; ++i) {
      if (!is_there[i]) continue;
      vf_call<clean_bias>("clean_bias", b.bias[i], has_nan[i],
                          static_cast<uint32>(shape.num_experts));
    }
    wait_for<Pipe::kV, Pipe::kS>();
    for (int32 i = 0; i < 2; ++i) {
      b.has_nan[i] = is_there[i] ? get_value(has_nan[i], 0) != 0 : i == 1 && b.has_nan[0];
    }
  }

  TILEKERNELS_CORE void make_tables() {
    const Buffers& b = buffers;
    const int32 regs = regs_of(shape);
    vf_call<number_places>("number_places", b.places, regs <= kMaxTopkRegs ? regs : kChunkRegs);
    vf_call<fill<int32>>("fill", b.keys + padded(shape), numerics::kTopkTaken,
                         static_cast<uint32>(kWindow));
    if (shape.num_groups > 0) {
      vf_call<fill<int32>>("fill", b.open_keys + padded(shape), numerics::kTopkTaken,
                           static_cast<uint32>(kWindow));
      const float group_size = static_cast<float>(shape.num_experts / shape.num_groups);
      vf_call<number_groups>("number_groups", b.group_of, 1.0f / group_size, num_regs());
    }
    for (int32 lane = 0; lane < kF32Lanes; ++lane) {
      int32 slot = 0;
      for (int32 bit = 1; bit < kWeightSlots; bit *= 2) {
        slot = 2 * slot + (lane & bit ? 1 : 0);
      }
      // The last lane is of no slot.
      set_value(b.order, lane, lane < kWeightSlots ? slot : kF32Lanes - 1);
    }
    for (int32 i = 0; i < shape.num_shared; ++i) {
      set_value(b.best, shape.num_topk + i, shape.num_experts + i);
    }
    wait_for<Pipe::kS, Pipe::kV>();
  }
};

}  // namespace tilekernels::ascend::moe_topk_gate_kernel
