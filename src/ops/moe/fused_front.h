// Checks of the ops that move rows by get_fused_mapping's positions.
#pragma once

#include <cstdint>
#include <limits>

#include "core/check.h"
#include "ops/moe/common.h"

namespace tilekernels {

constexpr int64_t kMaxExtent = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxRow = int64_t{1} << 30;  // with what a kernel reads ahead below 2^31

/// (num_tokens, num_topk) positions beside x.
inline void check_positions(const Check& check, const TensorSpec& token_topk_to_pos,
                            const TensorSpec& x) {
  check.rank("token_topk_to_pos", token_topk_to_pos, 2);
  check.dtype("token_topk_to_pos", token_topk_to_pos, {DType::kI32});
  check.range("num_topk", token_topk_to_pos.size(1), 1, kWeightSlots);
  check.contiguous("token_topk_to_pos", token_topk_to_pos);
  check.same_device("token_topk_to_pos", token_topk_to_pos, "x", x);
}

}  // namespace tilekernels
