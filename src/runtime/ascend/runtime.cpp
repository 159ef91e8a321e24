// The ascend runtime of a host: kernels run on the machine model.
#include "runtime/ascend/runtime.h"

#include <string>
#include <vector>

#include "runtime/ascend/launch.h"
#include "runtime/ascend/model/core.h"

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

int64 num_vec_cores() { return model::options().num_cores; }

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
