// The emulator's libcuda: the entry points that the library opens, over machine.h.
#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "image.h"
#include "machine.h"

namespace cuda_emulator {
namespace {

constexpr int kInvalidValue = 1;
constexpr int kOutOfMemory = 2;
constexpr int kNotInitialised = 3;
constexpr int kInvalidDevice = 101;
constexpr int kInvalidImage = 200;
constexpr int kInvalidContext = 201;
constexpr int kNotFound = 500;
constexpr int kLaunchFailed = 719;
constexpr int kMaxDevices = 8;
constexpr u32 kMaxSharedBytes = 227 * 1024;

struct Context {
  int device;
};
Context contexts[kMaxDevices] = {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}};

std::mutex mutex;  // one thread of the host uses the machine at a time
std::vector<std::unique_ptr<Module>> modules;
std::vector<std::unique_ptr<Function>> functions;
std::atomic<pid_t> initialised_by{0};
thread_local std::vector<Context*> context_stack;
thread_local int capture_mode = 0;
// What went wrong last, in words: the text of its error.
thread_local std::string last_problem;

int fail(int error, const std::string& problem) {
  last_problem = "CUDA emulator (host): " + problem;
  return error;
}

int num_devices() {
  const char* const text = std::getenv("CUDA_EMULATOR_DEVICES");
  const int count = text == nullptr ? 1 : std::atoi(text);
  return count < 1 ? 1 : count > kMaxDevices ? kMaxDevices : count;
}

bool is_usable() { return initialised_by == getpid(); }
Context* current() { return context_stack.empty() ? nullptr : context_stack.back(); }
// Of a stream: the default ones, of the current context. No others can be made.
bool is_stream(void* stream) { return reinterpret_cast<uintptr_t>(stream) <= 2; }

// Where the object lies, from the addresses that the loader gave it.
int note_extent(dl_phdr_info* info, size_t, void* data) {
  Module& module = *static_cast<Module*>(data);
  const auto inside = reinterpret_cast<u64>(module.object);
  u64 end = 0;
  bool holds = false;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& part = info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD) continue;
    const u64 begin = info->dlpi_addr + part.p_vaddr;
    holds = holds || inside - begin < part.p_memsz;
    end = std::max(end, begin + part.p_memsz);
  }
  if (!holds) return 0;
  module.base = info->dlpi_addr;
  module.end = end;
  return 1;
}

int load(Module& module, std::string_view object) {
  const int file = memfd_create("cuda_emulator_kernel", 0);
  if (file < 0) return fail(kOutOfMemory, "no memory for a kernel");
  size_t done = 0;
  while (done < object.size()) {
    const ssize_t count = ::write(file, object.data() + done, object.size() - done);
    if (count <= 0) break;
    done += static_cast<size_t>(count);
  }
  // Under a name of its own: the loader takes a path that it knows for the object that it knows.
  static int count = 0;
  const std::string path = "/tmp/cuda_emulator_" + std::to_string(getpid()) + "_" +
                           std::to_string(reinterpret_cast<uintptr_t>(&count)) + "_" +
                           std::to_string(count++);
  if (symlink(("/proc/self/fd/" + std::to_string(file)).c_str(), path.c_str()) == 0) {
    module.handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    unlink(path.c_str());
  }
  ::close(file);
  if (module.handle == nullptr) return fail(kInvalidImage, "an object cannot be loaded");
  module.object = static_cast<const Object*>(dlsym(module.handle, "cuda_emulator_object"));
  if (module.object == nullptr) return fail(kInvalidImage, "an object that is no kernel");
  dl_iterate_phdr(note_extent, &module);
  module.bytes = object;
  return 0;
}

// Takes the order that the environment asks for: 0, or an error that names what is wrong.
int take_order() {
  const char* const text = std::getenv("CUDA_EMULATOR_ORDER");
  if (set_order(text == nullptr || *text == '\0' ? "forward" : text)) return 0;
  return fail(
      kInvalidValue,
      std::string("CUDA_EMULATOR_ORDER must be forward, reverse or random:SEED, got ") + text);
}

// The driver's own struct.
struct LaunchConfig {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  void* stream;
  const struct LaunchAttribute* attributes;
  unsigned num_attributes;
};
struct LaunchAttribute {
  int id;
  int padding;
  int value;
  char rest[60];
};
static_assert(sizeof(LaunchAttribute) == 72);
constexpr int kProgrammaticSerial = 6;

