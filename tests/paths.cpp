// Where this build's files lie: the one object that knows. Kernels that tests compile are kept
// there too, unless TILEKERNELS_CACHE_DIR names a folder, and not among the user's.
#include "paths.h"

#include <cstdlib>

namespace tilekernels::paths {

const std::string kSource = TILEKERNELS_SOURCE_DIR;
const std::string kEmulator = TILEKERNELS_EMULATOR;
const std::string kTool = TILEKERNELS_TOOL;

namespace {

// Before anything reads it, and inherited by the commands that tests run.
[[maybe_unused]] const int kept_apart =
    setenv("TILEKERNELS_CACHE_DIR", TILEKERNELS_KERNEL_CACHE, /*overwrite=*/0);

}  // namespace
}  // namespace tilekernels::paths
