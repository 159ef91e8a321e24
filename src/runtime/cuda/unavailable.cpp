// The cuda runtime of a build that has none.
#include "runtime/cuda/runtime.h"

namespace tilekernels::cuda {

BackendStatus status() {
  return {Backend::kCuda, false, "this build has no cuda kernels"};
}

}  // namespace tilekernels::cuda
