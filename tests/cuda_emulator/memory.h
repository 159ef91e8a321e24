// Whether a kernel may touch device memory as it does.
#pragma once

#include <string>

#include "api.h"

namespace cuda_emulator {

/// What is wrong with an access of a kernel on `device` to what is not shared memory; empty:
/// nothing.
std::string check_global(u64 address, u64 bytes, u32 what, int device);

}  // namespace cuda_emulator
