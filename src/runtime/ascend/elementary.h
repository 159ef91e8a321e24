// exp and the activations of routers on the vector core: numerics/math.h and scoring.h by lanes,
// the same bits but for a NaN's.
#pragma once

#include "numerics/scoring.h"
#include "runtime/ascend/ring.h"

namespace tilekernels::ascend {

namespace detail {
// p, which is x within exp's range, becomes 1 + r + r² · q(r) of x = n ln 2 + r; the bits of
// `shifted`, moved up by 23, are those of n + kBias. An even bias rounds n as none does.
template <int32 kBias>
TILEKERNELS_CALLEE void exp_steps(Reg<float>& p, Reg<float>& shifted, const Mask& m) {
  static_assert(kBias % 2 == 0);
  constexpr float kMagic = numerics::kRoundMagic + static_cast<float>(kBias);
  Reg<float> n;
  Reg<float> constant;
  Reg<float> q[2];
  vdup(shifted, kMagic, m);
  vdup(constant, numerics::kLog2E, m);
  vmula(shifted, p, constant, m);
  vadds(n, shifted, -kMagic, m);
  vdup(constant, -numerics::kLn2High, m);
  vmula(p, n, constant, m);
  vdup(constant, -numerics::kLn2Low, m);
  vmula(p, n, constant, m);
  vdup(q[1], numerics::kExpQ[0], m);
  for (int32 i = 1; i < 6; ++i) {
    vdup(q[(i + 1) % 2], numerics::kExpQ[i], m);
    vmula(q[(i + 1) % 2], q[i % 2], p, m);
  }
  vmul(n, p, p, m);
  vmula(p, n, q[0], m);
  vadds(p, p, 1.0f, m);
}
}  // namespace detail

/// d = exp_f32(x); d may be x.
TILEKERNELS_CALLEE void exp_f32(Reg<float>& d, const Reg<float>& x, const Mask& m) {
  Reg<float> shifted;
  // These keep NaN, as the scalar's comparisons do.
  vmaxs(d, x, numerics::kExpLowest, m);
  vmins(d, d, numerics::kExpHighest, m);
  detail::exp_steps<2 * 127>(d, shifted, m);
  // 2^n in two steps: floor(n / 2) + 127 and the rest.
  Reg<int32>& exponent = as<int32>(shifted);
  Reg<int32> half;
  vshrs(half, exponent, 1, m);
  vsub(exponent, exponent, half, m);
  vshls(as<uint32>(half), as<uint32>(half), 23, m);
  vshls(as<uint32>(shifted), as<uint32>(shifted), 23, m);
  vmul(d, d, as<float>(half), m);
  vmul(d, d, shifted, m);
}

/// The same for x that is NaN or at most 0, for less.
TILEKERNELS_CALLEE void exp_of_negative(Reg<float>& d, const Reg<float>& x, const Mask& m) {
  constexpr int32 kShift = 65;  // 2^(n + 65) is normal down to the lowest n
  Reg<float> shifted;
  vmaxs(d, x, numerics::kExpLowest, m);
  detail::exp_steps<127 + kShift>(d, shifted, m);
  vshls(as<uint32>(shifted), as<uint32>(shifted), 23, m);
  vmul(d, d, shifted, m);
  vmuls(d, d, numerics::pow2(-kShift), m);
}

/// d = sigmoid(x); d is not x.
TILEKERNELS_CALLEE void sigmoid(Reg<float>& d, const Reg<float>& x, const Mask& m) {
  Reg<float> e;
  Reg<float> one;
  Mask is_tail;
  vcmps<Cmp::kLt>(is_tail, x, numerics::kSigmoidTail, m);
  vneg(e, x, m);
  vsel(e, x, e, is_tail);
  exp_f32(e, e, m);
  vadds(d, e, 1.0f, m);
  vdup(one, 1.0f, m);
  vdiv<Precision::kExact>(d, one, d, m);
  vsel(d, e, d, is_tail);
}

/// d = sqrt_softplus(x); `abs` is |x| and is overwritten. All three differ.
TILEKERNELS_CALLEE void sqrt_softplus(Reg<float>& d, Reg<float>& abs, const Reg<float>& x,
                                      const Mask& m) {
  Reg<float>& a = abs;
  Reg<float> t;
  Reg<float> p[2];
  Mask is_positive;
  vmuls(a, a, -0.5f, m);
  exp_of_negative(a, a, m);
  vmul(t, a, a, m);
  vdup(p[0], 1.0f, m);
  vsub(t, p[0], t, m);
  vdup(p[1], numerics::kSqrtSoftplusP[0], m);
  for (int32 i = 1; i < 9; ++i) {
    vdup(p[(i + 1) % 2], numerics::kSqrtSoftplusP[i], m);
    vmula(p[(i + 1) % 2], p[i % 2], t, m);
  }
  vdup(p[0], numerics::kSqrtLn2, m);
  vmula(p[0], t, p[1], m);
  vmul(a, a, p[0], m);  // l
  vcmps<Cmp::kGt>(is_positive, x, 0.0f, m);
  // Of lanes that are not positive the root is not taken.
  vmov(d, x);
  vmula(d, a, a, m);
  vsqrt<Precision::kExact>(d, d, m);
  vsel(d, d, a, is_positive);
}

/// d = sqrt_softplus(x); d is not x.
TILEKERNELS_CALLEE void sqrt_softplus(Reg<float>& d, const Reg<float>& x, const Mask& m) {
  Reg<float> abs;
  vabs(abs, x, m);
  sqrt_softplus(d, abs, x, m);
}

/// d = sqrt_softplus_derivative(y); d is not y.
TILEKERNELS_CALLEE void sqrt_softplus_derivative(Reg<float>& d, const Reg<float>& y,
                                                 const Mask& m) {
  Reg<float> u;
  Reg<float> q[2];
  Mask is_far;
  vmul(u, y, y, m);
  vneg(d, u, m);
  exp_of_negative(d, d, m);
  vdup(q[0], 1.0f, m);
  vsub(d, q[0], d, m);
  vdiv<Precision::kExact>(d, d, y, m);
  vmuls(d, d, 0.5f, m);
  vdup(q[1], numerics::kSqrtSoftplusQ[0], m);
  for (int32 i = 1; i < 6; ++i) {
    vdup(q[(i + 1) % 2], numerics::kSqrtSoftplusQ[i], m);
    vmula(q[(i + 1) % 2], q[i % 2], u, m);
  }
  vmul(q[0], u, q[0], m);
  vcmps<Cmp::kGe>(is_far, u, 1.0f, m);
  vmuls(u, y, 0.5f, m);
  vmov(q[1], u);
  vmula(q[1], q[0], u, m);
  vsel(d, d, q[1], is_far);
}

}  // namespace tilekernels::ascend
