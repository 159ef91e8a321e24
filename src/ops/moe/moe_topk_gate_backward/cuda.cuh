// moe_topk_gate_backward on CUDA: a warp a row, of which lane k has slot k. A row is written twice:
// first as if no expert was chosen, which needs nothing that a slot has, and then the chosen
// experts, each with its whole gradient.
#include "ops/moe/moe_topk_gate_backward/op.h"
#include "ops/moe/moe_topk_gate_backward/tile.h"
#include "runtime/cuda/device/fault.cuh"
#include "runtime/cuda/device/grid.cuh"
#include "runtime/cuda/device/memory.cuh"
#include "runtime/cuda/device/row_sum.cuh"
#include "runtime/cuda/device/warp.cuh"

namespace tilekernels {

constexpr MoeTopkGateBackwardShape kShape = TILEKERNELS_SHAPE;
constexpr MoeTopkGateBackwardTile kTile = TILEKERNELS_TILE;

constexpr int32 kTopk = kShape.num_topk;
constexpr int32 kExperts = kShape.num_experts;
constexpr int32 kSlots = power_of_two_from(kTopk);
constexpr int32 kWidth = 4;                           // neighbouring experts of a lane
constexpr int32 kStep = device::kWarpLanes * kWidth;  // those of a warp
constexpr auto kSteps = static_cast<int32>(numerics::ceil_div(kExperts, kStep));
// Steps with partial sums of their own; those of a row that has no more stay in registers.
constexpr int32 kKept = numerics::min_of(kSteps, numerics::kRowPartials / kStep);
constexpr bool kStays = kSteps == kKept;

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

inline float gradient(float routed, float sum, const Aux& aux, float score) {
  return numerics::canonical((routed + (sum - aux.mean) * aux.inverse) *
                             score_derivative(kShape.scoring, score));
}

// Step by step, as if no expert was chosen.
inline Part dense_part(const Part& u, const Part& h, const Aux& aux) {
  Part part;
#pragma unroll
  for (int32 i = 0; i < kWidth; ++i) {
    part.words[i] = numerics::bit_cast<uint32>(gradient(0.0f, element(h, i), aux, element(u, i)));
  }
  return part;
}

inline void store_dense(float* grad_logits, const float* scores, const float* sums, const Aux& aux,
                        const Kept& kept) {
  if constexpr (kStays) {
#pragma unroll
    for (int32 step = 0; step < kSteps; ++step) {
      store(grad_logits, step, dense_part(kept.scores[step], kept.sums[step], aux));
    }
  } else {
    for (int32 step = 0; step < kSteps; ++step) {
      store(grad_logits, step, dense_part(load(scores, step), load(sums, step), aux));
    }
  }
}

inline void store_zeros(float* grad_logits) {
#pragma unroll 4
  for (int32 step = 0; step < kSteps; ++step) store(grad_logits, step, Part{});
}

inline void moe_topk_gate_backward(const MoeTopkGateBackwardArgs& args) {
  const auto lane = static_cast<int32>(device::lane_id());
  const int64 token = int64{blockIdx.x} * (kBackwardThreads / device::kWarpLanes) +
                      threadIdx.x / device::kWarpLanes;
  if (token >= args.num_tokens) return;
  device::wait_for_predecessor();

  int64 index = -1;
  float grad = 0.0f;
  float weight = 0.0f;
  if (lane < kTopk) {
    const int64 i = token * kTopk + lane;
    index = args.topk_idx[i];
    grad = args.grad_topk_weights[i];
    weight = args.topk_weights[i];
  }
  const float* scores = args.scores + token * kExperts;
  const float* sums = nullptr;
  float* const grad_logits = args.grad_logits + token * kExperts;
  Aux aux{};
  if constexpr (kShape.has_aux != 0) {
    if (args.mask[token] != 0) {
      sums = args.grad_scores_sum + token / args.tokens_per_sequence * kExperts;
      Kept kept;
      aux = aux_of(scores, sums, kept);
      if (aux.is_there) store_dense(grad_logits, scores, sums, aux, kept);
    }
  }
  if (!aux.is_there) store_zeros(grad_logits);

  const bool counts = index >= 0 && index < kExperts;
  if (!counts && index != -1) {
    device::note_fault(args.fault, token, kMoeTopkGateBackwardId, numerics::kFaultIndexOutOfRange);
  }
  const int32 expert = counts ? static_cast<int32>(index) : -1;
  const float score = counts ? scores[expert] : 0.0f;
  float denominator = score;
  float dot = counts ? grad * weight : 0.0f;
#pragma unroll
  for (int32 step = kSlots / 2; step > 0; step /= 2) {
    denominator += __shfl_xor_sync(device::kAllLanes, denominator, step);
    dot += __shfl_xor_sync(device::kAllLanes, dot, step);
  }
  denominator += kWeightEpsilon;
  const float delta = (args.routed_scaling_factor * grad - dot) / denominator;
  float routed = 0.0f;
#pragma unroll
  for (int32 k = 0; k < kTopk; ++k) {
    const int32 other = __shfl_sync(device::kAllLanes, expert, k);
    const float its_delta = __shfl_sync(device::kAllLanes, delta, k);
    if (other == expert) routed += its_delta;
  }
  // What other lanes stored comes first; slots of one expert store the same.
  __syncwarp();
  if (!counts) return;
  grad_logits[expert] = aux.is_there
                            ? gradient(routed, sums[expert], aux, score)
                            : numerics::canonical(routed * score_derivative(kShape.scoring, score));
}

}  // namespace tilekernels

extern "C" __global__ void __launch_bounds__(tilekernels::kBackwardThreads)
    moe_topk_gate_backward_kernel(
        const __grid_constant__ tilekernels::MoeTopkGateBackwardArgs args) {
  tilekernels::moe_topk_gate_backward(args);
}
