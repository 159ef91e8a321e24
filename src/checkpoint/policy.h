// Which tensors are cast to a quantized format, and why not the others.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors.h"

namespace tilekernels::checkpoint {

/// Patterns over tensor names: "re:EXPRESSION", matched from the name's start, or globs over the
/// whole name. Each is tried on the name and on the name without ".weight".
class NamePatterns {
 public:
  /// Errors: std::invalid_argument naming `option` for an expression that does not compile.
  NamePatterns(const std::vector<std::string>& patterns, std::string_view option);
  ~NamePatterns();
  NamePatterns(const NamePatterns&) = delete;
  NamePatterns& operator=(const NamePatterns&) = delete;

  /// The pattern that matches, or null.
  const std::string* match(std::string_view tensor) const;
  /// Patterns that matched nothing so far: probably mistyped.
  std::vector<std::string> unused() const;

 private:
  struct Pattern;
  std::unique_ptr<std::vector<Pattern>> patterns_;
};

/// Whether a tensor is cast to a quantized format, with the reason for either.
struct CastDecision {
  bool cast;
  std::string reason;
};

/// The decision by shape, element type and name; `include` overrides what names say.
CastDecision decide_cast(const io::TensorEntry& tensor, const NamePatterns& ignore,
                         const NamePatterns& include);

/// A tensor that stays f32 when everything else becomes a narrower plain format.
bool stays_wide(std::string_view tensor);

/// "model.layers.0.mlp.up_proj" of "model.layers.0.mlp.up_proj.weight".
std::string_view module_of(std::string_view tensor);

}  // namespace tilekernels::checkpoint
