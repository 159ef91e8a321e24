// config.json: what it claims about quantization, and the form it takes in the output.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/formats.h"
#include "checkpoint/source.h"

namespace tilekernels::checkpoint {

/// The quantization_config, at the top or in text_config.
/// Errors: DataError for a block size that is no pair of positive numbers.
QuantClaim read_claim(const io::Json& config, const std::string& where);

/// What the output's config.json has to say.
struct ConfigChange {
  const TargetFormat* target;
  /// Whether any tensor of the output holds codes with scales.
  bool is_quantized = false;
  /// Whether the claim of the input still describes the output's codes.
  bool keep_claim = false;
  /// Modules with a matrix that is not quantized though others are.
  std::vector<std::string> plain_modules;
};

/// The config with dtype keys and quantization_config (at the top and in nested configs) made to
/// fit the tensors; every other key and the order are kept.
io::Json rewrite_config(const io::Json& config, const ConfigChange& change);

/// Where tie_word_embeddings and the tensors contradict each other, one sentence that says so; else
/// empty.
std::string tied_contradiction(const Source& source);

/// "Qwen3ForCausalLM (qwen3)".
std::string describe_model(const io::Json& config);

}  // namespace tilekernels::checkpoint
