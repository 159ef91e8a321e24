// moe_topk_gate on the vector core: what is made once for all rows of a core.
#pragma once

#include "ops/moe/moe_topk_gate/layout_ascend.h"

namespace tilekernels::ascend::moe_topk_gate_kernel {

// The numbers of number_experts, for any number of registers.
TILEKERNELS_VF void number_places(Ub<int32> places, int32 regs) {
  const Mask all = pset<int32>();
  Reg<int32> number;
  vci(number, 0);
  vmuls(number, number, regs, all);
  for (uint16 r = 0; r < static_cast<uint16>(regs); ++r) {
    vsts(places + r * kF32Lanes, number, all);
    vadds(number, number, 1, all);
  }
}

// group_of[e] = floor((e + 1/2) · inverse).
TILEKERNELS_VF void number_groups(Ub<int32> group_of, float inverse, uint16 turns) {
  const Mask all = pset<float>();
  Reg<float> expert;
  Reg<float> quotient;
  Reg<int32> group;
  vci(expert, 0.0f);
  vadds(expert, expert, 0.5f, all);
  for (uint16 i = 0; i < turns; ++i) {
    vmuls(quotient, expert, inverse, all);
    vcvt<0, Round::kFloor, Saturate::kYes>(group, quotient, all);
    vsts(group_of + i * kF32Lanes, group, all);
    vadds(expert, expert, static_cast<float>(kF32Lanes), all);
  }
}

// Makes -0 of a bias +0, so that no sum with it is -0, and finds out whether one is NaN.
TILEKERNELS_VF void clean_bias(Ub<float> bias, Ub<int32> has_nan, uint32 num_experts) {
  const Mask all = pset<float>();
  Reg<float> value;
  Reg<int32> found;
  Reg<int32> one;
  Mask is_nan;
  vdup(found, 0, all);
  vdup(one, 1, all);
  const auto turns = static_cast<uint16>((num_experts + kF32Lanes - 1) / kF32Lanes);
  for (uint16 i = 0; i < turns; ++i) {
    const Mask valid = plt<float>(num_experts);
    vlds(value, bias + i * kF32Lanes);
    vadds(value, value, 0.0f, valid);
    vcmp<Cmp::kNe>(is_nan, value, value, valid);
    vsel(found, one, found, is_nan);
    mem_bar<Bar::kVldVst>();
    vsts(bias + i * kF32Lanes, value, valid);
  }
  vcmax(found, found, all);
  vst_first(has_nan, found);
}

}  // namespace tilekernels::ascend::moe_topk_gate_kernel
