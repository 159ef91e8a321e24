// The CUDA driver: a table of the entry points that we use, opened at the first need.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tilekernels::cuda {

// What follows restates the driver's binary interface, so that no toolkit is needed to build.
// Handles (contexts, streams, modules, functions, pools) are opaque pointers, device addresses are
// 64-bit integers, results are 0 or an error.

struct LaunchAttribute {
  int id;
  int padding;
  union {
    char bytes[64];
    int value;
  };
};
static_assert(sizeof(LaunchAttribute) == 72);

struct LaunchConfig {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  void* stream;
  LaunchAttribute* attributes;
  unsigned num_attributes;
};
static_assert(sizeof(LaunchConfig) == 56);

struct MemPoolProps {
  int alloc_type;
  int handle_types;
  int location_type;
  int location_id;
  void* security_attributes;
  size_t max_size;
  unsigned short usage;
  unsigned char reserved[54];
};
static_assert(sizeof(MemPoolProps) == 88);

constexpr int kErrorCaptureImplicit = 906;     // CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
constexpr int kAttributeNumSms = 16;           // CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
constexpr int kAttributeMaxSmemPerSm = 81;     // …_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR
constexpr int kAttributeMajor = 75;            // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
constexpr int kAttributeMinor = 76;            // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR
constexpr int kAttributeMaxDynamicShared = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr int kLaunchProgrammaticSerial = 6;   // …_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
constexpr int kCaptureModeRelaxed = 2;         // CU_STREAM_CAPTURE_MODE_RELAXED
constexpr int kMemAllocationPinned = 1;        // CU_MEM_ALLOCATION_TYPE_PINNED
constexpr int kMemLocationDevice = 1;          // CU_MEM_LOCATION_TYPE_DEVICE
constexpr int kMemPoolReleaseThreshold = 4;    // CU_MEMPOOL_ATTR_RELEASE_THRESHOLD

/// The entry points. Tests put a table of their own in its place.
struct Driver {
  int (*init)(unsigned flags);
  int (*driver_get_version)(int* version);
  int (*get_error_name)(int error, const char** name);
  int (*get_error_string)(int error, const char** text);
  int (*device_get_count)(int* count);
  int (*device_get)(int* device, int ordinal);
  int (*device_get_name)(char* name, int size, int device);
  int (*device_get_attribute)(int* value, int attribute, int device);
  int (*primary_ctx_retain)(void** context, int device);
  int (*ctx_get_current)(void** context);
  int (*ctx_push_current)(void* context);
  int (*ctx_pop_current)(void** context);
  int (*stream_get_ctx)(void* stream, void** context);
  int (*stream_is_capturing)(void* stream, int* status);
  int (*stream_synchronize)(void* stream);
  int (*thread_exchange_capture_mode)(int* mode);
  int (*module_load_data)(void** module, const void* image);
  int (*module_get_function)(void** function, void* module, const char* name);
  int (*func_set_attribute)(void* function, int attribute, int value);
  int (*launch_kernel_ex)(const LaunchConfig* config, void* function, void** params, void** extra);
  int (*mem_alloc)(uint64_t* address, size_t size);
  int (*memcpy_async)(uint64_t to, uint64_t from, size_t size, void* stream);
  int (*memset_d8_async)(uint64_t to, unsigned char value, size_t size, void* stream);
  int (*mem_pool_create)(void** pool, const MemPoolProps* props);
  int (*mem_pool_set_attribute)(void* pool, int attribute, void* value);
  int (*mem_alloc_from_pool_async)(uint64_t* address, size_t size, void* pool, void* stream);
  int (*mem_free_async)(uint64_t address, void* stream);
};

/// The driver, opened and initialised by the first call: the library of TILEKERNELS_CUDA_LIBRARY;
/// else libcuda.so.1.
/// Errors: BackendError with `driver_problem()`.
const Driver& driver();

/// Empty when `driver()` works, else one sentence that says what is missing. Initialises CUDA.
std::string driver_problem();

/// Whether `driver()` worked before, without trying.
bool is_driver_ready();

/// The CUDA version that the driver knows, 13000 for 13.0; 0 before the first `driver()`.
int driver_version();

/// Throws BackendError "[op] call failed: text (NAME)".
[[noreturn]] void fail(int result, std::string_view op, const char* call);

/// The same unless the result is 0.
inline void check(int result, std::string_view op, const char* call) {
  if (result != 0) fail(result, op, call);
}

/// "13.0" of 13000.
std::string version_text(int version);

/// Opens a driver library. Returns the problem, empty when the table is complete.
std::string open_driver(const char* library, Driver& table);

/// For tests: makes the table, or with null the machine's driver, the one that the next call finds.
void replace_driver(const Driver* table);

}  // namespace tilekernels::cuda
