// exp and the activations of routers on the vector core: numerics/math.h and scoring.h by lanes,
// the same bits but for a NaN's.
#pragma once

#include "numerics/scoring.h"
#include "runtime/ascend/ring.h"

namespace tilekernels::ascend {

/// d = exp_f32(x); d may be x.
TILEKERNELS_CALLEE void exp_f32(Reg<float>& d, const Reg<float>& x, const Mask& m) {
  constexpr auto kMagicBits = numerics::bit_cast<int32>(numerics::kRoundMagic);
  Reg<float> shifted;
  Reg<float> n;
  Reg<float> r;
  Reg<float> constant;
  Reg<float> q[2];
  // These keep NaN, as the scalar's comparisons do.
  vmaxs(r, x, numerics::kExpLowest, m);
  vmins(r, r, numerics::kExpHighest, m);
  vdup(shifted, numerics::kRoundMagic, m);
  vdup(constant, numerics::kLog2E, m);
  vmula(shifted, r, constant, m);
  vadds(n, shifted, -numerics::kRoundMagic, m);
  vdup(constant, -numerics::kLn2High, m);
  vmula(r, n, constant, m);
  vdup(constant, -numerics::kLn2Low, m);
  vmula(r, n, constant, m);
  vdup(q[1], numerics::kExpQ[0], m);
  for (int32 i = 1; i < 6; ++i) {
    vdup(q[(i + 1) % 2], numerics::kExpQ[i], m);
    vmula(q[(i + 1) % 2], q[i % 2], r, m);
  }
  vmul(n, r, r, m);
  vmula(r, n, q[0], m);
  vadds(d, r, 1.0f, m);
  // 2^n in two steps
  Reg<int32>& exponent = as<int32>(shifted);
  Reg<int32>& half = as<int32>(n);
  vadds(exponent, exponent, -kMagicBits, m);
  vshrs(half, exponent, 1, m);
  vsub(exponent, exponent, half, m);
  vadds(half, half, 127, m);
  vadds(exponent, exponent, 127, m);
  vshls(as<uint32>(n), as<uint32>(n), 23, m);
  vshls(as<uint32>(shifted), as<uint32>(shifted), 23, m);
  vmul(d, d, n, m);
  vmul(d, d, shifted, m);
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

/// d = sqrt_softplus(x); d is not x.
TILEKERNELS_CALLEE void sqrt_softplus(Reg<float>& d, const Reg<float>& x, const Mask& m) {
  Reg<float> a;
  Reg<float> t;
  Reg<float> p[2];
  Mask is_positive;
  vabs(a, x, m);
  vmuls(a, a, -0.5f, m);
  exp_f32(a, a, m);
  vmul(t, a, a, m);
  vneg(t, t, m);
  vadds(t, t, 1.0f, m);
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

}  // namespace tilekernels::ascend
