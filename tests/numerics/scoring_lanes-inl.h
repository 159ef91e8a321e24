// The activations' lane twins behind one function a target, for the tests: included once a target.
#if defined(TILEKERNELS_TESTS_NUMERICS_SCORING_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TILEKERNELS_TESTS_NUMERICS_SCORING_LANES_INL_H_
#undef TILEKERNELS_TESTS_NUMERICS_SCORING_LANES_INL_H_
#else
#define TILEKERNELS_TESTS_NUMERICS_SCORING_LANES_INL_H_
#endif

#include "numerics/scoring-inl.h"
#include "numerics/scoring_lanes.h"

HWY_BEFORE_NAMESPACE();
namespace tilekernels::test::HWY_NAMESPACE {
namespace {

template <class D>
void activate_as(D d, LaneFunction function, const float* x, float* out, size_t count) {
  namespace hn = hwy::HWY_NAMESPACE;
  namespace lanes = numerics::HWY_NAMESPACE;
  for (size_t i = 0; i < count; i += hn::Lanes(d)) {
    const auto v = hn::LoadU(d, x + i);
    switch (function) {
      case LaneFunction::kExp:
        hn::StoreU(lanes::exp_f32(d, v), d, out + i);
        break;
      case LaneFunction::kExpOfNegative:
        hn::StoreU(lanes::exp_of_negative(d, v), d, out + i);
        break;
      case LaneFunction::kSqrtSoftplus:
        hn::StoreU(lanes::sqrt_softplus(d, v), d, out + i);
        break;
      case LaneFunction::kSqrtSoftplusDerivative:
        hn::StoreU(lanes::sqrt_softplus_derivative(d, v), d, out + i);
        break;
      case LaneFunction::kSigmoid:
        hn::StoreU(lanes::sigmoid(d, v), d, out + i);
        break;
    }
  }
}

}  // namespace

inline void activate(LaneFunction function, bool short_vectors, const float* x, float* out,
                     size_t count) {
  namespace hn = hwy::HWY_NAMESPACE;
  if (short_vectors) {
    activate_as(hn::CappedTag<float, 4>(), function, x, out, count);
  } else {
    activate_as(hn::ScalableTag<float>(), function, x, out, count);
  }
}

}  // namespace tilekernels::test::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TILEKERNELS_TESTS_NUMERICS_SCORING_LANES_INL_H_
