// The library's version.
#pragma once

#define TILEKERNELS_VERSION_MAJOR 0
#define TILEKERNELS_VERSION_MINOR 1
#define TILEKERNELS_VERSION_PATCH 0

namespace tilekernels {

/// "0.1.0".
const char* version();

}  // namespace tilekernels
