// moe_topk_gate_backward: the contract that its kernels share. Device-safe.
//
// Of row `token`, with u its scores and s = routed_scaling_factor; every step is one rounding to
// fp32. A slot k counts if 0 <= topk_idx[k] < num_experts; the others give nothing, and what their
// weights and gradients hold is not looked at.
//
//   D     = weight_denominator of the u[topk_idx[k]]
//   d     = the sum of RN(g[k] * w[k]) by the same tree, without the epsilon
//   delta = RN(RN(RN(s * g[k]) - d) / D)
//   R[e]  = the delta[k] of slots with topk_idx[k] == e, added in rising k from +0
//
// A row has the dense term if there is grad_scores_sum, mask[token] is not 0 and sum != 0, with
//
//   sum   = the sum of u in the order of numerics/row_sum.h
//   dot   = that of H * u, every partial sum by p = fma(H[e], u[e], p); H is the row
//           token / tokens_per_sequence of grad_scores_sum
//   r     = RN(1 / sum), c = RN(dot * r)
//   A[e]  = RN(RN(H[e] - c) * r)
//   grad_logits[e] = RN(RN(R[e] + A[e]) * score_derivative(u[e]))
//
// Without it grad_logits[e] = RN(R[e] * score_derivative(u[e])) for experts that a slot names, and
// +0 for all others, whose scores are not looked at. A row whose scores are all 0 is one that the
// forward pass masked or routed at random, or one with no score above the smallest fp32: they do
// not depend on the logits, and its A is none.
//
// NaN of results is canonical. A topk_idx that is neither -1 nor an expert is a fault of its token
// (kFaultIndexOutOfRange).
#pragma once

#include "numerics/fault.h"
#include "numerics/kernel.h"
#include "numerics/row_sum.h"
#include "numerics/scoring.h"
#include "numerics/types.h"
#include "ops/moe/common.h"
#include "ops/moe/scoring.h"

namespace tilekernels {

constexpr int32 kMoeTopkGateBackwardId = 11;  // in the error word

struct MoeTopkGateBackwardArgs {
  const float* scores;             // num_tokens x num_experts
  const int64* topk_idx;           // num_tokens x num_topk, as are the two below
  const float* topk_weights;       // w
  const float* grad_topk_weights;  // g
  const uint8* mask;               // num_tokens, or null: 0 is false
  const float* grad_scores_sum;    // sequences x num_experts, or null
  float* grad_logits;              // num_tokens x num_experts
  int64 num_tokens;
  int64 tokens_per_sequence;  // >= 1
  float routed_scaling_factor;
  int32 unused;
  uint64* fault;
};
static_assert(sizeof(MoeTopkGateBackwardArgs) == 88);

struct MoeTopkGateBackwardShape {
  int32 scoring;  // kScoringSqrtSoftplus or kScoringSigmoid
  int32 has_aux;  // mask and grad_scores_sum
  int32 num_experts;
  int32 num_topk;  // 1..kWeightSlots
};

/// The derivative of a score by its logit, from the score alone.
inline float score_derivative(int32 scoring, float score) {
  return scoring == kScoringSigmoid ? score * (1.0f - score)
                                    : numerics::sqrt_softplus_derivative(score);
}

/// The tree of weight_denominator. The sign of a sum that is zero is open: it leaves no trace in
/// results.
inline float sum_of_slots(const float* values, int32 count) {
  float slots[kWeightSlots];
  for (int32 i = 0; i < kWeightSlots; ++i) slots[i] = i < count ? values[i] : 0.0f;
  for (int32 half = kWeightSlots / 2; half > 0; half /= 2) {
    for (int32 i = 0; i < half; ++i) slots[i] = slots[i] + slots[i + half];
  }
  return slots[0];
}

using MoeTopkGateBackwardKernel = Kernel<MoeTopkGateBackwardArgs, MoeTopkGateBackwardShape>;
namespace reference {
MoeTopkGateBackwardKernel moe_topk_gate_backward;
}
namespace cpu {
MoeTopkGateBackwardKernel moe_topk_gate_backward;
}
namespace cuda {
MoeTopkGateBackwardKernel moe_topk_gate_backward;
}
namespace ascend {
MoeTopkGateBackwardKernel moe_topk_gate_backward;
}

}  // namespace tilekernels
