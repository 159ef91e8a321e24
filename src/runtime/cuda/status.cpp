// The state of the cuda backend in words.
#include <atomic>
#include <string>

#include "runtime/cuda/compile.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/driver.h"
#include "runtime/cuda/runtime.h"

namespace tilekernels::cuda {
namespace {

// "NVIDIA H200 (sm_90a)". `usable` is set if kernels run there.
std::string describe_device(const Driver& cuda, int index, bool& usable) {
  int device = 0;
  char name[256] = "";
  int major = 0;
  int minor = 0;
  cuda.device_get(&device, index);
  cuda.device_get_name(name, sizeof(name), device);
  cuda.device_get_attribute(&major, kAttributeMajor, device);
  cuda.device_get_attribute(&minor, kAttributeMinor, device);
  const std::string_view arch = arch_of(major, minor);
  usable |= !arch.empty();
  const std::string capability = std::to_string(major) + "." + std::to_string(minor);
  return std::string(name) + " (" +
         (arch.empty() ? "no kernels for compute capability " + capability : std::string(arch)) +
         ")";
}

}  // namespace

BackendStatus status() {
  if (const std::string problem = driver_problem(); !problem.empty()) {
    return {Backend::kCuda, false, problem};
  }
  const Driver& cuda = driver();
  int count = 0;
  cuda.device_get_count(&count);
  std::string detail;
  bool usable = false;
  for (int i = 0; i < count; ++i) {
    if (i > 0) detail += ", ";
    detail += describe_device(cuda, i, usable);
  }
  if (!usable) return {Backend::kCuda, false, detail};
  if (const std::string problem = nvrtc_problem(); !problem.empty()) {
    return {Backend::kCuda, false, problem};
  }
  return {Backend::kCuda, true,
          detail + ", driver for CUDA " + version_text(driver_version()) + ", " + nvrtc().identity};
}

bool is_available() {
  return is_compile_only() || (is_driver_ready() && is_nvrtc_ready()) || status().available;
}

}  // namespace tilekernels::cuda
