// A driver and a compiler without a machine, behind the tables of runtime/cuda. They keep to the
// rules that the real ones have (a kernel runs in its own context, no allocation in a capture, no
// use after a fork), and count what is asked of them in memory that forked children share.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/cuda/compile.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/driver.h"
#include "runtime/cuda/module_cache.h"

namespace tilekernels::cuda::fake {

constexpr int kInvalidValue = 1;
constexpr int kOutOfMemory = 2;
constexpr int kNotInitialised = 3;
constexpr int kNoDevice = 100;
constexpr int kInvalidImage = 200;
constexpr int kInvalidContext = 201;
constexpr int kNotFound = 500;
constexpr int kLaunchFailed = 719;
constexpr int kCaptureUnsupported = 900;

/// Shared by forked processes.
struct Counts {
  std::atomic<int> inits{0};
  std::atomic<int> loads{0};
  std::atomic<int> launches{0};
  std::atomic<int> allocations{0};
  std::atomic<int> compiles{0};
};

struct FakeContext {
  int device;
};

struct FakeStream {
  FakeContext* context;
  bool capturing = false;
};

struct FakeFunction {
  FakeContext* context;
  std::string name;
  int max_shared = 48 * 1024;
};

struct LaunchRecord {
  std::string name;
  LaunchConfig config;
  int device;
  bool pdl;
  void* args;
};

/// The whole machine. One at a time: `install` makes it the one that the library finds.
struct Machine {
  std::vector<std::pair<int, int>> capabilities{{9, 0}};
  int driver_version = 13000;
  int init_result = 0;
  int launch_result = 0;
  int alloc_result = 0;
  int load_result = 0;
  bool legacy_stream_blocked = false;  ///< a capture elsewhere forbids the null stream
  int compile_milliseconds = 0;
  std::string compiler_version = "13.0";
  std::function<void(const LaunchRecord&)> kernel{};  ///< what a launch does
  std::function<void()> after_copy{};                 ///< what happens right after a copy
  bool compiles_ptx = true;

  FakeContext contexts[4]{{0}, {1}, {2}, {3}};
  pid_t initialised_by = 0;
  std::mutex mutex{};
  std::vector<LaunchRecord> launches{};                    // guarded by the mutex
  std::map<uint64_t, size_t> blocks{};                     // guarded by the mutex
  std::vector<std::unique_ptr<FakeFunction>> functions{};  // guarded by the mutex
  Counts* counts = nullptr;

