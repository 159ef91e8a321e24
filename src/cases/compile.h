// Takes cases to a device's compiler without the device.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "cases/case.h"
#include "tilekernels/cache.h"

namespace tilekernels::cases {

/// Calls the case's `_out` form on CUDA tensors at made-up addresses, for use while a `CompileOnly`
/// lives: first aligned, then one element off, so that both paths of the launch plan are taken.
/// Errors: Unsupported when the op has no CUDA kernel; BackendError from the compiler.
void compile_case(const Case& test);

struct CompiledCases {
  std::vector<CompiledKernel> kernels;  ///< each once, by op and constants
  std::set<std::string> unsupported;    ///< what ops without a CUDA kernel said
};

/// Compiles what the cases need for one architecture, with this many threads; bad calls are left
/// out. Errors: BackendError that begins with the case's id.
CompiledCases compile_cases(std::string_view arch, const std::vector<const Case*>& tests,
                            int num_threads);

}  // namespace tilekernels::cases
