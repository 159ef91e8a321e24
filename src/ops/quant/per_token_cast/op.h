// per_token_cast: scaling blocks of one row by 16, 32, 64 or 128 columns. See ops/quant/cast.h.
#pragma once

#include "ops/quant/cast.h"

namespace tilekernels {

using PerTokenCastArgs = CastArgs;
using PerTokenCastShape = CastShape;  // block_rows 1; hidden a multiple of 16
using PerTokenCastKernel = Kernel<PerTokenCastArgs, PerTokenCastShape>;
namespace reference {
PerTokenCastKernel per_token_cast;
}
namespace cpu {
PerTokenCastKernel per_token_cast;
}
namespace cuda {
PerTokenCastKernel per_token_cast;
}
namespace ascend {
PerTokenCastKernel per_token_cast;
}

}  // namespace tilekernels
