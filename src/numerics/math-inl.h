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

// Functions take a few vectors at once and work on them step by step: each step is a chain of
// dependent operations, and a processor is busy with four of them only.

/// Replaces x by a polynomial of it, highest degree first, by Horner's rule.
template <class D, size_t kSize, size_t kCount>
HWY_INLINE void polynomial(D d, const float (&coefficients)[kSize], const hn::Vec<D> (&x)[kCount],
                           hn::Vec<D> (&y)[kCount]) {
  for (size_t v = 0; v < kCount; ++v) y[v] = hn::Set(d, coefficients[0]);
  for (size_t i = 1; i < kSize; ++i) {
    for (size_t v = 0; v < kCount; ++v) y[v] = hn::MulAdd(y[v], x[v], hn::Set(d, coefficients[i]));
  }
}

/// exp_f32(x) = p · 2^n, for x that exp_f32 would not move to its nearer end.
template <class D, size_t kCount>
struct ExpParts {
  hn::Vec<D> p[kCount];
  hn::Vec<D> shifted[kCount];  // n in the low bits of its pattern
};
template <class D, size_t kCount>
HWY_INLINE ExpParts<D, kCount> exp_parts(D d, const hn::Vec<D> (&x)[kCount]) {
  const auto magic = hn::Set(d, kRoundMagic);
  ExpParts<D, kCount> parts;
  hn::Vec<D> r[kCount];
  hn::Vec<D> q[kCount];
  for (size_t v = 0; v < kCount; ++v) {
    parts.shifted[v] = hn::MulAdd(x[v], hn::Set(d, kLog2E), magic);
  }
  for (size_t v = 0; v < kCount; ++v) {
    const auto n = hn::Sub(parts.shifted[v], magic);
    r[v] = hn::NegMulAdd(n, hn::Set(d, kLn2Low), hn::NegMulAdd(n, hn::Set(d, kLn2High), x[v]));
  }
  polynomial(d, kExpQ, r, q);
  for (size_t v = 0; v < kCount; ++v) {
    parts.p[v] = hn::Add(hn::Set(d, 1.0f), hn::MulAdd(hn::Mul(r[v], r[v]), q[v], r[v]));
  }
  return parts;
}

/// Between them, both included, exp is a normal number.
constexpr float kExpNormalLowest = -87.0f;
constexpr float kExpNormalHighest = 88.0f;

/// exp_f32 of kExpNormalLowest <= x <= kExpNormalHighest, in place.
template <class D, size_t kCount>
HWY_INLINE void exp_to_normal(D d, hn::Vec<D> (&x)[kCount]) {
  const hn::RebindToSigned<D> di;
  const ExpParts<D, kCount> parts = exp_parts(d, x);
  for (size_t v = 0; v < kCount; ++v) {
    // The magic number's own bits are shifted out.
    const auto power = hn::ShiftLeft<23>(hn::BitCast(di, parts.shifted[v]));
    x[v] = hn::BitCast(d, hn::Add(hn::BitCast(di, parts.p[v]), power));
  }
}

/// exp_f32, in place.
template <class D, size_t kCount>
HWY_INLINE void exp_to_any(D d, hn::Vec<D> (&x)[kCount]) {
  const hn::RebindToSigned<D> di;
  const auto lowest = hn::Set(d, kExpLowest);
  const auto highest = hn::Set(d, kExpHighest);
  for (size_t v = 0; v < kCount; ++v) {  // NaN stays
    x[v] = hn::IfThenElse(hn::Lt(x[v], lowest), lowest, x[v]);
    x[v] = hn::IfThenElse(hn::Gt(x[v], highest), highest, x[v]);
  }
  const ExpParts<D, kCount> parts = exp_parts(d, x);
  for (size_t v = 0; v < kCount; ++v) {
    const auto exponent =
        hn::Sub(hn::BitCast(di, parts.shifted[v]), hn::BitCast(di, hn::Set(d, kRoundMagic)));
    const auto half = hn::ShiftRight<1>(exponent);
    const auto bias = hn::Set(di, 127);
    const auto half_power = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
    const auto other_power =
        hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(exponent, half), bias)));
    x[v] = hn::Mul(hn::Mul(parts.p[v], half_power), other_power);
  }
}

/// Whether all of x lie within the bounds; false with a NaN.
template <class D, size_t kCount>
HWY_INLINE bool all_within(D d, const hn::Vec<D> (&x)[kCount], float lowest, float highest) {
  auto least = hn::And(hn::Ge(x[0], hn::Set(d, lowest)), hn::Le(x[0], hn::Set(d, highest)));
  for (size_t v = 1; v < kCount; ++v) {
    least = hn::And(least,
                    hn::And(hn::Ge(x[v], hn::Set(d, lowest)), hn::Le(x[v], hn::Set(d, highest))));
  }
  return hn::AllTrue(d, least);
}

/// exp_f32, in place, fast where all results are normal.
template <class D, size_t kCount>
HWY_INLINE void exp_f32(D d, hn::Vec<D> (&x)[kCount]) {
  if (HWY_LIKELY(all_within(d, x, kExpNormalLowest, kExpNormalHighest))) {
    exp_to_normal(d, x);
  } else {
    exp_to_any(d, x);
  }
}

/// The same for x that are not above 0, or NaN.
template <class D, size_t kCount>
HWY_INLINE void exp_of_negative(D d, hn::Vec<D> (&x)[kCount]) {
  const auto lowest = hn::Set(d, kExpNormalLowest);
  auto all_normal = hn::Ge(x[0], lowest);  // not a NaN: its bits would become a number's
  for (size_t v = 1; v < kCount; ++v) all_normal = hn::And(all_normal, hn::Ge(x[v], lowest));
  if (HWY_LIKELY(hn::AllTrue(d, all_normal))) {
    exp_to_normal(d, x);
  } else {
    exp_to_any(d, x);
  }
}

}  // namespace tilekernels::numerics::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TILEKERNELS_NUMERICS_MATH_INL_H_
