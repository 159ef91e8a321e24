// Checks and arguments of group_count and aux_fi.
#pragma once

#include <limits>
#include <string_view>

#include "core/check.h"
#include "ops/moe/histogram.h"
#include "tilekernels/tensor.h"

namespace tilekernels {

constexpr int64_t kMaxBins = std::numeric_limits<int32_t>::max();

/// Indices (num_tokens, num_topk): counts of fewer than 2^31 fit in their 32 bits.
inline void check_histogram_indices(const Check& check, std::string_view argument,
                                    const TensorSpec& indices) {
  check.rank(argument, indices, 2).dtype(argument, indices, {DType::kI64});
  check.contiguous(argument, indices);
  check.range("num_topk", indices.size(1), 1, std::numeric_limits<int32_t>::max());
  check.range("num_tokens", indices.size(0), 0,
              std::numeric_limits<int32_t>::max() / indices.size(1));
}

inline HistogramArgs histogram_args(const TensorView& out, const TensorView& indices,
                                    int64_t num_chosen) {
  return {.indices = static_cast<const int64*>(indices.data),
          .out = out.data,
          .num_tokens = indices.size(0),
          .num_chosen = num_chosen,
          .num_topk = static_cast<int32>(indices.size(1)),
          .num_bins = static_cast<int32>(out.size(0)),
          .counts = nullptr,
          .num_parts = 0,
          .fault = nullptr};
}

}  // namespace tilekernels
