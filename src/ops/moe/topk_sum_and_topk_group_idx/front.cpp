// topk_sum_and_topk_group_idx: checks, shapes and dispatch.
#include <algorithm>
#include <limits>

#include "core/check.h"
#include "core/kernel_table.h"
#include "ops/moe/topk_sum_and_topk_group_idx/op.h"
#include "tilekernels/moe.h"

namespace tilekernels {
namespace {

constexpr KernelTable<TopkSumAndTopkGroupIdxArgs, TopkSumAndTopkGroupIdxShape>
    kTopkSumAndTopkGroupIdx = {
        .op = "topk_sum_and_topk_group_idx",
        .reference = reference::topk_sum_and_topk_group_idx,
        .cpu = cpu::topk_sum_and_topk_group_idx,
        .cuda = cuda::topk_sum_and_topk_group_idx,
        .ascend = ascend::topk_sum_and_topk_group_idx,
        .faults = {.op_id = kTopkSumAndTopkGroupIdxId, .not_finite = "scores"},
};

}  // namespace

TensorSpec topk_sum_and_topk_group_idx_spec(const TensorSpec& scores, int num_topk_sum,
                                            int num_topk_groups) {
  const Check check(kTopkSumAndTopkGroupIdx.op);
  check.rank("scores", scores, 3).dtype("scores", scores, {DType::kF32});
  check.contiguous("scores", scores);
  check.range("num_groups", scores.size(1), 1, kMaxExpertGroups);
  check.range("group_size", scores.size(2), 1,
              std::numeric_limits<int32_t>::max() / kMaxExpertGroups);
  check.range("num_topk_sum", num_topk_sum, 1, std::min<int64_t>(scores.size(2), 2));
  check.range("num_topk_groups", num_topk_groups, 1, scores.size(1));
  return {{scores.size(0), num_topk_groups}, DType::kI64, scores.device};
}

void topk_sum_and_topk_group_idx_out(const TensorView& group_idx, const TensorView& scores,
                                     int num_topk_sum, int num_topk_groups, const Call& call) {
  const Check check(kTopkSumAndTopkGroupIdx.op);
  check.matches("group_idx", group_idx,
                topk_sum_and_topk_group_idx_spec(scores, num_topk_sum, num_topk_groups));
  check.memory("scores", scores);
  check.disjoint("group_idx", bytes_written(group_idx), "scores", bytes_read(scores));
  if (scores.size(0) == 0) return;
  kTopkSumAndTopkGroupIdx.run(
      call, scores.device,
      TopkSumAndTopkGroupIdxArgs{.scores = static_cast<const float*>(scores.data),
                                 .group_idx = static_cast<int64*>(group_idx.data),
                                 .num_tokens = scores.size(0),
                                 .fault = nullptr},
      TopkSumAndTopkGroupIdxShape{.num_groups = static_cast<int32>(scores.size(1)),
                                  .group_size = static_cast<int32>(scores.size(2)),
                                  .num_topk_sum = num_topk_sum,
                                  .num_topk_groups = num_topk_groups});
}

Tensor topk_sum_and_topk_group_idx(const TensorView& scores, int num_topk_sum, int num_topk_groups,
                                   const Call& call) {
  Tensor group_idx =
      call.allocate(topk_sum_and_topk_group_idx_spec(scores, num_topk_sum, num_topk_groups));
  topk_sum_and_topk_group_idx_out(group_idx, scores, num_topk_sum, num_topk_groups, call);
  return group_idx;
}

}  // namespace tilekernels
