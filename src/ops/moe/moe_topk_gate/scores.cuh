// moe_topk_gate on CUDA: scores of logits, exact ones and the first look at a row.
#pragma once

#include "ops/moe/moe_topk_gate/row.cuh"
#include "runtime/cuda/device/math.cuh"

namespace tilekernels {

// ------------------------------ exact

// For any logit.
inline float score_of(const Row& row, float logit) {
  if (kIsSoftmax) return numerics::exp_f32(logit - row.largest) / row.sum;
  return kIsSigmoid ? numerics::sigmoid(logit) : numerics::sqrt_softplus(logit);
}

// What selection sees of an expert.
inline float ranked(const Row& row, float logit, float score, uint32 expert) {
  const float x = kIsSoftmax ? logit : score;
  return has_bias(row) ? x + row.bias[expert] : x;
}

constexpr float kExactRange = kIsSigmoid ? device::kSigmoidRange : numerics::kMinusHalfRange;

// score_of for |logit| <= kExactRange, but of softmax.
inline float exact_score(float logit) {
  return kIsSigmoid ? device::sigmoid(logit) : device::sqrt_softplus_in_range(logit);
}

// score_of for the logits of a regular row.
inline float regular_score_of(const Row& row, float logit) {
  if (kIsSoftmax) return device::exp_of_small(logit - row.largest) / row.sum;
  if (!kIsSigmoid) return device::sqrt_softplus(logit);
  return fabsf(logit) <= kExactRange ? exact_score(logit) : score_of(row, logit);
}

inline float ranked(const Row& row, uint32 expert) {
  const float logit = row.logits[expert];
  return ranked(row, logit, kIsSoftmax ? 0.0f : score_of(row, logit), expert);
}

// ------------------------------ the first look

// The first look takes approximate scores. They err by kError at most, and what is added to them
// rounds: the threshold of the first look is lower by that, twice.
constexpr bool kIsApproximate = !kIsSoftmax && !kIsExact;
constexpr float kError =
    kIsSigmoid ? device::kSigmoidApproxError : device::kSqrtSoftplusApproxError;
constexpr float kMargin = kIsApproximate ? 2 * kError : 0x1p-30f;
constexpr float kRelativeMargin = 0x1p-20f;
constexpr float kUnit =  // of the scores of the first look
    kIsApproximate && !kIsSigmoid ? device::kSqrtSoftplusApproxUnit : 1.0f;
// Only rows with lesser squares of logits, added up in a lane, are in the range of the first look.
constexpr float kMaxSquares =
    kIsApproximate || kIsSoftmax ? numerics::kFloatMax : kExactRange * kExactRange;

// z of one load: by approximate scores, or by exact ones, which go to `scores`. All logits are in
// range, or the result is not used.
inline void look(const Scores& logits, const Scores& bias, uint32 i, float (&z)[kWidth],
                 float (&scores)[kWidth]) {
#pragma unroll
  for (int32 j = 0; j < kWidth; ++j) {
    const float x = number(logits, j);
    if constexpr (kIsSoftmax) {
      scores[j] = x;
    } else if constexpr (kIsApproximate) {
      scores[j] = kIsSigmoid ? device::sigmoid_approx(x) : device::sqrt_softplus_approx(x);
    } else {
      scores[j] = exact_score(x);
    }
    if constexpr (kUnit != 1.0f) {
      z[j] = numerics::fma_rn(scores[j], kUnit, number(bias, j));
    } else {
      z[j] = kHasBias ? scores[j] + number(bias, j) : scores[j];
    }
    if (!exists(i)) z[j] = -kInf;
  }
}

// The first look. `largest` z of this lane; returns whether its logits and z are in range.
inline bool look_at_row(const Row& row, bool is_fixed, Held& held, float& largest) {
  float squares = 0.0f;
  largest = -kInf;
#pragma unroll(kHeld)
  for (uint32 i = 0; i < kLoads; ++i) {
    const uint32 at = kIsHeld ? i : 0;
    if constexpr (!kIsHeld) {
      held.logits[0] = load(row.logits, i);
      held.bias[0] = load_bias(row, i);
    }
    look(held.logits[at], held.bias[at], i, held.z[at], held.scores[at]);
#pragma unroll
    for (int32 j = 0; j < kWidth; ++j) {
      const float x = number(held.logits[at], j);
      squares = numerics::fma_rn(x, x, squares);
      largest = device::max_or_nan(largest, held.z[at][j]);
    }
  }
  return squares <= kMaxSquares && (is_fixed || largest < kInf);
}

inline void store_scores(const Row& row, float* to, Held& held) {
#pragma unroll(kHeld)
  for (uint32 i = 0; i < kLoads; ++i) {
    const uint32 at = kIsHeld ? i : 0;
    if constexpr (!kIsHeld) {
      held.logits[0] = load(row.logits, i);
      look(held.logits[0], load_bias(row, i), i, held.z[0], held.scores[0]);
    }
    Scores words;
#pragma unroll
    for (int32 j = 0; j < kWidth; ++j) {
      const float score =
          kIsSoftmax ? regular_score_of(row, number(held.logits[at], j)) : held.scores[at][j];
      words.words[j] = numerics::bit_cast<uint32>(score);
    }
    if (exists(i)) device::store<kWidth * 4>(to + first_expert(i), words);
  }
}

}  // namespace tilekernels
