// moe_topk_gate on the vector core: weights and ids of a row, a lane a slot.
#pragma once

#include "ops/moe/moe_topk_gate/layout_ascend.h"
#include "runtime/ascend/composites.h"

namespace tilekernels::ascend::moe_topk_gate_kernel {

// int64 ids from int32 ones.
TILEKERNELS_CALLEE void store_slots(Ub<uint32> out, const Reg<int32>& ids, uint32 num_slots,
                                    const Mask& slots) {
  Reg<int32> low;
  Reg<int32> high;
  vshrs(high, ids, 31, slots);
  vintlv(low, high, ids, high);
  uint32 words = 2 * num_slots;
  vsts(as_ub<int32>(out), low, plt<int32>(words));
}

// Weights and ids, a lane a slot. `order` turns the sum over neighbours into that over slots 16, 8,
// 4, 2 and 1 apart: it reverses the bits of a slot's number.
template <bool kSoftmax, bool kNorm>
TILEKERNELS_VF void finish_row(Ub<uint32> out_ids, Ub<float> out_weights, Ub<int32> best,
                               Ub<float> scores, Ub<float> sum, Ub<int32> order, uint32 num_topk,
                               uint32 num_slots, float scale) {
  const Mask all = pset<int32>();
  const Mask routed = prefix<int32>(num_topk);
  const Mask slots = prefix<int32>(num_slots);
  Reg<int32> id;
  Reg<float> weight;
  Reg<float> other;
  vlds(id, best);
  {
    Mask is_expert;
    vcmps<Cmp::kGe>(is_expert, id, 0, routed);
    vgather(weight, scores, id, is_expert);
    vdup(other, 0.0f, all);
    vsel(weight, weight, other, is_expert);
    if constexpr (kSoftmax) {
      vlds<Dist::kBrc>(other, sum);
      vdiv<Precision::kExact>(weight, weight, other, is_expert);
    }
  }
  if constexpr (kNorm) {
    Reg<int32> from;
    vlds(from, order);
    vselr(other, weight, from);
    vcadd(other, other, all);
    vadds(other, other, kWeightEpsilon, all);
    vdup_lane0(other, other, all);
    vdiv<Precision::kExact>(weight, weight, other, routed);
  }
  vmuls(weight, weight, scale, routed);
  make_canonical(weight, routed);
  vdup(other, 1.0f, all);  // of shared experts
  vsel(weight, weight, other, routed);
  vsts(out_weights, weight, slots);
  store_slots(out_ids, id, num_slots, slots);
}

// What the scalar unit has written.
TILEKERNELS_VF void take_given(Ub<uint32> out, Ub<uint32> given, uint32 num_words) {
  Reg<uint32> words;
  vlds(words, given);
  vsts(out, words, prefix<uint32>(num_words));
}

// No experts.
TILEKERNELS_VF void clear_row(Ub<uint32> out, uint32 num_slots) {
  const Mask all = pset<uint32>();
  Reg<uint32> words;
  vdup(words, 0xFFFFFFFFu, all);
  vsts(out, words, all);
  vsts(out + kUnmappedAt, words, all);
  vdup(words, 0u, all);
  vsts(out + kWeightsAt, words, prefix<uint32>(num_slots));
}

}  // namespace tilekernels::ascend::moe_topk_gate_kernel
