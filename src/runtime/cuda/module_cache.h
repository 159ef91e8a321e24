// Loaded CUDA kernels: the shared caches of compiled kernels, and loading by the driver.
#pragma once

#include "runtime/cuda/compile.h"
#include "runtime/cuda/context.h"
#include "runtime/jit/kernel_cache.h"

namespace tilekernels::cuda {

using jit::find_kernel;
using jit::forget_kernels;
using jit::job_of;
using jit::KernelId;
using jit::LoadedKernel;

/// Compiles or reads the kernel, and loads it: once, however many threads ask. The device's context
/// is current.
/// Errors: BackendError.
LoadedKernel& load_kernel(const KernelId& id, const DeviceState& device);

}  // namespace tilekernels::cuda
