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

// All of them work in place on a few vectors, as those of math-inl.h do.

template <class D, size_t kCount>
HWY_INLINE void sqrt_softplus(D d, hn::Vec<D> (&x)[kCount]) {
  const auto one = hn::Set(d, 1.0f);
  hn::Vec<D> a[kCount];
  hn::Vec<D> t[kCount];
  hn::Vec<D> p[kCount];
  for (size_t v = 0; v < kCount; ++v) a[v] = hn::Mul(hn::Set(d, -0.5f), hn::Abs(x[v]));
  exp_of_negative(d, a);
  for (size_t v = 0; v < kCount; ++v) t[v] = hn::Sub(one, hn::Mul(a[v], a[v]));
  polynomial(d, kSqrtSoftplusP, t, p);
  for (size_t v = 0; v < kCount; ++v) {
    const auto l = hn::Mul(a[v], hn::MulAdd(t[v], p[v], hn::Set(d, kSqrtLn2)));
    const auto y = hn::Sqrt(hn::MulAdd(l, l, x[v]));
    x[v] = hn::IfThenElse(hn::Gt(x[v], hn::Zero(d)), y, l);
  }
}

template <class D, size_t kCount>
HWY_INLINE void sqrt_softplus_derivative(D d, hn::Vec<D> (&y)[kCount]) {
  const auto one = hn::Set(d, 1.0f);
  const auto one_half = hn::Set(d, 0.5f);
  hn::Vec<D> u[kCount];
  hn::Vec<D> e[kCount];
  hn::Vec<D> q[kCount];
  for (size_t v = 0; v < kCount; ++v) {
    u[v] = hn::Mul(y[v], y[v]);
    e[v] = hn::Neg(u[v]);
  }
  exp_of_negative(d, e);
  polynomial(d, kSqrtSoftplusQ, u, q);
  for (size_t v = 0; v < kCount; ++v) {
    const auto far = hn::Mul(one_half, hn::Div(hn::Sub(one, e[v]), y[v]));
    const auto h = hn::Mul(one_half, y[v]);
    const auto near = hn::MulAdd(hn::Mul(u[v], q[v]), h, h);
    y[v] = hn::IfThenElse(hn::Ge(u[v], one), far, near);
  }
}

template <class D, size_t kCount>
HWY_INLINE void sigmoid(D d, hn::Vec<D> (&x)[kCount]) {
  const auto one = hn::Set(d, 1.0f);
  hn::Vec<D> e[kCount];
  if (HWY_LIKELY(all_within(d, x, kSigmoidTail, -kSigmoidTail))) {
    for (size_t v = 0; v < kCount; ++v) e[v] = hn::Neg(x[v]);
    exp_to_normal(d, e);
    for (size_t v = 0; v < kCount; ++v) x[v] = hn::Div(one, hn::Add(one, e[v]));
    return;
  }
  for (size_t v = 0; v < kCount; ++v) {
    e[v] = hn::IfThenElse(hn::Lt(x[v], hn::Set(d, kSigmoidTail)), x[v], hn::Neg(x[v]));
  }
  exp_to_any(d, e);
  for (size_t v = 0; v < kCount; ++v) {
    const auto is_tail = hn::Lt(x[v], hn::Set(d, kSigmoidTail));
    x[v] = hn::IfThenElse(is_tail, e[v], hn::Div(one, hn::Add(one, e[v])));
  }
}

}  // namespace tilekernels::numerics::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TILEKERNELS_NUMERICS_SCORING_INL_H_
