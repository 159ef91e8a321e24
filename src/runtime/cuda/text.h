// Device text, embedded into the library at build time.
#pragma once

namespace tilekernels::cuda {

/// The text of one op's kernel, `cuda.cuh` with everything that it includes. It defines
/// `extern "C" __global__ void <op>_kernel(const __grid_constant__ <Op>Args args)`. An op's
/// launch.cpp declares its own: `extern const Text topk_gate_text;`.
struct Text {
  const char* op;
  const char* digest;  ///< of the text without comments and blank lines
  const char* source;
};

/// The texts of all ops, then null; made by the build.
extern const Text* const all_texts[];

}  // namespace tilekernels::cuda
