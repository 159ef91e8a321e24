// Facts about this machine's accelerators, which the settings are judged by.
#include <algorithm>
#include <stdexcept>

#include "core/message.h"
#include "core/settings.h"
#include "runtime/ascend/runtime.h"
#include "runtime/cuda/runtime.h"
#include "tilekernels/config.h"

namespace tilekernels {
namespace {

[[noreturn]] void refuse(const char* op, Device device, const char* rule) {
  throw std::invalid_argument(message(op, "device", rule, to_string(device)));
}

int device_num_sms(const char* op, std::optional<Device> named) {
  const Device device = named.value_or(Device{get_device(), 0});
  switch (device.type) {
    case DeviceType::kCuda:
      return cuda::device_facts(op, device.index).num_sms;
    case DeviceType::kAscend:
      return ascend::num_model_cores() / ascend::kVecCoresPerCubeCore;
    case DeviceType::kCpu:
      break;
  }
  refuse(op, device, "must be cuda or ascend");
}

int num_sms_in_force(const char* op, std::optional<Device> device) {
  const int all = device_num_sms(op, device);
  const int limit = num_sms_limit();
  return limit == 0 ? all : std::min(all, limit);
}

}  // namespace

bool is_ascend() { return ascend::is_present(); }

DeviceType get_device() { return is_ascend() ? DeviceType::kAscend : DeviceType::kCuda; }

int get_device_num_sms(std::optional<Device> device) {
  return device_num_sms("get_device_num_sms", device);
}

int get_num_sms(std::optional<Device> device) { return num_sms_in_force("get_num_sms", device); }

int get_num_ai_cores(std::optional<Device> device) {
  return num_sms_in_force("get_num_ai_cores", device);
}

int get_num_cube_cores(std::optional<Device> device) {
  return num_sms_in_force("get_num_cube_cores", device);
}

int get_num_vec_cores(std::optional<Device> device) {
  return ascend::kVecCoresPerCubeCore * num_sms_in_force("get_num_vec_cores", device);
}

int get_max_smem_per_sm(std::optional<Device> named) {
  const Device device = named.value_or(Device{get_device(), 0});
  if (device.type != DeviceType::kCuda) refuse("get_max_smem_per_sm", device, "must be cuda");
  return cuda::device_facts("get_max_smem_per_sm", device.index).max_smem_per_sm;
}

int get_max_ub_per_vector_core(bool use_simt) { return ascend::max_ub_bytes(use_simt); }

}  // namespace tilekernels
