// aux_fi: the kernel that both histograms share.
#include "ops/moe/aux_fi/op.h"

namespace tilekernels::cpu {

void aux_fi(const AuxFiArgs& args, const AuxFiShape& shape, const Launch& launch) {
  histogram(args, shape, launch);
}

}  // namespace tilekernels::cpu
