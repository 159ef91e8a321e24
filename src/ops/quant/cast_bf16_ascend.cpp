// per_token_cast and per_block_cast of bf16 on the vector core.
#include "ops/quant/cast_ascend.h"

namespace tilekernels::ascend::cast_kernel {

template void run_as<kDTypeBF16>(const CastArgs&, const CastShape&, const Tile&);

}  // namespace tilekernels::ascend::cast_kernel
