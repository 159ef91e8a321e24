// The checks that the fronts of the quantization family share.
#pragma once

#include <string_view>

#include "core/check.h"
#include "ops/quant/common.h"
#include "tilekernels/quant.h"

namespace tilekernels {

/// What the checks found out about a quantized input.
struct QuantSource {
  int64_t num_tokens;
  int32_t hidden;   ///< columns in elements
  int32_t sf_kind;  ///< kSfF32, kSfUE8M0 or kSfE4M3: how its scaling factors are read
  numerics::SfMap sf_map;
};

/// Checks the tensors of a quantized input, called `x` and `x.sf`, and the way `x_sf` to read it.
/// Blocks may be of any size >= 1.
QuantSource check_quant_source(const Check& check, const TensorSpec& data, const TensorSpec& sf,
                               const SfSource& x_sf);

/// A buffer of scaling factors, and the tensor that callers see of it.
struct SfBuffer {
  numerics::SfStorage storage;
  TensorSpec spec;
};

/// The buffer of `sf_spec`, under the name of the op that asks.
SfBuffer checked_sf_buffer(const Check& check, const SfFormat& format, int64_t num_row_blocks,
                           int64_t num_col_blocks, Device device);

}  // namespace tilekernels
