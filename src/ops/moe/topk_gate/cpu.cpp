// topk_gate on SIMD lanes: rows through the selection that the gates share.
#include "ops/moe/topk_gate/op.h"

#include <algorithm>

#include "runtime/cpu/fault.h"
#include "runtime/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/moe/topk_gate/cpu.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "ops/moe/topk-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tilekernels::cpu::HWY_NAMESPACE {
namespace {

// Selects for `num_rows` tokens from `first` on; the first one with a score that is not finite, or
// `none`.
int64 select_tokens(const TopkGateArgs& args, const TopkGateShape& shape, int64 first,
                    int32 num_rows, int64 to_prefetch, int64 none, Scratch& scratch) {
  for (int32 r = 0; r < num_rows; ++r) {
    scratch.rows[r].scores = args.scores + (first + r) * shape.num_experts;
    scratch.rows[r].topk_idx = args.topk_idx + (first + r) * shape.num_topk;
  }
  select_rows<true>(scratch, num_rows, shape.num_experts, shape.num_topk, to_prefetch);
  for (int32 r = 0; r < num_rows; ++r) {
    if (!scratch.rows[r].is_finite) return first + r;
  }
  return none;
}

}  // namespace

// Returns the first row of [begin, end) with a score that is not finite, or end.
int64 topk_gate(const TopkGateArgs& args, const TopkGateShape& shape, int64 begin, int64 end) {
  const int32 num_experts = shape.num_experts;
  const int64 batch = rows_at_once(num_experts);
  int64 first_fault = end;
  Scratch scratch;
  for (int64 first = begin; first < end; first += batch) {
    const int32 num_rows = static_cast<int32>(std::min(batch, end - first));
    const int64 to_prefetch = batch > 1 ? batch * num_experts : 0;
    first_fault = std::min(first_fault,
                           select_tokens(args, shape, first, num_rows, to_prefetch, end, scratch));
  }
  return first_fault;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace tilekernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilekernels::cpu {
namespace {

HWY_EXPORT(topk_gate);

}  // namespace

void topk_gate(const TopkGateArgs& args, const TopkGateShape& shape, const Launch&) {
  const auto select = HWY_DYNAMIC_DISPATCH(topk_gate);
  const double nanoseconds = 50.0 + 0.25 * shape.num_experts;
  parallel_for(args.num_tokens, items_per_thread(nanoseconds), [&](int64 begin, int64 end) {
    const int64 row = select(args, shape, begin, end);
    if (row != end) note_fault(args.fault, row, kTopkGateId, numerics::kFaultNotFinite);
  });
}

}  // namespace tilekernels::cpu
#endif
