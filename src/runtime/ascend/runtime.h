// What the core asks the ascend runtime.
#pragma once

#include "tilekernels/device.h"

namespace tilekernels::ascend {

/// Whether the backend can run here; the detail says what is missing.
BackendStatus status();

}  // namespace tilekernels::ascend
