// Where a tensor lives and which backend computes on it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tilekernels {

/// The kind of memory a tensor lies in.
enum class DeviceType : int32_t { kCpu, kCuda, kAscend };

/// A memory space: host memory, or the memory of one accelerator.
struct Device {
  DeviceType type = DeviceType::kCpu;
  int32_t index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};

/// The implementations of an op. `kReference` is slow scalar code that judges the others.
enum class Backend : int32_t { kReference, kCpu, kCuda, kAscend };
inline constexpr int kNumBackends = 4;

/// Whether a backend can run here, and if not, the one sentence that says why.
struct BackendStatus {
  Backend backend;
  bool available;
  std::string detail;
};

/// "cpu", "cuda:0", "ascend:0".
std::string to_string(const Device& device);

/// "reference", "cpu", "cuda" or "ascend".
std::string_view name(Backend backend);

/// The backend of that name.
/// Errors: std::invalid_argument for any other name.
Backend backend_from_name(std::string_view name);

/// The state of every backend on this machine, in the order of `Backend`.
std::vector<BackendStatus> backends();

}  // namespace tilekernels
