// NPUs: what the process keeps of each, which one is current, their memory and error words.
#include "runtime/ascend/npu/device.h"

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <vector>

#include "core/message.h"
#include "runtime/ascend/lanes.h"
#include "tilekernels/error.h"

namespace tilekernels::ascend::npu {
namespace {

std::mutex mutex;  // held while a state is made
std::atomic<DeviceState*> states[kMaxDevices];

struct FaultWords {
  const DeviceState* device;
  void* stream;
  uint64_t* words;
};
std::mutex faults_mutex;
std::vector<FaultWords> all_faults;  // guarded by its mutex
std::atomic<bool> any_faults{false};

size_t fault_bytes(const DeviceState& device) {
  return static_cast<size_t>(device.num_cores * kFaultPitch) * sizeof(uint64_t);
}

DeviceState* make_state(std::string_view op, int index) {
  const Acl& runtime = acl();
  uint32_t count = 0;
  check(runtime.get_device_count(&count), op, "aclrtGetDeviceCount");
  if (index < 0 || index >= static_cast<int>(count) || index >= kMaxDevices) {
    throw std::invalid_argument(
        message(op, "device", "must be one of ascend:0..ascend:" + std::to_string(count - 1),
                "ascend:" + std::to_string(index)));
  }
  void* before = nullptr;
  if (runtime.get_current_context(&before) != 0) before = nullptr;
  check(runtime.set_device(index), op, "aclrtSetDevice");
  void* context = nullptr;
  int64_t num_cores = 0;
  const int got_context = runtime.get_current_context(&context);
  const int got_cores =
      runtime.get_device_info(static_cast<uint32_t>(index), kAttributeNumVectorCores, &num_cores);
  const char* const soc_name = runtime.get_soc_name();
  if (before != nullptr) runtime.set_current_context(before);
  check(got_context, op, "aclrtGetCurrentContext");
  check(got_cores, op, "aclrtGetDeviceInfo(VECTOR_CORE_NUM)");
  const std::string name = soc_name == nullptr ? "an unknown processor" : soc_name;
  const std::string_view arch = arch_of(name);
  if (arch.empty()) {
    throw Unsupported(message(op, "no kernels for " + name + " of ascend:" + std::to_string(index) +
                                      "; available: Ascend950"));
  }
  return new DeviceState{index, context, arch, std::max<int64_t>(num_cores, 1)};
}

}  // namespace

std::string_view arch_of(std::string_view soc_name) {
  return soc_name.starts_with("Ascend950") ? "dav-3510" : "";
}

DeviceState& device_state(std::string_view op, int index) {
  const bool in_range = index >= 0 && index < kMaxDevices;
  if (in_range) {
    if (DeviceState* made = states[index].load(std::memory_order_acquire)) return *made;
  }
  const std::lock_guard lock(mutex);
  if (in_range) {
    if (DeviceState* made = states[index].load(std::memory_order_acquire)) return *made;
  }
  DeviceState* const state = make_state(op, index);
  states[index].store(state, std::memory_order_release);
  return *state;
}

void forget_devices() {
  {
    const std::lock_guard lock(faults_mutex);
    for (const FaultWords& of : all_faults) {
      const CurrentDevice current("forget_devices", *of.device);
      acl().free(of.words);
    }
    all_faults.clear();
    any_faults = false;
  }
  for (auto& state : states) delete state.exchange(nullptr);
}

CurrentDevice::CurrentDevice(std::string_view op, const DeviceState& device) {
  const Acl& runtime = acl();
  int32_t current = -1;
  if (runtime.get_device(&current) == 0 && current == device.index) return;
  void* before = nullptr;
  if (runtime.get_current_context(&before) != 0) before = nullptr;
  check(runtime.set_current_context(device.context), op, "aclrtSetCurrentContext");
  before_ = before;
}

CurrentDevice::~CurrentDevice() {
  if (before_ != nullptr) acl().set_current_context(before_);
}

uint64_t* fault_words(std::string_view op, const DeviceState& device, void* stream,
                      std::unique_lock<std::mutex>& lock) {
  lock = std::unique_lock(faults_mutex);
  for (const FaultWords& known : all_faults) {
    if (known.device == &device && known.stream == stream) return known.words;
  }
  const Acl& runtime = acl();
  const size_t size = fault_bytes(device);
  void* words = nullptr;
  check(runtime.allocate(&words, size, kMallocHugeFirst), op, "aclrtMalloc");
  static_assert(numerics::kNoFault == ~uint64_t{0});
  check(runtime.fill(words, size, 0xFF, size), op, "aclrtMemset");
  all_faults.push_back({&device, stream, static_cast<uint64_t*>(words)});
  any_faults = true;
  return static_cast<uint64_t*>(words);
}

uint64_t take_fault(Stream stream) {
  constexpr const char* kOp = "check_errors";
  uint64_t lowest = numerics::kNoFault;
  if (!any_faults) return lowest;
  // Nothing is queued meanwhile that could lower a word between reading and clearing it.
  const std::lock_guard lock(faults_mutex);
  for (const FaultWords& of : all_faults) {
    if (of.stream != stream.handle) continue;
    const Acl& runtime = acl();
    const CurrentDevice current(kOp, *of.device);
    check(runtime.synchronize_stream(stream.handle), kOp, "aclrtSynchronizeStream");
    const size_t size = fault_bytes(*of.device);
    std::vector<uint64_t> words(size / sizeof(uint64_t));
    check(runtime.copy(words.data(), size, of.words, size, kDeviceToHost), kOp, "aclrtMemcpy");
    uint64_t found = numerics::kNoFault;
    for (size_t i = 0; i < words.size(); i += kFaultPitch) found = std::min(found, words[i]);
    if (found != numerics::kNoFault) {
      check(runtime.fill(of.words, size, 0xFF, size), kOp, "aclrtMemset");
    }
    lowest = std::min(lowest, found);
  }
  return lowest;
}

std::shared_ptr<void> allocate(int64_t size_bytes, int device_index, Stream stream) {
  constexpr const char* kOp = "allocate";
  DeviceState& device = device_state(kOp, device_index);
  const CurrentDevice current(kOp, device);
  void* address = nullptr;
  check(acl().allocate(&address, static_cast<size_t>(std::max<int64_t>(size_bytes, 1)),
                       kMallocHugeFirst),
        kOp, "aclrtMalloc");
  return {address, [&device, stream](void* memory) {
            // Nobody to tell: a runtime that cannot free has said so to the calls before. It frees
            // at once, so what the stream still does with the memory comes first.
            try {
              const CurrentDevice freeing(kOp, device);
              acl().synchronize_stream(stream.handle);
              acl().free(memory);
            } catch (const BackendError&) {
            }
          }};
}

void copy(void* to, const void* from, int64_t size_bytes, int kind, int device_index,
          Stream stream) {
  constexpr const char* kOp = "copy";
  const CurrentDevice current(kOp, device_state(kOp, device_index));
  const auto size = static_cast<size_t>(size_bytes);
  check(acl().synchronize_stream(stream.handle), kOp, "aclrtSynchronizeStream");
  check(acl().copy(to, size, from, size, kind), kOp, "aclrtMemcpy");
}

}  // namespace tilekernels::ascend::npu
