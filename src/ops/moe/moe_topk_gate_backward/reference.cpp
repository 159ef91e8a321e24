// moe_topk_gate_backward: one expert after the other.
#include <cstddef>
#include <vector>

#include "ops/moe/moe_topk_gate_backward/op.h"

namespace tilekernels::reference {
namespace {

// Row sums of the dense term, and what follows from them.
struct Aux {
  bool is_there = false;
  float inverse = 0.0f;
  float mean = 0.0f;
};

Aux aux_of(const float* scores, const float* sums, int32 num_experts) {
  std::vector<float> of_scores(numerics::kRowPartials, 0.0f);
  std::vector<float> of_products(numerics::kRowPartials, 0.0f);
  for (int32 e = 0; e < num_experts; ++e) {
    const auto j = static_cast<std::size_t>(e % numerics::kRowPartials);
    of_scores[j] = of_scores[j] + scores[e];
    of_products[j] = numerics::fma_rn(sums[e], scores[e], of_products[j]);
  }
  const float sum = numerics::sum_partials(of_scores.data());
  const float dot = numerics::sum_partials(of_products.data());
  if (sum == 0.0f) return {};
  const float inverse = 1.0f / sum;
  return {true, inverse, dot * inverse};
}

}  // namespace

void moe_topk_gate_backward(const MoeTopkGateBackwardArgs& args,
                            const MoeTopkGateBackwardShape& shape, const Launch&) {
  const int32 num_experts = shape.num_experts;
  const int32 num_topk = shape.num_topk;
  for (int64 token = 0; token < args.num_tokens; ++token) {
    const float* scores = args.scores + token * num_experts;
    const int64* experts = args.topk_idx + token * num_topk;
    const float* weights = args.topk_weights + token * num_topk;
    const float* grads = args.grad_topk_weights + token * num_topk;
    float* grad_logits = args.grad_logits + token * num_experts;

    float chosen[kWeightSlots] = {};
    float products[kWeightSlots] = {};
    bool counts[kWeightSlots] = {};
    for (int32 k = 0; k < num_topk; ++k) {
      counts[k] = experts[k] >= 0 && experts[k] < num_experts;
      if (counts[k]) {
        chosen[k] = scores[experts[k]];
        products[k] = grads[k] * weights[k];
      } else if (experts[k] != -1) {
        note_fault(args.fault, token, kMoeTopkGateBackwardId, numerics::kFaultIndexOutOfRange);
      }
    }
    const float denominator = sum_of_slots(chosen, num_topk) + kWeightEpsilon;
    const float dot = sum_of_slots(products, num_topk);

    Aux aux;
    const float* sums = nullptr;
    if (shape.has_aux && args.mask[token]) {
      sums = args.grad_scores_sum + token / args.tokens_per_sequence * num_experts;
      aux = aux_of(scores, sums, num_experts);
    }
    for (int32 e = 0; e < num_experts; ++e) {
      float grad = 0.0f;
      bool is_named = false;
      for (int32 k = 0; k < num_topk; ++k) {
        if (!counts[k] || experts[k] != e) continue;
        is_named = true;
        grad = grad + (args.routed_scaling_factor * grads[k] - dot) / denominator;
      }
      if (aux.is_there) grad = grad + (sums[e] - aux.mean) * aux.inverse;
      if (aux.is_there || is_named) grad = grad * score_derivative(shape.scoring, scores[e]);
      grad_logits[e] = numerics::canonical(grad);
    }
  }
}

}  // namespace tilekernels::reference
