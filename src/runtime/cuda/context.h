// Devices and contexts: what the process keeps of each device, and whose context is current.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "runtime/cuda/driver.h"

namespace tilekernels::cuda {

constexpr int kMaxDevices = 64;

/// One device: made by the first call on it, kept for the life of the process.
struct DeviceState {
  int index;
  void* context;          ///< the primary one, which torch and the CUDA runtime use too
  std::string_view arch;  ///< "sm_90a"
  int num_sms;
  /// Address of the error word in device memory; 0 until the first kernel is loaded. Behind it lies
  /// what `exchange` found there.
  std::atomic<uint64_t> fault{0};
  std::atomic<void*> exchange{nullptr};  ///< the kernel that takes the error word; may be missing
  std::atomic<void*> pool{nullptr};      ///< of the stream-ordered allocator, made at its first use
};

/// The state of device `index`, counted as the driver does (CUDA_VISIBLE_DEVICES).
/// Errors: std::invalid_argument when there is no such device; Unsupported for an architecture
/// that the kernels are not written for; BackendError from the driver.
DeviceState& device_state(std::string_view op, int index);

/// The same if a call has made it, else null.
DeviceState* device_state_if_made(int index);

/// The architecture that kernels are compiled for, of a compute capability; empty: none.
std::string_view arch_of(int major, int minor);

/// Whether `arch` is one of those.
bool is_arch(std::string_view arch);

/// For tests: forgets every device.
void forget_devices();

/// Makes the device's context current while it lives; then the caller's is current again.
class CurrentContext {
 public:
  CurrentContext(std::string_view op, const DeviceState& device) : driver_(driver()) {
    void* current = nullptr;
    check(driver_.ctx_get_current(&current), op, "cuCtxGetCurrent");
    if (current == device.context) return;
    check(driver_.ctx_push_current(device.context), op, "cuCtxPushCurrent");
    pushed_ = true;
  }
  ~CurrentContext() {
    void* popped;
    if (pushed_) driver_.ctx_pop_current(&popped);
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  const Driver& driver_;
  bool pushed_ = false;
};

/// Lets this thread allocate and load modules while another one captures a stream: in the default
/// mode such a call would invalidate the capture.
class RelaxedCapture {
 public:
  RelaxedCapture() { driver_.thread_exchange_capture_mode(&mode_); }
  ~RelaxedCapture() { driver_.thread_exchange_capture_mode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const Driver& driver_ = driver();
  int mode_ = kCaptureModeRelaxed;
};

/// Whether the stream is being captured, or must not be used because another one is.
bool is_capturing(std::string_view op, void* stream);

}  // namespace tilekernels::cuda
