// What the core asks the cuda runtime.
#pragma once

#include <cstdint>
#include <memory>

#include "tilekernels/device.h"
#include "tilekernels/stream.h"

namespace tilekernels::cuda {

/// Whether the backend can run here; the detail says what is missing. Initialises CUDA.
BackendStatus status();

/// The same without the words, for every call: one load once it is so.
bool is_available();

/// Whether this thread has a `CompileOnly`.
bool is_compile_only();

/// What the driver says of a device, whatever its architecture; asked once.
struct DeviceFacts {
  int num_sms;
  int max_smem_per_sm;
};
/// Errors: BackendError; std::invalid_argument for a device that is not there.
DeviceFacts device_facts(const char* op, int device_index);

/// Device memory that is free again on the same stream when the last owner lets go of it.
/// Errors: BackendError; std::invalid_argument for a device that is not there.
std::shared_ptr<void> allocate(int64_t size_bytes, int device_index, Stream stream);

/// Copies between host and device memory, in either direction or on the device, and waits for it.
void copy(void* to, const void* from, int64_t size_bytes, int device_index, Stream stream);

/// Waits for the stream; the lowest fault that kernels reported since the last call (kNoFault when
/// there is none, at once when no kernel ran).
uint64_t take_fault(Stream stream);

}  // namespace tilekernels::cuda
