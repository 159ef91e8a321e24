// per_token_cast and per_block_cast of fp32 on the vector core.
#include "ops/quant/cast_ascend.h"

namespace tilekernels::ascend::cast_kernel {

template void run_as<kDTypeF32>(const CastArgs&, const CastShape&, const Tile&);

}  // namespace tilekernels::ascend::cast_kernel
