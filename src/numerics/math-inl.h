// The elementary functions of math.h for SIMD lanes: the same bits but for those of NaN.
#if defined(TILEKERNELS_NUMERICS_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TILEKERNELS_NUMERICS_MATH_INL_H_
#undef TILEKERNELS_NUMERICS_MATH_INL_H_
#else
#define TILEKERNELS_NUMERICS_MATH_INL_H_
#endif

#include <hwy/highway.h>

#include "numerics/math.h"

HWY_BEFORE_NAMESPACE();
namespace tilekernels::numerics::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Highway's fallback would round twice.
static_assert(HWY_NATIVE_FMA);

/// A polynomial, highest degree first, by Horner's rule.
template <class D, size_t kSize>
HWY_INLINE hn::Vec<D> polynomial(D d, const float (&coefficients)[kSize], hn::Vec<D> x) {
  hn::Vec<D> y = hn::Set(d, coefficients[0]);
  for (size_t i = 1; i < kSize; ++i) y = hn::MulAdd(y, x, hn::Set(d, coefficients[i]));
  return y;
}

/// e^x of x that exp_f32 would not move to its nearer end, or NaN.
template <class D>
HWY_INLINE hn::Vec<D> exp_in_range(D d, hn::Vec<D> x) {
  const hn::RebindToSigned<D> di;
  const auto magic = hn::Set(d, kRoundMagic);
  const auto shifted = hn::MulAdd(x, hn::Set(d, kLog2E), magic);
  const auto n = hn::Sub(shifted, magic);
  const auto r = hn::NegMulAdd(n, hn::Set(d, kLn2Low), hn::NegMulAdd(n, hn::Set(d, kLn2High), x));
  const auto q = polynomial(d, kExpQ, r);
  const auto p = hn::Add(hn::Set(d, 1.0f), hn::MulAdd(hn::Mul(r, r), q, r));
  const auto exponent = hn::Sub(hn::BitCast(di, shifted), hn::BitCast(di, magic));
  const auto half = hn::ShiftRight<1>(exponent);
  const auto bias = hn::Set(di, 127);
  const auto half_power = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const auto other_power =
      hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(exponent, half), bias)));
  return hn::Mul(hn::Mul(p, half_power), other_power);
}

/// exp_f32 of x <= 0 or NaN.
template <class D>
HWY_INLINE hn::Vec<D> exp_of_negative(D d, hn::Vec<D> x) {
  const auto lowest = hn::Set(d, kExpLowest);
  return exp_in_range(d, hn::IfThenElse(hn::Lt(x, lowest), lowest, x));
}

/// exp_f32.
template <class D>
HWY_INLINE hn::Vec<D> exp_f32(D d, hn::Vec<D> x) {
  const auto highest = hn::Set(d, kExpHighest);
  return exp_of_negative(d, hn::IfThenElse(hn::Gt(x, highest), highest, x));
}

}  // namespace tilekernels::numerics::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TILEKERNELS_NUMERICS_MATH_INL_H_
