// inplace_unique_group_indices: checks and dispatch. There is no allocating form.
#include "core/check.h"
#include "core/kernel_table.h"
#include "ops/moe/inplace_unique_group_indices/op.h"
#include "tilekernels/moe.h"

namespace tilekernels {
namespace {

constexpr KernelTable<InplaceUniqueGroupIndicesArgs, InplaceUniqueGroupIndicesShape>
    kInplaceUniqueGroupIndices = {
        .op = "inplace_unique_group_indices",
        .reference = reference::inplace_unique_group_indices,
        .cpu = cpu::inplace_unique_group_indices,
        .cuda = cuda::inplace_unique_group_indices,
        .ascend = ascend::inplace_unique_group_indices,
        .faults = {.op_id = kInplaceUniqueGroupIndicesId, .index_out_of_range = "group_indices"},
};

}  // namespace

TensorSpec inplace_unique_group_indices_spec(const TensorSpec& group_indices, int num_groups) {
  const Check check(kInplaceUniqueGroupIndices.op);
  check.rank("group_indices", group_indices, 2);
  check.dtype("group_indices", group_indices, {DType::kI64});
  check.contiguous("group_indices", group_indices);
  check.range("num_topk", group_indices.size(1), 1, kWeightSlots);
  check.range("num_groups", num_groups, 1, kMaxUniqueGroups);
  return {group_indices.shape, group_indices.dtype, group_indices.device};
}

void inplace_unique_group_indices_out(const TensorView& group_indices, int num_groups,
                                      const Call& call) {
  const Check check(kInplaceUniqueGroupIndices.op);
  check.matches("group_indices", group_indices,
                inplace_unique_group_indices_spec(group_indices, num_groups));
  if (group_indices.is_empty()) return;
  kInplaceUniqueGroupIndices.run(
      call, group_indices.device,
      InplaceUniqueGroupIndicesArgs{.group_indices = static_cast<int64*>(group_indices.data),
                                    .num_tokens = group_indices.size(0),
                                    .num_groups = num_groups,
                                    .fault = nullptr},
      InplaceUniqueGroupIndicesShape{.num_topk = static_cast<int32>(group_indices.size(1))});
}

}  // namespace tilekernels
