// The activations' lane twins over all 2^32 fp32 patterns. Minutes a target; run by hand.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "numerics/scoring_lanes_exhaustive.cpp"
#include <hwy/foreach_target.h>
// The loop over targets comes first.
#include <hwy/highway.h>

#include "numerics/scoring_lanes-inl.h"

#if HWY_ONCE

#include <gtest/gtest.h>

#include "numerics/scoring_lanes_sweep.h"

namespace tilekernels::test {
namespace {

HWY_EXPORT(activate);

void activate_lanes(LaneFunction function, bool short_vectors, const float* x, float* out,
                    size_t count) {
  HWY_DYNAMIC_DISPATCH(activate)(function, short_vectors, x, out, count);
}

TEST(ScoringLanesExhaustive, EveryFp32) { sweep_activation_lanes(1, activate_lanes); }

}  // namespace
}  // namespace tilekernels::test

#endif  // HWY_ONCE
