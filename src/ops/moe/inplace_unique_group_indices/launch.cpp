// inplace_unique_group_indices: launch plans of the compiled backends.
#include "runtime/ascend/launch.h"
#include "ops/moe/inplace_unique_group_indices/ascend.h"
#include "ops/moe/inplace_unique_group_indices/op.h"
#include "runtime/cuda/launch.h"

namespace tilekernels {
namespace cuda {

extern const Text inplace_unique_group_indices_text;

void inplace_unique_group_indices(const InplaceUniqueGroupIndicesArgs& args,
                                  const InplaceUniqueGroupIndicesShape& shape,
                                  const Launch& where) {
  constexpr int64 kThreads = 256;
  const int64 rows = kThreads / power_of_two_from(shape.num_topk);
  launch(inplace_unique_group_indices_text,
         {.grid = {numerics::ceil_div(args.num_tokens, rows)}, .block = {kThreads}}, args, shape,
         where);
}

}  // namespace cuda

namespace ascend {

extern const Text inplace_unique_group_indices_text;

void inplace_unique_group_indices(const InplaceUniqueGroupIndicesArgs& args,
                                  const InplaceUniqueGroupIndicesShape& shape,
                                  const Launch& where) {
  using namespace inplace_unique_group_indices_kernel;
  static_assert(ub_bytes() <= kUbBytes);
  launch<run>(inplace_unique_group_indices_text,
              numerics::ceil_div(args.num_tokens, rows_of_tile(shape.num_topk)), args, shape,
              where);
}

}  // namespace ascend
}  // namespace tilekernels
