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
  float scores[kWidth];
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
  if constexpr (kHasAux || kIsStaged) u = load_kept(lanes_place(args.scores + first * kExperts));
  Aux aux{};
  const float* sums = nullptr;  // H of the lane's own row
  if constexpr (kHasAux) {
    const int64 sequence = token / args.tokens_per_sequence;
    const int64 first_sequence = __shfl_sync(device::kAllLanes, sequence, 0);
    sums = args.grad_scores_sum + sequence * kExperts;
    const float* first_sums = args.grad_scores_sum + first_sequence * kExperts;
    const Kept h = load_kept(lanes_place(first_sums));
    const bool may_be_dense = has_row && args.mask[token] != 0;
    aux = store_rows(args, first, rows, u, h, first_sums,
                     static_cast<int32>(sequence - first_sequence),
                     __ballot_sync(device::kAllLanes, may_be_dense));
  } else {
    float* const begin = lanes_place(args.grad_logits + first * kExperts);
#pragma unroll
    for (int32 row = 0; row < kRows; ++row) {  // the last one again where one is missing
      store_zeros(begin + numerics::min_of(row, rows - 1) * kExperts);
    }
  }
  __syncwarp();  // what other lanes stored comes before the chosen experts

  const bool is_routed = static_cast<uint64>(index) < kExperts;
  const int32 expert = is_routed ? static_cast<int32>(index) : -1;
  float score = 0.0f;
  if constexpr (kIsStaged) {
    __shared__ StagedPart staged[kBackwardWarps][kSteps * device::kWarpLanes];
    StagedPart* const row = staged[warp];
#pragma unroll
    for (int32 step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int32 i = 0; i < kWidth; ++i) {
        row[step * device::kWarpLanes + lane].scores[i] = element(u.parts[step], i);
      }
    }
    __syncwarp();
    if (is_routed) score = reinterpret_cast<const float*>(row)[expert];
  } else {
    if (is_routed) score = args.scores[token * kExperts + expert];
  }
  float denominator = score;
  float dot = is_routed ? grad * weight : 0.0f;
#pragma unroll
  for (int32 step = kSlots / 2; step > 0; step /= 2) {
    denominator += __shfl_xor_sync(device::kAllLanes, denominator, step);
    dot += __shfl_xor_sync(device::kAllLanes, dot, step);
  }
  denominator += kWeightEpsilon;
  const float numerator = args.routed_scaling_factor * grad - dot;
  const float delta = device::divide(numerator, device::divisor(denominator));
  const float of_score = derivative(score);
  const auto store_chosen = [&](float routed, float its_derivative) {
    if (!is_routed) return;
    args.grad_logits[token * kExperts + expert] =
        aux.is_there ? gradient(routed, sums[expert], aux, its_derivative)
                     : device::canonical(routed * its_derivative);
  };
  store_chosen(0.0f + delta, of_score);

  // Those of rare rows are stored again, slots of one expert the same.
  bool is_rare = !is_usual(score) || !device::can_divide(numerator, denominator);
#pragma unroll
  for (int32 k = 1; k <= kSlots / 2; ++k) {
    is_rare |= __shfl_sync(device::kAllLanes, expert, slot + k, kSlots) == expert;
  }
  if (is_bad_index(index, kExperts)) {
    device::note_fault(args.fault, token, kMoeTopkGateBackwardId, numerics::kFaultIndexOutOfRange);
  }
  if (!__any_sync(device::kAllLanes, is_routed && is_rare)) return;
  const float any_delta = numerator / denominator;
  float routed = 0.0f;
#pragma unroll 1
  for (int32 k = 0; k < kTopk; ++k) {
    const int32 other = __shfl_sync(device::kAllLanes, expert, k, kLanes);
    const float its_delta = __shfl_sync(device::kAllLanes, any_delta, k, kLanes);
    if (other == expert) routed += its_delta;
  }
  __syncwarp();  // what another lane stored for the same expert comes before
  store_chosen(routed, score_derivative(kShape.scoring, score));
}

}  // namespace tilekernels

// Blocks of a multiprocessor: enough registers for rows that stay, and for longer ones twice those.
extern "C" __global__ void __launch_bounds__(tilekernels::kBackwardThreads,
                                             tilekernels::kStays ? 4 : 2)
    moe_topk_gate_backward_kernel(
        const __grid_constant__ tilekernels::MoeTopkGateBackwardArgs args) {
  tilekernels::moe_topk_gate_backward(args);
}