int launch_kernel(const LaunchConfig& config, Function& function, void** params) {
  if (!is_usable()) return kNotInitialised;
  if (current() == nullptr || current()->device != function.device || !is_stream(config.stream)) {
    return fail(kInvalidContext, function.name + " is launched in another device's context");
  }
  u64 threads = 1;
  for (int i = 0; i < 3; ++i) {
    threads *= config.block[i];
    const unsigned limit = i == 0 ? 0x7FFFFFFF : 65535;
    if (config.grid[i] == 0 || config.grid[i] > limit) {
      return fail(kInvalidValue, function.name + " is launched with a grid beyond the limits");
    }
  }
  const u32 bound = function.kernel->max_threads == 0 ? 1024 : function.kernel->max_threads;
  if (threads == 0 || threads > std::min<u64>(bound, 1024)) {
    return fail(kInvalidValue, function.name + " is launched with " + std::to_string(threads) +
                                   " threads a block, at most " + std::to_string(bound));
  }
  if (config.shared_bytes > function.max_dynamic_shared) {
    return fail(kInvalidValue, function.name +
                                   " is launched with more dynamic shared memory than " +
                                   "cuFuncSetAttribute allowed");
  }
  Launch launch{&function,
                {config.grid[0], config.grid[1], config.grid[2]},
                {config.block[0], config.block[1], config.block[2]},
                config.shared_bytes,
                false,
                params};
  for (unsigned i = 0; i < config.num_attributes; ++i) {
    launch.is_dependent |=
        config.attributes[i].id == kProgrammaticSerial && config.attributes[i].value == 1;
  }
  if (const int result = take_order(); result != 0) return result;
  const std::string problem = run(launch);
  return problem.empty() ? 0 : fail(kLaunchFailed, problem);
}

int allocate_on(uint64_t* address, size_t bytes, int device) {
  *address = allocate(bytes, device);
  return *address == 0 ? fail(kOutOfMemory, "no memory") : 0;
}

}  // namespace
}  // namespace cuda_emulator

#define EXPORT extern "C" __attribute__((visibility("default")))
using namespace cuda_emulator;

