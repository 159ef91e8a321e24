// The activations of scoring.h for SIMD lanes: the same bits but for those of NaN.
#if defined(TILEKERNELS_NUMERICS_SCORING_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TILEKERNELS_NUMERICS_SCORING_INL_H_
#undef TILEKERNELS_NUMERICS_SCORING_INL_H_
#else
#define TILEKERNELS_NUMERICS_SCORING_INL_H_
#endif

#include <hwy/highway.h>

#include "numerics/math-inl.h"
#include "numerics/scoring.h"

HWY_BEFORE_NAMESPACE();
namespace tilekernels::numerics::HWY_NAMESPACE {

template <class D>
HWY_INLINE hn::Vec<D> sqrt_softplus(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1.0f);
  const auto a = exp_of_negative(d, hn::Mul(hn::Set(d, -0.5f), hn::Abs(x)));
  const auto t = hn::Sub(one, hn::Mul(a, a));
  const auto g = hn::MulAdd(t, polynomial(d, kSqrtSoftplusP, t), hn::Set(d, kSqrtLn2));
  const auto l = hn::Mul(a, g);
  const auto y = hn::Sqrt(hn::MulAdd(l, l, x));
  return hn::IfThenElse(hn::Gt(x, hn::Zero(d)), y, l);
}

template <class D>
HWY_INLINE hn::Vec<D> sqrt_softplus_derivative(D d, hn::Vec<D> y) {
  const auto one = hn::Set(d, 1.0f);
  const auto u = hn::Mul(y, y);
  const auto e = exp_of_negative(d, hn::Neg(u));
  const auto far = hn::Mul(hn::Set(d, 0.5f), hn::Div(hn::Sub(one, e), y));
  const auto h = hn::Mul(hn::Set(d, 0.5f), y);
  const auto near = hn::MulAdd(hn::Mul(u, polynomial(d, kSqrtSoftplusQ, u)), h, h);
  return hn::IfThenElse(hn::Ge(u, one), far, near);
}

template <class D>
HWY_INLINE hn::Vec<D> sigmoid(D d, hn::Vec<D> x) {
  const auto one = hn::Set(d, 1.0f);
  const auto is_tail = hn::Lt(x, hn::Set(d, kSigmoidTail));
  const auto e = exp_f32(d, hn::IfThenElse(is_tail, x, hn::Neg(x)));
  return hn::IfThenElse(is_tail, e, hn::Div(one, hn::Add(one, e)));
}

}  // namespace tilekernels::numerics::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TILEKERNELS_NUMERICS_SCORING_INL_H_