  ~Machine() {
    for (const auto& [address, size] : blocks) std::free(reinterpret_cast<void*>(address));
  }
};

inline Machine* machine = nullptr;
inline thread_local std::vector<FakeContext*> context_stack;
inline thread_local int capture_mode = 0;

inline FakeContext* current() { return context_stack.empty() ? nullptr : context_stack.back(); }
inline bool usable() { return machine->initialised_by == getpid(); }

inline FakeStream* stream_of(void* stream) { return static_cast<FakeStream*>(stream); }
inline bool captures(void* stream) { return stream != nullptr && stream_of(stream)->capturing; }

inline int init(unsigned) {
  ++machine->counts->inits;
  machine->initialised_by = getpid();
  return machine->init_result;
}
inline int driver_get_version(int* version) { return *version = machine->driver_version, 0; }
inline int get_error_name(int error, const char** name) {
  *name = error == kNoDevice ? "CUDA_ERROR_NO_DEVICE" : "CUDA_ERROR_FAKE";
  return 0;
}
inline int get_error_string(int error, const char** text) {
  thread_local char buffer[64];
  std::snprintf(buffer, sizeof(buffer), "fake error %d", error);
  *text = buffer;
  return 0;
}
inline int device_get_count(int* count) {
  *count = static_cast<int>(machine->capabilities.size());
  return usable() ? 0 : kNotInitialised;
}
inline int device_get(int* device, int ordinal) { return *device = ordinal, 0; }
inline int device_get_name(char* name, int size, int device) {
  std::snprintf(name, static_cast<size_t>(size), "Fake %d", device);
  return 0;
}
inline int device_get_attribute(int* value, int attribute, int device) {
  const auto& [major, minor] = machine->capabilities[static_cast<size_t>(device)];
  *value = attribute == kAttributeMajor ? major : attribute == kAttributeMinor ? minor : 100;
  return 0;
}
inline int primary_ctx_retain(void** context, int device) {
  *context = &machine->contexts[device];
  return usable() ? 0 : kNotInitialised;
}
inline int ctx_get_current(void** context) {
  *context = current();
  return usable() ? 0 : kNotInitialised;
}
inline int ctx_push_current(void* context) {
  context_stack.push_back(static_cast<FakeContext*>(context));
  return 0;
}
inline int ctx_pop_current(void** context) {
  if (context_stack.empty()) return kInvalidContext;
  *context = context_stack.back();
  context_stack.pop_back();
  return 0;
}
inline int stream_get_ctx(void* stream, void** context) {
  return *context = stream_of(stream)->context, 0;
}
inline int stream_is_capturing(void* stream, int* status) {
  if (stream == nullptr && machine->legacy_stream_blocked) return kErrorCaptureImplicit;
  *status = captures(stream) ? 1 : 0;
  return 0;
}
inline int stream_synchronize(void* stream) { return captures(stream) ? kCaptureUnsupported : 0; }
inline int thread_exchange_capture_mode(int* mode) { return std::swap(*mode, capture_mode), 0; }
inline int module_load_data(void** module, const void* image) {
  if (machine->load_result != 0) return machine->load_result;
  if (capture_mode != kCaptureModeRelaxed) return kCaptureUnsupported;
  const bool is_ptx = std::strncmp(static_cast<const char*>(image), ".version", 8) == 0;
  if (is_ptx && machine->compiles_ptx) return *module = current(), 0;
  if (std::strncmp(static_cast<const char*>(image), "FAKE", 4) != 0) return kInvalidImage;
  ++machine->counts->loads;
  *module = current();
  return current() == nullptr ? kInvalidContext : 0;
}
inline int module_get_function(void** function, void* module, const char* name) {
  const std::lock_guard lock(machine->mutex);
  auto* const context = static_cast<FakeContext*>(module);
  machine->functions.push_back(std::make_unique<FakeFunction>(FakeFunction{context, name}));
  *function = machine->functions.back().get();
  return 0;
}
inline int func_set_attribute(void* function, int attribute, int value) {
  if (attribute != kAttributeMaxDynamicShared || value > 227 * 1024) return kInvalidValue;
  static_cast<FakeFunction*>(function)->max_shared = value;
  return 0;
}
inline int launch_kernel_ex(const LaunchConfig* config, void* function, void** params, void**) {
  const auto* kernel = static_cast<FakeFunction*>(function);
  if (!usable()) return kNotInitialised;
  if (machine->launch_result != 0) return machine->launch_result;
  if (kernel->context != current()) return kInvalidContext;
  if (config->stream != nullptr && stream_of(config->stream)->context != current()) {
    return kInvalidContext;
  }
  if (static_cast<int>(config->shared_bytes) > kernel->max_shared || config->grid[0] == 0) {
    return kInvalidValue;
  }
  if (kernel->name == "exchange") {  // the runtime's own
    auto* const word = reinterpret_cast<uint64_t*>(*static_cast<uint64_t*>(params[0]));
    word[1] = std::exchange(word[0], ~uint64_t{0});
    return 0;
  }
  ++machine->counts->launches;
  LaunchRecord record{kernel->name, *config, kernel->context->device, false, params[0]};
  for (unsigned i = 0; i < config->num_attributes; ++i) {
    record.pdl |=
        config->attributes[i].id == kLaunchProgrammaticSerial && config->attributes[i].value == 1;
  }
  const std::lock_guard lock(machine->mutex);
  machine->launches.push_back(record);
  if (machine->kernel) machine->kernel(record);
  return 0;
}
inline int allocate_block(uint64_t* address, size_t size) {
  if (machine->alloc_result != 0) return machine->alloc_result;
  if (current() == nullptr) return kInvalidContext;
  ++machine->counts->allocations;
  // Large sizes are only noted: nothing touches such a block.
  const size_t real = size < (size_t{1} << 20) ? size : 1;
  *address = reinterpret_cast<uint64_t>(std::malloc(real));
  const std::lock_guard lock(machine->mutex);
  machine->blocks[*address] = size;
  return 0;
}
inline int mem_alloc(uint64_t* address, size_t size) {
  return capture_mode == kCaptureModeRelaxed ? allocate_block(address, size) : kCaptureUnsupported;
}
inline int memcpy_async(uint64_t to, uint64_t from, size_t size, void* stream) {
  if (captures(stream)) return kCaptureUnsupported;
  std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), size);
  if (machine->after_copy) machine->after_copy();
  return 0;
}
inline int memset_d8_async(uint64_t to, unsigned char value, size_t size, void*) {
  std::memset(reinterpret_cast<void*>(to), value, size);
  return 0;
}
inline int mem_pool_create(void** pool, const MemPoolProps* props) {
  *pool = &machine->contexts[props->location_id];
  return props->alloc_type == kMemAllocationPinned ? 0 : kInvalidValue;
}
inline int mem_pool_set_attribute(void*, int attribute, void* value) {
  const bool keeps = *static_cast<uint64_t*>(value) == ~uint64_t{0};
  return attribute == kMemPoolReleaseThreshold && keeps ? 0 : kInvalidValue;
}
inline int mem_alloc_from_pool_async(uint64_t* address, size_t size, void* pool, void*) {
  return pool == current() ? allocate_block(address, size) : kInvalidContext;
}
inline int mem_free_async(uint64_t address, void*) {
  const std::lock_guard lock(machine->mutex);
  if (machine->blocks.erase(address) != 1) return kInvalidValue;
  std::free(reinterpret_cast<void*>(address));
  return 0;
}

