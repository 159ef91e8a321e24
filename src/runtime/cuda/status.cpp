// The state of the cuda backend in words.
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/cuda/compile.h"
#include "runtime/cuda/context.h"
#include "runtime/cuda/driver.h"
#include "runtime/cuda/runtime.h"
#include "runtime/cuda/text.h"
#include "tilekernels/cache.h"

namespace tilekernels::cuda {
namespace {

// The architecture to compile for, or "no kernels for compute capability 7.5".
struct DeviceArch {
  std::string_view arch;
  std::string text;
};
DeviceArch arch_of_device(const Driver& cuda, int device) {
  int major = 0;
  int minor = 0;
  cuda.device_get_attribute(&major, kAttributeMajor, device);
  cuda.device_get_attribute(&minor, kAttributeMinor, device);
  const std::string_view arch = arch_of(major, minor);
  if (!arch.empty()) return {arch, std::string(arch)};
  return {arch, "no kernels for compute capability " + std::to_string(major) + "." +
                    std::to_string(minor)};
}

// Calls `visit` with every device handle.
template <class Visit>
void for_each_device(const Driver& cuda, const Visit& visit) {
  int count = 0;
  cuda.device_get_count(&count);
  for (int i = 0; i < count; ++i) {
    int device = 0;
    if (cuda.device_get(&device, i) == 0) visit(device);
  }
}

}  // namespace

BackendStatus status() {
  if (const std::string problem = driver_problem(); !problem.empty()) {
    return {Backend::kCuda, false, problem};
  }
  const Driver& cuda = driver();
  std::string detail;
  bool usable = false;
  for_each_device(cuda, [&](int device) {
    char name[256] = "";
    cuda.device_get_name(name, sizeof(name), device);
    const DeviceArch arch = arch_of_device(cuda, device);
    usable |= !arch.arch.empty();
    detail += (detail.empty() ? "" : ", ") + std::string(name) + " (" + arch.text + ")";
  });
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

namespace tilekernels {

std::string device_text_digest(std::string_view op) {
  for (const cuda::Text* const* text = cuda::all_texts; *text != nullptr; ++text) {
    if (op == (*text)->op) return (*text)->digest;
  }
  return "";
}

std::vector<std::string> device_archs() {
  using namespace cuda;
  if (!driver_problem().empty()) return {};
  std::set<std::string> archs;
  for_each_device(driver(), [&](int device) {
    const std::string_view arch = arch_of_device(driver(), device).arch;
    if (!arch.empty()) archs.emplace(arch);
  });
  return {archs.begin(), archs.end()};
}

}  // namespace tilekernels
