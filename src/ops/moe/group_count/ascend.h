// group_count on the vector core: the kernel that both histograms share.
#pragma once

#include "ops/moe/group_count/op.h"
#include "ops/moe/histogram_ascend.h"

namespace tilekernels::ascend::group_count_kernel {

using histogram_kernel::run;

}  // namespace tilekernels::ascend::group_count_kernel
