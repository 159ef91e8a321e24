// The integer key that orders scores in a top-k selection.
#pragma once

#include "numerics/types.h"

namespace tilekernels::numerics {

/// The key of an element already taken, and of padding: below every key of a score.
constexpr int32 kTopkTaken = -0x7FFFFFFF - 1;
/// The key of any NaN: below every number.
constexpr int32 kTopkNan = -0x7FFFFFFF;

/// Orders as the scores do: -Inf < … < -0 = +0 < … < +Inf. Equal keys go to the lower index.
constexpr int32 topk_key(float score) {
  if (is_nan(score)) return kTopkNan;
  const uint32 bits = bit_cast<uint32>(score);
  if (bits == 0x80000000u) return 0;
  return bit_cast<int32>(bits >> 31 ? bits ^ 0x7FFFFFFFu : bits);
}

/// The same for a score that is no NaN, and its inverse but for the sign of zero.
constexpr int32 topk_key_of_number(float score) {
  const int32 bits = bit_cast<int32>(score + 0.0f);  // -0 becomes +0
  return bits ^ ((bits >> 31) & 0x7FFFFFFF);
}
constexpr float number_of_topk_key(int32 key) {
  return bit_cast<float>(key ^ ((key >> 31) & 0x7FFFFFFF));
}

}  // namespace tilekernels::numerics
