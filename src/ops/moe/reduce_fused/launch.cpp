// reduce_fused: launch plans of the compiled backends.
#include "runtime/ascend/launch.h"
#include "ops/moe/reduce_fused/ascend.h"
#include "ops/moe/reduce_fused/op.h"
#include "ops/moe/reduce_fused/tile.h"
#include "runtime/cuda/launch.h"

namespace tilekernels {
namespace cuda {

extern const Text reduce_fused_text;

void reduce_fused(const ReduceFusedArgs& args, const ReduceFusedShape& shape, const Launch& where) {
  const int32 chunk = reduce_chunk(shape);
  const int64 pitch = args.num_expanded > 1 ? args.x_stride : 0;
  const int32 out_bytes = chunk * reduced_bytes(shape.out_dtype);
  const ReduceFusedTile tile{.wide = shape.hidden % chunk == 0 && is_aligned(args.x, pitch, 16) &&
                                     is_aligned(args.out, 0, out_bytes)};
  const int64 threads = args.num_tokens * reduce_spans(shape) * 32;
  launch(reduce_fused_text,
         {.grid = {numerics::ceil_div(threads, kReduceThreads)}, .block = {kReduceThreads}}, args,
         shape, tile, where);
}

}  // namespace cuda

namespace ascend {

extern const Text reduce_fused_text;

void reduce_fused(const ReduceFusedArgs& args, const ReduceFusedShape& shape, const Launch& where) {
  using namespace reduce_fused_kernel;
  static_assert(ub_bytes() <= kUbBytes);
  launch<run>(reduce_fused_text, args.num_tokens, args, shape, where);
}

}  // namespace ascend
}  // namespace tilekernels
