// moe_topk_gate on the vector core: from logits to scores and keys of selection.
#pragma once

#include "ops/moe/moe_topk_gate/layout_ascend.h"
#include "runtime/ascend/composites.h"
#include "runtime/ascend/elementary.h"

namespace tilekernels::ascend::moe_topk_gate_kernel {

// topk_key of values without -0.
TILEKERNELS_CALLEE void make_keys(Reg<int32>& key, const Reg<float>& value, const Mask& valid) {
  Reg<int32> constant;
  Mask is_nan;
  vshrs(key, as<int32>(value), 31, valid);
  vdup(constant, 0x7FFFFFFF, valid);
  vand(key, key, constant, valid);
  vxor(key, key, as<int32>(value), valid);
  vcmp<Cmp::kNe>(is_nan, value, value, valid);
  vdup(constant, numerics::kTopkNan, valid);
  vsel(key, constant, key, is_nan);
}

// 64 experts of a row. With kScoringSoftmax the scores are e^(logit - row_max), to be divided.
template <int32 kScoring, bool kCanonical, bool kTail>
TILEKERNELS_CALLEE void score_lanes(Ub<float> scores, Ub<int32> keys, Reg<int32>& largest,
                                    Ub<float> logits, Ub<float> bias, const Reg<float>& row_max,
                                    const Mask& valid, const Mask& all) {
  Reg<float> logit;
  Reg<float> ranked;
  Reg<float> score;
  vlds(logit, logits);
  vlds(ranked, bias);
  {
    Reg<float> abs;
    vabs(abs, logit, valid);
    vmax(largest, largest, as<int32>(abs), all);
    if constexpr (kScoring == kScoringSqrtSoftplus) {
      sqrt_softplus(score, abs, logit, valid);
      vadd(ranked, ranked, score, valid);
    } else if constexpr (kScoring == kScoringSigmoid) {
      sigmoid(score, logit, valid);
      vadd(ranked, ranked, score, valid);
    } else {
      vadd(ranked, ranked, logit, valid);
      vsub(score, logit, row_max, valid);
      exp_of_negative(score, score, valid);
    }
  }
  if constexpr (kCanonical) make_canonical(score, valid);
  vsts(scores, score, valid);
  Reg<int32> key;
  make_keys(key, ranked, valid);
  if constexpr (kTail) {
    Reg<int32> taken;
    vdup(taken, numerics::kTopkTaken, all);
    vsel(key, key, taken, valid);
  }
  vsts(keys, key, all);
}

template <int32 kScoring, bool kCanonical>
TILEKERNELS_VF void score_row(Ub<float> scores, Ub<int32> keys, Ub<int32> faults, Ub<float> logits,
                              Ub<float> bias, int32 bias_step, Ub<float> largest_logit,
                              uint32 num_experts, int32 turn) {
  const Mask all = pset<float>();
  Reg<int32> largest;
  Reg<float> row_max;
  vdup(largest, 0, all);
  if constexpr (kScoring == kScoringSoftmax) vlds<Dist::kBrc>(row_max, largest_logit);
  const auto whole = static_cast<uint16>(num_experts / kF32Lanes);
  for (uint16 i = 0; i < whole; ++i) {
    score_lanes<kScoring, kCanonical, false>(scores + i * kF32Lanes, keys + i * kF32Lanes, largest,
                                             logits + i * kF32Lanes, bias + i * bias_step, row_max,
                                             all, all);
  }
  const uint32 rest = num_experts % kF32Lanes;
  const auto turns = static_cast<uint16>(whole + (rest > 0 ? 1 : 0));
  for (auto i = whole; i < turns; ++i) {
    score_lanes<kScoring, kCanonical, true>(scores + i * kF32Lanes, keys + i * kF32Lanes, largest,
                                            logits + i * kF32Lanes, bias + i * bias_step, row_max,
                                            prefix<float>(rest), all);
  }
  Reg<int32> item;
  Mask is_bad;
  vcmps<Cmp::kGe>(is_bad, largest, static_cast<int32>(numerics::kInfBits), all);
  vdup(item, item_of(turn, numerics::kFaultNotFinite), all);
  note_faults(faults, item, is_bad, all);
}

// The largest logit. With a NaN among them it is one, as every score of the row is then.
TILEKERNELS_VF void find_largest(Ub<float> largest_logit, Ub<float> logits, uint32 num_experts) {
  const Mask all = pset<float>();
  Reg<float> largest;
  Reg<float> lowest;
  Reg<float> logit;
  vdup(lowest, -numerics::bit_cast<float>(numerics::kInfBits), all);
  vmov(largest, lowest);
  const auto whole = static_cast<uint16>(num_experts / kF32Lanes);
  for (uint16 i = 0; i < whole; ++i) {
    vlds(logit, logits + i * kF32Lanes);
    vmax(largest, largest, logit, all);
  }
  const uint32 rest = num_experts % kF32Lanes;
  const auto turns = static_cast<uint16>(whole + (rest > 0 ? 1 : 0));
  for (auto i = whole; i < turns; ++i) {
    vlds(logit, logits + i * kF32Lanes);
    vsel(logit, logit, lowest, prefix<float>(rest));
    vmax(largest, largest, logit, all);
  }
  vcmax(largest, largest, all);
  vst_first(largest_logit, largest);
}

template <int32 kRegs>
TILEKERNELS_VF void sum_scores(Ub<float> sum, Ub<float> scores, uint32 num_experts) {
  Reg<float> total;
  sum_row<numerics::kDTypeF32, kSumValues, kRegs>(total, as_ub<uint8>(scores), num_experts);
  vst_first(sum, total);
}

TILEKERNELS_VF void divide_scores(Ub<float> out, Ub<float> scores, Ub<float> sum,
                                  uint32 num_experts) {
  Reg<float> divisor;
  Reg<float> score;
  vlds<Dist::kBrc>(divisor, sum);
  const auto turns = static_cast<uint16>((num_experts + kF32Lanes - 1) / kF32Lanes);
  for (uint16 i = 0; i < turns; ++i) {
    const Mask valid = plt<float>(num_experts);
    vlds(score, scores + i * kF32Lanes);
    vdiv<Precision::kExact>(score, score, divisor, valid);
    make_canonical(score, valid);
    vsts(out + i * kF32Lanes, score, valid);
  }
}

}  // namespace tilekernels::ascend::moe_topk_gate_kernel
