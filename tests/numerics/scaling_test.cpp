// Scaling factors against exact arithmetic, the worked examples, and faults seen elsewhere.
#include "numerics/scaling.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "numerics/exact.h"

namespace tilekernels::test {
namespace {

using namespace numerics;  // NOLINT: the functions under test

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

float clamp_of(bool is_e2m1, int32_t sf_kind) {
  return default_amax_clamp(is_e2m1, sf_kind == kSfE4M3);
}
float floor_of(bool is_e2m1, int32_t sf_kind) {
  return min_amax_clamp(is_e2m1, sf_kind == kSfE4M3);
}

struct Quantized {
  Scale scale;
  std::vector<uint8_t> bytes;
};

/// One group, as every cast does it.
Quantized quantize(const std::vector<float>& x, bool is_e2m1, int32_t sf_kind, float clamp) {
  uint32_t amax = 0;
  for (float v : x) amax = amax_update(amax, v);
  Quantized q{compute_scale(sf_kind, is_e2m1, amax, clamp), {}};
  const bool bad = std::isnan(q.scale.sf);
  for (size_t i = 0; i < x.size(); i += is_e2m1 ? 2 : 1) {
    if (is_e2m1) {
      const auto code = [&](float v) {
        return bad ? uint8_t{0} : quantize_e2m1(v, v * q.scale.inv);
      };
      q.bytes.push_back(pack_e2m1(code(x[i]), code(x[i + 1])));
    } else {
      q.bytes.push_back(quantize_e4m3(x[i], q.scale.inv));
    }
  }
  return q;
}

using Bytes = std::vector<uint8_t>;

TEST(Scaling, Clamps) {
  EXPECT_EQ(to_bits(default_amax_clamp(false, false)), 0x38D1B717u);
  EXPECT_EQ(default_amax_clamp(false, true), 0.875f);
  EXPECT_EQ(static_cast<double>(default_amax_clamp(true, false)), std::ldexp(6.0, -126));
  EXPECT_EQ(default_amax_clamp(true, true), 0.01171875f);
  EXPECT_EQ(static_cast<double>(min_amax_clamp(false, false)), std::ldexp(448.0, -126));
  EXPECT_EQ(min_amax_clamp(false, true), 0.875f);
  EXPECT_EQ(static_cast<double>(min_amax_clamp(true, false)), std::ldexp(6.0, -126));
  EXPECT_EQ(min_amax_clamp(true, true), 0.01171875f);
  for (bool is_e2m1 : {false, true}) {
    for (bool e4m3_sf : {false, true}) {
      const float least = min_amax_clamp(is_e2m1, e4m3_sf);
      EXPECT_TRUE(is_legal_amax_clamp(is_e2m1, e4m3_sf, least));
      EXPECT_TRUE(is_legal_amax_clamp(is_e2m1, e4m3_sf, std::numeric_limits<float>::max()));
      EXPECT_FALSE(is_legal_amax_clamp(is_e2m1, e4m3_sf, std::nextafter(least, 0.0f)));
      for (float bad : {0.0f, -1.0f, kInf, -kInf, kNan}) {
        EXPECT_FALSE(is_legal_amax_clamp(is_e2m1, e4m3_sf, bad)) << bad;
      }
    }
  }
}

/// n is the nearest fp32 to numerator / denominator: |n·d - numerator| <= half a unit of n, times
/// d. Products of two fp32 numbers, and differences of such near ones, are exact in double.
bool is_nearest_quotient(float n, double numerator, double denominator) {
  const double unit = static_cast<double>(std::nextafter(n, kInf)) - static_cast<double>(n);
  const double below = static_cast<double>(n) - static_cast<double>(std::nextafter(n, 0.0f));
  const double error = static_cast<double>(n) * denominator - numerator;
  const bool odd = to_bits(n) & 1;
  const double up = -2 * error;  // the quotient lies above n by up / 2 / d
  const double down = 2 * error;
  return odd ? up < unit * denominator && down < below * denominator
             : up <= unit * denominator && down <= below * denominator;
}

TEST(Scaling, PlainScalesAreNearestQuotients) {
  for (bool is_e2m1 : {false, true}) {
    const double q = is_e2m1 ? 6 : 448;
    const float clamp = floor_of(is_e2m1, kSfF32);
    for (uint64_t bits = to_bits(clamp); bits < 0x7F800000; bits += 509) {
      const double a = static_cast<double>(from_bits(static_cast<uint32_t>(bits)));
      const Scale s = compute_scale(kSfF32, is_e2m1, static_cast<uint32_t>(bits), clamp);
      ASSERT_TRUE(is_nearest_quotient(s.sf, a, q)) << std::hex << bits;
      ASSERT_TRUE(is_nearest_quotient(s.inv, q, a)) << std::hex << bits;
    }
  }
}

/// E is right when 2^(E-127)·Q covers a and half of it does not.
::testing::AssertionResult check_power_of_two(bool is_e2m1, uint32_t amax_bits) {
  const double q = is_e2m1 ? 6 : 448;
  const double a = static_cast<double>(from_bits(amax_bits));
  const float clamp = min_amax_clamp(is_e2m1, false);
  for (int32_t sf_kind : {kSfRoundedF32, kSfUE8M0}) {
    const Scale s = compute_scale(sf_kind, is_e2m1, amax_bits, clamp);
    const double sf = std::ldexp(1.0, s.byte - 127);
    if (sf * q < a || sf / 2 * q >= a || static_cast<double>(s.sf) != sf ||
        static_cast<double>(s.inv) * sf != 1.0 || s.byte < 1 || s.byte > 253) {
      return ::testing::AssertionFailure()
             << "amax bits " << std::hex << amax_bits << " byte " << int{s.byte};
    }
  }
  return ::testing::AssertionSuccess();
}

// By exponent bits alone, without a logarithm or a division: every mantissa at the least legal
// exponent, around 1 and at the largest.
TEST(Scaling, PowersOfTwoOfEveryMantissa) {
  for (bool is_e2m1 : {false, true}) {
    const uint32_t least = to_bits(min_amax_clamp(is_e2m1, false));
    for (uint32_t exponent : {least >> 23, 127u, 254u}) {
      for (uint32_t mantissa = 0; mantissa < 1u << 23; ++mantissa) {
        const uint32_t bits = exponent << 23 | mantissa;
        if (bits < least) continue;
        ASSERT_TRUE(check_power_of_two(is_e2m1, bits));
      }
    }
  }
}

TEST(Scaling, PowersOfTwoOfEveryExponent) {
  for (bool is_e2m1 : {false, true}) {
    const uint32_t least = to_bits(min_amax_clamp(is_e2m1, false));
    for (uint64_t bits = least; bits < 0x7F800000; bits += 1021) {
      ASSERT_TRUE(check_power_of_two(is_e2m1, static_cast<uint32_t>(bits)));
    }
    const uint32_t edge = is_e2m1 ? 0x400000 : 0x600000;  // the mantissa of Q
    for (uint32_t exponent = (least >> 23) + 1; exponent < 255; ++exponent) {
      for (uint32_t mantissa : {0u, 1u, edge - 1, edge, edge + 1, 0x7FFFFFu}) {
        ASSERT_TRUE(check_power_of_two(is_e2m1, exponent << 23 | mantissa));
      }
    }
  }
}

TEST(Scaling, E4M3ScalesAreNearestAndUsable) {
  for (bool is_e2m1 : {false, true}) {
    const double q = is_e2m1 ? 6 : 448;
    const float clamp = floor_of(is_e2m1, kSfE4M3);
    const Nearest nearest(test::kE4M3);
    for (uint64_t bits = to_bits(clamp); bits < 0x7F800000; bits += 127) {
      const Scale s = compute_scale(kSfE4M3, is_e2m1, static_cast<uint32_t>(bits), clamp);
      // A double quotient rounded to fp32 is the nearest fp32: 53 >= 2·24 + 2 bits.
      const auto quotient =
          static_cast<float>(static_cast<double>(from_bits(static_cast<uint32_t>(bits))) / q);
      ASSERT_EQ(s.byte, nearest.code(quotient)) << std::hex << bits;
      ASSERT_GE(s.byte, 1);
      ASSERT_LE(s.byte, 0x7E);
      ASSERT_EQ(static_cast<double>(s.sf), test::kE4M3.value(s.byte));
      ASSERT_TRUE(is_nearest_quotient(s.inv, 1.0, static_cast<double>(s.sf)));
    }
  }
}

TEST(Scaling, ZeroGroupsTakeTheClamp) {
  EXPECT_EQ(to_bits(compute_scale(kSfF32, false, 0, clamp_of(false, kSfF32)).sf), 0x346FACADu);
  EXPECT_EQ(compute_scale(kSfUE8M0, false, 0, clamp_of(false, kSfUE8M0)).byte, 105);
  EXPECT_EQ(compute_scale(kSfRoundedF32, false, 0, clamp_of(false, kSfRoundedF32)).sf,
            std::ldexp(1.0f, -22));
  EXPECT_EQ(compute_scale(kSfE4M3, false, 0, clamp_of(false, kSfE4M3)).byte, 1);
  EXPECT_EQ(compute_scale(kSfUE8M0, true, 0, clamp_of(true, kSfUE8M0)).byte, 1);
  EXPECT_EQ(compute_scale(kSfF32, true, 0, clamp_of(true, kSfF32)).inv, std::ldexp(1.0f, 126));
  EXPECT_EQ(compute_scale(kSfE4M3, true, 0, clamp_of(true, kSfE4M3)).byte, 1);
  EXPECT_EQ(compute_scale(kSfUE8M0, false, 0, floor_of(false, kSfUE8M0)).byte, 1);
  for (bool is_e2m1 : {false, true}) {
    for (int32_t kind : {kSfF32, kSfRoundedF32, kSfUE8M0, kSfE4M3}) {
      for (float clamp : {clamp_of(is_e2m1, kind), floor_of(is_e2m1, kind)}) {
        const Quantized q = quantize({0.0f, -0.0f, -0.0f, 0.0f}, is_e2m1, kind, clamp);
        EXPECT_TRUE(std::isnormal(q.scale.sf));
        EXPECT_TRUE(std::isnormal(q.scale.inv));
        EXPECT_EQ(q.bytes, is_e2m1 ? (Bytes{0x80, 0x08}) : (Bytes{0, 0x80, 0x80, 0}));
      }
    }
  }
}

TEST(Scaling, NanAndInfSpoilTheirGroup) {
  for (bool is_e2m1 : {false, true}) {
    for (int32_t kind : {kSfF32, kSfRoundedF32, kSfUE8M0, kSfE4M3}) {
      for (float bad : {kNan, -kNan, kInf, -kInf, from_bits(0x7F800001), from_bits(0xFFFFFFFF)}) {
        for (size_t place : {0u, 1u, 31u}) {
          std::vector<float> x(32);
          for (size_t i = 0; i < 32; ++i) x[i] = static_cast<float>(i) - 8;
          x[place] = bad;
          const Quantized q = quantize(x, is_e2m1, kind, clamp_of(is_e2m1, kind));
          EXPECT_EQ(to_bits(q.scale.sf), 0x7FC00000u);
          EXPECT_TRUE(std::isnan(q.scale.inv));
          if (kind == kSfUE8M0) {
            EXPECT_EQ(q.scale.byte, 0xFF);
          }
          if (kind == kSfE4M3) {
            EXPECT_EQ(q.scale.byte, 0x7F);
          }
          EXPECT_EQ(q.bytes, is_e2m1 ? Bytes(16, 0) : Bytes(32, 0x7F));
        }
      }
    }
  }
}

struct Example {
  const char* name;
  std::vector<float> x;
  bool is_e2m1;
  int32_t sf_kind;
  uint32_t sf_bits;
  uint32_t inv_bits;
  int byte;  // -1: the kind stores none
  Bytes bytes;
};

const std::vector<float> kRowA = {0.3f, -0.7f, 1.1f, 5.0f, -2.2f, 0.01f, -3.3f, 4.4f};
const std::vector<float> kRowB = {0.10009765625f, -0.25f, 0.5f, 1.0f, -1.5f, 2.0f, 3.0f, -7.0f};

TEST(Scaling, WorkedExamples) {
  const Example examples[] = {
      {"A e4m3 plain",
       kRowA,
       false,
       kSfF32,
       0x3C36DB6E,
       0x42B33333,
       -1,
       {0x5D, 0xE8, 0x6C, 0x7E, 0xF4, 0x36, 0xF9, 0x7C}},
      {"A e4m3 rounded",
       kRowA,
       false,
       kSfRoundedF32,
       0x3C800000,
       0x42800000,
       121,
       {0x5A, 0xE3, 0x69, 0x7A, 0xF1, 0x32, 0xF5, 0x79}},
      {"A e4m3 ue8m0",
       kRowA,
       false,
       kSfUE8M0,
       0x3C800000,
       0x42800000,
       121,
       {0x5A, 0xE3, 0x69, 0x7A, 0xF1, 0x32, 0xF5, 0x79}},
      {"A e4m3, e4m3 scale",
       kRowA,
       false,
       kSfE4M3,
       0x3C400000,
       0x42AAAAAB,
       0x06,
       {0x5D, 0xE7, 0x6C, 0x7D, 0xF4, 0x36, 0xF9, 0x7C}},
      {"A e2m1 plain", kRowA, true, kSfF32, 0x3F555555, 0x3F99999A, -1, {0xA1, 0x73, 0x0D, 0x7E}},
      {"A e2m1 rounded",
       kRowA,
       true,
       kSfRoundedF32,
       0x3F800000,
       0x3F800000,
       127,
       {0x91, 0x62, 0x0C, 0x6D}},
      {"A e2m1, e4m3 scale",
       kRowA,
       true,
       kSfE4M3,
       0x3F500000,
       0x3F9D89D9,
       0x35,
       {0xA1, 0x73, 0x0D, 0x7E}},
      {"B e4m3 plain",
       kRowB,
       false,
       kSfF32,
       0x3C800000,
       0x42800000,
       -1,
       {0x4D, 0xD8, 0x60, 0x68, 0xEC, 0x70, 0x74, 0xFE}},
      {"B e4m3 ue8m0",
       kRowB,
       false,
       kSfUE8M0,
       0x3C800000,
       0x42800000,
       121,
       {0x4D, 0xD8, 0x60, 0x68, 0xEC, 0x70, 0x74, 0xFE}},
      {"B e4m3, e4m3 scale",
       kRowB,
       false,
       kSfE4M3,
       0x3C800000,
       0x42800000,
       0x08,
       {0x4D, 0xD8, 0x60, 0x68, 0xEC, 0x70, 0x74, 0xFE}},
      {"B e2m1 plain", kRowB, true, kSfF32, 0x3F955555, 0x3F5B6DB7, -1, {0x80, 0x21, 0x3B, 0xF5}},
      {"B e2m1 ue8m0",
       kRowB,
       true,
       kSfUE8M0,
       0x40000000,
       0x3F000000,
       128,
       {0x80, 0x10, 0x2A, 0xE3}},
      {"B e2m1, e4m3 scale",
       kRowB,
       true,
       kSfE4M3,
       0x3F900000,
       0x3F638E39,
       0x39,
       {0x80, 0x21, 0x4B, 0xF5}},
      {"ties e2m1 rounded",
       {6, 5, 3.5f, 2.5f, 1.75f, 1.25f, 0.75f, 0.25f},
       true,
       kSfRoundedF32,
       0x3F800000,
       0x3F800000,
       127,
       {0x67, 0x46, 0x24, 0x02}},
  };
  for (const Example& e : examples) {
    SCOPED_TRACE(e.name);
    const Quantized q = quantize(e.x, e.is_e2m1, e.sf_kind, clamp_of(e.is_e2m1, e.sf_kind));
    EXPECT_EQ(to_bits(q.scale.sf), e.sf_bits);
    EXPECT_EQ(to_bits(q.scale.inv), e.inv_bits);
    if (e.byte >= 0) {
      EXPECT_EQ(q.scale.byte, e.byte);
    }
    EXPECT_EQ(q.bytes, e.bytes);
  }
}

TEST(Scaling, ExponentStepsJustAboveTheLargestNumber) {
  const float clamp = clamp_of(false, kSfUE8M0);
  EXPECT_EQ(compute_scale(kSfUE8M0, false, to_bits(448.0f), clamp).byte, 127);
  const float above = std::nextafter(448.0f, kInf);
  const Scale s = compute_scale(kSfUE8M0, false, to_bits(above), clamp);
  EXPECT_EQ(s.byte, 128);
  EXPECT_EQ(f32_to_e4m3(above * s.inv), 0x76);
}

// Very small inputs whose inverse scale overflowed elsewhere: NaN and noise of ±448.
TEST(Scaling, TinyGroupKeepsAFiniteInverse) {
  std::vector<float> x(32, 0.0f);
  x[7] = load_bf16(0x0698);
  const Quantized q = quantize(x, false, kSfUE8M0, floor_of(false, kSfUE8M0));
  EXPECT_EQ(q.scale.byte, 5);
  Bytes expected(32, 0);
  expected[7] = 0x7A;
  EXPECT_EQ(q.bytes, expected);
}

// The exponent rounded to nearest loses up to 29 % of the largest element.
TEST(Scaling, PowersOfTwoRoundUp) {
  std::vector<float> x(32, 0.0f);
  x[0] = 600.0f;
  const Quantized q = quantize(x, false, kSfUE8M0, clamp_of(false, kSfUE8M0));
  EXPECT_EQ(q.scale.byte, 128);
  EXPECT_EQ(q.bytes[0], 0x79);
  EXPECT_EQ(e4m3_to_f32(q.bytes[0]) * q.scale.sf, 576.0f);
}

// A logarithm followed by a ceiling loses the last bit far from 1.
TEST(Scaling, LastBitOfAmaxCounts) {
  const float clamp = floor_of(false, kSfUE8M0);
  EXPECT_EQ(compute_scale(kSfUE8M0, false, 0x37E00001, clamp).byte, 104);
  EXPECT_EQ(compute_scale(kSfUE8M0, false, 0x37E00000, clamp).byte, 103);
}

// The clamp wipes small signals, by choice; the lower floor keeps them.
TEST(Scaling, ClampDecidesAboutSmallSignals) {
  const Quantized clamped = quantize({1e-6f}, false, kSfF32, 1e-4f);
  EXPECT_EQ(clamped.bytes[0], 0x49);
  EXPECT_EQ(quantize({1e-6f}, false, kSfF32, floor_of(false, kSfF32)).bytes[0], 0x7E);
}

TEST(Scaling, PackersRefuseWhatIsNoPowerOfTwo) {
  EXPECT_FALSE(f32_to_ue8m0(0.75f).ok);
  const float scales[] = {1, 2, 4};
  const uint8_t bytes[] = {0x7F, 0x80, 0x81};
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(f32_to_ue8m0(scales[i]).ok);
    EXPECT_EQ(f32_to_ue8m0(scales[i]).byte, bytes[i]);
  }
}

TEST(Scaling, GivenScalesFollowIeee) {
  EXPECT_EQ(inverse_of_scale(0.0f), kInf);
  EXPECT_EQ(inverse_of_scale(kInf), 0.0f);
  EXPECT_TRUE(std::isnan(inverse_of_scale(kScaleNan)));
  EXPECT_EQ(inverse_of_scale(ue8m0_to_f32(0)), std::ldexp(1.0f, 127));
  EXPECT_EQ(quantize_e4m3(0.0f, inverse_of_scale(0.0f)), 0x7F);
  EXPECT_EQ(quantize_e4m3(1.0f, inverse_of_scale(kScaleNan)), 0x7F);
  // Scale 1: 448 is the largest, everything above saturates.
  for (float x : {448.0f, 464.0f, 465.0f, 1000.0f, kInf}) EXPECT_EQ(quantize_e4m3(x, 1.0f), 0x7E);
  // Only a NaN product has the sign of x, whatever the machine makes of it.
  const float inv = inverse_of_scale(kInf);
  EXPECT_EQ(quantize_e2m1(-kInf, -kInf * inv), 15);
  EXPECT_EQ(quantize_e2m1(kInf, kInf * inv), 7);
}

// Full cast = scales alone, then the codes under them, for scales whose inverse is exact.
TEST(Scaling, GivenPowersOfTwoHaveTheSameInverse) {
  for (int byte = 1; byte <= 253; ++byte) {
    const float sf = ue8m0_to_f32(static_cast<uint8_t>(byte));
    ASSERT_EQ(to_bits(inverse_of_scale(sf)), static_cast<uint32_t>(254 - byte) << 23);
  }
}

TEST(Scaling, QuantizedInputMultipliesTheScalesFirst) {
  const float sf1 = from_bits(0x3F0446AD);
  const float sf2 = sf1 / 2;
  uint32_t amax = amax_update(0, e4m3_to_f32(0x7E) * sf1);
  amax = amax_update(amax, e4m3_to_f32(0x0F) * sf2);
  const Scale s = compute_scale(kSfF32, false, amax, clamp_of(false, kSfF32));
  EXPECT_EQ(quantize_e4m3(e4m3_to_f32(0x0F), fused_factor(sf2, s.inv)), 0x08);
  EXPECT_EQ(f32_to_e4m3(e4m3_to_f32(0x0F) * sf2 * s.inv), 0x07);  // the order that is not ours
}

TEST(Scaling, FusedFactorStaysFinite) {
  const float inv = compute_scale(kSfUE8M0, true, 0, clamp_of(true, kSfUE8M0)).inv;
  EXPECT_EQ(fused_factor(4.0f, inv), kFloatMax);
  EXPECT_EQ(fused_factor(2.0f, inv), std::ldexp(1.0f, 127));
  EXPECT_EQ(f32_to_e2m1(e2m1_to_f32(8) * fused_factor(1e30f, inv)), 8);
  EXPECT_TRUE(std::isnan(fused_factor(1.0f, kScaleNan)));
  EXPECT_TRUE(std::isnan(fused_factor(kScaleNan, 1.0f)));
  EXPECT_TRUE(std::isnan(fused_factor(kInf, 0.0f)));
}

}  // namespace
}  // namespace tilekernels::test
