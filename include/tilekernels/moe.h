// Mixture-of-experts routing.
#pragma once

#include "tilekernels/stream.h"
#include "tilekernels/tensor.h"

namespace tilekernels {

/// The `num_topk` best experts of every token.
///
/// Args:
///   scores: (num_tokens, num_experts) f32, contiguous, finite; num_experts >= 1.
///   num_topk: experts per token, in 1..min(num_experts, 32).
/// Returns: topk_idx (num_tokens, num_topk) i64, contiguous.
/// Errors: std::invalid_argument for shape, dtype, stride or range; DataError for a row with a
///   score that is not finite (its ids are still distinct and in range, other rows are right).
/// Numerics: ids by descending score, equal scores by ascending index, -0 equal to +0; NaN ranks
///   below every number. No arithmetic on values, so every backend gives the same ids.
/// Source: stable descending sort of the scores, cut to num_topk; TileKernels `topk_gate`.
Tensor topk_gate(const TensorView& scores, int num_topk, const Call& call = {});
TensorSpec topk_gate_spec(const TensorSpec& scores, int num_topk);
void topk_gate_out(const TensorView& topk_idx, const TensorView& scores, int num_topk,
                   const Call& call = {});

/// What `normalize_weight` returns.
struct NormalizedWeights {
  Tensor denominator;         ///< (num_tokens)
  Tensor normalized_weights;  ///< (num_tokens, num_topk)
};
struct NormalizedWeightsSpec {
  TensorSpec denominator;
  TensorSpec normalized_weights;
};

/// Divides the weights of every token by their sum.
///
/// Args:
///   topk_weights: (num_tokens, num_topk) f32, contiguous; num_topk in 1..32.
/// Returns: denominator (num_tokens) f32 and normalized_weights (num_tokens, num_topk) f32,
///   contiguous.
/// Errors: std::invalid_argument for shape, dtype, stride or range. No DataError: NaN and Inf
///   follow IEEE.
/// Numerics: the sum of 32 slots, absent ones +0, by the tree in which slot i takes slot i + 16,
///   then i + 8, 4, 2, 1; then + 1e-20, so a row of zeros stays one; division correctly rounded.
///   The denominator has the bits of the gate's. NaN is canonical.
/// Source: TileKernels `normalize_weight`.
NormalizedWeights normalize_weight(const TensorView& topk_weights, const Call& call = {});
NormalizedWeightsSpec normalize_weight_spec(const TensorSpec& topk_weights);
void normalize_weight_out(const TensorView& denominator, const TensorView& normalized_weights,
                          const TensorView& topk_weights, const Call& call = {});

}  // namespace tilekernels
