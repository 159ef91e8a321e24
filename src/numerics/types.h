// Fixed-width types and the few primitives that scalar arithmetic needs, without std headers:
// g++, clang and NVRTC (-default-device) compile this text.
#pragma once

namespace tilekernels::numerics {

using int8 = signed char;
using int16 = short;
using int32 = int;
using int64 = long;
using uint8 = unsigned char;
using uint16 = unsigned short;
using uint32 = unsigned int;
using uint64 = unsigned long;

static_assert(sizeof(int16) == 2 && sizeof(int32) == 4 && sizeof(int64) == 8 &&
              sizeof(float) == 4 && sizeof(void*) == 8);

/// The same bits as another type of the same size.
template <typename To, typename From>
constexpr To bit_cast(From from) {
  return __builtin_bit_cast(To, from);
}

/// a · b + c with one rounding: the only way to a fused multiply-add, contraction is off.
inline float fma_rn(float a, float b, float c) {
#ifdef __CUDACC_RTC__
  return __fmaf_rn(a, b, c);
#else
  return __builtin_fmaf(a, b, c);
#endif
}

/// Bits of |x|. As integers they order like the magnitudes, Inf above all numbers and NaN above
/// Inf, so an integer maximum carries both.
constexpr uint32 abs_bits(float x) { return bit_cast<uint32>(x) & 0x7FFFFFFF; }

constexpr uint32 kInfBits = 0x7F800000;
constexpr bool is_nan(float x) { return abs_bits(x) > kInfBits; }
constexpr bool is_finite(float x) { return abs_bits(x) < kInfBits; }

/// The one NaN of computed fp32 results.
constexpr float kCanonicalNan = bit_cast<float>(0x7FFFFFFFu);
/// x, any NaN replaced by the canonical one. Stores of computed fp32 results go through this.
constexpr float canonical(float x) { return is_nan(x) ? kCanonicalNan : x; }

/// The NaN of fp32 scaling factors.
constexpr float kScaleNan = bit_cast<float>(0x7FC00000u);
constexpr float kFloatMax = bit_cast<float>(0x7F7FFFFFu);

/// 2^exponent for a normal result: -126 <= exponent <= 127.
/// The smallest n with 2^n >= x >= 1.
constexpr int32 ceil_log2(int32 x) {
  int32 log = 0;
  while (1 << log < x) ++log;
  return log;
}

constexpr float pow2(int32 exponent) {
  return bit_cast<float>(static_cast<uint32>(exponent + 127) << 23);
}

template <typename T>
constexpr T min_of(T a, T b) {
  return b < a ? b : a;
}
template <typename T>
constexpr T max_of(T a, T b) {
  return a < b ? b : a;
}
constexpr int64 ceil_div(int64 a, int64 b) { return (a + b - 1) / b; }
constexpr int64 align_up(int64 a, int64 b) { return ceil_div(a, b) * b; }

}  // namespace tilekernels::numerics

namespace tilekernels {
using numerics::int16;
using numerics::int32;
using numerics::int64;
using numerics::int8;
using numerics::uint16;
using numerics::uint32;
using numerics::uint64;
using numerics::uint8;
}  // namespace tilekernels
