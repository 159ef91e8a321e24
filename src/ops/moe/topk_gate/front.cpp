// topk_gate: checks, shapes and dispatch.
#include <algorithm>
#include <limits>

#include "core/check.h"
#include "core/kernel_table.h"
#include "ops/moe/topk_gate/op.h"
#include "tilekernels/moe.h"

namespace tilekernels {
namespace {

constexpr KernelTable<TopkGateArgs, TopkGateShape> kTopkGate = {
    .op = "topk_gate",
    .reference = reference::topk_gate,
    .cpu = cpu::topk_gate,
    .cuda = cuda::topk_gate,
    .ascend = ascend::topk_gate,
    .faults = {.op_id = kTopkGateId, .not_finite = "scores"},
};

}  // namespace

TensorSpec topk_gate_spec(const TensorSpec& scores, int num_topk) {
  const Check check(kTopkGate.op);
  check.rank("scores", scores, 2).dtype("scores", scores, {DType::kF32});
  check.contiguous("scores", scores);
  check.range("num_experts", scores.size(1), 1, std::numeric_limits<int32_t>::max());
  check.range("num_topk", num_topk, 1, std::min<int64_t>(scores.size(1), kMaxTopk));
  return {{scores.size(0), num_topk}, DType::kI64, scores.device};
}

void topk_gate_out(const TensorView& topk_idx, const TensorView& scores, int num_topk,
                   const Call& call) {
  const Check check(kTopkGate.op);
  check.matches("topk_idx", topk_idx, topk_gate_spec(scores, num_topk));
  check.memory("scores", scores);
  check.disjoint("topk_idx", bytes_written(topk_idx), "scores", bytes_read(scores));
  if (scores.size(0) == 0) return;
  kTopkGate.run(
      call, scores.device,
      TopkGateArgs{.scores = static_cast<const float*>(scores.data),
                   .topk_idx = static_cast<int64*>(topk_idx.data),
                   .num_tokens = scores.size(0),
                   .fault = nullptr},
      TopkGateShape{.num_experts = static_cast<int32>(scores.size(1)), .num_topk = num_topk});
}

Tensor topk_gate(const TensorView& scores, int num_topk, const Call& call) {
  Tensor topk_idx = call.allocate(topk_gate_spec(scores, num_topk));
  topk_gate_out(topk_idx, scores, num_topk, call);
  return topk_idx;
}

}  // namespace tilekernels
