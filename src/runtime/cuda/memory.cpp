// Device memory: the stream-ordered pool, copies, and the error word.
#include "runtime/cuda/memory.h"

#include <algorithm>
#include <mutex>
#include <new>
#include <string>

#include "core/message.h"
#include "numerics/fault.h"
#include "runtime/cuda/runtime.h"
#include "tilekernels/error.h"

namespace tilekernels::cuda {
namespace {

std::mutex mutex;  // held while a pool or an error word is made

// A pool of our own: freed blocks stay in it, and the host program's default pool is left alone.
void* pool_of(DeviceState& device) {
  if (void* pool = device.pool.load(std::memory_order_acquire)) return pool;
  const std::lock_guard lock(mutex);
  if (void* pool = device.pool.load(std::memory_order_acquire)) return pool;
  const RelaxedCapture relaxed;
  MemPoolProps props{};
  props.alloc_type = kMemAllocationPinned;
  props.location_type = kMemLocationDevice;
  props.location_id = device.index;
  void* pool = nullptr;
  check(driver().mem_pool_create(&pool, &props), "allocate", "cuMemPoolCreate");
  uint64_t keep_all = ~uint64_t{0};
  check(driver().mem_pool_set_attribute(pool, kMemPoolReleaseThreshold, &keep_all), "allocate",
        "cuMemPoolSetAttribute");
  device.pool.store(pool, std::memory_order_release);
  return pool;
}

// Whether work on `stream` runs on the device. Null and the driver's named default streams stand
// for every device.
bool concerns(const DeviceState& device, void* stream) {
  constexpr uintptr_t kLastNamedStream = 2;  // CU_STREAM_PER_THREAD
  if (reinterpret_cast<uintptr_t>(stream) <= kLastNamedStream) return true;
  void* context = nullptr;
  check(driver().stream_get_ctx(stream, &context), "check_errors", "cuStreamGetCtx");
  return context == device.context;
}

// Takes what the error word holds, leaves kNoFault and stores the taken value behind it, in one
// atomic step. The driver itself compiles this text: there may be no NVRTC here.
constexpr char kExchange[] = R"(.version 8.0
.target sm_90
.address_size 64
.visible .entry exchange(.param .u64 word)
{
  .reg .b64 %rd<4>;
  ld.param.u64 %rd0, [word];
  cvta.to.global.u64 %rd1, %rd0;
  mov.b64 %rd2, -1;
  atom.global.exch.b64 %rd3, [%rd1], %rd2;
  st.global.b64 [%rd1+8], %rd3;
  ret;
}
)";

// Null where the driver cannot compile it.
void* load_exchange() {
  void* module = nullptr;
  void* function = nullptr;
  if (driver().module_load_data(&module, kExchange) != 0) return nullptr;
  return driver().module_get_function(&function, module, "exchange") == 0 ? function : nullptr;
}

void refuse_capture(const char* op, void* stream) {
  if (!is_capturing(op, stream)) return;
  throw BackendError(message(op, "waits for the stream, which cannot be done in a capture"));
}

// Waits for the stream, reads the device's error word and clears it. What other streams report
// meanwhile stays for the next call; without `exchange` a fault between reading and clearing is
// lost.
uint64_t take_fault(const DeviceState& device, void* stream) {
  constexpr const char* kOp = "check_errors";
  const Driver& cuda = driver();
  const CurrentContext current(kOp, device);
  refuse_capture(kOp, stream);
  uint64_t address = device.fault;
  const auto read = [&](uint64_t from) {
    uint64_t word = numerics::kNoFault;
    check(cuda.memcpy_async(reinterpret_cast<uint64_t>(&word), from, sizeof(word), stream), kOp,
          "cuMemcpyAsync");
    check(cuda.stream_synchronize(stream), kOp, "cuStreamSynchronize");
    return word;
  };
  const uint64_t seen = read(address);
  if (seen == numerics::kNoFault) return seen;
  const std::lock_guard lock(mutex);  // the place of the taken value is one for all callers
  if (device.exchange != nullptr) {
    const LaunchConfig config{{1, 1, 1}, {1, 1, 1}, 0, stream, nullptr, 0};
    void* params[] = {&address};
    check(cuda.launch_kernel_ex(&config, device.exchange, params, nullptr), kOp,
          "cuLaunchKernelEx");
    return read(address + sizeof(uint64_t));
  }
  check(cuda.memset_d8_async(address, 0xFF, sizeof(seen), stream), kOp, "cuMemsetD8Async");
  check(cuda.stream_synchronize(stream), kOp, "cuStreamSynchronize");
  return seen;
}

}  // namespace

void make_fault_word(std::string_view op, DeviceState& device, void* stream) {
  const std::lock_guard lock(mutex);
  if (device.fault != 0) return;
  const Driver& cuda = driver();
  uint64_t address = 0;
  check(cuda.mem_alloc(&address, 2 * sizeof(uint64_t)), op, "cuMemAlloc");
  static_assert(numerics::kNoFault == ~uint64_t{0});
  check(cuda.memset_d8_async(address, 0xFF, 2 * sizeof(uint64_t), stream), op, "cuMemsetD8Async");
  // Other streams use the word too.
  check(cuda.stream_synchronize(stream), op, "cuStreamSynchronize");
  device.exchange = load_exchange();
  device.fault = address;
}

uint64_t take_fault(Stream stream) {
  uint64_t lowest = numerics::kNoFault;
  for (int index = 0; index < kMaxDevices; ++index) {
    const DeviceState* const device = device_state_if_made(index);
    if (device == nullptr || device->fault == 0 || !concerns(*device, stream.handle)) continue;
    lowest = std::min(lowest, take_fault(*device, stream.handle));
  }
  return lowest;
}

std::shared_ptr<void> allocate(int64_t size_bytes, int device_index, Stream stream) {
  constexpr const char* kOp = "allocate";
  DeviceState& device = device_state(kOp, device_index);
  const CurrentContext current(kOp, device);
  uint64_t address = 0;
  const auto size = static_cast<size_t>(std::max<int64_t>(size_bytes, 1));
  const int result =
      driver().mem_alloc_from_pool_async(&address, size, pool_of(device), stream.handle);
  check(result, kOp, "cuMemAllocFromPoolAsync");
  return {reinterpret_cast<void*>(address), [&device, stream](void* memory) {
            // Nobody to tell: a driver that cannot free has said so to the calls before.
            try {
              const CurrentContext freeing(kOp, device);
              driver().mem_free_async(reinterpret_cast<uint64_t>(memory), stream.handle);
            } catch (const BackendError&) {
            }
          }};
}

void copy(void* to, const void* from, int64_t size_bytes, int device_index, Stream stream) {
  constexpr const char* kOp = "copy";
  const CurrentContext current(kOp, device_state(kOp, device_index));
  refuse_capture(kOp, stream.handle);
  check(driver().memcpy_async(reinterpret_cast<uint64_t>(to), reinterpret_cast<uint64_t>(from),
                              static_cast<size_t>(size_bytes), stream.handle),
        kOp, "cuMemcpyAsync");
  check(driver().stream_synchronize(stream.handle), kOp, "cuStreamSynchronize");
}

}  // namespace tilekernels::cuda
