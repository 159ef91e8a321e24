// per_block_cast: scaling blocks of 32 or 128 rows by 32 or 128 columns. See ops/quant/cast.h.
#pragma once

#include "ops/quant/cast.h"

namespace tilekernels {

using PerBlockCastArgs = CastArgs;
using PerBlockCastShape = CastShape;  // no kSfE4M3
using PerBlockCastKernel = Kernel<PerBlockCastArgs, PerBlockCastShape>;
namespace reference {
PerBlockCastKernel per_block_cast;
}
namespace cpu {
PerBlockCastKernel per_block_cast;
}
namespace cuda {
PerBlockCastKernel per_block_cast;
}
namespace ascend {
PerBlockCastKernel per_block_cast;
}

}  // namespace tilekernels
