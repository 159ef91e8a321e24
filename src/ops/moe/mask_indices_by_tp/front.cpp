// mask_indices_by_tp: checks, shapes and dispatch.
#include <limits>

#include "core/check.h"
#include "core/kernel_table.h"
#include "ops/moe/mask_indices_by_tp/op.h"
#include "tilekernels/moe.h"

namespace tilekernels {
namespace {

constexpr KernelTable<MaskIndicesByTpArgs, MaskIndicesByTpShape> kMaskIndicesByTp = {
    .op = "mask_indices_by_tp",
    .reference = reference::mask_indices_by_tp,
    .cpu = cpu::mask_indices_by_tp,
    .cuda = cuda::mask_indices_by_tp,
    .ascend = ascend::mask_indices_by_tp,
    .faults = {.op_id = kMaskIndicesByTpId, .index_out_of_range = "indices"},
};

}  // namespace

TensorSpec mask_indices_by_tp_spec(const TensorSpec& indices, int n, int num_ep_ranks, int tp_rank,
                                   int num_tp_ranks) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  const Check check(kMaskIndicesByTp.op);
  check.rank("indices", indices, 2).dtype("indices", indices, {DType::kI64, DType::kI32});
  check.contiguous("indices", indices);
  check.range("n", n, 1, kMax);
  check.range("num_ep_ranks", num_ep_ranks, 1, n);
  check.range("num_tp_ranks", num_tp_ranks, 1, kMax);
  check.range("tp_rank", tp_rank, 0, num_tp_ranks - 1);
  return {indices.shape, indices.dtype, indices.device};
}

void mask_indices_by_tp_out(const TensorView& masked, const TensorView& indices, int n,
                            int num_ep_ranks, int tp_rank, int num_tp_ranks, const Call& call) {
  const Check check(kMaskIndicesByTp.op);
  check.matches("masked", masked,
                mask_indices_by_tp_spec(indices, n, num_ep_ranks, tp_rank, num_tp_ranks));
  check.memory("indices", indices);
  check.disjoint("masked", bytes_written(masked), "indices", bytes_read(indices));
  if (indices.is_empty()) return;
  kMaskIndicesByTp.run(
      call, indices.device,
      MaskIndicesByTpArgs{.indices = indices.data,
                          .out = masked.data,
                          .count = indices.numel(),
                          .row_length = indices.size(1),
                          .num_experts = n,
                          .tp_rank = tp_rank,
                          .experts_per_rank = numerics::divisor_of(n / num_ep_ranks),
                          .num_tp_ranks = numerics::divisor_of(num_tp_ranks),
                          .fault = nullptr},
      MaskIndicesByTpShape{.dtype = static_cast<int32>(indices.dtype)});
}

Tensor mask_indices_by_tp(const TensorView& indices, int n, int num_ep_ranks, int tp_rank,
                          int num_tp_ranks, const Call& call) {
  Tensor masked =
      call.allocate(mask_indices_by_tp_spec(indices, n, num_ep_ranks, tp_rank, num_tp_ranks));
  mask_indices_by_tp_out(masked, indices, n, num_ep_ranks, tp_rank, num_tp_ranks, call);
  return masked;
}

}  // namespace tilekernels
