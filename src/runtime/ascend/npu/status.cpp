// The state of the NPUs in words.
#include <string>

#include "runtime/ascend/npu/acl.h"
#include "runtime/ascend/npu/compile.h"
#include "runtime/ascend/npu/device.h"
#include "runtime/ascend/runtime.h"

namespace tilekernels::ascend {

std::string npu_problem() {
  if (std::string problem = npu::acl_problem(); !problem.empty()) return problem;
  return npu::aclrtc_problem();
}

std::string describe_npus() {
  if (const std::string problem = npu_problem(); !problem.empty()) return "no NPU: " + problem;
  const npu::Acl& runtime = npu::acl();
  uint32_t count = 0;
  runtime.get_device_count(&count);
  const char* const name = runtime.get_soc_name();
  const std::string processor = name == nullptr ? "an unknown processor" : name;
  const std::string_view arch = npu::arch_of(processor);
  return "NPUs: " + std::to_string(count) + " of " + processor + " (" +
         (arch.empty() ? "no kernels for it" : std::string(arch)) + "), acl " + npu::acl_version() +
         ", " + npu::aclrtc().identity;
}

std::shared_ptr<void> allocate(int64_t size_bytes, int device_index, Stream stream) {
  return npu::allocate(size_bytes, device_index, stream);
}

void copy(void* to, bool to_device, const void* from, bool from_device, int64_t size_bytes,
          int device_index, Stream stream) {
  const int kind = !from_device ? npu::kHostToDevice
                   : to_device  ? npu::kDeviceToDevice
                                : npu::kDeviceToHost;
  npu::copy(to, from, size_bytes, kind, device_index, stream);
}

uint64_t take_fault(Stream stream) { return npu::take_fault(stream); }

}  // namespace tilekernels::ascend
