// Takes cases to a device's compiler without the device.
#pragma once

#include "cases/case.h"

namespace tilekernels::cases {

/// Calls the case's `_out` form on CUDA tensors at made-up addresses, for use while a `CompileOnly`
/// lives: first aligned, then one element off, so that both paths of the launch plan are taken.
/// Errors: Unsupported when the op has no CUDA kernel; BackendError from the compiler.
void compile_case(const Case& test);

}  // namespace tilekernels::cases
