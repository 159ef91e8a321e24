// Loaded kernels: from an op's text, constants and device to a function, without a lock when hot.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "runtime/jit/compile.h"

namespace tilekernels::jit {

/// Shape and Tile of one kernel together.
constexpr int kMaxConstants = 64;

/// What one loaded kernel is for. The constants are the Shape's, then the Tile's.
struct KernelId {
  struct Kind {
    int16_t device;
    int16_t pdl;
    int16_t num_shape;
    int16_t num_constants;
  };
  const Text* text;
  Kind kind;
  int32_t constants[kMaxConstants];
};

struct LoadedKernel {
  void* function;
  /// Dynamic shared memory that a launch may ask for so far; cuda only.
  std::atomic<int64_t> shared_bytes{0};
};

/// Null when no call has loaded it.
LoadedKernel* find_kernel(const KernelId& id);

/// How a machine comes by a kernel.
struct KernelSource {
  std::string key;                             ///< of its binary
  std::function<Compiled()> compile;           ///< when no cache has it
  std::function<void*(const Compiled&)> load;  ///< the function on the id's device
};

/// Compiles or reads the kernel, and loads it: once, however many threads and processes ask.
/// Errors: what the source throws.
LoadedKernel& load_kernel(const KernelId& id, const KernelSource& source);

/// The job behind an id.
CompileJob job_of(const KernelId& id, std::string_view arch);

/// For tests: forgets every kernel.
void forget_kernels();

}  // namespace tilekernels::jit