inline constexpr Driver kDriver = {
    .init = init,
    .driver_get_version = driver_get_version,
    .get_error_name = get_error_name,
    .get_error_string = get_error_string,
    .device_get_count = device_get_count,
    .device_get = device_get,
    .device_get_name = device_get_name,
    .device_get_attribute = device_get_attribute,
    .primary_ctx_retain = primary_ctx_retain,
    .ctx_get_current = ctx_get_current,
    .ctx_push_current = ctx_push_current,
    .ctx_pop_current = ctx_pop_current,
    .stream_get_ctx = stream_get_ctx,
    .stream_is_capturing = stream_is_capturing,
    .stream_synchronize = stream_synchronize,
    .thread_exchange_capture_mode = thread_exchange_capture_mode,
    .module_load_data = module_load_data,
    .module_get_function = module_get_function,
    .func_set_attribute = func_set_attribute,
    .launch_kernel_ex = launch_kernel_ex,
    .mem_alloc = mem_alloc,
    .memcpy_async = memcpy_async,
    .memset_d8_async = memset_d8_async,
    .mem_pool_create = mem_pool_create,
    .mem_pool_set_attribute = mem_pool_set_attribute,
    .mem_alloc_from_pool_async = mem_alloc_from_pool_async,
    .mem_free_async = mem_free_async,
};

struct FakeProgram {
  std::string source;
  std::string log;
  std::string cubin;
};

inline FakeProgram& program_of(void* program) { return *static_cast<FakeProgram*>(program); }

inline int nvrtc_version(int* major, int* minor) { return *major = 13, *minor = 0, 0; }
inline const char* nvrtc_error(int) { return "NVRTC_ERROR_COMPILATION"; }
inline int create_program(void** program, const char* source, const char*, int, const char* const*,
                          const char* const*) {
  *program = new FakeProgram{source, "", ""};
  return 0;
}
inline int compile_program(void* program, int num_options, const char* const* options) {
  ++machine->counts->compiles;
  FakeProgram& made = program_of(program);
  std::this_thread::sleep_for(std::chrono::milliseconds(machine->compile_milliseconds));
  if (made.source.find("#error") != std::string::npos) {
    made.log = "first line of the log\nlast line of the log\n";
    return 6;
  }
  made.log = "ptxas info    : Used 40 registers, used 1 barriers, 1024 bytes smem\n";
  made.cubin = "FAKE " + made.source;
  for (int i = 0; i < num_options; ++i) made.cubin += std::string("\n") + options[i];
  made.cubin.resize(6000, '.');
  return 0;
}
inline int get_log_size(void* program, size_t* size) {
  return *size = program_of(program).log.size() + 1, 0;
}
inline int get_log(void* program, char* log) {
  return std::strcpy(log, program_of(program).log.c_str()), 0;
}
inline int get_cubin_size(void* program, size_t* size) {
  return *size = program_of(program).cubin.size(), 0;
}
inline int get_cubin(void* program, char* cubin) {
  const std::string& made = program_of(program).cubin;
  return std::memcpy(cubin, made.data(), made.size()), 0;
}
inline int destroy_program(void** program) { return delete &program_of(*program), 0; }

inline Nvrtc make_nvrtc(const std::string& version) {
  return {.version = nvrtc_version,
          .get_error_string = nvrtc_error,
          .create_program = create_program,
          .compile_program = compile_program,
          .get_program_log_size = get_log_size,
          .get_program_log = get_log,
          .get_binary_size = get_cubin_size,
          .get_binary = get_cubin,
          .destroy_program = destroy_program,
          .identity = "nvrtc " + version};
}

/// Anonymous memory that forked children share.
template <class T>
T* make_shared_memory() {
  void* memory =
      mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return new (memory) T();
}

/// Makes a machine the one that the library finds, with nothing loaded yet; takes it away at the
/// end.
class Install {
 public:
  explicit Install(Machine& made) : nvrtc_(make_nvrtc(made.compiler_version)) {
    if (made.counts == nullptr) made.counts = make_shared_memory<Counts>();
    machine = &made;
    context_stack.clear();
    reset(&kDriver, &nvrtc_);
  }
  ~Install() { reset(nullptr, nullptr); }
  Install(const Install&) = delete;
  Install& operator=(const Install&) = delete;

 private:
  static void reset(const Driver* driver_table, const Nvrtc* nvrtc_table) {
    forget_kernels();
    forget_devices();
    replace_driver(driver_table);
    replace_nvrtc(nvrtc_table);
  }
  const Nvrtc nvrtc_;
};

}  // namespace tilekernels::cuda::fake
