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

// `kCount` vectors at once.
template <size_t kCount, class D>
void activate_as(D d, LaneFunction function, const float* x, float* out, size_t count) {
  namespace hn = hwy::HWY_NAMESPACE;
  namespace lanes = numerics::HWY_NAMESPACE;
  const size_t n = hn::Lanes(d);
  for (size_t i = 0; i < count; i += kCount * n) {
    hn::Vec<D> few[kCount];
    for (size_t v = 0; v < kCount; ++v) few[v] = hn::LoadU(d, x + i + v * n);
    switch (function) {
      case LaneFunction::kExp:
        lanes::exp_f32(d, few);
        break;
      case LaneFunction::kSqrtSoftplus:
        lanes::sqrt_softplus(d, few);
        break;
      case LaneFunction::kSqrtSoftplusDerivative:
        lanes::sqrt_softplus_derivative(d, few);
        break;
      case LaneFunction::kSigmoid:
        lanes::sigmoid(d, few);
        break;
    }
    for (size_t v = 0; v < kCount; ++v) hn::StoreU(few[v], d, out + i + v * n);
  }
}

}  // namespace

inline void activate(LaneFunction function, bool short_vectors, const float* x, float* out,
                     size_t count) {
  namespace hn = hwy::HWY_NAMESPACE;
  if (short_vectors) {
    activate_as<1>(hn::CappedTag<float, 4>(), function, x, out, count);
  } else {
    activate_as<4>(hn::ScalableTag<float>(), function, x, out, count);
  }
}

}  // namespace tilekernels::test::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TILEKERNELS_TESTS_NUMERICS_SCORING_LANES_INL_H_
