// What the machine gives a kernel besides its arguments.
#pragma once

#include "tilekernels/device.h"
#include "tilekernels/stream.h"

namespace tilekernels {

/// Where and on which queue a kernel runs.
struct Launch {
  Device device;
  Stream stream;
};

}  // namespace tilekernels
