// group_count: the kernel that both histograms share.
#include "ops/moe/group_count/op.h"

namespace tilekernels::reference {

void group_count(const GroupCountArgs& args, const GroupCountShape& shape, const Launch& launch) {
  histogram(args, shape, launch);
}

}  // namespace tilekernels::reference
