// normalize_weight: checks, shapes and dispatch.
#include "core/check.h"
#include "core/kernel_table.h"
#include "ops/moe/normalize_weight/op.h"
#include "tilekernels/moe.h"

namespace tilekernels {
namespace {

constexpr KernelTable<NormalizeWeightArgs, NormalizeWeightShape> kNormalizeWeight = {
    .op = "normalize_weight",
    .reference = reference::normalize_weight,
    .cpu = cpu::normalize_weight,
    .cuda = cuda::normalize_weight,
    .ascend = ascend::normalize_weight,
};

}  // namespace

NormalizedWeightsSpec normalize_weight_spec(const TensorSpec& topk_weights) {
  const Check check(kNormalizeWeight.op);
  check.rank("topk_weights", topk_weights, 2);
  check.dtype("topk_weights", topk_weights, {DType::kF32});
  check.contiguous("topk_weights", topk_weights);
  check.range("num_topk", topk_weights.size(1), 1, kWeightSlots);
  return {{{topk_weights.size(0)}, DType::kF32, topk_weights.device},
          {topk_weights.shape, DType::kF32, topk_weights.device}};
}

void normalize_weight_out(const TensorView& denominator, const TensorView& normalized_weights,
                          const TensorView& topk_weights, const Call& call) {
  const Check check(kNormalizeWeight.op);
  const NormalizedWeightsSpec spec = normalize_weight_spec(topk_weights);
  check.matches("denominator", denominator, spec.denominator);
  check.matches("normalized_weights", normalized_weights, spec.normalized_weights);
  check.memory("topk_weights", topk_weights);
  const ByteRange read = bytes_read(topk_weights);
  const ByteRange written = bytes_written(normalized_weights);
  check.disjoint("denominator", bytes_written(denominator), "topk_weights", read);
  check.disjoint("normalized_weights", written, "topk_weights", read);
  check.disjoint("denominator", bytes_written(denominator), "normalized_weights", written);
  if (topk_weights.size(0) == 0) return;
  kNormalizeWeight.run(
      call, topk_weights.device,
      NormalizeWeightArgs{.topk_weights = static_cast<const float*>(topk_weights.data),
                          .denominator = static_cast<float*>(denominator.data),
                          .normalized_weights = static_cast<float*>(normalized_weights.data),
                          .num_tokens = topk_weights.size(0)},
      NormalizeWeightShape{.num_topk = static_cast<int32>(topk_weights.size(1))});
}

NormalizedWeights normalize_weight(const TensorView& topk_weights, const Call& call) {
  const NormalizedWeightsSpec spec = normalize_weight_spec(topk_weights);
  std::vector<Tensor> outputs = call.allocate({spec.denominator, spec.normalized_weights});
  normalize_weight_out(outputs[0], outputs[1], topk_weights, call);
  return {outputs[0], outputs[1]};
}

}  // namespace tilekernels
