// Launching an op's kernel on an NPU: find or load it, then one call of the runtime.
#include "runtime/ascend/npu/launch.h"

#include <algorithm>
#include <mutex>
#include <string>

#include "runtime/ascend/npu/compile.h"
#include "runtime/ascend/npu/device.h"

namespace tilekernels::ascend::npu {
namespace {

void* load_function(const char* op, const jit::Compiled& compiled) {
  LoadOption option{};
  option.type = kLoadOptionMagic;
  option.value.magic = kMagicAicore;
  const LoadOptions options{&option, 1};
  void* binary = nullptr;
  void* function = nullptr;
  check(acl().load(compiled.binary.data(), compiled.binary.size(), &options, &binary), op,
        "aclrtBinaryLoadFromData");
  const std::string name = std::string(op) + "_kernel";
  check(acl().get_function(binary, name.c_str(), &function), op, "aclrtBinaryGetFunction");
  return function;
}

jit::LoadedKernel& load(const jit::KernelId& id, const DeviceState& device) {
  const jit::CompileJob job = jit::job_of(id, device.arch);
  const jit::Compiler& compiler = aclrtc();
  return jit::load_kernel(id, {.key = key_of(job, compiler),
                               .compile = [&] { return compile(job, compiler); },
                               .load =
                                   [&](const jit::Compiled& compiled) {
                                     return load_function(id.text->op, compiled);
                                   }});
}

}  // namespace

void launch_raw(const Text& text, int64_t num_items, jit::KernelId& id, void* args,
                size_t args_bytes, uint64** fault, const Launch& where) {
  const DeviceState& device = device_state(text.op, where.device.index);
  const CurrentDevice current(text.op, device);
  id.text = &text;
  id.kind.device = static_cast<int16_t>(device.index);
  id.kind.pdl = 0;
  jit::LoadedKernel* kernel = jit::find_kernel(id);
  if (kernel == nullptr) kernel = &load(id, device);
  void* const stream = where.stream.handle;
  std::unique_lock<std::mutex> lock;
  if (fault != nullptr) *fault = fault_words(text.op, device, stream, lock);
  const int64_t num_cores = std::max<int64_t>(1, std::min(num_items, device.num_cores));
  check(acl().launch(kernel->function, static_cast<uint32_t>(num_cores), stream, nullptr, args,
                     args_bytes, nullptr, 0),
        text.op, "aclrtLaunchKernelWithHostArgs");
}

}  // namespace tilekernels::ascend::npu
