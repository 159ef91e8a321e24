// The ascend runtime of a host: kernels run on the machine model.
#include "runtime/ascend/runtime.h"

#include <unistd.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "core/settings.h"
#include "runtime/ascend/launch.h"
#include "runtime/ascend/model/core.h"
#include "runtime/ascend/npu/device.h"

namespace tilekernels::ascend {
namespace {

struct Start {
  void (*body)(const void* state, uint64* faults);
  const void* state;
  uint64* faults;
};

}  // namespace

BackendStatus status() {
  return {Backend::kAscend, true,
          "machine model of the Ascend 950 vector core, " + std::to_string(num_vec_cores()) +
              " cores; " + describe_npus()};
}

bool is_present() {
  static const bool is_there = access("/dev/davinci_manager", F_OK) == 0;
  return is_there;
}

int max_ub_bytes(bool with_simt) {
  constexpr int kSimtCacheBytes = 32 * 1024;
  return with_simt ? kUbBytes - kSimtCacheBytes : kUbBytes;
}

int num_model_cores() { return static_cast<int>(model::options().num_cores); }

int64 num_vec_cores() {
  const int64 all = model::options().num_cores;
  const int64 limit = kVecCoresPerCubeCore * int64{num_sms_limit()};
  return limit == 0 ? all : numerics::min_of(all, limit);
}

int64 num_cores(const Text& text, const Launch& where) {
  if (where.device.type != DeviceType::kAscend) return num_vec_cores();
  return npu::device_state(text.op, where.device.index).num_cores;
}

std::shared_ptr<void> scratch(int64 size_bytes, const Launch& where) {
  if (where.device.type != DeviceType::kAscend) {
    return std::make_shared<std::byte[]>(static_cast<size_t>(size_bytes));
  }
  return allocate(size_bytes, where.device.index, where.stream);
}

uint64 detail::launch(const char* kernel, int64 num_cores,
                      void (*body)(const void* state, uint64* faults), const void* state) {
  std::vector<uint64> faults(static_cast<size_t>(num_cores * kFaultPitch), numerics::kNoFault);
  const Start start{body, state, faults.data()};
  const model::Program program{kernel,
                               [](const void* opaque) {
                                 const Start& of = *static_cast<const Start*>(opaque);
                                 of.body(of.state, of.faults);
                               },
                               &start};
  model::run_cores(program, num_cores, model::options());
  uint64 word = numerics::kNoFault;
  for (int64 core = 0; core < num_cores; ++core) {
    word = numerics::min_of(word, faults[static_cast<size_t>(core * kFaultPitch)]);
  }
  return word;
}

}  // namespace tilekernels::ascend
