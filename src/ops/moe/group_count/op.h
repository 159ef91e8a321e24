// group_count: how many indices name each group. See ops/moe/histogram.h.
#pragma once

#include "ops/moe/histogram.h"

namespace tilekernels {

using GroupCountArgs = HistogramArgs;
using GroupCountShape = HistogramShape;  // is_fraction = 0
using GroupCountKernel = Kernel<GroupCountArgs, GroupCountShape>;
namespace reference {
GroupCountKernel group_count;
}
namespace cpu {
GroupCountKernel group_count;
}
namespace cuda {
GroupCountKernel group_count;
}
namespace ascend {
GroupCountKernel group_count;
}

}  // namespace tilekernels
