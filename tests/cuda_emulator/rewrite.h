// Makes device text, preprocessed, text for g++: inline PTX becomes calls of ptx.h, kernels get an
// entry that the emulator calls, dynamic shared memory becomes a pointer.
#pragma once

#include <string>

namespace cuda_emulator {

struct Rewritten {
  std::string text;
  bool has_dynamic_shared = false;
};

/// Errors: std::runtime_error "file:line: what" for text that it does not understand.
Rewritten rewrite(const std::string& text);

}  // namespace cuda_emulator
