// The activations of a router: from logits to scores, and back for gradients. NaN gives NaN, whose
// bits are open: stores go through canonical().
#pragma once

#include "numerics/math.h"

namespace tilekernels::numerics {

/// √(ln(1 + a²)) / a as a polynomial in t = 1 - a², 0 <= a <= 1. Highest degree first.
constexpr float kSqrtSoftplusP[9] = {
    4.71802573883906e-4f,   -4.226923920214176e-4f, -8.536428504157811e-5f,
    2.192076062783599e-3f,  2.92900949716568e-4f,   4.986039828509092e-3f,
    1.1144610121846199e-2f, 3.287079185247421e-2f,  1.1599518358707428e-1f};
constexpr float kSqrtLn2 = 0.8325546383857727f;

/// √softplus: √(ln(1 + e^x)). For x <= 0 it is l = √(ln(1 + a²)) with a = e^(x/2), so the tail down
/// to -207 is kept; for x > 0 √(l² + x) with a = e^(-x/2).
inline float sqrt_softplus(float x) {
  const float a = exp_f32(-0.5f * bit_cast<float>(abs_bits(x)));
  const float t = 1.0f - a * a;
  float p = kSqrtSoftplusP[0];
  for (int32 i = 1; i < 9; ++i) p = fma_rn(p, t, kSqrtSoftplusP[i]);
  const float l = a * fma_rn(t, p, kSqrtLn2);
  return x > 0.0f ? sqrt_rn(fma_rn(l, l, x)) : l;
}

/// (1 - e^-u) / u = 1 + u · q(u) for 0 <= u < 1. Highest degree first.
constexpr float kSqrtSoftplusQ[6] = {1.29130945e-4f, -1.30112655e-3f, 8.27621203e-3f,
                                     -4.1647464e-2f, 1.66663632e-1f,  -4.99999821e-1f};

/// The derivative of √softplus at the x where its value is y >= 0: (1 - e^-y²) / (2 y), 0 for 0.
inline float sqrt_softplus_derivative(float y) {
  const float u = y * y;
  if (u >= 1.0f) return 0.5f * ((1.0f - exp_f32(-u)) / y);
  float q = kSqrtSoftplusQ[0];
  for (int32 i = 1; i < 6; ++i) q = fma_rn(q, u, kSqrtSoftplusQ[i]);
  const float h = 0.5f * y;
  return fma_rn(u * q, h, h);
}

/// Below it 1 + e^-x may be Inf, and sigmoid(x) is e^x to the last bit.
constexpr float kSigmoidTail = -87.0f;

/// 1 / (1 + e^-x), and e^x in the tail.
inline float sigmoid(float x) {
  const bool is_tail = x < kSigmoidTail;
  const float e = exp_f32(is_tail ? x : -x);
  return is_tail ? e : 1.0f / (1.0f + e);
}

}  // namespace tilekernels::numerics
