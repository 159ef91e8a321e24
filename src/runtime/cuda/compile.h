// The run-time compiler: NVRTC, opened at the first need, turns device text into a cubin.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/cuda/text.h"

namespace tilekernels::cuda {

/// NVRTC's entry points. Tests put a table of their own in its place.
struct Nvrtc {
  int (*version)(int* major, int* minor);
  const char* (*get_error_string)(int error);
  int (*create_program)(void** program, const char* source, const char* name, int num_headers,
                        const char* const* headers, const char* const* include_names);
  int (*compile_program)(void* program, int num_options, const char* const* options);
  int (*get_program_log_size)(void* program, size_t* size);
  int (*get_program_log)(void* program, char* log);
  int (*get_cubin_size)(void* program, size_t* size);
  int (*get_cubin)(void* program, char* cubin);
  int (*destroy_program)(void** program);
  /// "nvrtc 13.0, 109338064 bytes": what tells two compilers apart, patch releases too, but not
  /// where the library lies or when it was installed.
  std::string identity;
};

/// The compiler, opened by the first call: the library of TILEKERNELS_NVRTC_LIBRARY; else
/// libnvrtc.so.13 or .12 from the loader's path, from PyPI's packages beside ours, from
/// /usr/local/cuda. One newer than the driver is passed over: the driver would refuse its cubins.
/// Errors: BackendError with `nvrtc_problem()`.
const Nvrtc& nvrtc();

/// Empty when `nvrtc()` works, else one sentence that says how to get a compiler.
std::string nvrtc_problem();

/// Whether `nvrtc()` worked before, without trying.
bool is_nvrtc_ready();

/// Opens a compiler library. Returns the problem, empty when the table is complete.
std::string open_nvrtc(const std::string& library, Nvrtc& table);

/// For tests: makes the table, or with null the machine's, the one that the next call finds.
void replace_nvrtc(const Nvrtc* table);

/// Everything that a compiled kernel depends on, but for the compiler.
struct CompileJob {
  const Text* text;
  std::vector<int32_t> shape;  ///< TILEKERNELS_SHAPE in the device text
  std::vector<int32_t> tile;   ///< TILEKERNELS_TILE, of launch.cpp
  std::string_view arch;
  bool pdl;  ///< TILEKERNELS_PDL
};

/// The compiler's own report on a kernel.
struct KernelResources {
  int32_t registers = 0;
  int32_t spill_bytes = 0;
  int32_t stack_bytes = 0;
  int32_t shared_bytes = 0;
};

struct Compiled {
  std::string cubin;
  KernelResources resources;
};

/// The key of a kernel in the caches: op, text, compiler and options, one a line.
std::string key_of(const CompileJob& job, const Nvrtc& compiler);

/// Errors: BackendError with the compiler's whole log.
Compiled compile(const CompileJob& job, const Nvrtc& compiler);

/// Reads the report of --ptxas-options=-v.
KernelResources parse_resources(std::string_view log);

}  // namespace tilekernels::cuda
