// per_token_cast and per_block_cast of a quantized x on the vector core.
#include "ops/quant/cast_ascend.h"

namespace tilekernels::ascend::cast_kernel {

template void run_as<kDTypeE4M3>(const CastArgs&, const CastShape&, const Tile&);
template void run_as<kDTypeE2M1x2>(const CastArgs&, const CastShape&, const Tile&);

}  // namespace tilekernels::ascend::cast_kernel