EXPORT int cuInit(unsigned) {
  // A wrong order is told before anything is compiled for it.
  const std::lock_guard lock(mutex);
  if (const int result = take_order(); result != 0) return result;
  return initialised_by = getpid(), 0;
}
EXPORT int cuDriverGetVersion(int* version) { return *version = 13000, 0; }
EXPORT int cuGetErrorName(int error, const char** name) {
  switch (error) {
    case kInvalidValue:
      return *name = "CUDA_ERROR_INVALID_VALUE", 0;
    case kOutOfMemory:
      return *name = "CUDA_ERROR_OUT_OF_MEMORY", 0;
    case kNotInitialised:
      return *name = "CUDA_ERROR_NOT_INITIALIZED", 0;
    case kInvalidDevice:
      return *name = "CUDA_ERROR_INVALID_DEVICE", 0;
    case kInvalidImage:
      return *name = "CUDA_ERROR_INVALID_IMAGE", 0;
    case kInvalidContext:
      return *name = "CUDA_ERROR_INVALID_CONTEXT", 0;
    case kNotFound:
      return *name = "CUDA_ERROR_NOT_FOUND", 0;
    case kLaunchFailed:
      return *name = "CUDA_ERROR_LAUNCH_FAILED", 0;
    default:
      return *name = "CUDA_ERROR_UNKNOWN", 0;
  }
}
EXPORT int cuGetErrorString(int, const char** text) {
  *text = last_problem.empty() ? "CUDA emulator (host): refused" : last_problem.c_str();
  return 0;
}
EXPORT int cuDeviceGetCount(int* count) {
  *count = num_devices();
  return is_usable() ? 0 : kNotInitialised;
}
EXPORT int cuDeviceGet(int* device, int ordinal) {
  if (ordinal < 0 || ordinal >= num_devices()) return kInvalidDevice;
  return *device = ordinal, 0;
}
EXPORT int cuDeviceGetName(char* name, int size, int) {
  std::snprintf(name, static_cast<size_t>(size), "CUDA emulator (host)");
  return 0;
}
EXPORT int cuDeviceGetAttribute(int* value, int attribute, int) {
  switch (attribute) {
    case 16:  // multiprocessors: an H200's, so that launch plans are the same
      return *value = 132, 0;
    case 75:
      return *value = 9, 0;
    case 76:
      return *value = 0, 0;
    case 81:  // shared memory of a multiprocessor
      return *value = 233472, 0;
    default:
      return *value = 0, fail(kInvalidValue, "attribute " + std::to_string(attribute));
  }
}
EXPORT int cuDevicePrimaryCtxRetain(void** context, int device) {
  if (device < 0 || device >= num_devices()) return kInvalidDevice;
  *context = &contexts[device];
  return is_usable() ? 0 : kNotInitialised;
}
EXPORT int cuCtxGetCurrent(void** context) {
  *context = current();
  return is_usable() ? 0 : kNotInitialised;
}
EXPORT int cuCtxPushCurrent_v2(void* context) {
  context_stack.push_back(static_cast<Context*>(context));
  return 0;
}
EXPORT int cuCtxPopCurrent_v2(void** context) {
  if (context_stack.empty()) return kInvalidContext;
  *context = context_stack.back();
  context_stack.pop_back();
  return 0;
}
EXPORT int cuStreamGetCtx(void*, void** context) { return *context = current(), 0; }
EXPORT int cuStreamIsCapturing(void*, int* status) { return *status = 0, 0; }
EXPORT int cuStreamSynchronize(void*) { return 0; }
EXPORT int cuThreadExchangeStreamCaptureMode(int* mode) {
  return std::swap(*mode, capture_mode), 0;
}
EXPORT int cuModuleLoadData(void** module, const void* image) {
  if (current() == nullptr) return kInvalidContext;
  const std::string_view object = object_of(image);
  if (object.empty()) return fail(kInvalidImage, "what is loaded was not compiled by the emulator");
  const std::lock_guard lock(mutex);
  auto loaded = std::make_unique<Module>();
  if (const int result = load(*loaded, object); result != 0) return result;
  modules.push_back(std::move(loaded));
  *module = modules.back().get();
  return 0;
}
EXPORT int cuModuleGetFunction(void** function, void* module, const char* name) {
  const auto& loaded = *static_cast<Module*>(module);
  const std::string symbol = std::string("cuda_emulator_kernel_") + name;
  const auto* const kernel = static_cast<const Kernel*>(dlsym(loaded.handle, symbol.c_str()));
  if (kernel == nullptr) return fail(kNotFound, std::string("no kernel ") + name);
  const std::lock_guard lock(mutex);
  functions.push_back(
      std::make_unique<Function>(Function{name, &loaded, kernel, current()->device}));
  *function = functions.back().get();
  return 0;
}
EXPORT int cuFuncSetAttribute(void* function, int attribute, int value) {
  constexpr int kMaxDynamicShared = 8;
  if (attribute != kMaxDynamicShared || value < 0 || static_cast<u32>(value) > kMaxSharedBytes) {
    return fail(kInvalidValue, "cuFuncSetAttribute");
  }
  static_cast<Function*>(function)->max_dynamic_shared = static_cast<u32>(value);
  return 0;
}
EXPORT int cuLaunchKernelEx(const LaunchConfig* config, void* function, void** params, void**) {
  const std::lock_guard lock(mutex);
  return launch_kernel(*config, *static_cast<Function*>(function), params);
}
EXPORT int cuMemAlloc_v2(uint64_t* address, size_t size) {
  if (current() == nullptr) return kInvalidContext;
  const std::lock_guard lock(mutex);
  return allocate_on(address, size, current()->device);
}
EXPORT int cuMemcpyAsync(uint64_t to, uint64_t from, size_t size, void*) {
  const std::lock_guard lock(mutex);
  if (!host_reads(from, size) || !host_writes(to, size)) {
    return fail(kInvalidValue, "a copy reaches over the end of device memory");
  }
  std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), size);
  return 0;
}
EXPORT int cuMemsetD8Async(uint64_t to, unsigned char value, size_t size, void*) {
  const std::lock_guard lock(mutex);
  if (!host_writes(to, size)) return fail(kInvalidValue, "memory is set behind its end");
  std::memset(reinterpret_cast<void*>(to), value, size);
  return 0;
}
EXPORT int cuMemPoolCreate(void** pool, const void* props) {
  int device = 0;
  std::memcpy(&device, static_cast<const char*>(props) + 3 * sizeof(int), sizeof(device));
  if (device < 0 || device >= num_devices()) return kInvalidDevice;
  *pool = &contexts[device];
  return 0;
}
EXPORT int cuMemPoolSetAttribute(void*, int, void*) { return 0; }
EXPORT int cuMemAllocFromPoolAsync(uint64_t* address, size_t size, void* pool, void*) {
  const std::lock_guard lock(mutex);
  return allocate_on(address, size, static_cast<Context*>(pool)->device);
}
EXPORT int cuMemFreeAsync(uint64_t address, void*) {
  const std::lock_guard lock(mutex);
  return release(address) ? 0 : fail(kInvalidValue, "memory is freed that is none");
}
