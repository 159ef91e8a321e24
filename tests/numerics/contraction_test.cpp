// Notices when this build fuses a · b + c: the project's flags must keep two roundings.
#include <gtest/gtest.h>

#include "numerics/exact.h"
#include "numerics/types.h"

// Compiled for processors that have a fused multiply-add, whatever the build's own target is:
// without one nothing could be fused and this test could not fail.
#if defined(__x86_64__)
#define TILEKERNELS_TEST_WITH_FMA __attribute__((noinline, target("fma")))
#else
#define TILEKERNELS_TEST_WITH_FMA __attribute__((noinline))
#endif

namespace tilekernels::test {
namespace {

typedef float Float4 __attribute__((vector_size(16)));

TILEKERNELS_TEST_WITH_FMA float multiply_add(float a, float b, float c) { return a * b + c; }

TILEKERNELS_TEST_WITH_FMA float multiply_subtract(float a, float b, float c) { return a * b - c; }

// What SIMD intrinsics come down to.
TILEKERNELS_TEST_WITH_FMA void multiply_add4(const Float4& a, const Float4& b, const Float4& c,
                                             Float4* out) {
  *out = a * b + c;
}

TILEKERNELS_TEST_WITH_FMA float sum_of_products(const float* a, const float* b, int count) {
  float sum = 0;
  for (int i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

bool has_fma() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("fma");
#else
  return true;
#endif
}

// (1 + 2^-12)^2 = 1 + 2^-11 + 2^-24; rounding the product drops the last term.
constexpr float kA = 1.0f + 1.0f / 4096;
constexpr float kRounded = 1.0f + 1.0f / 2048;
constexpr float kLost = 1.0f / (1 << 24);

TEST(Contraction, ProductsAreRoundedBeforeTheyAreAdded) {
  if (!has_fma()) GTEST_SKIP() << "this processor has no fused multiply-add";
  EXPECT_EQ(multiply_add(kA, kA, -kRounded), 0.0f);
  EXPECT_EQ(multiply_subtract(kA, kA, kRounded), 0.0f);
  const Float4 a = {kA, kA, kA, kA};
  const Float4 c = {-kRounded, -kRounded, -kRounded, -kRounded};
  Float4 out;
  multiply_add4(a, a, c, &out);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(out[i], 0.0f);
  const float x[] = {-kRounded, kA};
  const float y[] = {1.0f, kA};
  EXPECT_EQ(sum_of_products(x, y, 2), 0.0f);
}

TEST(Contraction, FmaRnRoundsOnce) { EXPECT_EQ(numerics::fma_rn(kA, kA, -kRounded), kLost); }

}  // namespace
}  // namespace tilekernels::test
