// Elementary functions of fp32 as fixed sequences of correctly rounded operations, so that every
// machine gives the same bits. docs/numerics.md states their errors.
#pragma once

#include "numerics/types.h"

namespace tilekernels::numerics {

/// The square root with one rounding.
inline float sqrt_rn(float x) {
#ifdef __CUDACC_RTC__
  return __fsqrt_rn(x);
#else
  return __builtin_sqrtf(x);
#endif
}

/// Adding it rounds to an integer and leaves that in the low bits of the sum's pattern.
constexpr float kRoundMagic = 12582912.0f;  // 1.5 · 2^23
constexpr float kLog2E = 0x1.715476p+0f;
constexpr float kLn2High = 0x1.62e430p-1f;
constexpr float kLn2Low = -0x1.05c610p-29f;  // kLn2High + kLn2Low = ln 2
/// Beyond these exp is 0 or Inf, and stays so up to them.
constexpr float kExpLowest = -105.0f;
constexpr float kExpHighest = 89.0f;
/// exp(r) ≈ 1 + r + r² · q(r) for |r| <= ln 2 / 2, to 2^-33: a minimax fit. Highest degree first.
constexpr float kExpQ[6] = {0x1.9df784p-13f, 0x1.6d4ccap-10f, 0x1.111310p-7f,
                            0x1.5554e8p-5f,  0x1.555554p-3f,  0.5f};

/// e^x for every x: subnormal results are kept, Inf above 88.72, 0 below -103.97. NaN gives NaN,
/// whose bits are open.
inline float exp_f32(float x) {
  const float near = x < kExpLowest ? kExpLowest : x > kExpHighest ? kExpHighest : x;
  const float shifted = fma_rn(near, kLog2E, kRoundMagic);
  const float n = shifted - kRoundMagic;
  const float r = fma_rn(n, -kLn2Low, fma_rn(n, -kLn2High, near));  // the inner one is exact
  float q = kExpQ[0];
  for (int32 i = 1; i < 6; ++i) q = fma_rn(q, r, kExpQ[i]);
  const float p = 1.0f + fma_rn(r * r, q, r);
  // 2^n in two steps: the first product is exact, so subnormal results are rounded once.
  const int32 exponent = bit_cast<int32>(shifted) - bit_cast<int32>(kRoundMagic);
  const int32 half = exponent >> 1;
  const float half_power = bit_cast<float>(static_cast<uint32>(half + 127) << 23);
  const float other_power = bit_cast<float>(static_cast<uint32>(exponent - half + 127) << 23);
  return p * half_power * other_power;
}

constexpr float kMinusHalfRange = 174.0f;  // e^(-x/2) is subnormal from 174.7 on

/// exp_f32(-x / 2) for 0 <= x <= kMinusHalfRange, where it is normal: the same bits in fewer steps.
/// r is twice that of exp_f32 and the coefficient of r^k is divided by 2^(k + 1); powers of two
/// change no rounding.
inline float exp_of_minus_half(float x) {
  const float shifted = fma_rn(x, -0.5f * kLog2E, kRoundMagic);
  const float n = shifted - kRoundMagic;
  const float r = fma_rn(n, -2 * kLn2Low, fma_rn(n, -2 * kLn2High, -x));
  float q = kExpQ[0] * pow2(-6);
  for (int32 i = 1; i < 6; ++i) q = fma_rn(q, r, kExpQ[i] * pow2(i - 6));
  const float p = fma_rn(fma_rn(r * r, q, r), 0.5f, 1.0f);
  return bit_cast<float>(bit_cast<uint32>(p) + (bit_cast<uint32>(shifted) << 23));
}

}  // namespace tilekernels::numerics
