// One table an op: its kernels by backend, and the way from a checked call to one of them.
#pragma once

#include <string_view>

#include "core/launch.h"
#include "numerics/fault.h"
#include "numerics/kernel.h"
#include "runtime/cpu/float_env.h"
#include "tilekernels/device.h"
#include "tilekernels/stream.h"

namespace tilekernels {

/// Which backends an op has a kernel for, by `Backend`.
struct KernelPresence {
  bool present[kNumBackends];
};

/// The backend that a call runs: the forced one, or that of the device.
/// Errors: std::invalid_argument when the tensors' memory is not that backend's; Unsupported when
/// the op has no kernel for it; BackendError when the machine cannot run it.
Backend choose_backend(std::string_view op, const Call& call, Device device,
                       const KernelPresence& presence);

/// The faults that an op reports: its id in the error word, and the argument that each kind is
/// about; null for a kind that it never reports.
struct FaultNames {
  int32 op_id = 0;
  const char* not_finite = nullptr;
  const char* index_out_of_range = nullptr;
  const char* position_out_of_range = nullptr;
  const char* nan = nullptr;
  const char* count_out_of_range = nullptr;
};

/// Throws the DataError that a host backend's error word stands for, unless the check is off.
void throw_fault(std::string_view op, uint64_t word, const FaultNames& faults);

/// Notes what the error word of a device, read long after the call, says with that op's id.
void remember_faults(const char* op, const FaultNames& faults);

/// The kernels of an op; an empty slot is a missing kernel and gives one uniform error.
template <class Args, class Shape>
struct KernelTable {
  std::string_view op;  ///< a literal: devices report faults long after the call
  Kernel<Args, Shape>* reference = nullptr;
  Kernel<Args, Shape>* cpu = nullptr;
  Kernel<Args, Shape>* cuda = nullptr;
  Kernel<Args, Shape>* ascend = nullptr;
  FaultNames faults{};

  void run(const Call& call, Device device, Args&& args, const Shape& shape) const {
    Kernel<Args, Shape>* const kernels[kNumBackends] = {reference, cpu, cuda, ascend};
    const KernelPresence presence{{kernels[0] != nullptr, kernels[1] != nullptr,
                                   kernels[2] != nullptr, kernels[3] != nullptr}};
    const Backend backend = choose_backend(op, call, device, presence);
    const Launch launch{device, call.stream};
    uint64 word = numerics::kNoFault;
    // The launch on a device replaces the pointer by the device's own word.
    if constexpr (requires { args.fault; }) {
      args.fault = &word;
      if (device.type != DeviceType::kCpu) remember_faults(op.data(), faults);
    }
    if (backend == Backend::kReference) {
      // The cpu kernels' thread loop does the same for them.
      const cpu::FloatEnv float_env;
      reference(args, shape, launch);
    } else {
      kernels[static_cast<int>(backend)](args, shape, launch);
    }
    if (call.ran != nullptr) *call.ran = backend;
    if (word != numerics::kNoFault) throw_fault(op, word, faults);
  }
};

}  // namespace tilekernels
