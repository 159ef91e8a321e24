// Chooses the backend of a call and reports the faults that host backends found in the data.
#include "core/kernel_table.h"

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>

#include "core/message.h"
#include "core/settings.h"
#include "numerics/gate_fault.h"
#include "runtime/ascend/runtime.h"
#include "runtime/cpu/targets.h"
#include "runtime/cuda/runtime.h"
#include "tilekernels/config.h"
#include "tilekernels/error.h"

namespace tilekernels {
namespace {

constexpr const char* kNoSimd = "this processor has no AVX2: cpu calls run the reference";

bool computes_on(Backend backend, DeviceType memory) {
  // The Ascend machine model computes on host memory, an NPU on its own.
  if (backend == Backend::kAscend) return memory != DeviceType::kCuda;
  return memory == (backend == Backend::kCuda ? DeviceType::kCuda : DeviceType::kCpu);
}

Backend backend_of(DeviceType device) {
  switch (device) {
    case DeviceType::kCpu:
      return Backend::kCpu;
    case DeviceType::kCuda:
      return Backend::kCuda;
    case DeviceType::kAscend:
      return Backend::kAscend;
  }
  return Backend::kCpu;
}

std::string available_kernels(const KernelPresence& presence) {
  std::string text;
  for (int i = 0; i < kNumBackends; ++i) {
    if (!presence.present[i]) continue;
    if (!text.empty()) text += ", ";
    text += name(static_cast<Backend>(i));
  }
  return text;
}

// What the error words of devices stand for, by op id.
struct DeviceFaults {
  std::atomic<const char*> op{nullptr};
  std::atomic<const FaultNames*> names{nullptr};
};
DeviceFaults device_faults[256];

BackendStatus status(Backend backend) {
  switch (backend) {
    case Backend::kReference:
      return {backend, true, "scalar code, judges the others"};
    case Backend::kCpu:
      if (!cpu::has_simd()) return {backend, false, kNoSimd};
      return {backend, true, get_cpu_target() + ", " + counted(get_num_threads(), "thread")};
    case Backend::kCuda:
      return cuda::status();
    case Backend::kAscend:
      return ascend::status();
  }
  return {backend, false, "unknown"};
}

}  // namespace

std::vector<BackendStatus> backends() {
  std::vector<BackendStatus> all;
  for (int i = 0; i < kNumBackends; ++i) all.push_back(status(static_cast<Backend>(i)));
  return all;
}

Backend choose_backend(std::string_view op, const Call& call, Device device,
                       const KernelPresence& presence) {
  // Asked for in any case: the first call reads the environment and refuses what is wrong there.
  const std::optional<Backend> process_wide = get_backend();
  const std::optional<Backend> forced = call.backend ? call.backend : process_wide;
  Backend backend = forced.value_or(backend_of(device.type));
  if (forced && !computes_on(backend, device.type)) {
    throw std::invalid_argument(
        message(op, "backend", "must be one that computes on " + to_string(device) + " memory",
                name(backend)));
  }
  if (!presence.present[static_cast<int>(backend)]) {
    throw Unsupported(
        message(op, "no " + std::string(name(backend)) +
                        " kernel in this build; available: " + available_kernels(presence)));
  }
  if (backend == Backend::kAscend && device.type == DeviceType::kAscend) {
    const std::string problem = ascend::npu_problem();
    if (!problem.empty()) throw BackendError(message(op, problem));
  }
  if (backend == Backend::kCpu && !cpu::has_simd()) {
    if (!forced) return Backend::kReference;
    throw BackendError(message(op, kNoSimd));
  }
  if (backend == Backend::kCuda && !cuda::is_available()) {
    const BackendStatus found = status(backend);
    if (!found.available) throw BackendError(message(op, found.detail));
  }
  return backend;
}

void throw_fault(std::string_view op, uint64_t word, const FaultNames& faults) {
  if (!get_check_data()) return;
  const int64_t row = numerics::fault_row(word);
  const std::string at = " at row " + std::to_string(row);
  switch (numerics::fault_kind(word)) {
    case numerics::kFaultNotFinite:
      throw DataError(message(op, faults.not_finite, "must be finite", "NaN or Inf" + at), row);
    case numerics::kFaultIndexOutOfRange:
      throw DataError(message(op, faults.index_out_of_range, "must name an element",
                              "an index out of range" + at),
                      row);
    case numerics::kFaultNan:
      throw DataError(message(op, faults.nan, "must not be NaN", "NaN" + at), row);
    case numerics::kFaultCountOutOfRange:
      throw DataError(message(op, faults.count_out_of_range,
                              "must be at least 1 and at most the copies in its table",
                              "a count out of range" + at),
                      row);
    default:
      throw DataError(message(op, faults.position_out_of_range, "must lie in its table",
                              "a position out of range" + at),
                      row);
  }
}

void remember_faults(const char* op, const FaultNames& faults) {
  DeviceFaults& of = device_faults[faults.op_id & 0xFF];
  of.op.store(op, std::memory_order_relaxed);
  of.names.store(&faults, std::memory_order_release);
}

void check_errors(Stream stream) {
  const uint64_t word = std::min(ascend::take_fault(stream), cuda::take_fault(stream));
  if (word == numerics::kNoFault) return;
  const DeviceFaults& of = device_faults[numerics::fault_op(word)];
  const FaultNames* const names = of.names.load(std::memory_order_acquire);
  if (names != nullptr) throw_fault(of.op.load(std::memory_order_relaxed), word, *names);
}

}  // namespace tilekernels
