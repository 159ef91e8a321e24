// The scalar format conversions against exact arithmetic.
#include "numerics/formats.h"

#include <gtest/gtest.h>

#include <limits>

#include "numerics/narrowing.h"
#include "sanitized.h"

namespace tilekernels::test {
namespace {

using namespace numerics;  // NOLINT: the functions under test

constexpr uint32_t kCanonicalNanBits = 0x7FFFFFFF;

TEST(Formats, NarrowEvery64thFp32) { sweep_all(0, sweep_step(64)); }

// Odd patterns in the low bits, which a stride of 64 from 0 never meets.
TEST(Formats, NarrowOddFp32) { sweep_all(0x1B5, 8191); }

template <typename Narrow>
void check_midpoints(const Format& format, Narrow narrow) {
  for (uint32_t code = 0; code <= format.max_code; ++code) {
    SCOPED_TRACE(code);
    const double midpoint = (format.value(code) + format.value(code + 1)) / 2;
    if (midpoint > std::numeric_limits<float>::max()) continue;
    const uint32_t bits = to_bits(static_cast<float>(midpoint));
    ASSERT_EQ(static_cast<double>(from_bits(bits)), midpoint);
    const uint32_t next = format.saturates && code == format.max_code ? code : code + 1;
    const uint32_t even = code % 2 == 0 ? code : next;
    for (uint32_t sign : {0u, 1u}) {
      const uint32_t sign_code = sign ? format.sign_code : 0;
      const uint32_t sign_bit = sign << 31;
      ASSERT_EQ(narrow(from_bits(sign_bit | (bits - 1))), sign_code | code);
      ASSERT_EQ(narrow(from_bits(sign_bit | bits)), sign_code | even);
      ASSERT_EQ(narrow(from_bits(sign_bit | (bits + 1))), sign_code | next);
      const auto value = static_cast<float>(format.value(code));
      ASSERT_EQ(narrow(from_bits(sign_bit | to_bits(value))), sign_code | code);
    }
  }
}

TEST(Formats, NarrowMidpoints) {
  check_midpoints(test::kBF16, [](float x) { return f32_to_bf16(x); });
  check_midpoints(test::kF16, [](float x) { return f32_to_f16(x); });
  check_midpoints(test::kE4M3, [](float x) { return f32_to_e4m3(x); });
  check_midpoints(test::kE5M2, [](float x) { return f32_to_e5m2(x); });
  check_midpoints(test::kE2M1, [](float x) { return f32_to_e2m1(x); });
}

TEST(Formats, NarrowEveryExponentBoundary) {
  const Nearest bf16(test::kBF16), f16(test::kF16), e4m3(test::kE4M3), e5m2(test::kE5M2),
      e2m1(test::kE2M1);
  for (uint32_t exponent = 0; exponent < 256; ++exponent) {
    for (uint32_t mantissa : {0u, 1u, 0x3FFFFFu, 0x400000u, 0x400001u, 0x7FFFFEu, 0x7FFFFFu}) {
      for (uint32_t sign : {0u, 0x80000000u}) {
        const float x = from_bits(sign | exponent << 23 | mantissa);
        SCOPED_TRACE(testing::Message() << std::hex << to_bits(x));
        ASSERT_EQ(f32_to_bf16(x), bf16.code(x));
        ASSERT_EQ(f32_to_f16(x), f16.code(x));
        ASSERT_EQ(f32_to_e4m3(x), e4m3.code(x));
        ASSERT_EQ(f32_to_e5m2(x), e5m2.code(x));
        ASSERT_EQ(f32_to_e2m1(x), std::isnan(x) ? (sign ? 15u : 7u) : e2m1.code(x));
      }
    }
  }
}

TEST(Formats, NarrowNamedValues) {
  const float inf = std::numeric_limits<float>::infinity();
  // OCP e4m3 and the overflow behaviour that stacks disagree on.
  for (float x : {448.0f, 464.0f, 465.0f, 1000.0f, inf}) {
    EXPECT_EQ(f32_to_e4m3(x), 0x7E);
    EXPECT_EQ(f32_to_e4m3(-x), 0xFE);
  }
  EXPECT_EQ(f32_to_e4m3(std::numeric_limits<float>::quiet_NaN()), 0x7F);
  EXPECT_EQ(f32_to_e4m3(-std::numeric_limits<float>::quiet_NaN()), 0x7F);
  // e2m1 ties.
  const float ties[] = {0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
  const uint8_t codes[] = {0, 2, 2, 4, 4, 6, 6};
  for (int i = 0; i < 7; ++i) {
    EXPECT_EQ(f32_to_e2m1(ties[i]), codes[i]);
    EXPECT_EQ(f32_to_e2m1(-ties[i]), codes[i] | 8);
  }
  EXPECT_EQ(f32_to_e2m1(std::nextafter(5.0f, 6.0f)), 7);
  EXPECT_EQ(f32_to_e2m1(-1e-30f), 8);
  EXPECT_EQ(f32_to_e4m3(-0.0f), 0x80);
  EXPECT_EQ(f32_to_e5m2(inf), 0x7B);
  EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_EQ(f32_to_f16(65519.0f), 0x7BFF);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7C00);
}

TEST(Formats, QuantizeE2M1TakesTheSignOfANanFromX) {
  const float nan = from_bits(0x7FC00000);
  const float negative_nan = from_bits(0xFFC00000);
  for (float y : {nan, negative_nan}) {
    EXPECT_EQ(quantize_e2m1(1.0f, y), 7);
    EXPECT_EQ(quantize_e2m1(-1.0f, y), 15);
    EXPECT_EQ(quantize_e2m1(-0.0f, y), 15);
    EXPECT_EQ(quantize_e2m1(nan, y), 7);
    EXPECT_EQ(quantize_e2m1(negative_nan, y), 15);
  }
  EXPECT_EQ(quantize_e2m1(1.0f, -3.0f), 13);
  EXPECT_EQ(quantize_e2m1(-1.0f, 0.0f), 0);
}

template <typename Widen>
void check_widening(const Format& format, Widen widen) {
  for (uint32_t code = 0; code <= format.max_code; ++code) {
    SCOPED_TRACE(code);
    const float value = widen(code);
    ASSERT_EQ(static_cast<double>(value), format.value(code));
    ASSERT_FALSE(std::signbit(value));
    ASSERT_EQ(to_bits(widen(code | format.sign_code)), to_bits(value) | 0x80000000u);
  }
}

TEST(Formats, WidenEveryCode) {
  check_widening(test::kBF16, [](uint32_t c) { return bf16_to_f32(static_cast<uint16_t>(c)); });
  check_widening(test::kBF16, [](uint32_t c) { return load_bf16(static_cast<uint16_t>(c)); });
  check_widening(test::kF16, [](uint32_t c) { return f16_to_f32(static_cast<uint16_t>(c)); });
  check_widening(test::kF16, [](uint32_t c) { return load_f16(static_cast<uint16_t>(c)); });
  check_widening(test::kE4M3, [](uint32_t c) { return e4m3_to_f32(static_cast<uint8_t>(c)); });
  check_widening(test::kE5M2, [](uint32_t c) { return e5m2_to_f32(static_cast<uint8_t>(c)); });
  check_widening(test::kE2M1, [](uint32_t c) { return e2m1_to_f32(static_cast<uint8_t>(c)); });
}

TEST(Formats, WidenInfAndNan) {
  EXPECT_EQ(to_bits(bf16_to_f32(0x7F80)), 0x7F800000u);
  EXPECT_EQ(to_bits(bf16_to_f32(0xFF80)), 0xFF800000u);
  EXPECT_EQ(to_bits(f16_to_f32(0x7C00)), 0x7F800000u);
  EXPECT_EQ(to_bits(f16_to_f32(0xFC00)), 0xFF800000u);
  EXPECT_EQ(to_bits(e5m2_to_f32(0x7C)), 0x7F800000u);
  EXPECT_EQ(to_bits(e5m2_to_f32(0xFC)), 0xFF800000u);
  for (uint32_t sign : {0u, 0x8000u}) {
    for (uint32_t code = sign | 0x7F81; code <= (sign | 0x7FFF); ++code) {
      const auto x = static_cast<uint16_t>(code);
      ASSERT_EQ(to_bits(bf16_to_f32(x)), kCanonicalNanBits);
      ASSERT_TRUE(std::isnan(load_bf16(x)));
      ASSERT_EQ(std::signbit(load_bf16(x)), sign != 0);
    }
    for (uint32_t code = sign | 0x7C01; code <= (sign | 0x7FFF); ++code) {
      const auto x = static_cast<uint16_t>(code);
      ASSERT_EQ(to_bits(f16_to_f32(x)), kCanonicalNanBits);
      ASSERT_TRUE(std::isnan(load_f16(x)));
      ASSERT_EQ(std::signbit(load_f16(x)), sign != 0);
    }
  }
  for (int code : {0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF}) {
    EXPECT_EQ(to_bits(e5m2_to_f32(static_cast<uint8_t>(code))), kCanonicalNanBits);
  }
  EXPECT_EQ(to_bits(e4m3_to_f32(0x7F)), kCanonicalNanBits);
  EXPECT_EQ(to_bits(e4m3_to_f32(0xFF)), kCanonicalNanBits);
}

TEST(Formats, E4M3SmallCodesAreSubnormal) {
  EXPECT_EQ(e4m3_to_f32(0x01), 0.001953125f);
  EXPECT_EQ(e4m3_to_f32(0x07), 0.013671875f);
}

TEST(Formats, RoundTripEveryCode) {
  for (uint32_t code = 0; code <= 0xFFFF; ++code) {
    const auto x = static_cast<uint16_t>(code);
    const bool bf16_nan = (x & 0x7FFF) > 0x7F80;
    const bool f16_nan = (x & 0x7FFF) > 0x7C00;
    ASSERT_EQ(f32_to_bf16(bf16_to_f32(x)), bf16_nan ? 0x7FFF : x);
    ASSERT_EQ(f32_to_f16(f16_to_f32(x)), f16_nan ? 0x7FFF : x);
  }
  for (uint32_t code = 0; code <= 0xFF; ++code) {
    const auto x = static_cast<uint8_t>(code);
    ASSERT_EQ(f32_to_e4m3(e4m3_to_f32(x)), (x & 0x7F) == 0x7F ? 0x7F : x);
    ASSERT_EQ(f32_to_e2m1(e2m1_to_f32(x)), x & 15);
    ASSERT_EQ(pack_e2m1(even_e2m1(x), odd_e2m1(x)), x);
  }
  EXPECT_EQ(pack_e2m1(f32_to_e2m1(0.5f), f32_to_e2m1(6.0f)), 0x71);  // even element low
}

TEST(Formats, UE8M0DecodesEveryByte) {
  EXPECT_EQ(to_bits(ue8m0_to_f32(0)), 0x00400000u);
  EXPECT_EQ(to_bits(ue8m0_to_f32(255)), 0x7FC00000u);
  for (int byte = 0; byte < 255; ++byte) {
    const float sf = ue8m0_to_f32(static_cast<uint8_t>(byte));
    ASSERT_EQ(static_cast<double>(sf), std::ldexp(1.0, byte - 127));
    const UE8M0Result back = f32_to_ue8m0(sf);
    ASSERT_TRUE(back.ok);
    ASSERT_EQ(back.byte, byte);
  }
  EXPECT_TRUE(f32_to_ue8m0(from_bits(0xFFC00001)).ok);
  EXPECT_EQ(f32_to_ue8m0(from_bits(0xFFC00001)).byte, 255);
}

TEST(Formats, UE8M0RefusesEveryOtherNumber) {
  const float inf = std::numeric_limits<float>::infinity();
  for (float sf : {0.0f, -0.0f, inf, -inf, -1.0f, 0.75f, 3.0f, from_bits(1), from_bits(0x00200000),
                   from_bits(0x00400001), from_bits(0x3F800001), from_bits(0x80400000)}) {
    EXPECT_FALSE(f32_to_ue8m0(sf).ok) << sf;
  }
  uint32_t accepted = 0;  // of the fp32 numbers with at most one mantissa bit
  for (uint32_t exponent = 0; exponent < 255; ++exponent) {
    for (uint32_t mantissa = 0; mantissa < 24; ++mantissa) {
      const uint32_t bits = exponent << 23 | (mantissa == 0 ? 0u : 1u << (mantissa - 1));
      accepted += f32_to_ue8m0(from_bits(bits)).ok;
      EXPECT_FALSE(f32_to_ue8m0(from_bits(bits | 0x80000000u)).ok);
    }
  }
  EXPECT_EQ(accepted, 255u);
}

}  // namespace
}  // namespace tilekernels::test
