// per_block_cast on the vector core: the kernel that both casts share.
#pragma once

#include "ops/quant/cast_ascend.h"
#include "ops/quant/per_block_cast/op.h"

namespace tilekernels::ascend::per_block_cast_kernel {

using cast_kernel::run;

}  // namespace tilekernels::ascend::per_block_cast_kernel
