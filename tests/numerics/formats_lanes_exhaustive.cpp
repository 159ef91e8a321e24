// The lane conversions over all 2^32 fp32 patterns. Minutes a target; run by hand.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "numerics/formats_lanes_exhaustive.cpp"
#include <hwy/foreach_target.h>
// The loop over targets comes first.
#include <hwy/highway.h>

#include "numerics/lanes-inl.h"

#if HWY_ONCE

#include <gtest/gtest.h>

#include "numerics/lanes_sweep.h"

namespace tilekernels::test {
namespace {

HWY_EXPORT(convert);

void convert_lanes(Conversion conversion, bool short_vectors, const void* x, void* out,
                   size_t count) {
  HWY_DYNAMIC_DISPATCH(convert)(conversion, short_vectors, x, out, count);
}

TEST(FormatsLanesExhaustive, NarrowEveryFp32) {
  for_each_target([](bool short_vectors) {
    if (!short_vectors) sweep_lanes(0, 1, false, convert_lanes);
  });
}

}  // namespace
}  // namespace tilekernels::test

#endif  // HWY_ONCE
