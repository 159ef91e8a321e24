// The lane conversions on every target of this machine, against the scalar ones.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "numerics/formats_lanes_test.cpp"
#include <hwy/foreach_target.h>
// The loop over targets comes first.
#include <hwy/highway.h>

#include "numerics/lanes-inl.h"

#if HWY_ONCE

#include <gtest/gtest.h>

#include "numerics/lanes_sweep.h"
#include "sanitized.h"

namespace tilekernels::test {
namespace {

HWY_EXPORT(convert);
HWY_EXPORT(nan_sign_from);

void convert_lanes(Conversion conversion, bool short_vectors, const void* x, void* out,
                   size_t count) {
  HWY_DYNAMIC_DISPATCH(convert)(conversion, short_vectors, x, out, count);
}

TEST(FormatsLanes, RunsOnSomeTarget) { ASSERT_FALSE(lane_targets().empty()); }

TEST(FormatsLanes, WidenEveryCode) {
  for_each_target([](bool short_vectors) {
    for (size_t shift = 0; shift < kMaxQuad; ++shift) {
      check_widening<uint16_t>(Conversion::kWidenBF16, short_vectors, shift, convert_lanes);
      check_widening<uint16_t>(Conversion::kWidenF16, short_vectors, shift, convert_lanes);
      check_widening<uint8_t>(Conversion::kWidenE4M3, short_vectors, shift, convert_lanes);
      check_widening<uint8_t>(Conversion::kWidenE2M1, short_vectors, shift, convert_lanes);
    }
  });
}

TEST(FormatsLanes, NarrowEvery64thFp32) {
  for_each_target([](bool short_vectors) {
    sweep_lanes(0, short_vectors ? 64 * 61 : sweep_step(64), short_vectors, convert_lanes);
  });
}

TEST(FormatsLanes, NarrowOddFp32) {
  for_each_target(
      [](bool short_vectors) { sweep_lanes(0x1B5, 8191, short_vectors, convert_lanes); });
}

// Values, their neighbours and the midpoints of every format, in a shuffled order, at every
// alignment.
TEST(FormatsLanes, NarrowMidpointsAtEveryAlignment) {
  for_each_target([](bool short_vectors) { check_midpoint_lanes(short_vectors, convert_lanes); });
}

TEST(FormatsLanes, NanSignFrom) {
  for_each_target([](bool) {
    const float nan = from_bits(0x7FC00001);
    const float negative_nan = from_bits(0xFFC00001);
    const float y[] = {nan, nan, negative_nan, negative_nan, 1.0f, -1.0f, 0.0f, -0.0f};
    const float x[] = {1.0f, -1.0f, 0.0f, -0.0f, -2.0f, 2.0f, nan, negative_nan};
    const uint32_t signs[] = {0, 1, 0, 1, 0, 1, 0, 1};
    float long_y[kMaxQuad];
    float long_x[kMaxQuad];
    float out[kMaxQuad];
    for (size_t i = 0; i < kMaxQuad; ++i) {
      long_y[i] = y[i % 8];
      long_x[i] = x[i % 8];
    }
    HWY_DYNAMIC_DISPATCH(nan_sign_from)(long_y, long_x, out, kMaxQuad);
    for (size_t i = 0; i < kMaxQuad; ++i) {
      ASSERT_EQ(to_bits(out[i]), (to_bits(long_y[i]) & 0x7FFFFFFF) | signs[i % 8] << 31) << i;
    }
  });
}

}  // namespace
}  // namespace tilekernels::test

#endif  // HWY_ONCE
