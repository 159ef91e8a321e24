// moe_topk_gate_backward on CUDA: a warp a row, or a few neighbouring rows, of which a lane has a
// slot. Rows are written twice: first as if no expert was chosen, which needs nothing that a slot
// has, and then the chosen experts, each with its whole gradient.
#include "ops/moe/moe_topk_gate_backward/op.h"
#include "ops/moe/moe_topk_gate_backward/tile.h"
#include "runtime/cuda/device/fault.cuh"
#include "runtime/cuda/device/grid.cuh"
#include "runtime/cuda/device/math.cuh"
#include "runtime/cuda/device/memory.cuh"
#include "runtime/cuda/device/row_sum.cuh"
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
constexpr bool kStays = kSteps <= 4;  // in registers, with H
constexpr bool kIsStaged = kTile.staged != 0;

using Part = device::Words<kWidth * 4>;

// One in shared memory.
struct alignas(kWidth * 4) StagedPart {
  uint32 words[kWidth];
};

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

// The dense term of the row.
struct Aux {
  bool is_there;
  float inverse;
  float mean;
};

// A row's scores and H, as far as they stay.
struct Kept {
  Part scores[kStays ? kKept : 1];
  Part sums[kStays ? kKept : 1];
};

inline Aux aux_of(const float* scores, const float* sums, Kept& kept) {
  float of_scores[kKept][kWidth] = {};
  float of_products[kKept][kWidth] = {};
  for (int32 first = 0; first < kSteps; first += kKept) {
#pragma unroll
    for (int32 step = 0; step < kKept; ++step) {
      const Part u = load(scores, first + step);
      const Part h = load(sums, first + step);
      if constexpr (kStays) {
        kept.scores[step] = u;
        kept.sums[step] = h;
      }
#pragma unroll
      for (int32 i = 0; i < kWidth; ++i) {
        of_scores[step][i] += element(u, i);
        of_products[step][i] = numerics::fma_rn(element(h, i), element(u, i), of_products[step][i]);
      }
    }
  }
  const float sum = device::sum_partials(of_scores);
  const float inverse = 1.0f / sum;
  return {sum != 0.0f, inverse, device::sum_partials(of_products) * inverse};
}

// Whether derivative() may be asked for this score.
inline bool is_usual(float score) {
  return kShape.scoring == kScoringSigmoid || !(score * score >= device::kDerivativeRange);
}

inline float derivative(float score) {
  return kShape.scoring == kScoringSigmoid ? score_derivative(kShape.scoring, score)
                                           : device::sqrt_softplus_derivative(score);
}

inline float gradient(float routed, float sum, const Aux& aux, float of_score) {
  return device::canonical((routed + (sum - aux.mean) * aux.inverse) * of_score);
}

// Step by step, as if no expert was chosen.
inline void store_dense(float* grad_logits, const float* scores, const float* sums, const Aux& aux,
                        const Kept& kept) {
  bool are_usual = true;
  const auto store_step = [&](int32 step, const Part& u, const Part& h) {
    Part part;
#pragma unroll
    for (int32 i = 0; i < kWidth; ++i) {
      are_usual = are_usual && is_usual(element(u, i));
      part.words[i] =
          numerics::bit_cast<uint32>(gradient(0.0f, element(h, i), aux, derivative(element(u, i))));
    }
    store(grad_logits, step, part);
  };
  if constexpr (kStays) {
#pragma unroll
    for (int32 step = 0; step < kSteps; ++step) {
      store_step(step, kept.scores[step], kept.sums[step]);
    }
  } else {
    for (int32 step = 0; step < kSteps; ++step) {
      store_step(step, load(scores, step), load(sums, step));
    }
  }
  if (are_usual) return;
#pragma unroll 1
  for (int32 step = 0; step < kSteps; ++step) {
    const int32 begin = begin_of(step);
#pragma unroll 1
    for (int32 e = begin; e < numerics::min_of(begin + kWidth, kExperts); ++e) {
      grad_logits[e] = gradient(0.0f, sums[e], aux, score_derivative(kShape.scoring, scores[e]));
    }
  }
}

inline void store_zeros(float* grad_logits, int32 rows) {
#pragma unroll
  for (int32 row = 0; row < kRows; ++row) {
    if (row >= rows) return;
#pragma unroll 4
    for (int32 step = 0; step < kSteps; ++step) {
      store(grad_logits + row * kExperts, step, Part{});
    }
  }
}

