// The process's settings: start values from the environment, read once; then the setters.
#pragma once

#include <string>

#include "tilekernels/config.h"

namespace tilekernels {

/// The floor under amax for one call: the caller's, else the process's; checked.
float amax_clamp_or_default(const char* op, const std::optional<float>& clamp, DType fmt,
                            bool use_e4m3_sf);

/// The CUDA driver's library that TILEKERNELS_CUDA_LIBRARY names; empty when it names none.
std::string cuda_library();

/// What `set_num_sms` limits a device's multiprocessors to; 0: no limit.
int num_sms_limit();

/// The NVRTC library that TILEKERNELS_NVRTC_LIBRARY names; empty when it names none.
std::string nvrtc_library();

/// The same of the NPU's runtime (TILEKERNELS_ASCENDCL_LIBRARY) and of its run-time compiler
/// (TILEKERNELS_ACLRTC_LIBRARY).
std::string ascendcl_library();
std::string aclrtc_library();

}  // namespace tilekernels
