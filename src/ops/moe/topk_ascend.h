// The selection of the best experts on the vector core, as the gates share it.
//
// Lane λ holds the keys λ·R … λ·R + R - 1 of a row in R registers, sorted, so the best key of every
// lane stands in register 0. The first lane that has the largest of these holds, of equal keys, the
// lowest expert: the maximum instruction's own tie rule is the ops'. The winner's lane moves up by
// one register, and the next slot follows.
#pragma once

#include "numerics/topk_key.h"
#include "runtime/ascend/ring.h"

namespace tilekernels::ascend {

constexpr int32 kMaxTopkRegs = 6;
constexpr int32 kWhole = kMaxTopkRegs * kF32Lanes;  // experts of a row that needs no chunks
constexpr int32 kChunkRegs = 6;                     // fewest cycles of 1, 2, 4, 6 and 8
constexpr int32 kCarry = 32;                        // positions of the best so far
// New experts of a chunk that takes so many registers
constexpr int32 chunk_of(int32 regs) { return regs * kF32Lanes - kCarry; }

template <int32 kRegs>
struct NumRegs {
  static constexpr int32 value = kRegs;
};
// Calls body with a NumRegs of `regs`, of a row that needs no chunks.
template <int32 kRegs = kMaxTopkRegs, class Body>
TILEKERNELS_CORE void with_regs(int64 regs, const Body& body) {
  if constexpr (kRegs > 0) {
    if (regs == kRegs) {
      body(NumRegs<kRegs>{});
    } else {
      with_regs<kRegs - 1>(regs, body);
    }
  }
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

// Takes the best of sorted lanes: its id, and `kWithKeys` its key, go to UB. Of the registers so
// many as `kLeft` slots to come may need move up; kLeft >= kRegs stands for all.
template <bool kWithKeys, int32 kLeft, int32 kRegs>
TILEKERNELS_CALLEE void take_one(Reg<int32> (&keys)[kRegs], Reg<int32> (&ids)[kRegs],
                                 Ub<int32> best_id, Ub<int32> best_key, const Reg<int32>& lanes,
                                 const Reg<int32>& taken, const Mask& all) {
  Reg<int32> best;
  Reg<int32> lane;
  Mask winner;
  vcmax(best, keys[0], all);
  vdintlv(best, lane, best, best);  // the winner's lane, in lane 0
  if constexpr (kWithKeys) vst_first(best_key, best);
  vdup_lane0(lane, lane, all);
  vcmp<Cmp::kEq>(winner, lanes, lane, all);
  vcadd(best, ids[0], winner);
  vst_first(best_id, best);
  for (int32 i = 0; i < kLeft && i + 1 < kRegs; ++i) {
    vsel(keys[i], keys[i + 1], keys[i], winner);
    vsel(ids[i], ids[i + 1], ids[i], winner);
  }
  if constexpr (kLeft >= kRegs) vsel(keys[kRegs - 1], taken, keys[kRegs - 1], winner);
}

// The last slots, after which kLeft, kLeft - 1, … 0 are left.
template <bool kWithKeys, int32 kLeft, int32 kRegs>
TILEKERNELS_CALLEE void take_last(Reg<int32> (&keys)[kRegs], Reg<int32> (&ids)[kRegs],
                                  Ub<int32> best_ids, Ub<int32> best_keys, uint16 num_topk,
                                  const Reg<int32>& lanes, const Reg<int32>& taken,
                                  const Mask& all) {
  const auto is_there = static_cast<uint16>(num_topk > kLeft ? 1 : 0);
  for (uint16 i = 0; i < is_there; ++i) {
    const int32 slot = num_topk - 1 - kLeft;
    take_one<kWithKeys, kLeft>(keys, ids, best_ids + slot, best_keys + slot, lanes, taken, all);
  }
  if constexpr (kLeft > 0) {
    take_last<kWithKeys, kLeft - 1>(keys, ids, best_ids, best_keys, num_topk, lanes, taken, all);
  }
}

// Takes the best `num_topk` of sorted lanes; their ids, and `kWithKeys` their keys, go to UB.
template <int32 kRegs, bool kWithKeys>
TILEKERNELS_CALLEE void take_best(Reg<int32> (&keys)[kRegs], Reg<int32> (&ids)[kRegs],
                                  Ub<int32> best_ids, Ub<int32> best_keys, uint16 num_topk,
                                  const Mask& all) {
  Reg<int32> taken;
  Reg<int32> lanes;
  vdup(taken, numerics::kTopkTaken, all);
  vci(lanes, 0);
  const auto first = static_cast<uint16>(num_topk > kRegs ? num_topk - kRegs : 0);
  for (uint16 slot = 0; slot < first; ++slot) {
    take_one<kWithKeys, kRegs>(keys, ids, best_ids + slot, best_keys + slot, lanes, taken, all);
  }
  take_last<kWithKeys, kRegs - 1>(keys, ids, best_ids, best_keys, num_topk, lanes, taken, all);
}

// int64 ids from int32 ones that are not negative.
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

// Lane λ of register r: λ·R + r.
template <int32 kRegs>
TILEKERNELS_CALLEE void number_experts(Reg<int32> (&ids)[kRegs], const Mask& all) {
  vci(ids[0], 0);
  vmuls(ids[0], ids[0], kRegs, all);
  for (int32 r = 1; r < kRegs; ++r) vadds(ids[r], ids[r - 1], 1, all);
}

// Lane λ of register r: element λ·R + r of `from`. Reads R registers. `numbers` are those of
// number_experts.
template <int32 kRegs, class T>
TILEKERNELS_CALLEE void deal_out(Reg<T> (&regs)[kRegs], Ub<T> from,
                                 const Reg<int32> (&numbers)[kRegs], const Mask& all) {
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
    for (int32 r = 0; r < kRegs; ++r) vgather(regs[r], from, numbers[r], all);
  }
}

}  // namespace tilekernels::ascend
