// moe_topk_gate on the vector core: the experts of a row, its best ones or fixed ones.
#pragma once

#include "ops/moe/moe_topk_gate/layout_ascend.h"

namespace tilekernels::ascend::moe_topk_gate_kernel {

template <int32 kRegs>
TILEKERNELS_CALLEE void load_numbers(Reg<int32> (&numbers)[kRegs], Ub<int32> places) {
  for (int32 r = 0; r < kRegs; ++r) vlds(numbers[r], places + r * kF32Lanes);
}

// The best of a whole row. `places` are those of number_places.
template <int32 kRegs>
TILEKERNELS_VF void select_whole(Ub<int32> best, Ub<int32> keys, Ub<int32> places,
                                 uint16 num_topk) {
  const Mask all = pset<int32>();
  Reg<int32> dealt[kRegs];
  Reg<int32> ids[kRegs];
  load_numbers(ids, places);
  deal_out(dealt, keys, ids, all);
  sort_lanes(dealt, ids, all);
  take_best<kRegs, false>(dealt, ids, best, best, num_topk, all);
}

// The best of a window, to `best`, and their keys where the next window starts, which is this one's
// end. Position p of the window is expert base + p; but at first positions, in all but the first
// window, stand those that were in `best`.
template <bool kFirst, bool kLast>
TILEKERNELS_VF void select_window(Ub<int32> best, Ub<int32> window, Ub<int32> places,
                                  Ub<int32> positions, int32 base, uint16 num_topk) {
  const Mask all = pset<int32>();
  const Ub<int32> next = window + chunk_of(kChunkRegs);
  {
    Reg<int32> dealt[kChunkRegs];
    Reg<int32> numbers[kChunkRegs];
    load_numbers(numbers, places);
    deal_out(dealt, window, numbers, all);
    sort_lanes(dealt, numbers, all);
    if constexpr (!kLast) {
      Reg<int32> taken;
      vdup(taken, numerics::kTopkTaken, all);
      mem_bar<Bar::kVldVst>();
      vsts(next, taken, prefix<int32>(kCarry));
      mem_bar<Bar::kVstVst>();
    }
    take_best<kChunkRegs, !kLast>(dealt, numbers, kFirst ? best : positions, next, num_topk, all);
  }
  if constexpr (!kFirst) {
    mem_bar<Bar::kVstVld>();
    const Mask routed = prefix<int32>(num_topk);
    Reg<int32> position;
    Reg<int32> id;
    Reg<int32> old;
    Mask is_old;
    vlds(position, positions);
    vcmps<Cmp::kLt>(is_old, position, kCarry, routed);
    vgather(old, best, position, is_old);
    vadds(id, position, base, routed);
    vsel(id, old, id, is_old);
    mem_bar<Bar::kVldVst>();
    vsts(best, id, routed);
  }
}

// The experts that a token brings along; -1 for what is none.
TILEKERNELS_VF void take_fixed(Ub<int32> best, Ub<int32> faults, Ub<uint32> fixed, uint32 num_topk,
                               int32 num_experts, int32 turn) {
  const Mask all = pset<int32>();
  const Mask routed = prefix<int32>(num_topk);
  Reg<int32> id;
  Reg<int32> high;
  Mask is_expert;
  vld_deintlv(id, high, as_ub<int32>(fixed));
  vcmps<Cmp::kEq>(is_expert, high, 0, routed);
  vcmps<Cmp::kGe>(is_expert, id, 0, is_expert);
  vcmps<Cmp::kLt>(is_expert, id, num_experts, is_expert);
  vdup(high, -1, all);
  vsel(id, id, high, is_expert);
  vsts(best, id, routed);
  Reg<int32>& item = high;
  Mask is_bad;
  pnot(is_bad, is_expert, routed);
  vdup(item, item_of(turn, numerics::kFaultIndexOutOfRange), all);
  note_faults(faults, item, is_bad, all);
}

}  // namespace tilekernels::ascend::moe_topk_gate_kernel
