// topk_gate on the vector core: keys in registers, selected as topk_ascend.h says. Rows of more
// than 384 experts go by chunks of 352 behind the best of the chunks before, whose positions, and
// so whose ties, come first.
#pragma once

#include "ops/moe/topk_ascend.h"
#include "ops/moe/topk_gate/op.h"
#include "runtime/ascend/faults.h"

namespace tilekernels::ascend::topk_gate_kernel {

static_assert(kCarry == kMaxTopk);
constexpr int32 kNotFiniteBits = static_cast<int32>(numerics::kInfBits);

/// Tile constants.
struct Tile {
  int32 stages;  // rows or chunks in flight
};

// Bytes of UB that a kernel takes, readable tails included.
constexpr int64 ub_bytes(const Tile& tile) {
  constexpr int64 kTail = kVectorBytes;
  const int64 scores = tile.stages * (kWhole * 4 + kTail);
  const int64 out = tile.stages * (kVectorBytes + kTail);
  constexpr int64 keys_and_ids = 2 * ((kCarry + kWhole) * 4 + kTail);
  return scores + out + keys_and_ids + (kVectorBytes + kTail) + kFaultUbBytes;
}

// Keys of the active scores, others taken; `largest` gathers absolute bits for the fault.
TILEKERNELS_CALLEE void make_keys(Reg<int32>& key, Reg<int32>& largest, Reg<float>& score,
                                  const Mask& valid, const Mask& all) {
  Reg<int32> t;
  vdup(t, 0x7FFFFFFF, all);
  vand(key, as<int32>(score), t, valid);
  vmax(largest, largest, key, all);
  vadds(score, score, 0.0f, valid);  // -0 becomes +0
  vshrs(key, as<int32>(score), 31, valid);
  vand(key, key, t, valid);
  vxor(key, as<int32>(score), key, valid);
  Mask is_nan;
  vcmp<Cmp::kNe>(is_nan, score, score, valid);
  vdup(t, numerics::kTopkNan, all);
  vsel(key, t, key, is_nan);
  vdup(t, numerics::kTopkTaken, all);
  vsel(key, key, t, valid);
}

// Notes a row with a score that is not finite.
TILEKERNELS_CALLEE void note_row(Ub<int32> faults, const Reg<int32>& largest, int32 row,
                                 const Mask& all) {
  Reg<int32> mine;
  Mask is_bad;
  vcmps<Cmp::kGe>(is_bad, largest, kNotFiniteBits, all);
  vdup(mine, row, all);
  note_faults(faults, mine, is_bad, all);
}

// A whole row.
template <int32 kRegs>
TILEKERNELS_VF void select_row(Ub<float> scores, Ub<uint32> out, Ub<int32> best_ids,
                               Ub<int32> faults, uint32 num_experts, uint16 num_topk, int32 row) {
  const Mask all = pset<int32>();
  Reg<int32> keys[kRegs];
  Reg<int32> ids[kRegs];
  number_experts(ids, all);
  {
    Reg<float> dealt[kRegs];
    Reg<int32> largest;
    deal_out(dealt, scores, ids, all);
    vdup(largest, 0, all);
    for (int32 r = 0; r < kRegs; ++r) {
      // Of the lanes' r-th experts, so many exist.
      const auto missing = static_cast<uint32>(kRegs - 1 - r);
      const Mask valid = prefix<int32>((num_experts + missing) / kRegs);
      make_keys(keys[r], largest, dealt[r], valid, all);
    }
    note_row(faults, largest, row, all);
  }
  sort_lanes(keys, ids, all);
  take_best<kRegs, false>(keys, ids, best_ids, best_ids, num_topk, all);
  mem_bar<Bar::kVstVld>();
  store_ids(out, best_ids, num_topk, all);
}

// Nothing is carried before a row's first chunk.
TILEKERNELS_VF void clear_carry(Ub<int32> keys, Ub<int32> ids) {
  const Mask all = prefix<int32>(kCarry);
  Reg<int32> value;
  vdup(value, numerics::kTopkTaken, all);
  vsts(keys, value, all);
  vdup(value, 0, all);
  vsts(ids, value, all);
}

// The best of those carried and of a chunk's `count` experts, the first of them `first`.
template <int32 kRegs>
TILEKERNELS_VF void select_chunk(Ub<float> scores, Ub<int32> keys, Ub<int32> ids, Ub<int32> faults,
                                 uint32 count, int32 first, uint16 num_topk, int32 row) {
  const Mask all = pset<int32>();
  {
    Reg<int32> largest;
    vdup(largest, 0, all);
    Reg<float> score;
    Reg<int32> key;
    Reg<int32> id;
    for (uint16 i = 0; i < kRegs; ++i) {
      const Mask valid = plt<int32>(count);
      vlds(score, scores + i * kF32Lanes);
      make_keys(key, largest, score, valid, all);
      vsts(keys + kCarry + i * kF32Lanes, key, all);
      vci(id, first + i * kF32Lanes);
      vsts(ids + kCarry + i * kF32Lanes, id, all);
    }
    note_row(faults, largest, row, all);
  }
  mem_bar<Bar::kVstVld>();
  Reg<int32> dealt_keys[kRegs];
  Reg<int32> dealt_ids[kRegs];
  {
    Reg<int32> places[kRegs];
    number_experts(places, all);
    deal_out(dealt_keys, keys, places, all);
    deal_out(dealt_ids, ids, places, all);
  }
  sort_lanes(dealt_keys, dealt_ids, all);
  mem_bar<Bar::kVldVst>();
  take_best<kRegs, true>(dealt_keys, dealt_ids, ids, keys, num_topk, all);
}

TILEKERNELS_VF void finish_row(Ub<uint32> out, Ub<int32> ids, uint16 num_topk) {
  const Mask all = pset<int32>();
  store_ids(out, ids, num_topk, all);
}

template <int32 kRegs>
TILEKERNELS_CORE void whole_rows(const TopkGateArgs& args, const TopkGateShape& shape,
                                 const Tile& tile, Ub<int32> faults) {
  MutexPool pool;
  InRing<float> scores(pool, "scores", tile.stages, kRegs * kF32Lanes);
  OutRing<uint32> out(pool, "topk_idx", tile.stages, kF32Lanes);
  const Ub<int32> best_ids = ub_alloc<int32>("best ids", kF32Lanes);
  const auto num_topk = static_cast<uint16>(shape.num_topk);
  int32 turn = 0;
  pipeline(
      tile.stages, block_idx(), args.num_tokens, block_num(),
      [&](int64 row) {
        copy_in(scores.fill(), gm(args.scores + row * shape.num_experts),
                {1, shape.num_experts * int64{4}});
        scores.filled();
      },
      [&](int64 row) {
        vf_call<select_row<kRegs>>("select_row", scores.empty(), out.fill(), best_ids, faults,
                                   static_cast<uint32>(shape.num_experts), num_topk, turn++);
        scores.emptied();
        out.filled();
        copy_out(gm(args.topk_idx + row * shape.num_topk), out.empty(),
                 {1, shape.num_topk * int64{8}});
        out.emptied();
      });
}

template <int32 kRegs>
TILEKERNELS_CORE void chunked_rows(const TopkGateArgs& args, const TopkGateShape& shape,
                                   const Tile& tile, Ub<int32> faults) {
  constexpr int64 kChunk = chunk_of(kRegs);
  MutexPool pool;
  InRing<float> scores(pool, "scores", tile.stages, kRegs * kF32Lanes);
  OutRing<uint32> out(pool, "topk_idx", tile.stages, kF32Lanes);
  const Ub<int32> keys = ub_alloc<int32>("keys", kCarry + kRegs * kF32Lanes);
  const Ub<int32> ids = ub_alloc<int32>("ids", kCarry + kRegs * kF32Lanes);
  const auto num_topk = static_cast<uint16>(shape.num_topk);
  const int64 chunks = numerics::ceil_div(shape.num_experts, kChunk);
  const int64 rows =
      numerics::max_of(int64{0}, numerics::ceil_div(args.num_tokens - block_idx(), block_num()));
  pipeline(
      tile.stages, 0, rows * chunks, 1,
      [&](int64 item) {
        const int64 row = block_idx() + item / chunks * block_num();
        const int64 first = item % chunks * kChunk;
        const int64 count = numerics::min_of<int64>(kChunk, shape.num_experts - first);
        copy_in(scores.fill(), gm(args.scores + row * shape.num_experts + first), {1, count * 4});
        scores.filled();
      },
      [&](int64 item) {
        const int64 turn = item / chunks;
        const int64 first = item % chunks * kChunk;
        const int64 count = numerics::min_of<int64>(kChunk, shape.num_experts - first);
        if (first == 0) vf_call<clear_carry>("clear_carry", keys, ids);
        vf_call<select_chunk<kRegs>>("select_chunk", scores.empty(), keys, ids, faults,
                                     static_cast<uint32>(count), static_cast<int32>(first),
                                     num_topk, static_cast<int32>(turn));
        scores.emptied();
        if (first + kChunk < shape.num_experts) return;
        vf_call<finish_row>("finish_row", out.fill(), ids, num_topk);
        out.filled();
        const int64 row = block_idx() + turn * block_num();
        copy_out(gm(args.topk_idx + row * shape.num_topk), out.empty(),
                 {1, shape.num_topk * int64{8}});
        out.emptied();
      });
}

TILEKERNELS_CORE void run(const TopkGateArgs& args, const TopkGateShape& shape, const Tile& tile) {
  prologue();
  const Ub<int32> faults = alloc_faults();
  if (shape.num_experts <= kWhole) {
    with_regs(numerics::ceil_div(shape.num_experts, kF32Lanes),
              [&](auto regs) { whole_rows<decltype(regs)::value>(args, shape, tile, faults); });
  } else {
    chunked_rows<kChunkRegs>(args, shape, tile, faults);
  }
  report_faults(args.fault, faults, kTopkGateId, numerics::kFaultNotFinite,
                [](int32 turn) { return block_idx() + turn * block_num(); });
  barrier_all();
}

}  // namespace tilekernels::ascend::topk_gate_kernel
