// group_count: checks, shapes and dispatch.
#include "core/check.h"
#include "core/kernel_table.h"
#include "ops/moe/group_count/op.h"
#include "ops/moe/histogram_front.h"
#include "tilekernels/moe.h"

namespace tilekernels {
namespace {

constexpr KernelTable<GroupCountArgs, GroupCountShape> kGroupCount = {
    .op = "group_count",
    .reference = reference::group_count,
    .cpu = cpu::group_count,
    .cuda = cuda::group_count,
    .ascend = ascend::group_count,
    .faults = {.op_id = kGroupCountId, .index_out_of_range = "group_idx"},
};

}  // namespace

TensorSpec group_count_spec(const TensorSpec& group_idx, int num_groups) {
  const Check check(kGroupCount.op);
  check_histogram_indices(check, "group_idx", group_idx);
  check.range("num_groups", num_groups, 1, kMaxBins);
  return {{num_groups}, DType::kI32, group_idx.device};
}

void group_count_out(const TensorView& count, const TensorView& group_idx, int num_groups,
                     const Call& call) {
  const Check check(kGroupCount.op);
  check.matches("count", count, group_count_spec(group_idx, num_groups));
  check.memory("group_idx", group_idx);
  check.disjoint("count", bytes_written(count), "group_idx", bytes_read(group_idx));
  kGroupCount.run(call, group_idx.device, histogram_args(count, group_idx, 0),
                  GroupCountShape{.is_fraction = 0});
}

Tensor group_count(const TensorView& group_idx, int num_groups, const Call& call) {
  Tensor count = call.allocate(group_count_spec(group_idx, num_groups));
  group_count_out(count, group_idx, num_groups, call);
  return count;
}

}  // namespace tilekernels
