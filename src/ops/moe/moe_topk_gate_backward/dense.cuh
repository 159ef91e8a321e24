// moe_topk_gate_backward on CUDA: rows with a dense term, as if no expert was chosen.
#pragma once

#include "ops/moe/moe_topk_gate_backward/row.cuh"
#include "runtime/cuda/device/row_sum.cuh"

namespace tilekernels {

// The dense term of a row.
struct Aux {
  bool is_there;
  float inverse;
  float mean;
  const float* sums;  // H
};

// numerics::sum_partials of both, by fewer shuffles than two calls: as long as a lane has several
// sums, it hands half of them to the other lane and goes on with the rest.
struct Totals {
  float score;
  float product;
};

inline Totals totals_of(const float (&of_scores)[kKept][kWidth],
                        const float (&of_products)[kKept][kWidth]) {
  constexpr int32 kPadded = power_of_two_from(kKept);
  float sums[2 * kPadded] = {};
#pragma unroll
  for (int32 step = 0; step < kKept; ++step) {
    sums[step] = device::sum_of_neighbours<kWidth>(of_scores[step]);
    sums[kPadded + step] = device::sum_of_neighbours<kWidth>(of_products[step]);
  }
  const uint32 lane = device::lane_id();
#pragma unroll
  for (int32 bit = 1; bit <= kPadded; bit *= 2) {
    const int32 half = kPadded / bit;
    const bool is_upper = (lane & bit) != 0;
#pragma unroll
    for (int32 i = 0; i < half; ++i) {
      const float kept = is_upper ? sums[half + i] : sums[i];
      const float given = is_upper ? sums[i] : sums[half + i];
      sums[i] = kept + __shfl_xor_sync(device::kAllLanes, given, bit);
    }
  }
#pragma unroll
  for (int32 bit = 2 * kPadded; bit < device::kWarpLanes; bit *= 2) {
    sums[0] += __shfl_xor_sync(device::kAllLanes, sums[0], bit);
  }
  // The lowest bit of the lane now tells scores from products, the next ones the step, whose
  // lowest bit is the last one.
#pragma unroll
  for (int32 bit = kPadded; bit > 1; bit /= 2) {
    sums[0] += __shfl_xor_sync(device::kAllLanes, sums[0], bit);
  }
  return {__shfl_sync(device::kAllLanes, sums[0], 0) + 0.0f,
          __shfl_sync(device::kAllLanes, sums[0], 1) + 0.0f};
}

inline Aux aux_of(const float* scores, const float* sums, const Kept& u, const Kept& h) {
  float of_scores[kKept][kWidth] = {};
  float of_products[kKept][kWidth] = {};
  for (int32 first = 0; first < kSteps; first += kKept) {
#pragma unroll
    for (int32 step = 0; step < kKept; ++step) {
      const Part score = part_of(u, scores, first + step);
      const Part sum = part_of(h, sums, first + step);
#pragma unroll
      for (int32 i = 0; i < kWidth; ++i) {
        of_scores[step][i] = kStays ? element(score, i) : of_scores[step][i] + element(score, i);
        of_products[step][i] =
            numerics::fma_rn(element(sum, i), element(score, i), of_products[step][i]);
      }
    }
  }
  const Totals totals = totals_of(of_scores, of_products);
  const float inverse = 1.0f / totals.score;
  return {totals.score != 0.0f, inverse, totals.product * inverse, sums};
}

inline float gradient(float routed, float sum, const Aux& aux, float of_score) {
  return device::canonical((routed + (sum - aux.mean) * aux.inverse) * of_score);
}

// Step by step, as if no expert was chosen.
inline void store_dense(float* grad_logits, const float* scores, const Aux& aux, const Kept& u,
                        const Kept& h) {
  bool are_usual = true;
#pragma unroll(kStays ? kSteps : 1)
  for (int32 step = 0; step < kSteps; ++step) {
    const Part score = part_of(u, scores, step);
    const Part sum = part_of(h, aux.sums, step);
    Part part;
#pragma unroll
    for (int32 i = 0; i < kWidth; ++i) {
      are_usual = are_usual && is_usual(element(score, i));
      part.words[i] = numerics::bit_cast<uint32>(
          gradient(0.0f, element(sum, i), aux, derivative(element(score, i))));
    }
    store(grad_logits, step, part);
  }
  if (are_usual) return;
#pragma unroll 1
  for (int32 step = 0; step < kSteps; ++step) {
    const int32 begin = begin_of(step);
#pragma unroll 1
    for (int32 e = begin; e < numerics::min_of(begin + kWidth, kExperts); ++e) {
      grad_logits[e] =
          gradient(0.0f, aux.sums[e], aux, score_derivative(kShape.scoring, scores[e]));
    }
  }
}

// The sequence of a row: H, and the rows from this one on.
struct Sequence {
  const float* sums;
  int64 left;
};

inline Sequence sequence_of(const MoeTopkGateBackwardArgs& args, int64 row) {
  const int64 sequence = row / args.tokens_per_sequence;
  return {args.grad_scores_sum + sequence * kExperts,
          (sequence + 1) * args.tokens_per_sequence - row};
}

// The warp's rows from `first` on, as if no expert was chosen; returns the dense term of the
// lane's own. `u` and `h` are of the first one; `are_dense` has a bit for each lane whose row may
// have the term.
inline Aux store_rows(const MoeTopkGateBackwardArgs& args, int64 first, int32 rows, Kept u, Kept h,
                      Sequence sequence, uint32 are_dense) {
  const float* scores = args.scores + first * kExperts;
  float* grad_logits = args.grad_logits + first * kExperts;
  Aux mine{};
  int32 row = 0;
  do {
    const Kept now = u;
    if (row + 1 < rows) u = load_kept(scores + kExperts);
    Aux aux{};
    if ((are_dense >> row * kLanes & 1) != 0) {
      aux = aux_of(scores, sequence.sums, now, h);
      if (aux.is_there) store_dense(grad_logits, scores, aux, now, h);
    }
    if (!aux.is_there) store_zeros(grad_logits);
    if (static_cast<int32>(device::lane_id()) / kLanes == row) mine = aux;
    if (--sequence.left == 0 && row + 1 < rows) {
      sequence = {sequence.sums + kExperts, args.tokens_per_sequence};
      h = load_kept(sequence.sums);
    }
    scores += kExperts;
    grad_logits += kExperts;
  } while (++row < rows);
  return mine;
}

}  // namespace tilekernels
