// The activations' lane twins on every target of this machine, against the scalar functions.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "numerics/scoring_lanes_test.cpp"
#include <hwy/foreach_target.h>
// The loop over targets comes first.
#include <hwy/highway.h>

#include "numerics/scoring_lanes-inl.h"

#if HWY_ONCE

#include <gtest/gtest.h>

#include "numerics/scoring_lanes_sweep.h"
#include "sanitized.h"

namespace tilekernels::test {
namespace {

HWY_EXPORT(activate);

void activate_lanes(LaneFunction function, bool short_vectors, const float* x, float* out,
                    size_t count) {
  HWY_DYNAMIC_DISPATCH(activate)(function, short_vectors, x, out, count);
}

// An odd stride meets each exponent thousands of times, with all low bits.
TEST(ScoringLanes, EqualTheScalarFunctions) {
  sweep_activation_lanes(sweep_step(1021), activate_lanes);
}

// Around 0 and the ends of the ranges, every pattern.
TEST(ScoringLanes, EqualThemAtTheEnds) {
  constexpr float kEnds[] = {0,  88.72284f, -87.0f, -87.33655f, -103.97f, -105.0f,
                             89, -206.0f,   1.0f,   -1.0f,      20.0f,    0.34657f};
  std::vector<float> x;
  for (const float end : kEnds) {
    for (uint32_t i = 0; i < 4096; ++i) x.push_back(from_bits(to_bits(end) + i - 2048));
  }
  check_activation_lanes(x, activate_lanes);
}

}  // namespace
}  // namespace tilekernels::test

#endif  // HWY_ONCE
