// Functions of fp32: the machine's approximations, and sequences of numerics/ and of correctly
// rounded operations cut to a range, which give the same bits there.
#pragma once

#include "numerics/scoring.h"
#include "runtime/cuda/device/warp.cuh"

namespace tilekernels::device {

/// 2^x to 2^-22 of the result; results below 2^-126 are 0.
inline float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// The binary logarithm to 2^-22, or to that of the result where |result| > 1.
inline float log2_approx(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// 1 / x to 1 ulp; 0 for x > 2^126.
inline float reciprocal_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// √x to 2^-22 of the result, 0 for x < 2^-126.
inline float sqrt_approx(float x) {
  float y;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// 1 / √x to 2^-22 of the result for x >= 2^-126.
inline float rsqrt_approx(float x) {
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// The larger one; NaN as soon as one is.
inline float max_or_nan(float a, float b) {
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
}

/// x, any NaN replaced by the canonical one: numerics::canonical in one instruction.
inline float canonical(float x) { return max_or_nan(x, x); }

/// 1 where a > b, else 0.
inline float is_greater(float a, float b) {
  float y;
  asm("set.gt.f32.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
}

/// Correctly rounded for 2^-126 <= |x| < 2^126: what the compiler makes of 1 / x, without its check
/// of the range.
inline float reciprocal_rn(float x) {
  const float y = reciprocal_approx(x);
  return numerics::fma_rn(y, -numerics::fma_rn(x, y, -1.0f), y);
}

/// A number to divide by, and its correctly rounded inverse.
struct FloatDivisor {
  float value;
  float inverse;
};

constexpr float kDivisionLowest = 0x1p-60f;
constexpr float kDivisionHighest = 0x1p60f;

/// |x| is kDivisionLowest to kDivisionHighest.
inline FloatDivisor divisor(float x) { return {x, reciprocal_rn(x)}; }

/// x / d correctly rounded, for x in the same range: a quotient by a correctly rounded inverse is
/// wrong by an ulp at most, and so one step on its remainder rounds it. 0 gives a zero of either
/// sign.
inline float divide(float x, const FloatDivisor& d) {
  const float quotient = x * d.inverse;
  return numerics::fma_rn(d.inverse, -numerics::fma_rn(d.value, quotient, -x), quotient);
}

/// Correctly rounded for finite x >= 2^-100, in the same way.
inline float sqrt_rn(float x) {
  const float y = rsqrt_approx(x);
  const float root = x * y;
  return numerics::fma_rn(numerics::fma_rn(-root, root, x), y * 0.5f, root);
}

/// p and n of numerics::exp_f32, whose result is p · 2^n; the lowest bits of `n` hold it.
struct Exp {
  float p;
  uint32 n;
};

/// For x >= numerics::kExpLowest. `offset`, an even integer, is added to n.
inline Exp split_exp(float x, int32 offset) {
  const float magic = numerics::kRoundMagic + static_cast<float>(offset);
  const float shifted = numerics::fma_rn(x, numerics::kLog2E, magic);
  const float n = shifted - magic;
  const float r =
      numerics::fma_rn(n, -numerics::kLn2Low, numerics::fma_rn(n, -numerics::kLn2High, x));
  float q = numerics::kExpQ[0];
#pragma unroll
  for (int32 i = 1; i < 6; ++i) q = numerics::fma_rn(q, r, numerics::kExpQ[i]);
  return {1.0f + numerics::fma_rn(r * r, q, r), numerics::bit_cast<uint32>(shifted)};
}

/// exp_f32 for any x <= 40 that is no NaN.
inline float exp_of_small(float x) {
  const Exp exp = split_exp(fmaxf(x, numerics::kExpLowest), 64);
  // Normal, then rounded once where the result is not.
  return numerics::bit_cast<float>(numerics::bit_cast<uint32>(exp.p) + (exp.n << 23)) *
         numerics::pow2(-64);
}

/// sqrt_softplus of x from a = exp_f32(-|x| / 2).
inline float sqrt_softplus_from(float x, float a) {
  const float t = 1.0f - a * a;
  float p = numerics::kSqrtSoftplusP[0];
#pragma unroll
  for (int32 i = 1; i < 9; ++i) p = numerics::fma_rn(p, t, numerics::kSqrtSoftplusP[i]);
  const float l = a * numerics::fma_rn(t, p, numerics::kSqrtLn2);
  return x > 0.0f ? sqrt_rn(numerics::fma_rn(l, l, x)) : l;  // the root is of ln 2 or more
}

/// sqrt_softplus for any finite x, and in fewer steps for |x| <= kMinusHalfRange.
inline float sqrt_softplus(float x) {
  return sqrt_softplus_from(x, exp_of_small(-0.5f * fabsf(x)));
}
inline float sqrt_softplus_in_range(float x) {
  return sqrt_softplus_from(x, numerics::exp_of_minus_half(fabsf(x)));
}

constexpr float kDerivativeRange = 0x1p100f;

/// sqrt_softplus_derivative for y² < kDerivativeRange or NaN: both of its ways, no branch.
inline float sqrt_softplus_derivative(float y) {
  const float u = y * y;
  const Exp exp = split_exp(fmaxf(-u, -30.0f), 0);  // less is nothing beside 1
  const float e = numerics::bit_cast<float>(numerics::bit_cast<uint32>(exp.p) + (exp.n << 23));
  // Halved before the division: where u >= 1 that is exact, too.
  const float far = divide(numerics::fma_rn(-0.5f, e, 0.5f), divisor(y));
  float q = numerics::kSqrtSoftplusQ[0];
#pragma unroll
  for (int32 i = 1; i < 6; ++i) q = numerics::fma_rn(q, u, numerics::kSqrtSoftplusQ[i]);
  const float h = 0.5f * y;
  const float near = numerics::fma_rn(u * q, h, h);
  // So that neither of them goes behind a branch
  const uint32 far_bits = kept(numerics::bit_cast<uint32>(far));
  const uint32 near_bits = kept(numerics::bit_cast<uint32>(near));
  return numerics::bit_cast<float>(u >= 1.0f ? far_bits : near_bits);
}

constexpr float kSigmoidRange = 87.0f;

/// sigmoid for |x| <= kSigmoidRange.
inline float sigmoid(float x) {
  const Exp exp = split_exp(-x, 0);
  return reciprocal_rn(
      1.0f + numerics::bit_cast<float>(numerics::bit_cast<uint32>(exp.p) + (exp.n << 23)));
}

/// What sqrt_softplus_approx is to be multiplied by.
constexpr float kSqrtSoftplusApproxUnit = numerics::kSqrtLn2;
constexpr float kSqrtSoftplusApproxError = 8e-4f;

/// sqrt_softplus / kSqrtSoftplusApproxUnit; their product errs by kSqrtSoftplusApproxError at
/// most, near 0 and far less elsewhere. Inf from some x in 88..89 on.
inline float sqrt_softplus_approx(float x) {
  return sqrt_approx(fabsf(log2_approx(1.0f + exp2_approx(numerics::kLog2E * x))));
}

constexpr float kSigmoidApproxError = 0x1p-20f;

/// sigmoid to kSigmoidApproxError.
inline float sigmoid_approx(float x) {
  return reciprocal_approx(1.0f + exp2_approx(-numerics::kLog2E * x));
}

}  // namespace tilekernels::device
