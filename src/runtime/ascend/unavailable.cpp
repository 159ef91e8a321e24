// The ascend runtime of a build that has none.
#include "runtime/ascend/runtime.h"

namespace tilekernels::ascend {

BackendStatus status() { return {Backend::kAscend, false, "this build has no ascend kernels"}; }

}  // namespace tilekernels::ascend
