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

}  // namespace tilekernels
