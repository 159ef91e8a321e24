// per_block_cast: launch plans of the compiled backends.
#include "ops/quant/per_block_cast/op.h"

namespace tilekernels::ascend {

void per_block_cast(const CastArgs& args, const CastShape& shape, const Launch& launch) {
  cast_blocks(args, shape, launch, "per_block_cast");
}

}  // namespace tilekernels::ascend
