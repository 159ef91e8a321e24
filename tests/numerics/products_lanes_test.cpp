// Products by table on every target of this machine, against fp32 products rounded once.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "numerics/products_lanes_test.cpp"
#include <hwy/foreach_target.h>
// The loop over targets comes first.
#include <hwy/highway.h>

#include "numerics/lanes-inl.h"

#if HWY_ONCE

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "numerics/lanes_sweep.h"

namespace tilekernels::test {
namespace {

HWY_EXPORT(multiply);
HWY_EXPORT(has_e4m3_products);

bool has_table(float sf) { return HWY_DYNAMIC_DISPATCH(has_e4m3_products)(sf); }

/// Scaling factors of both signs: every exponent, with mantissas that make ties, carries and
/// neither.
std::vector<float> scales() {
  std::vector<float> found;
  std::mt19937 random(11);
  for (uint32_t exponent = 0; exponent < 256; ++exponent) {
    for (uint32_t mantissa : {0u, 1u, 0x7FFFu, 0x8000u, 0x8001u, 0x18000u, 0x400000u, 0x124925u,
                              0x7F8000u, 0x7FFFFFu, static_cast<uint32_t>(random() & 0x7FFFFF)}) {
      found.push_back(from_bits(exponent << 23 | mantissa));
      found.push_back(-found.back());
    }
  }
  return found;
}

/// Every code once, and NaN codes only if asked for: they take another path.
std::vector<uint8_t> all_codes(bool with_nan) {
  std::vector<uint8_t> codes(256);
  for (size_t i = 0; i < 256; ++i) {
    codes[i] = static_cast<uint8_t>(i * 0x35);
    if (!with_nan && (codes[i] & 0x7F) == 0x7F) codes[i] = 0;
  }
  return codes;
}

void check(Multiplication multiplication, bool short_vectors, float sf,
           const std::vector<uint8_t>& x) {
  const bool is_e4m3 = multiplication == Multiplication::kE4M3ToBF16;
  const size_t count = is_e4m3 ? x.size() : 2 * x.size();
  std::vector<uint16_t> out(count + 1, 0xA5A5);
  HWY_DYNAMIC_DISPATCH(multiply)(multiplication, short_vectors, sf, x.data(), out.data(), count);
  ASSERT_EQ(out[count], 0xA5A5);
  for (size_t i = 0; i < count; ++i) {
    const uint8_t pair = x[is_e4m3 ? i : i / 2];
    const float value = is_e4m3      ? numerics::e4m3_to_f32(pair)
                        : i % 2 == 0 ? numerics::e2m1_to_f32(numerics::even_e2m1(pair))
                                     : numerics::e2m1_to_f32(numerics::odd_e2m1(pair));
    const uint16_t expected = multiplication == Multiplication::kE2M1ToF16
                                  ? numerics::f32_to_f16(value * sf)
                                  : numerics::f32_to_bf16(value * sf);
    ASSERT_EQ(out[i], expected) << std::hex << "code " << int{pair} << " sf " << to_bits(sf);
  }
}

TEST(ProductsLanes, E4M3WhereTheTableHolds) {
  for_each_target([](bool short_vectors) {
    int held = 0;
    for (float sf : scales()) {
      if (!has_table(sf)) continue;
      ++held;
      check(Multiplication::kE4M3ToBF16, short_vectors, sf, all_codes(true));
      check(Multiplication::kE4M3ToBF16, short_vectors, sf, all_codes(false));
      if (::testing::Test::HasFatalFailure()) return;
    }
    EXPECT_GE(held, 238 * 22);
  });
}

TEST(ProductsLanes, E4M3TableIsRefusedAtTheEnds) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (float sf : {0.0f, 1e-40f, 0x1.fffffep-121f, 0x1p118f, inf, nan}) {
    EXPECT_FALSE(has_table(sf)) << sf;
    EXPECT_FALSE(has_table(-sf)) << sf;
  }
  for (float sf : {0x1p-120f, 1.0f, 0x1.fffffep117f}) {
    EXPECT_TRUE(has_table(sf)) << sf;
    EXPECT_TRUE(has_table(-sf)) << sf;
  }
}

TEST(ProductsLanes, E2M1UnderEveryScale) {
  for_each_target([](bool short_vectors) {
    for (float sf : scales()) {
      check(Multiplication::kE2M1ToBF16, short_vectors, sf, all_codes(true));
      check(Multiplication::kE2M1ToF16, short_vectors, sf, all_codes(true));
      if (::testing::Test::HasFatalFailure()) return;
    }
  });
}

}  // namespace
}  // namespace tilekernels::test

#endif  // HWY_ONCE
