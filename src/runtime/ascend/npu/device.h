// NPUs: what the process keeps of each, which one is current, their memory and error words.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "numerics/fault.h"
#include "runtime/ascend/npu/acl.h"
#include "tilekernels/stream.h"

namespace tilekernels::ascend::npu {

constexpr int kMaxDevices = 64;

/// One device: made by the first call on it, kept for the life of the process.
struct DeviceState {
  int index;
  void* context;          ///< the one that aclrtSetDevice makes current, which torch uses too
  std::string_view arch;  ///< "dav-3510"
  int64_t num_cores;      ///< vector cores
};

/// The state of device `index`, counted as the runtime does (ASCEND_RT_VISIBLE_DEVICES).
/// Errors: std::invalid_argument when there is no such device; Unsupported for a processor that
/// the kernels are not written for; BackendError from the runtime.
DeviceState& device_state(std::string_view op, int index);

/// The architecture that kernels are compiled for, of a processor's name; empty: none.
std::string_view arch_of(std::string_view soc_name);

/// For tests: forgets every device.
void forget_devices();

/// Makes the device current while it lives, unless it is; then the caller's context is current
/// again. A thread that had none keeps ours.
class CurrentDevice {
 public:
  CurrentDevice(std::string_view op, const DeviceState& device);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  void* before_ = nullptr;
};

/// The error words of a stream: one a core, `ascend::kFaultPitch` apart, made at the first call.
/// Kernels of one stream run one after another, so each may lower its word without an atomic step.
/// The lock is held while a kernel that may lower them is queued. The device is current.
uint64_t* fault_words(std::string_view op, const DeviceState& device, void* stream,
                      std::unique_lock<std::mutex>& lock);

/// As cuda's of the same names (runtime/cuda/runtime.h).
std::shared_ptr<void> allocate(int64_t size_bytes, int device_index, Stream stream);
void copy(void* to, const void* from, int64_t size_bytes, int kind, int device_index,
          Stream stream);
uint64_t take_fault(Stream stream);

}  // namespace tilekernels::ascend::npu
