// per_block_cast: launch plans of the compiled backends.
#include "ops/quant/per_block_cast/op.h"
#include "runtime/ascend/text.h"
#include "runtime/cuda/text.h"

namespace tilekernels {
namespace cuda {

extern const Text per_block_cast_text;

void per_block_cast(const CastArgs& args, const CastShape& shape, const Launch& launch) {
  cast_blocks(args, shape, launch, per_block_cast_text);
}

}  // namespace cuda

namespace ascend {

extern const Text per_block_cast_text;

void per_block_cast(const CastArgs& args, const CastShape& shape, const Launch& launch) {
  cast_blocks(args, shape, launch, per_block_cast_text);
}

}  // namespace ascend
}  // namespace tilekernels
