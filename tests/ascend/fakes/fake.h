// Libraries that stand in for an NPU's runtime and compiler: what a test can set and read.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace tilekernels::ascend::fake {

struct LaunchRecord {
  std::string function;
  int32_t device;
  uint32_t num_blocks;
  void* stream;
  std::vector<char> args;
};

/// Of libascendcl: `extern "C" Npu* fake_npu()`.
struct Npu {
  // Set by tests
  int32_t num_devices = 2;
  int64_t num_cores = 40;
  const char* soc_name = "Ascend950PR_9589";
  int init_result = 0;
  int launch_result = 0;
  int load_result = 0;
  int32_t version[3] = {1, 16, 0};
  void (*kernel)(const LaunchRecord&) = nullptr;  ///< what a launch does

  std::atomic<int> inits{0};
  std::atomic<int> loads{0};
  std::atomic<int> launches{0};
  std::atomic<int> blocks{0};  ///< of memory, not free
  std::mutex mutex{};
  LaunchRecord last{};  // guarded by the mutex
};

/// Of libacl_rtc: `extern "C" Rtc* fake_rtc()`.
struct Rtc {
  int compile_milliseconds = 0;
  std::atomic<int> compiles{0};
  std::atomic<int> programs{0};  ///< not destroyed
  std::mutex mutex{};
  std::string last_name{};     // guarded by the mutex
  std::string last_options{};  // guarded by the mutex, a line each
};

}  // namespace tilekernels::ascend::fake
