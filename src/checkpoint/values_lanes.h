// The loops of values.h that run over every number of a checkpoint, on SIMD lanes.
#pragma once

#include <cstdint>

#include "io/safetensors.h"

namespace tilekernels::checkpoint {

/// Sums over the numbers that are finite before and after.
struct ErrorSums {
  double errors = 0;   ///< squares of differences
  double squares = 0;  ///< squares of the numbers before
  float max_abs = 0;   ///< largest difference
};

/// Both work on a prefix of whole vectors and return its length, 0 on a machine without SIMD; the
/// caller does the rest. Same bits as the scalar conversions; sums in another order.
int64_t convert_on_lanes(io::StDType from, const void* in, io::StDType to, void* out,
                         int64_t count);
int64_t measure_on_lanes(io::StDType dtype, const void* before, const float* after, int64_t count,
                         ErrorSums* sums);

}  // namespace tilekernels::checkpoint
