// Where this build's files lie. Values, not macros, so that test objects are the same in every
// folder and ccache finds them again.
#pragma once

#include <string>

namespace tilekernels::paths {

extern const std::string kSource;    ///< the project's root
extern const std::string kEmulator;  ///< the CUDA emulator; empty when it is not built
extern const std::string kTool;      ///< the tilekernels command; empty when it is not built

}  // namespace tilekernels::paths
