// moe_topk_gate_backward: checks, shape and dispatch.
#include <algorithm>

#include "core/check.h"
#include "core/kernel_table.h"
#include "ops/moe/moe_topk_gate_backward/op.h"
#include "tilekernels/moe.h"

namespace tilekernels {
namespace {

constexpr KernelTable<MoeTopkGateBackwardArgs, MoeTopkGateBackwardShape> kMoeTopkGateBackward = {
    .op = "moe_topk_gate_backward",
    .reference = reference::moe_topk_gate_backward,
    .cpu = cpu::moe_topk_gate_backward,
    .cuda = cuda::moe_topk_gate_backward,
    .ascend = ascend::moe_topk_gate_backward,
    .faults = {.op_id = kMoeTopkGateBackwardId, .index_out_of_range = "topk_idx"},
};

// As in the forward pass.
constexpr int64_t kMaxExperts = int64_t{1} << 30;

// A contiguous tensor beside the scores.
void check_tensor(const Check& check, std::string_view name, const TensorSpec& tensor, DType dtype,
                  const Dims& shape, const TensorSpec& scores) {
  check.dtype(name, tensor, {dtype}).shape(name, tensor, shape).contiguous(name, tensor);
  check.same_device(name, tensor, "scores", scores);
}

struct Checked {
  TensorSpec grad_logits;
  MoeTopkGateBackwardShape shape;
  int64 tokens_per_sequence;
};

template <class T>
Checked check_all(const TensorSpec& scores, const TensorSpec& topk_idx,
                  const TensorSpec& topk_weights, const TensorSpec& grad_topk_weights,
                  float routed_scaling_factor, const MoeTopkGateBackwardOptionsOf<T>& options) {
  const Check check(kMoeTopkGateBackward.op);
  check.rank("scores", scores, 2).dtype("scores", scores, {DType::kF32});
  check.contiguous("scores", scores);
  const int64_t num_tokens = scores.size(0);
  const int64_t num_experts = scores.size(1);
  check.range("num_experts", num_experts, 1, kMaxExperts);
  check.rank("topk_idx", topk_idx, 2);
  const int64_t num_topk = topk_idx.size(1);
  check.range("num_topk", num_topk, 1, std::min<int64_t>(num_experts, kWeightSlots));
  const Dims slots{num_tokens, num_topk};
  check_tensor(check, "topk_idx", topk_idx, DType::kI64, slots, scores);
  check_tensor(check, "topk_weights", topk_weights, DType::kF32, slots, scores);
  check_tensor(check, "grad_topk_weights", grad_topk_weights, DType::kF32, slots, scores);
  check.finite("routed_scaling_factor", routed_scaling_factor);
  check.range("scoring_func", static_cast<int>(options.scoring_func), 0, kScoringSoftmax);
  if (options.scoring_func == ScoringFunc::kSoftmax) {
    check.unsupported("scoring_func", "must be one with kernels, sqrtsoftplus or sigmoid",
                      "softmax");
  }
  const TensorSpec* mask = or_null(options.mask);
  const TensorSpec* sums = or_null(options.grad_scores_sum);
  check.together("mask", mask != nullptr, "grad_scores_sum", sums != nullptr);
  int64_t tokens_per_sequence = 1;
  if (sums != nullptr) {
    check_tensor(check, "mask", *mask, DType::kBool, {num_tokens}, scores);
    check.rank("grad_scores_sum", *sums, 2);
    const int64_t num_sequences = sums->size(0);
    check_tensor(check, "grad_scores_sum", *sums, DType::kF32, {num_sequences, num_experts},
                 scores);
    if (num_tokens > 0) {
      check.range("num_sequences", num_sequences, 1, num_tokens);
      check.multiple("num_tokens", num_tokens, num_sequences);
      tokens_per_sequence = num_tokens / num_sequences;
    }
  }
  return {{scores.shape, DType::kF32, scores.device},
          {.scoring = static_cast<int32>(options.scoring_func),
           .has_aux = sums != nullptr,
           .num_experts = static_cast<int32>(num_experts),
           .num_topk = static_cast<int32>(num_topk)},
          tokens_per_sequence};
}

}  // namespace

TensorSpec moe_topk_gate_backward_spec(const TensorSpec& scores, const TensorSpec& topk_idx,
                                       const TensorSpec& topk_weights,
                                       const TensorSpec& grad_topk_weights,
                                       float routed_scaling_factor,
                                       const MoeTopkGateBackwardSpecs& options) {
  return check_all(scores, topk_idx, topk_weights, grad_topk_weights, routed_scaling_factor,
                   options)
      .grad_logits;
}

void moe_topk_gate_backward_out(const TensorView& grad_logits, const TensorView& scores,
                                const TensorView& topk_idx, const TensorView& topk_weights,
                                const TensorView& grad_topk_weights, float routed_scaling_factor,
                                const MoeTopkGateBackwardOptions& options, const Call& call) {
  const Check check(kMoeTopkGateBackward.op);
  const Checked checked =
      check_all(scores, topk_idx, topk_weights, grad_topk_weights, routed_scaling_factor, options);
  check.matches("grad_logits", grad_logits, checked.grad_logits);
  const ByteRange written = bytes_written(grad_logits);
  const auto check_input = [&](std::string_view name, const TensorView& input) {
    check.memory(name, input).disjoint("grad_logits", written, name, bytes_read(input));
  };
  check_input("scores", scores);
  check_input("topk_idx", topk_idx);
  check_input("topk_weights", topk_weights);
  check_input("grad_topk_weights", grad_topk_weights);
  MoeTopkGateBackwardArgs args{};
  if (options.mask) {
    check_input("mask", *options.mask);
    check_input("grad_scores_sum", *options.grad_scores_sum);
    args.mask = static_cast<const uint8*>(options.mask->data);
    args.grad_scores_sum = static_cast<const float*>(options.grad_scores_sum->data);
  }
  if (scores.size(0) == 0) return;
  args.scores = static_cast<const float*>(scores.data);
  args.topk_idx = static_cast<const int64*>(topk_idx.data);
  args.topk_weights = static_cast<const float*>(topk_weights.data);
  args.grad_topk_weights = static_cast<const float*>(grad_topk_weights.data);
  args.grad_logits = static_cast<float*>(grad_logits.data);
  args.num_tokens = scores.size(0);
  args.tokens_per_sequence = checked.tokens_per_sequence;
  args.routed_scaling_factor = routed_scaling_factor;
  kMoeTopkGateBackward.run(call, scores.device, std::move(args), checked.shape);
}

Tensor moe_topk_gate_backward(const TensorView& scores, const TensorView& topk_idx,
                              const TensorView& topk_weights, const TensorView& grad_topk_weights,
                              float routed_scaling_factor,
                              const MoeTopkGateBackwardOptions& options, const Call& call) {
  Tensor grad_logits = call.allocate(
      check_all(scores, topk_idx, topk_weights, grad_topk_weights, routed_scaling_factor, options)
          .grad_logits);
  moe_topk_gate_backward_out(grad_logits, scores, topk_idx, topk_weights, grad_topk_weights,
                             routed_scaling_factor, options, call);
  return grad_logits;
}

}  // namespace tilekernels