inline void moe_topk_gate_backward(const MoeTopkGateBackwardArgs& args) {
  const auto lane = static_cast<int32>(device::lane_id());
  const int32 warp = threadIdx.x / device::kWarpLanes;
  const int64 first = (int64{blockIdx.x} * kBackwardWarps + warp) * kRows;
  if (first >= args.num_tokens) return;
  const int32 rows =
      kRows == 1 ? 1 : static_cast<int32>(numerics::min_of(int64{kRows}, args.num_tokens - first));
  const int64 token = first + lane / kLanes;
  const int32 slot = lane % kLanes;
  device::wait_for_predecessor();

  int64 index = -1;
  float grad = 0.0f;
  float weight = 0.0f;
  if (slot < kTopk && lane / kLanes < rows) {
    const int64 i = token * kTopk + slot;
    index = args.topk_idx[i];
    grad = args.grad_topk_weights[i];
    weight = args.topk_weights[i];
  }
  const float* scores = args.scores + token * kExperts;
  const float* sums = nullptr;
  float* const grad_logits = args.grad_logits + token * kExperts;
  // Of a row that is not read otherwise: all scores before it is known which ones are wanted, so
  // that one wait for memory follows the other no more.
  Part parts[kIsStaged ? kSteps : 1];
  if constexpr (kIsStaged) {
#pragma unroll
    for (int32 step = 0; step < kSteps; ++step) parts[step] = load(scores, step);
  }
  Aux aux{};
  if constexpr (kShape.has_aux != 0) {
    if (args.mask[token] != 0) {
      sums = args.grad_scores_sum + token / args.tokens_per_sequence * kExperts;
      Kept kept;
      aux = aux_of(scores, sums, kept);
      if (aux.is_there) store_dense(grad_logits, scores, sums, aux, kept);
    }
  }
  if (!aux.is_there) store_zeros(args.grad_logits + first * kExperts, rows);
  __syncwarp();  // what other lanes stored comes before the chosen experts

  const bool counts = index >= 0 && index < kExperts;
  const int32 expert = counts ? static_cast<int32>(index) : -1;
  bool has_twin = false;  // a slot of the same expert
#pragma unroll
  for (int32 k = 1; k <= kSlots / 2; ++k) {
    has_twin |= __shfl_sync(device::kAllLanes, expert, slot + k, kSlots) == expert;
  }
  float dot = counts ? grad * weight : 0.0f;
#pragma unroll
  for (int32 step = kSlots / 2; step > 0; step /= 2) {
    dot += __shfl_xor_sync(device::kAllLanes, dot, step);
  }
  float score = 0.0f;
  if constexpr (kIsStaged) {
    __shared__ StagedPart staged[kBackwardWarps][kSteps * device::kWarpLanes];
#pragma unroll
    for (int32 step = 0; step < kSteps; ++step) {
      staged[warp][step * device::kWarpLanes + lane] = {parts[step].words[0], parts[step].words[1],
                                                        parts[step].words[2], parts[step].words[3]};
    }
    __syncwarp();
    const auto i = static_cast<uint32>(expert);
    if (counts) score = numerics::bit_cast<float>(staged[warp][i / kWidth].words[i % kWidth]);
  } else {
    if (counts) score = scores[expert];
  }
  float denominator = score;
#pragma unroll
  for (int32 step = kSlots / 2; step > 0; step /= 2) {
    denominator += __shfl_xor_sync(device::kAllLanes, denominator, step);
  }
  float of_score = derivative(score);
  const float delta = (args.routed_scaling_factor * grad - dot) / (denominator + kWeightEpsilon);
  float routed = 0.0f + delta;
  const bool is_rare = (counts && has_twin) || !is_usual(score);
  if (__builtin_expect(__any_sync(device::kAllLanes, is_rare), 0)) {
    of_score = score_derivative(kShape.scoring, score);
    routed = 0.0f;
#pragma unroll 1
    for (int32 k = 0; k < kTopk; ++k) {
      const int32 other = __shfl_sync(device::kAllLanes, expert, k, kLanes);
      const float its_delta = __shfl_sync(device::kAllLanes, delta, k, kLanes);
      if (other == expert) routed += its_delta;
    }
  }
  if (counts) {  // slots of one expert store the same
    grad_logits[expert] = aux.is_there ? gradient(routed, sums[expert], aux, of_score)
                                       : device::canonical(routed * of_score);
  } else if (index != -1) {
    device::note_fault(args.fault, token, kMoeTopkGateBackwardId, numerics::kFaultIndexOutOfRange);
  }
}

}  // namespace tilekernels

extern "C" __global__ void __launch_bounds__(tilekernels::kBackwardThreads)
    moe_topk_gate_backward_kernel(
        const __grid_constant__ tilekernels::MoeTopkGateBackwardArgs args) {
  tilekernels::moe_topk_gate_backward(args);
}
