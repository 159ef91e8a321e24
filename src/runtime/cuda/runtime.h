// What the core asks the cuda runtime.
#pragma once

#include "tilekernels/device.h"

namespace tilekernels::cuda {

/// Whether the backend can run here; the detail says what is missing.
BackendStatus status();

}  // namespace tilekernels::cuda
