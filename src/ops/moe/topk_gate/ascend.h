// topk_gate on the vector core: experts dealt out over the lanes, one reduction a slot.
//
// Lane λ holds the experts λ·R … λ·R + R - 1 of a row in R registers, sorted by key, so the best
// key of every lane stands in register 0. The first lane that has the largest of these holds, of
// equal keys, the lowest expert: the maximum instruction's own tie rule is the op's. The winner's
// lane moves up by one register, and the next slot follows. Rows of more than 384 experts go by
// chunks of 224 behind the best of the chunks before, whose positions, and so whose ties, come
// first.
#pragma once

#include "ops/moe/topk_gate/op.h"
#include "runtime/ascend/faults.h"
#include "runtime/ascend/ring.h"

namespace tilekernels::ascend::topk_gate_kernel {

constexpr int32 kMaxRegs = 6;
constexpr int32 kWhole = kMaxRegs * kF32Lanes;  // experts of a row that needs no chunks
constexpr int32 kChunkRegs = 4;                 // fewest cycles of 1, 2, 4, 6 and 8
constexpr int32 kCarry = kMaxTopk;              // positions of the best so far
// New experts of a chunk that takes so many registers
constexpr int32 chunk_of(int32 regs) { return regs * kF32Lanes - kCarry; }
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

// Sorts the R keys of every lane, and their ids, descending; equal keys stay in order.
template <int32 kRegs>
TILEKERNELS_CALLEE void sort_lanes(Reg<int32> (&keys)[kRegs], Reg<int32> (&ids)[kRegs],
                                   const Mask& all) {
  if constexpr (kRegs > 1) {
    Reg<int32> t;
    Mask later;
    for (int32 pass = 0; pass < kRegs; ++pass) {
      for (int32 i = pass % 2; i + 1 < kRegs; i += 2) {
        vcmp<Cmp::kGt>(later, keys[i + 1], keys[i], all);
        vmax(t, keys[i], keys[i + 1], all);
        vmin(keys[i + 1], keys[i], keys[i + 1], all);
        vmov(keys[i], t);
        vsel(t, ids[i + 1], ids[i], later);
        vsel(ids[i + 1], ids[i], ids[i + 1], later);
        vmov(ids[i], t);
      }
    }
  }
}

// Takes the best `num_topk` of sorted lanes; their ids, and `kWithKeys` their keys, go to UB.
template <int32 kRegs, bool kWithKeys>
TILEKERNELS_CALLEE void take_best(Reg<int32> (&keys)[kRegs], Reg<int32> (&ids)[kRegs],
                                  Ub<int32> best_ids, Ub<int32> best_keys, uint16 num_topk,
                                  const Mask& all) {
  Reg<int32> best;
  Reg<int32> lane;
  Reg<int32> taken;
  Reg<int32> lanes;
  Mask winner;
  vdup(taken, numerics::kTopkTaken, all);
  vci(lanes, 0);
  for (uint16 slot = 0; slot < num_topk; ++slot) {
    vcmax(best, keys[0], all);
    vdintlv(best, lane, best, best);  // the winner's lane, in lane 0
    if constexpr (kWithKeys) vst_first(best_keys + slot, best);
    vdup_lane0(lane, lane, all);
    vcmp<Cmp::kEq>(winner, lanes, lane, all);
    vcadd(best, ids[0], winner);
    vst_first(best_ids + slot, best);
    for (int32 i = 0; i + 1 < kRegs; ++i) {
      vsel(keys[i], keys[i + 1], keys[i], winner);
      vsel(ids[i], ids[i + 1], ids[i], winner);
    }
    vsel(keys[kRegs - 1], taken, keys[kRegs - 1], winner);
  }
}

// int64 ids from int32 pairs.
TILEKERNELS_CALLEE void store_ids(Ub<uint32> out, Ub<int32> best_ids, uint16 num_topk,
                                  const Mask& all) {
  Reg<int32> low;
  Reg<int32> high;
  vlds(low, best_ids);
  vdup(high, 0, all);
  vintlv(low, high, low, high);
  uint32 words = 2u * num_topk;
  vsts(as_ub<int32>(out), low, plt<int32>(words));
}

// Lane λ of register r: element λ·R + r of `from`. Reads R registers.
template <int32 kRegs, class T>
TILEKERNELS_CALLEE void deal_out(Reg<T> (&regs)[kRegs], Ub<T> from, const Mask& all) {
  if constexpr (kRegs == 1) {
    vlds(regs[0], from);
  } else if constexpr (kRegs == 2) {
    vld_deintlv(regs[0], regs[1], from);
  } else if constexpr (kRegs == 4) {
    vld_deintlv(regs[0], regs[1], from);
    vld_deintlv(regs[2], regs[3], from + 2 * kF32Lanes);
    vdintlv(regs[0], regs[2], regs[0], regs[2]);
    vdintlv(regs[1], regs[3], regs[1], regs[3]);
  } else {
    Reg<int32> index;
    vci(index, 0);
    vmuls(index, index, kRegs, all);
    for (int32 r = 0; r < kRegs; ++r) {
      vgather(regs[r], from, index, all);
      vadds(index, index, 1, all);
    }
  }
}

template <int32 kRegs>
TILEKERNELS_CALLEE void number_experts(Reg<int32> (&ids)[kRegs], const Mask& all) {
  vci(ids[0], 0);
  vmuls(ids[0], ids[0], kRegs, all);
  for (int32 r = 1; r < kRegs; ++r) vadds(ids[r], ids[r - 1], 1, all);
}

// A whole row.
template <int32 kRegs>
TILEKERNELS_VF void select_row(Ub<float> scores, Ub<uint32> out, Ub<int32> best_ids,
                               Ub<int32> faults, uint32 num_experts, uint16 num_topk, int32 row) {
  const Mask all = pset<int32>();
  Reg<int32> keys[kRegs];
  Reg<int32> ids[kRegs];
  {
    Reg<float> dealt[kRegs];
    Reg<int32> largest;
    deal_out(dealt, scores, all);
    vdup(largest, 0, all);
    for (int32 r = 0; r < kRegs; ++r) {
      // Of the lanes' r-th experts, so many exist.
      const auto missing = static_cast<uint32>(kRegs - 1 - r);
      const Mask valid = prefix<int32>((num_experts + missing) / kRegs);
      make_keys(keys[r], largest, dealt[r], valid, all);
    }
    note_row(faults, largest, row, all);
  }
  number_experts(ids, all);
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
  deal_out(dealt_keys, keys, all);
  deal_out(dealt_ids, ids, all);
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
  switch (numerics::ceil_div(shape.num_experts, kF32Lanes)) {
    case 1:
      whole_rows<1>(args, shape, tile, faults);
      break;
    case 2:
      whole_rows<2>(args, shape, tile, faults);
      break;
    case 3:
      whole_rows<3>(args, shape, tile, faults);
      break;
    case 4:
      whole_rows<4>(args, shape, tile, faults);
      break;
    case 5:
      whole_rows<5>(args, shape, tile, faults);
      break;
    case 6:
      whole_rows<6>(args, shape, tile, faults);
      break;
    default:
      chunked_rows<kChunkRegs>(args, shape, tile, faults);
  }
  report_faults(args.fault, faults, kTopkGateId, numerics::kFaultNotFinite,
                [](int32 turn) { return block_idx() + turn * block_num(); });
  barrier_all();
}

}  // namespace tilekernels::ascend::topk_gate_kernel
