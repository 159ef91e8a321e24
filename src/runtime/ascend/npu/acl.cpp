// The NPU's runtime, libascendcl: a table of the entry points that we use, opened at the first
// need.
#include "runtime/ascend/npu/acl.h"

#include <pthread.h>

#include <atomic>

#include "core/message.h"
#include "core/settings.h"
#include "runtime/jit/library.h"
#include "tilekernels/error.h"

namespace tilekernels::ascend::npu {
namespace {

constexpr const char* kForked =
    "this process was forked after the NPU was used, which its runtime does not survive: start "
    "workers by spawn, or fork before the first call";

std::atomic<bool> initialised{false};

std::string describe(const Acl& runtime, int result) {
  const char* const text = runtime.get_recent_error();
  std::string words = "error " + std::to_string(result);
  if (text != nullptr && *text != '\0') words += std::string(" (") + text + ")";
  return words;
}

std::string open_machine_acl(Acl& table) {
  const std::string named = ascendcl_library();
  if (!named.empty()) return open_acl(named, table);
  const std::string found = open_acl("libascendcl.so", table);
  return found.empty() ? ""
                       : found +
                             " (source the set_env.sh of a CANN toolkit, or name the library in "
                             "TILEKERNELS_ASCENDCL_LIBRARY)";
}

void after_fork_in_child();

std::string initialise(const Acl& runtime) {
  static const int registered = pthread_atfork(nullptr, nullptr, after_fork_in_child);
  if (registered != 0) return "no handler for forks can be registered";
  // Another library of this process may have done it.
  if (const int result = runtime.init(nullptr); result != 0 && result != kErrorRepeatInitialize) {
    return "the NPU's runtime cannot start: " + describe(runtime, result);
  }
  initialised = true;
  uint32_t count = 0;
  runtime.get_device_count(&count);
  return count > 0 ? "" : "the NPU's runtime finds no device";
}

constinit jit::LazyTable<Acl> lazy{"ascend", open_machine_acl, initialise};

void after_fork_in_child() {
  if (initialised) lazy.close(kForked);
}

}  // namespace

std::string open_acl(const std::string& library, Acl& into) {
  jit::Library opened(library);
  if (!opened.is_open()) return "the NPU's runtime is missing: " + opened.problem();
  opened.load(into.init, "aclInit");
  opened.load(into.get_recent_error, "aclGetRecentErrMsg");
  opened.load(into.get_soc_name, "aclrtGetSocName");
  opened.load(into.get_version, "aclrtGetVersion");
  opened.load(into.get_device_count, "aclrtGetDeviceCount");
  opened.load(into.get_device, "aclrtGetDevice");
  opened.load(into.set_device, "aclrtSetDevice");
  opened.load(into.get_device_info, "aclrtGetDeviceInfo");
  opened.load(into.get_current_context, "aclrtGetCurrentContext");
  opened.load(into.set_current_context, "aclrtSetCurrentContext");
  opened.load(into.allocate, "aclrtMalloc");
  opened.load(into.free, "aclrtFree");
  opened.load(into.copy, "aclrtMemcpy");
  opened.load(into.fill, "aclrtMemset");
  opened.load(into.synchronize_stream, "aclrtSynchronizeStream");
  opened.load(into.load, "aclrtBinaryLoadFromData");
  opened.load(into.get_function, "aclrtBinaryGetFunction");
  opened.load(into.launch, "aclrtLaunchKernelWithHostArgs");
  if (opened.absent() == nullptr) return "";
  return "the NPU's runtime is too old: " + library + " has no " + opened.absent();
}

const Acl& acl() { return lazy.get(); }

std::string acl_problem() { return lazy.problem(); }

bool is_acl_ready() { return lazy.is_ready(); }

std::string acl_version() {
  if (!is_acl_ready()) return "";
  int32_t parts[3] = {};
  acl().get_version(&parts[0], &parts[1], &parts[2]);
  return std::to_string(parts[0]) + "." + std::to_string(parts[1]) + "." + std::to_string(parts[2]);
}

void fail(int result, std::string_view op, const char* call) {
  throw BackendError(message(op, std::string(call) + " failed: " + describe(acl(), result)));
}

void forget_acl() {
  lazy.replace(nullptr);
  initialised = false;
}

}  // namespace tilekernels::ascend::npu
