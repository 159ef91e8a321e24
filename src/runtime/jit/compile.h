// Kernels compiled at run time: what one depends on, and the way from text to binary, the same for
// every compiler that is a library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/jit/text.h"

namespace tilekernels::jit {

/// A compiler's entry points, as NVRTC and aclrtc both have them. Tests put a table of their own in
/// its place.
struct Compiler {
  int (*version)(int* major, int* minor);      ///< null: the library does not say
  const char* (*get_error_string)(int error);  ///< null: the library has no words
  int (*create_program)(void** program, const char* source, const char* name, int num_headers,
                        const char* const* headers, const char* const* include_names);
  int (*compile_program)(void* program, int num_options, const char* const* options);
  int (*get_program_log_size)(void* program, size_t* size);
  int (*get_program_log)(void* program, char* log);
  int (*get_binary_size)(void* program, size_t* size);
  int (*get_binary)(void* program, char* binary);
  int (*destroy_program)(void** program);
  /// "nvrtc 13.0, 109338064 bytes": what tells two compilers apart, patch releases too, but not
  /// where the library lies or when it was installed.
  std::string identity;
};

/// Everything that a compiled kernel depends on, but for the compiler.
struct CompileJob {
  const Text* text;
  std::vector<int32_t> shape;  ///< TILEKERNELS_SHAPE in the device text
  std::vector<int32_t> tile;   ///< TILEKERNELS_TILE, of launch.cpp
  std::string_view arch;
  bool pdl;  ///< TILEKERNELS_PDL; cuda only
};

/// The compiler's own report on a kernel; zeros where it gives none.
struct KernelResources {
  int32_t registers = 0;
  int32_t spill_bytes = 0;
  int32_t stack_bytes = 0;
  int32_t shared_bytes = 0;
};

struct Compiled {
  std::string binary;
  KernelResources resources;
};

/// The options that hand over the constants: "-DTILEKERNELS_SHAPE={256,8}" and the Tile's.
std::vector<std::string> constants_of(const CompileJob& job);

/// The key of a kernel in the caches: op, text, compiler and options, one a line.
std::string key_of(const Text& text, const std::vector<std::string>& options,
                   const Compiler& compiler);

/// What a compiler made of a text.
struct Output {
  std::string binary;
  std::string log;
};

/// Compiles the text; `file` is what the compiler calls it.
/// Errors: BackendError with the compiler's whole log.
Output compile(const CompileJob& job, const std::string& file,
               const std::vector<std::string>& options, const Compiler& compiler);

/// "123 bytes" of the library that holds `symbol`, for an identity; empty if it cannot be found.
std::string library_size(const void* symbol);

}  // namespace tilekernels::jit
