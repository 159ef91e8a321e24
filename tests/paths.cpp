// Where this build's files lie: the one object that knows.
#include "paths.h"

namespace tilekernels::paths {

const std::string kSource = TILEKERNELS_SOURCE_DIR;
const std::string kEmulator = TILEKERNELS_EMULATOR;
const std::string kTool = TILEKERNELS_TOOL;

}  // namespace tilekernels::paths
