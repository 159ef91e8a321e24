// Devices and contexts: what the process keeps of each device, and whose context is current.
#include "runtime/cuda/context.h"

#include <mutex>
#include <stdexcept>
#include <string>

#include "core/message.h"
#include "runtime/cuda/runtime.h"
#include "tilekernels/error.h"

namespace tilekernels::cuda {
namespace {

struct Arch {
  int major;
  int minor;
  std::string_view name;
};
constexpr Arch kArchs[] = {{9, 0, "sm_90a"}, {10, 0, "sm_100a"}, {10, 3, "sm_103a"}};

std::mutex mutex;  // held while a state is made
std::atomic<DeviceState*> states[kMaxDevices];

// The driver's handle of device `index`.
int device_handle(std::string_view op, int index) {
  const Driver& cuda = driver();
  int count = 0;
  check(cuda.device_get_count(&count), op, "cuDeviceGetCount");
  if (index < 0 || index >= count || index >= kMaxDevices) {
    throw std::invalid_argument(message(op, "device",
                                        "must be one of cuda:0..cuda:" + std::to_string(count - 1),
                                        "cuda:" + std::to_string(index)));
  }
  int device = 0;
  check(cuda.device_get(&device, index), op, "cuDeviceGet");
  return device;
}

// Facts that were asked for; 0: not yet.
struct KnownFacts {
  std::atomic<int> num_sms{0};
  std::atomic<int> max_smem_per_sm{0};
};
KnownFacts known_facts[kMaxDevices];

DeviceState* make_state(std::string_view op, int index) {
  const Driver& cuda = driver();
  const int device = device_handle(op, index);
  int major = 0;
  int minor = 0;
  int num_sms = 0;
  check(cuda.device_get_attribute(&major, kAttributeMajor, device), op, "cuDeviceGetAttribute");
  check(cuda.device_get_attribute(&minor, kAttributeMinor, device), op, "cuDeviceGetAttribute");
  check(cuda.device_get_attribute(&num_sms, kAttributeNumSms, device), op, "cuDeviceGetAttribute");
  const std::string_view arch = arch_of(major, minor);
  if (arch.empty()) {
    throw Unsupported(message(op, "no kernels for compute capability " + std::to_string(major) +
                                      "." + std::to_string(minor) + " of cuda:" +
                                      std::to_string(index) + "; available: 9.0, 10.0, 10.3"));
  }
  void* context = nullptr;
  check(cuda.primary_ctx_retain(&context, device), op, "cuDevicePrimaryCtxRetain");
  return new DeviceState{index, context, arch, num_sms};
}

}  // namespace

std::string_view arch_of(int major, int minor) {
  for (const Arch& arch : kArchs) {
    if (arch.major == major && arch.minor == minor) return arch.name;
  }
  return "";
}

bool is_arch(std::string_view name) {
  for (const Arch& arch : kArchs) {
    if (arch.name == name) return true;
  }
  return false;
}

DeviceState* device_state_if_made(int index) {
  if (index < 0 || index >= kMaxDevices) return nullptr;
  return states[index].load(std::memory_order_acquire);
}

DeviceState& device_state(std::string_view op, int index) {
  if (DeviceState* state = device_state_if_made(index)) return *state;
  const std::lock_guard lock(mutex);
  if (DeviceState* state = device_state_if_made(index)) return *state;
  DeviceState* const state = make_state(op, index);
  states[index].store(state, std::memory_order_release);
  return *state;
}

void forget_devices() {
  for (auto& state : states) delete state.exchange(nullptr);
  for (KnownFacts& facts : known_facts) facts.num_sms = facts.max_smem_per_sm = 0;
}

DeviceFacts device_facts(const char* op, int index) {
  if (index >= 0 && index < kMaxDevices) {
    const KnownFacts& known = known_facts[index];
    const DeviceFacts facts{known.num_sms, known.max_smem_per_sm};
    if (facts.num_sms != 0 && facts.max_smem_per_sm != 0) return facts;
  }
  const int device = device_handle(op, index);
  DeviceFacts facts{};
  const auto ask = [&](int& fact, int attribute) {
    check(driver().device_get_attribute(&fact, attribute, device), op, "cuDeviceGetAttribute");
  };
  ask(facts.num_sms, kAttributeNumSms);
  ask(facts.max_smem_per_sm, kAttributeMaxSmemPerSm);
  known_facts[index].num_sms = facts.num_sms;
  known_facts[index].max_smem_per_sm = facts.max_smem_per_sm;
  return facts;
}

bool is_capturing(std::string_view op, void* stream) {
  int status = 0;
  const int result = driver().stream_is_capturing(stream, &status);
  if (result == kErrorCaptureImplicit) return true;  // the legacy stream beside a capture
  check(result, op, "cuStreamIsCapturing");
  return status != 0;
}

}  // namespace tilekernels::cuda
