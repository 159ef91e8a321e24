// moe_topk_gate_backward on CUDA: a warp a row, or a few neighbouring rows, of which a lane has a
// slot. Rows are written twice: first as if no expert was chosen, which needs nothing that a slot
// has, and then the chosen experts, each with its whole gradient.
#include "ops/moe/moe_topk_gate_backward/dense.cuh"
#include "ops/moe/moe_topk_gate_backward/row.cuh"
#include "runtime/cuda/device/fault.cuh"
#include "runtime/cuda/device/grid.cuh"

namespace tilekernels {

// A part in shared memory.
struct alignas(kWidth * 4) StagedPart {
  uint32 words[kWidth];
};

inline void moe_topk_gate_backward(const MoeTopkGateBackwardArgs& args) {
  const auto lane = static_cast<int32>(device::lane_id());
  const int32 warp = threadIdx.x / device::kWarpLanes;
  const int64 first = (int64{blockIdx.x} * kBackwardWarps + warp) * kRows;
  if (first >= args.num_tokens) return;
  const int32 rows =
      kRows == 1 ? 1 : static_cast<int32>(numerics::min_of(int64{kRows}, args.num_tokens - first));
  const bool has_row = lane / kLanes < rows;
  const int64 token = first + lane / kLanes;
  const int32 slot = lane % kLanes;
  device::wait_for_predecessor();

  int64 index = -1;
  float grad = 0.0f;
  float weight = 0.0f;
  if (slot < kTopk && has_row) {
    const int64 i = token * kTopk + slot;
    index = args.topk_idx[i];
    grad = args.grad_topk_weights[i];
    weight = args.topk_weights[i];
  }
  // The scores do not wait for the indices.
  Kept u{};
  if constexpr (kHasAux || kIsStaged) u = load_kept(args.scores + first * kExperts);
  Aux aux{};
  if constexpr (kHasAux) {
    const Sequence sequence = sequence_of(args, first);
    const Kept h = load_kept(sequence.sums);
    const bool may_be_dense = has_row && args.mask[token] != 0;
    aux = store_rows(args, first, rows, u, h, sequence,
                     __ballot_sync(device::kAllLanes, may_be_dense));
  } else {
#pragma unroll
    for (int32 row = 0; row < kRows; ++row) {  // the last one again where one is missing
      store_zeros(args.grad_logits + (first + numerics::min_of(row, rows - 1)) * kExperts);
    }
  }
  __syncwarp();  // what other lanes stored comes before the chosen experts

  const bool is_routed = index >= 0 && index < kExperts;
  const int32 expert = is_routed ? static_cast<int32>(index) : -1;
  float score = 0.0f;
  if constexpr (kIsStaged) {
    __shared__ StagedPart staged[kBackwardWarps][kSteps * device::kWarpLanes];
#pragma unroll
    for (int32 step = 0; step < kSteps; ++step) {
      const uint32(&words)[kWidth] = u.parts[step].words;
      staged[warp][step * device::kWarpLanes + lane] = {words[0], words[1], words[2], words[3]};
    }
    __syncwarp();
    const auto i = static_cast<uint32>(expert);
    if (is_routed) score = numerics::bit_cast<float>(staged[warp][i / kWidth].words[i % kWidth]);
  } else {
    if (is_routed) score = args.scores[token * kExperts + expert];
  }
  bool has_twin = false;  // a slot of the same expert
#pragma unroll
  for (int32 k = 1; k <= kSlots / 2; ++k) {
    has_twin |= __shfl_sync(device::kAllLanes, expert, slot + k, kSlots) == expert;
  }
  float denominator = score;
  float dot = is_routed ? grad * weight : 0.0f;
#pragma unroll
  for (int32 step = kSlots / 2; step > 0; step /= 2) {
    denominator += __shfl_xor_sync(device::kAllLanes, denominator, step);
    dot += __shfl_xor_sync(device::kAllLanes, dot, step);
  }
  const float of_score = derivative(score);
  const float delta = (args.routed_scaling_factor * grad - dot) / (denominator + kWeightEpsilon);
  const auto finish = [&](float routed, float its_derivative) {
    if (is_routed) {  // slots of one expert store the same
      args.grad_logits[token * kExperts + expert] =
          aux.is_there ? gradient(routed, aux.sums[expert], aux, its_derivative)
                       : device::canonical(routed * its_derivative);
    }
    if (!is_routed && index != -1) {
      device::note_fault(args.fault, token, kMoeTopkGateBackwardId,
                         numerics::kFaultIndexOutOfRange);
    }
  };
  const bool is_rare = (is_routed && has_twin) || !is_usual(score);
  if (!__any_sync(device::kAllLanes, is_rare)) {
    finish(0.0f + delta, of_score);
    return;
  }
  float routed = 0.0f;
#pragma unroll 1
  for (int32 k = 0; k < kTopk; ++k) {
    const int32 other = __shfl_sync(device::kAllLanes, expert, k, kLanes);
    const float its_delta = __shfl_sync(device::kAllLanes, delta, k, kLanes);
    if (other == expert) routed += its_delta;
  }
  finish(routed, score_derivative(kShape.scoring, score));
}

}  // namespace tilekernels

// Blocks of a multiprocessor: enough registers for rows that stay, and for longer ones twice those.
extern "C" __global__ void __launch_bounds__(tilekernels::kBackwardThreads,
                                             tilekernels::kStays ? 4 : 2)
    moe_topk_gate_backward_kernel(
        const __grid_constant__ tilekernels::MoeTopkGateBackwardArgs args) {
  tilekernels::moe_topk_gate_backward(args);
}
