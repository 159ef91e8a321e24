// per_token_cast: launch plans of the compiled backends.
#include "ops/quant/per_token_cast/op.h"

namespace tilekernels::ascend {

void per_token_cast(const CastArgs& args, const CastShape& shape, const Launch& launch) {
  cast_blocks(args, shape, launch, "per_token_cast");
}

}  // namespace tilekernels::ascend
