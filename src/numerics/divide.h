// Division by a number that stays the same for many: one long multiplication and a shift.
#pragma once

#include "numerics/types.h"

namespace tilekernels::numerics {

/// Of x < 2^31 the quotient is the high word of 2x · magic, shifted right by `shift`: magic is
/// ceil(2^(31 + shift) / divisor), and 2^shift the smallest power of two that is not below divisor.
struct Divisor {
  int32 divisor;
  uint32 magic;
  int32 shift;
};

/// 1 <= divisor < 2^31.
constexpr Divisor divisor_of(int32 divisor) {
  int32 shift = 0;
  while (int64{1} << shift < divisor) ++shift;
  const uint64 power = uint64{1} << (31 + shift);
  const auto by = static_cast<uint64>(divisor);
  return {divisor, static_cast<uint32>((power + by - 1) / by), shift};
}

/// floor(x / divisor) for x < 2^31.
constexpr uint32 quotient(uint32 x, const Divisor& by) {
  return static_cast<uint32>(uint64{2 * x} * by.magic >> 32) >> by.shift;
}

}  // namespace tilekernels::numerics
