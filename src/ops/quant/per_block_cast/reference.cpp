// per_block_cast: the kernel that both casts share.
#include "ops/quant/per_block_cast/op.h"

namespace tilekernels::reference {

void per_block_cast(const CastArgs& args, const CastShape& shape, const Launch& launch) {
  cast_blocks(args, shape, launch);
}

}  // namespace tilekernels::reference
