// The number formats that checkpoints hold, as data: how weights and their scales are named, what
// they are made of, and what config.json says about them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors.h"
#include "tilekernels/checkpoint.h"
#include "tilekernels/quant.h"

namespace tilekernels::checkpoint {

/// A quantized format that can be written: a further one is a further row.
struct QuantScheme {
  io::StDType codes;
  BlockSize block;
  SfKind sf_kind;
  io::StDType scale;
  /// The scale's name is the weight's followed by this.
  std::string_view scale_suffix;
  /// Floor under amax: small weights keep their precision, a block of zeros gets a normal scale.
  float amax_clamp;
  /// `quantization_config` of config.json.
  std::string_view config;
};

/// What a checkpoint is converted to: a plain format, or a quantized one.
struct TargetFormat {
  CheckpointFormat id;
  std::string_view name;
  /// The plain format of weights; for a quantized target unused.
  io::StDType plain;
  /// The value of "torch_dtype"; empty leaves config.json's.
  std::string_view torch_dtype;
  const QuantScheme* scheme;
};

const TargetFormat& target_format(CheckpointFormat format);

/// F32, F16, BF16: what the converter computes with.
bool is_plain_float(io::StDType dtype);

/// The ops' dtype of F32, F16, BF16 and F8_E4M3.
DType op_dtype(io::StDType dtype);

/// Names under which the scale of `weight` is known, the most explicit first.
std::vector<std::string> scale_names(std::string_view weight);

/// Formats that a scale may be stored in; each is widened to f32 exactly.
bool is_scale_dtype(io::StDType dtype);

/// Whether a tensor outside every known pair is a part of some quantization, by name or dtype.
bool is_unknown_part(const io::TensorEntry& tensor);

/// The shape of the scales of a weight: leading dimensions kept, the last two in blocks.
std::vector<int64_t> scale_shape(const std::vector<int64_t>& weight, BlockSize block);

/// "128x128".
std::string block_text(BlockSize block);

/// "F8_E4M3 x F32 per 128x128".
std::string scaled_format(io::StDType codes, io::StDType scale, BlockSize block);

}  // namespace tilekernels::checkpoint
