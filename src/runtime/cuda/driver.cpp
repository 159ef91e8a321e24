// The CUDA driver: a table of the entry points that we use, opened at the first need.
#include "runtime/cuda/driver.h"

#include <pthread.h>

#include <atomic>

#include "core/message.h"
#include "core/settings.h"
#include "runtime/jit/library.h"
#include "tilekernels/error.h"

namespace tilekernels::cuda {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";
constexpr int kLeastVersion = 12000;
constexpr const char* kForked =
    "this process was forked after CUDA was used, which the driver does not survive: start "
    "workers by spawn, or fork before the first CUDA call";

std::atomic<int> version{0};
std::atomic<bool> initialised{false};

std::string describe(const Driver& table, int result) {
  const char* text = nullptr;
  const char* name = nullptr;
  table.get_error_string(result, &text);
  table.get_error_name(result, &name);
  if (text == nullptr || name == nullptr) return "error " + std::to_string(result);
  return std::string(text) + " (" + name + ")";
}

std::string open_machine_driver(Driver& table) {
  const std::string named = cuda_library();
  return open_driver(named.empty() ? kLibrary : named.c_str(), table);
}

void after_fork_in_child();

std::string initialise(const Driver& table) {
  static const int registered = pthread_atfork(nullptr, nullptr, after_fork_in_child);
  if (registered != 0) return "no handler for forks can be registered";
  if (const int result = table.init(0); result != 0) {
    return "the NVIDIA driver cannot start: " + describe(table, result);
  }
  initialised = true;
  int found = 0;
  table.driver_get_version(&found);
  if (found < kLeastVersion) {
    return "the NVIDIA driver is too old: it knows CUDA " + version_text(found) + ", " +
           version_text(kLeastVersion) + " is needed";
  }
  version = found;
  int count = 0;
  table.device_get_count(&count);
  return count > 0 ? "" : "the NVIDIA driver finds no device";
}

constinit jit::LazyTable<Driver> lazy{"cuda", open_machine_driver, initialise};

void after_fork_in_child() {
  if (initialised) lazy.close(kForked);
}

}  // namespace

std::string version_text(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

std::string open_driver(const char* library, Driver& table) {
  jit::Library opened(library);
  if (!opened.is_open()) {
    return "the NVIDIA driver is missing: " + opened.problem();
  }
  opened.load(table.init, "cuInit");
  opened.load(table.driver_get_version, "cuDriverGetVersion");
  opened.load(table.get_error_name, "cuGetErrorName");
  opened.load(table.get_error_string, "cuGetErrorString");
  opened.load(table.device_get_count, "cuDeviceGetCount");
  opened.load(table.device_get, "cuDeviceGet");
  opened.load(table.device_get_name, "cuDeviceGetName");
  opened.load(table.device_get_attribute, "cuDeviceGetAttribute");
  opened.load(table.primary_ctx_retain, "cuDevicePrimaryCtxRetain");
  opened.load(table.ctx_get_current, "cuCtxGetCurrent");
  opened.load(table.ctx_push_current, "cuCtxPushCurrent_v2");
  opened.load(table.ctx_pop_current, "cuCtxPopCurrent_v2");
  opened.load(table.stream_get_ctx, "cuStreamGetCtx");
  opened.load(table.stream_is_capturing, "cuStreamIsCapturing");
  opened.load(table.stream_synchronize, "cuStreamSynchronize");
  opened.load(table.thread_exchange_capture_mode, "cuThreadExchangeStreamCaptureMode");
  opened.load(table.module_load_data, "cuModuleLoadData");
  opened.load(table.module_get_function, "cuModuleGetFunction");
  opened.load(table.func_set_attribute, "cuFuncSetAttribute");
  opened.load(table.launch_kernel_ex, "cuLaunchKernelEx");
  opened.load(table.mem_alloc, "cuMemAlloc_v2");
  opened.load(table.memcpy_async, "cuMemcpyAsync");
  opened.load(table.memset_d8_async, "cuMemsetD8Async");
  opened.load(table.mem_pool_create, "cuMemPoolCreate");
  opened.load(table.mem_pool_set_attribute, "cuMemPoolSetAttribute");
  opened.load(table.mem_alloc_from_pool_async, "cuMemAllocFromPoolAsync");
  opened.load(table.mem_free_async, "cuMemFreeAsync");
  if (opened.absent() == nullptr) return "";
  return std::string("the NVIDIA driver is too old: ") + library + " has no " + opened.absent() +
         "; CUDA " + version_text(kLeastVersion) + " is needed";
}

const Driver& driver() { return lazy.get(); }

std::string driver_problem() { return lazy.problem(); }

bool is_driver_ready() { return lazy.is_ready(); }

int driver_version() { return version; }

void fail(int result, std::string_view op, const char* call) {
  throw BackendError(message(op, std::string(call) + " failed: " + describe(driver(), result)));
}

void replace_driver(const Driver* table) {
  lazy.replace(table);
  version = 0;
  initialised = false;
}

}  // namespace tilekernels::cuda
