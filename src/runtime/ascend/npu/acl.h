// The NPU's runtime, libascendcl: a table of the entry points that we use, opened at the first
// need. Never run on an NPU so far; the names and signatures are the vendor's published ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tilekernels::ascend::npu {

// What follows restates the runtime's binary interface, so that no toolkit is needed to build.
// Handles (contexts, streams, binaries, functions) are opaque pointers, results are 0 or an error.

struct LoadOption {
  int type;
  union {
    uint32_t magic;
    uint32_t reserved[4];
  } value;
};
static_assert(sizeof(LoadOption) == 20);

struct LoadOptions {
  LoadOption* options;
  size_t num_options;
};

constexpr int kErrorRepeatInitialize = 100002;  // ACL_ERROR_REPEAT_INITIALIZE
constexpr int kAttributeNumVectorCores = 201;   // ACL_DEV_ATTR_VECTOR_CORE_NUM
constexpr int kLoadOptionMagic = 2;             // ACL_RT_BINARY_LOAD_OPT_MAGIC
constexpr uint32_t kMagicAicore = 0x43554245;   // ACL_RT_BINARY_MAGIC_ELF_AICORE
constexpr int kMallocHugeFirst = 0;             // ACL_MEM_MALLOC_HUGE_FIRST
constexpr int kHostToDevice = 1;                // ACL_MEMCPY_HOST_TO_DEVICE
constexpr int kDeviceToHost = 2;                // ACL_MEMCPY_DEVICE_TO_HOST
constexpr int kDeviceToDevice = 3;              // ACL_MEMCPY_DEVICE_TO_DEVICE

/// The entry points.
struct Acl {
  int (*init)(const char* config);
  const char* (*get_recent_error)();
  const char* (*get_soc_name)();
  int (*get_version)(int32_t* major, int32_t* minor, int32_t* patch);
  int (*get_device_count)(uint32_t* count);
  int (*get_device)(int32_t* device);
  int (*set_device)(int32_t device);
  int (*get_device_info)(uint32_t device, int attribute, int64_t* value);
  int (*get_current_context)(void** context);
  int (*set_current_context)(void* context);
  int (*allocate)(void** address, size_t size, int policy);
  int (*free)(void* address);
  int (*copy)(void* to, size_t room, const void* from, size_t size, int kind);
  int (*fill)(void* to, size_t room, int32_t value, size_t size);
  int (*synchronize_stream)(void* stream);
  int (*load)(const void* data, size_t size, const LoadOptions* options, void** binary);
  int (*get_function)(void* binary, const char* name, void** function);
  int (*launch)(void* function, uint32_t num_blocks, void* stream, void* config, void* args,
                size_t args_bytes, void* placeholders, size_t num_placeholders);
};

/// The runtime, opened and initialised by the first call.
/// Errors: BackendError with `acl_problem()`.
const Acl& acl();

/// Empty when `acl()` works, else one sentence that says what is missing. Initialises the runtime.
std::string acl_problem();

/// Whether `acl()` worked before, without trying.
bool is_acl_ready();

/// "1.16.0", the version of the runtime's interface; empty before the first `acl()`.
std::string acl_version();

/// Throws BackendError "[op] call failed: error 123 (the runtime's own words)".
[[noreturn]] void fail(int result, std::string_view op, const char* call);

/// The same unless the result is 0.
inline void check(int result, std::string_view op, const char* call) {
  if (result != 0) fail(result, op, call);
}

/// Opens a runtime library. Returns the problem, empty when the table is complete.
std::string open_acl(const std::string& library, Acl& table);

/// For tests: looks for the library again at the next call.
void forget_acl();

}  // namespace tilekernels::ascend::npu
