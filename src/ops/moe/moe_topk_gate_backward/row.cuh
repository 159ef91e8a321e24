// moe_topk_gate_backward on CUDA: a row, and how its experts lie on the lanes of a warp.
#pragma once

#include "ops/moe/moe_topk_gate_backward/op.h"
#include "ops/moe/moe_topk_gate_backward/tile.h"
#include "runtime/cuda/device/math.cuh"
#include "runtime/cuda/device/memory.cuh"
#include "runtime/cuda/device/warp.cuh"

namespace tilekernels {

constexpr MoeTopkGateBackwardShape kShape = TILEKERNELS_SHAPE;
constexpr MoeTopkGateBackwardTile kTile = TILEKERNELS_TILE;

constexpr int32 kTopk = kShape.num_topk;
constexpr int32 kExperts = kShape.num_experts;
constexpr int32 kSlots = power_of_two_from(kTopk);
constexpr int32 kRows = kTile.rows;
constexpr int32 kLanes = device::kWarpLanes / kRows;  // of a row's slots
constexpr int32 kWidth = 4;                           // neighbouring experts of a lane
constexpr int32 kStep = device::kWarpLanes * kWidth;  // those of a warp
constexpr auto kSteps = static_cast<int32>(numerics::ceil_div(kExperts, kStep));
// Steps with partial sums of their own
constexpr int32 kKept = numerics::min_of(kSteps, numerics::kRowPartials / kStep);
constexpr bool kStays = kExperts <= kBackwardKeptExperts;
constexpr bool kHasAux = kShape.has_aux != 0;
constexpr bool kIsStaged = kTile.staged != 0;

using Part = device::Words<kWidth * 4>;

// The first expert of this lane's part.
inline int32 begin_of(int32 step) {
  return step * kStep + static_cast<int32>(device::lane_id()) * kWidth;
}

// Beyond the row's end: zeros.
inline Part load(const float* row, int32 step) {
  const int32 begin = begin_of(step);
  if constexpr (kTile.wide != 0) {
    Part part{};
    if (begin < kExperts) part = device::load<kWidth * 4>(row + begin);
    return part;
  } else {
    return device::load_units<kWidth * 4, 4>(row + begin, kExperts - begin);
  }
}

inline void store(float* row, int32 step, const Part& part) {
  const int32 begin = begin_of(step);
  if constexpr (kTile.wide != 0) {
    if (begin < kExperts) device::store(row + begin, part);
  } else {
    device::store_units<kWidth * 4, 4>(row + begin, part, kExperts - begin);
  }
}

inline float element(const Part& part, int32 i) { return numerics::bit_cast<float>(part.words[i]); }

// A lane's part of a row, if it stays.
struct Kept {
  Part parts[kStays ? kSteps : 1];
};
static_assert(!kStays || kSteps == kKept, "its sums stay, too");

inline Kept load_kept(const float* row) {
  Kept kept{};
  if constexpr (kStays) {
#pragma unroll
    for (int32 step = 0; step < kSteps; ++step) kept.parts[step] = load(row, step);
  }
  return kept;
}

inline Part part_of(const Kept& kept, const float* row, int32 step) {
  if constexpr (kStays) {
    return kept.parts[step];
  } else {
    return load(row, step);
  }
}

inline void store_zeros(float* grad_logits) {
#pragma unroll 4
  for (int32 step = 0; step < kSteps; ++step) store(grad_logits, step, Part{});
}

// Whether derivative() may be asked for this score.
inline bool is_usual(float score) {
  return kShape.scoring == kScoringSigmoid || !(score * score >= device::kDerivativeRange);
}

inline float derivative(float score) {
  return kShape.scoring == kScoringSigmoid ? score_derivative(kShape.scoring, score)
                                           : device::sqrt_softplus_derivative(score);
}

}  // namespace tilekernels
