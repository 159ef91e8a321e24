// Kernels compiled at run time: the folder that keeps them, and compiling ahead of the first call.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace tilekernels {

/// The folder of compiled kernels; empty: none, each process compiles what it needs. Starts as
/// TILEKERNELS_CACHE_DIR, else $XDG_CACHE_HOME/tilekernels, else ~/.cache/tilekernels. It is made
/// when the first kernel is written. A folder that cannot be read or written costs a compilation
/// and one warning (`set_log_hook`), never an error.
std::string cache_dir();
void set_cache_dir(std::string folder);

/// One compiled kernel, by its compiler's own report.
struct CompiledKernel {
  std::string op;         ///< empty: the file is damaged, the next use replaces it
  std::string arch;       ///< "sm_90a"
  std::string constants;  ///< what shaped it: "PDL=0 SHAPE={256,8} TILE={4}"
  std::string compiler;   ///< "nvrtc 13.0 …"
  std::string path;       ///< its file; empty if it could not be kept
  int64_t size_bytes = 0;
  int32_t registers = 0;     ///< a thread
  int32_t spill_bytes = 0;   ///< a thread: registers that went to memory
  int32_t stack_bytes = 0;   ///< a thread
  int32_t shared_bytes = 0;  ///< a block, static
  std::string cubin{};       ///< the binary; kept by `CompileOnly` alone
};

/// The kernels in `cache_dir()`, by file name. Errors: BackendError if the folder cannot be read.
std::vector<CompiledKernel> list_cache();

/// Removes every kernel, working file and lock from `cache_dir()`, and no other file; safe beside
/// running processes. Returns how many kernels went.
/// Errors: BackendError if a file cannot be removed.
int64_t clear_cache();

/// The digest of an op's device text, comments and layout apart, for records of what was run; empty
/// for an op without a kernel.
std::string device_text_digest(std::string_view op);

/// The architectures of the CUDA devices here that have kernels, as `CompileOnly` takes them, each
/// once; empty on a machine without such a device.
std::vector<std::string> device_archs();

/// While it lives, calls of this thread on CUDA tensors compile their kernel into the cache and
/// return, without a device: the `_out` forms with made-up addresses that nothing reads. For
/// filling a cache ahead of time and for checking every kernel on a machine without a GPU.
class CompileOnly {
 public:
  /// Args: arch: "sm_90a", "sm_100a" or "sm_103a".
  /// Errors: std::invalid_argument for another arch; BackendError if there is no compiler here, or
  ///   this thread has a CompileOnly already; Unsupported in a build without the cuda backend.
  explicit CompileOnly(std::string_view arch);
  ~CompileOnly();
  CompileOnly(const CompileOnly&) = delete;
  CompileOnly& operator=(const CompileOnly&) = delete;

  /// The kernels that calls needed so far, each once.
  const std::vector<CompiledKernel>& kernels() const;

  struct State;

 private:
  std::unique_ptr<State> state_;
};

}  // namespace tilekernels
