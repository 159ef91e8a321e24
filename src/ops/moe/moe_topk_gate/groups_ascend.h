// moe_topk_gate on the vector core: which groups of experts take part.
#pragma once

#include "ops/moe/moe_topk_gate/scores_ascend.h"

namespace tilekernels::ascend::moe_topk_gate_kernel {

// Lanes that go over the experts of a group, each over a part: a power of two.
constexpr int32 parts_of(int32 num_groups, int32 group_size) {
  int32 parts = 1;
  while (group_size % (2 * parts) == 0 && num_groups * 2 * parts <= kF32Lanes) parts *= 2;
  return parts;
}

// Notes which groups are among the best. `levels` is the number of times that lanes of one group
// are joined.
TILEKERNELS_VF void choose_groups(Ub<int32> chosen, Ub<int32> keys, uint32 num_groups,
                                  uint32 num_parts, int32 part_size, uint16 levels,
                                  uint16 num_topk_groups) {
  const Mask all = pset<int32>();
  const Mask groups = prefix<int32>(num_groups);
  Reg<int32> first;
  Reg<int32> second;
  {
    const Mask parts = prefix<int32>(num_parts);
    Reg<int32> place;
    Reg<int32> key;
    Reg<int32> lower;
    Reg<int32> other;
    vci(place, 0);
    vmuls(place, place, part_size, all);
    vdup(first, numerics::kTopkTaken, all);
    vdup(second, numerics::kTopkTaken, all);
    for (uint16 i = 0; i < static_cast<uint16>(part_size); ++i) {
      vgather(key, keys, place, parts);
      vmin(lower, first, key, parts);
      vmax(second, second, lower, parts);
      vmax(first, first, key, parts);
      vadds(place, place, 1, all);
    }
    for (uint16 i = 0; i < levels; ++i) {
      vdintlv(second, other, second, second);
      vmax(second, second, other, all);
      vdintlv(first, other, first, first);
      vmin(lower, first, other, all);
      vmax(second, second, lower, all);
      vmax(first, first, other, all);
    }
  }
  Reg<int32> key;
  Reg<int32> taken;
  vdup(taken, numerics::kTopkTaken, all);
  {
    // The numbers that the keys stand for, NaN for a NaN's.
    Reg<int32> magnitude;
    vdup(magnitude, 0x7FFFFFFF, all);
    vshrs(key, first, 31, groups);
    vand(key, key, magnitude, groups);
    vxor(first, first, key, groups);
    vshrs(key, second, 31, groups);
    vand(key, key, magnitude, groups);
    vxor(second, second, key, groups);
    Reg<float>& sum = as<float>(first);
    vadd(sum, sum, as<float>(second), groups);
    vadds(sum, sum, 0.0f, groups);  // -0 becomes +0
    make_keys(key, sum, groups);
    vsel(key, key, taken, groups);
  }
  Reg<int32> lanes;
  Reg<int32> best;
  Reg<int32> lane;
  Reg<int32> one;
  Mask winner;
  Reg<int32>& is_chosen = second;
  vci(lanes, 0);
  vdup(one, 1, all);
  vdup(is_chosen, 0, all);
  for (uint16 i = 0; i < num_topk_groups; ++i) {
    vcmax(best, key, all);
    vdintlv(best, lane, best, best);
    vdup_lane0(lane, lane, all);
    vcmp<Cmp::kEq>(winner, lanes, lane, all);
    vsel(key, taken, key, winner);
    vsel(is_chosen, one, is_chosen, winner);
  }
  vsts(chosen, is_chosen, all);
}

// Takes the experts of the other groups out.
TILEKERNELS_VF void close_groups(Ub<int32> open_keys, Ub<int32> keys, Ub<int32> group_of,
                                 Ub<int32> chosen, uint16 turns) {
  const Mask all = pset<int32>();
  Reg<int32> key;
  Reg<int32> group;
  Reg<int32> is_chosen;
  Reg<int32> taken;
  Mask is_open;
  vdup(taken, numerics::kTopkTaken, all);
  for (uint16 i = 0; i < turns; ++i) {
    vlds(key, keys + i * kF32Lanes);
    vlds(group, group_of + i * kF32Lanes);
    vgather(is_chosen, chosen, group, all);
    vcmps<Cmp::kNe>(is_open, is_chosen, 0, all);
    vsel(key, key, taken, is_open);
    vsts(open_keys + i * kF32Lanes, key, all);
  }
}

}  // namespace tilekernels::ascend::moe_topk_gate_kernel
