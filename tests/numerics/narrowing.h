// Sweeps of fp32 bit patterns through the narrowing conversions, against exact arithmetic.
#pragma once

#include <gtest/gtest.h>

#include "numerics/exact.h"
#include "numerics/formats.h"

namespace tilekernels::test {

/// Checks `narrow` over every `stride`-th fp32 pattern of both signs, from `first`, and over every
/// NaN among them. Stops at the first mismatch.
template <typename Narrow>
void sweep(const char* name, const Format& format, uint32_t first, uint32_t stride, Narrow narrow) {
  Nearest nearest(format);
  uint64_t checked = 0;
  for (uint64_t bits = first; bits <= 0x7FFFFFFF; bits += stride) {
    const auto abs = static_cast<uint32_t>(bits);
    uint32_t positive;
    uint32_t negative;
    if (abs > 0x7F800000) {
      // e2m1 has no NaN: its magnitude is 7, with the sign of the pattern.
      positive = format.nan_code == 0 ? format.max_code : format.nan_code;
      negative = format.nan_code == 0 ? format.max_code | format.sign_code : format.nan_code;
    } else {
      const double magnitude = abs == 0x7F800000 ? 1e300 : static_cast<double>(from_bits(abs));
      positive = nearest.ascending(magnitude);
      negative = positive | format.sign_code;
    }
    const uint32_t got_positive = narrow(from_bits(abs));
    const uint32_t got_negative = narrow(from_bits(abs | 0x80000000u));
    if (got_positive != positive || got_negative != negative) {
      FAIL() << std::hex << name << " of fp32 ±0x" << abs << ": got 0x" << got_positive << ", 0x"
             << got_negative << ", expected 0x" << positive << ", 0x" << negative;
    }
    ++checked;
  }
  ASSERT_GT(checked, 0u);
}

/// All five conversions.
inline void sweep_all(uint32_t first, uint32_t stride) {
  using namespace numerics;  // NOLINT: the functions under test
  sweep("f32_to_bf16", test::kBF16, first, stride, [](float x) { return f32_to_bf16(x); });
  sweep("f32_to_f16", test::kF16, first, stride, [](float x) { return f32_to_f16(x); });
  sweep("f32_to_e4m3", test::kE4M3, first, stride, [](float x) { return f32_to_e4m3(x); });
  sweep("f32_to_e5m2", test::kE5M2, first, stride, [](float x) { return f32_to_e5m2(x); });
  sweep("f32_to_e2m1", test::kE2M1, first, stride, [](float x) { return f32_to_e2m1(x); });
}

}  // namespace tilekernels::test
