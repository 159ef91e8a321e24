// Device text for CUDA.
#pragma once

#include "runtime/jit/text.h"

namespace tilekernels::cuda {

/// `cuda.cuh` with everything that it includes. It defines
/// `extern "C" __global__ void <op>_kernel(const __grid_constant__ <Op>Args args)`. An op's
/// launch.cpp declares its own: `extern const Text topk_gate_text;`.
struct Text : jit::Text {};

/// The texts of all ops, then null; made by the build.
extern const Text* const all_texts[];

}  // namespace tilekernels::cuda
