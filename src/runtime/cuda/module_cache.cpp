// Loaded CUDA kernels: the shared caches of compiled kernels, and loading by the driver.
#include "runtime/cuda/module_cache.h"

#include <string>

namespace tilekernels::cuda {
namespace {

void* load_function(const char* op, const Compiled& compiled) {
  const Driver& cuda = driver();
  void* module = nullptr;
  void* function = nullptr;
  check(cuda.module_load_data(&module, compiled.binary.data()), op, "cuModuleLoadData");
  const std::string name = std::string(op) + "_kernel";
  check(cuda.module_get_function(&function, module, name.c_str()), op, "cuModuleGetFunction");
  return function;
}

}  // namespace

LoadedKernel& load_kernel(const KernelId& id, const DeviceState& device) {
  const CompileJob job = job_of(id, device.arch);
  const Nvrtc& compiler = nvrtc();
  return jit::load_kernel(
      id, {.key = key_of(job, compiler),
           .compile = [&] { return compile(job, compiler); },
           .load = [&](const Compiled& compiled) { return load_function(id.text->op, compiled); }});
}

}  // namespace tilekernels::cuda
