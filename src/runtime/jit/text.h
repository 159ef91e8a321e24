// Device text, embedded into the library at build time.
#pragma once

namespace tilekernels::jit {

/// The text of one op's kernel with everything of ours that it includes.
struct Text {
  const char* op;
  const char* digest;  ///< of the text without comments and blank lines
  const char* source;
};

}  // namespace tilekernels::jit
