// Device memory: the stream-ordered pool, copies, and the error word.
#pragma once

#include <cstdint>
#include <string_view>

#include "runtime/cuda/context.h"

namespace tilekernels::cuda {

/// Sets `device.fault` to a new error word, unless it has one. The device's context is current and
/// nothing is captured on `stream`.
void make_fault_word(std::string_view op, DeviceState& device, void* stream);

}  // namespace tilekernels::cuda
