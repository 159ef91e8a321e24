// aux_fi on the vector core: the kernel that both histograms share.
#pragma once

#include "ops/moe/aux_fi/op.h"
#include "ops/moe/histogram_ascend.h"

namespace tilekernels::ascend::aux_fi_kernel {

using histogram_kernel::run;

}  // namespace tilekernels::ascend::aux_fi_kernel
