// aux_fi: checks, shapes and dispatch.
#include <limits>

#include "core/check.h"
#include "core/kernel_table.h"
#include "ops/moe/aux_fi/op.h"
#include "ops/moe/histogram_front.h"
#include "tilekernels/moe.h"

namespace tilekernels {
namespace {

constexpr KernelTable<AuxFiArgs, AuxFiShape> kAuxFi = {
    .op = "aux_fi",
    .reference = reference::aux_fi,
    .cpu = cpu::aux_fi,
    .cuda = cuda::aux_fi,
    .ascend = ascend::aux_fi,
    .faults = {.op_id = kAuxFiId, .index_out_of_range = "topk_idx"},
};

}  // namespace

TensorSpec aux_fi_spec(const TensorSpec& topk_idx, int num_experts, int num_aux_topk) {
  const Check check(kAuxFi.op);
  check_histogram_indices(check, "topk_idx", topk_idx);
  check.range("num_experts", num_experts, 1, kMaxBins);
  check.range("num_aux_topk", num_aux_topk, 1, std::numeric_limits<int32_t>::max());
  return {{num_experts}, DType::kF32, topk_idx.device};
}

void aux_fi_out(const TensorView& fi, const TensorView& topk_idx, int num_experts, int num_aux_topk,
                const Call& call) {
  const Check check(kAuxFi.op);
  check.matches("fi", fi, aux_fi_spec(topk_idx, num_experts, num_aux_topk));
  check.memory("topk_idx", topk_idx);
  check.disjoint("fi", bytes_written(fi), "topk_idx", bytes_read(topk_idx));
  kAuxFi.run(call, topk_idx.device,
             histogram_args(fi, topk_idx, topk_idx.size(0) * int64_t{num_aux_topk}),
             AuxFiShape{.is_fraction = 1});
}

Tensor aux_fi(const TensorView& topk_idx, int num_experts, int num_aux_topk, const Call& call) {
  Tensor fi = call.allocate(aux_fi_spec(topk_idx, num_experts, num_aux_topk));
  aux_fi_out(fi, topk_idx, num_experts, num_aux_topk, call);
  return fi;
}

}  // namespace tilekernels
