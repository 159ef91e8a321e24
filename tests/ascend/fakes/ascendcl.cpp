// Stands in for libascendcl: the entry points that the library opens, on host memory. It keeps to
// the rules of the real one: work needs a current context, and a function runs on the device it was
// loaded on.
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>

#include "ascend/fakes/fake.h"
#include "runtime/ascend/npu/acl.h"

namespace {

using namespace tilekernels::ascend;

constexpr int kInvalidParam = 107000;
constexpr int kContextNull = 107002;
constexpr int kWrongImage = 107012;

fake::Npu machine;
struct Context {
  int32_t device;
};
Context contexts[8] = {{0}, {1}, {2}, {3}, {4}, {5}, {6}, {7}};
thread_local Context* current = nullptr;

struct Function {
  Context* context;
  std::string name;
};

// What was handed out is the library's own, for good.
std::mutex handed_out;
std::deque<Context> more_contexts;
std::deque<Function> functions;

}  // namespace

extern "C" {

fake::Npu* fake_npu() { return &machine; }
/// Another context of a device, as a framework may make one.
void* fake_context(int32_t device) {
  const std::lock_guard lock(handed_out);
  return &more_contexts.emplace_back(Context{device});
}
void fake_forget_thread() { current = nullptr; }

int aclInit(const char*) {
  ++machine.inits;
  if (machine.init_result != 0) return machine.init_result;
  return machine.inits > 1 ? npu::kErrorRepeatInitialize : 0;
}
const char* aclGetRecentErrMsg() { return "the fake says no"; }
const char* aclrtGetSocName() { return machine.soc_name; }
int aclrtGetVersion(int32_t* major, int32_t* minor, int32_t* patch) {
  *major = machine.version[0];
  *minor = machine.version[1];
  *patch = machine.version[2];
  return 0;
}
int aclrtGetDeviceCount(uint32_t* count) {
  return *count = static_cast<uint32_t>(machine.num_devices), 0;
}
int aclrtGetDevice(int32_t* device) {
  if (current == nullptr) return kContextNull;
  return *device = current->device, 0;
}
int aclrtSetDevice(int32_t device) {
  if (device < 0 || device >= machine.num_devices) return kInvalidParam;
  current = &contexts[device];
  return 0;
}
int aclrtGetDeviceInfo(uint32_t, int attribute, int64_t* value) {
  *value = machine.num_cores;
  return attribute == npu::kAttributeNumVectorCores ? 0 : kInvalidParam;
}
int aclrtGetCurrentContext(void** context) {
  *context = current;
  return current == nullptr ? kContextNull : 0;
}
int aclrtSetCurrentContext(void* context) {
  if (context == nullptr) return kInvalidParam;
  current = static_cast<Context*>(context);
  return 0;
}
int aclrtMalloc(void** address, size_t size, int) {
  if (current == nullptr) return kContextNull;
  *address = std::aligned_alloc(512, (size + 511) / 512 * 512);
  ++machine.blocks;
  return 0;
}
int aclrtFree(void* address) {
  std::free(address);
  --machine.blocks;
  return 0;
}
int aclrtMemcpy(void* to, size_t room, const void* from, size_t size, int kind) {
  if (current == nullptr) return kContextNull;
  if (size > room || kind < npu::kHostToDevice || kind > npu::kDeviceToDevice) return kInvalidParam;
  std::memcpy(to, from, size);
  return 0;
}
int aclrtMemset(void* to, size_t room, int32_t value, size_t size) {
  if (current == nullptr) return kContextNull;
  if (size > room) return kInvalidParam;
  std::memset(to, value, size);
  return 0;
}
int aclrtSynchronizeStream(void*) { return current == nullptr ? kContextNull : 0; }
int aclrtBinaryLoadFromData(const void* data, size_t size, const npu::LoadOptions* options,
                            void** binary) {
  if (current == nullptr) return kContextNull;
  if (machine.load_result != 0) return machine.load_result;
  if (options->num_options != 1 || options->options[0].type != npu::kLoadOptionMagic ||
      options->options[0].value.magic != npu::kMagicAicore) {
    return kInvalidParam;
  }
  if (size < 4 || std::memcmp(data, "NPU ", 4) != 0) return kWrongImage;
  ++machine.loads;
  *binary = current;
  return 0;
}
int aclrtBinaryGetFunction(void* binary, const char* name, void** function) {
  const std::lock_guard lock(handed_out);
  *function = &functions.emplace_back(Function{static_cast<Context*>(binary), name});
  return 0;
}
int aclrtLaunchKernelWithHostArgs(void* function, uint32_t num_blocks, void* stream, void*,
                                  void* args, size_t args_bytes, void*, size_t) {
  const auto* const kernel = static_cast<const Function*>(function);
  if (current == nullptr) return kContextNull;
  if (machine.launch_result != 0) return machine.launch_result;
  if (kernel->context->device != current->device || num_blocks == 0 || num_blocks > 65535) {
    return kInvalidParam;
  }
  const auto* const bytes = static_cast<const char*>(args);
  const fake::LaunchRecord record{
      kernel->name, current->device, num_blocks, stream, {bytes, bytes + args_bytes}};
  ++machine.launches;
  const std::lock_guard lock(machine.mutex);
  machine.last = record;
  if (machine.kernel != nullptr) machine.kernel(record);
  return 0;
}

}  // extern "C"
