// What the core asks the ascend runtime.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tilekernels/device.h"
#include "tilekernels/stream.h"

namespace tilekernels::ascend {

/// The backend runs everywhere, on the machine model; the detail says what NPUs there are, or what
/// is missing for one. Looks for the NPU's libraries.
BackendStatus status();

/// Whether this machine has the device file of NPUs.
bool is_present();

constexpr int kVecCoresPerCubeCore = 2;
/// Vector cores of the machine model.
int num_model_cores();
/// Bytes of the on-core buffer that a kernel may take; the cache of SIMT parts takes some of it.
int max_ub_bytes(bool with_simt);

/// Empty when NPUs can be used, else the one sentence that says what is missing. Starts their
/// runtime.
std::string npu_problem();

/// The NPUs, or why there are none, for `status`.
std::string describe_npus();

// NPU memory, as cuda's functions of the same names (runtime/cuda/runtime.h). Memory is given back
// after the stream's work.
std::shared_ptr<void> allocate(int64_t size_bytes, int device_index, Stream stream);
void copy(void* to, bool to_device, const void* from, bool from_device, int64_t size_bytes,
          int device_index, Stream stream);

/// Waits for the stream; the lowest fault that NPU kernels reported on it since the last call
/// (kNoFault when there is none, at once when no kernel ran).
uint64_t take_fault(Stream stream);

}  // namespace tilekernels::ascend
