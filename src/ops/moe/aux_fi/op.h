// aux_fi: each expert's share of the routes, times the number of experts. See ops/moe/histogram.h.
#pragma once

#include "ops/moe/histogram.h"

namespace tilekernels {

using AuxFiArgs = HistogramArgs;
using AuxFiShape = HistogramShape;  // is_fraction = 1
using AuxFiKernel = Kernel<AuxFiArgs, AuxFiShape>;
namespace reference {
AuxFiKernel aux_fi;
}
namespace cpu {
AuxFiKernel aux_fi;
}
namespace cuda {
AuxFiKernel aux_fi;
}
namespace ascend {
AuxFiKernel aux_fi;
}

}  // namespace tilekernels
