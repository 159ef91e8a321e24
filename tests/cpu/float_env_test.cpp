// The floating-point environment of bodies, whatever the caller and the threads were in.
#include "runtime/cpu/float_env.h"

#include <fenv.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "runtime/cpu/parallel.h"
#include "tilekernels/config.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace tilekernels::cpu {
namespace {

#if defined(__SSE2__)

constexpr unsigned kFlushToZero = 0x8000;
constexpr unsigned kDenormalsAreZero = 0x0040;
constexpr unsigned kRoundUp = 0x4000;
constexpr unsigned kDefault = 0x1F80;
constexpr unsigned kStatus = 0x003F;
constexpr unsigned kInvalidFlag = 0x0001;

// What each item finds: a subnormal halved, 1 + 2^-30 rounded, and the control register.
struct Found {
  float halved;
  float rounded;
  unsigned control;
};

std::vector<Found> look(int64_t count, int64_t min_per_thread) {
  std::vector<Found> found(static_cast<size_t>(count));
  volatile float subnormal = 0x1p-130f;
  volatile float one = 1.0f;
  volatile float tiny = 0x1p-30f;
  parallel_for(count, min_per_thread, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      found[static_cast<size_t>(i)] = {subnormal * 0.5f, one + tiny, _mm_getcsr() & ~kStatus};
    }
  });
  return found;
}

void expect_right(const std::vector<Found>& found) {
  for (const Found& item : found) {
    ASSERT_EQ(item.halved, 0x1p-131f);
    ASSERT_EQ(item.rounded, 1.0f);
    ASSERT_EQ(item.control, kDefault);
  }
}

class FloatEnvTest : public testing::Test {
 protected:
  void TearDown() override {
    _mm_setcsr(kDefault);
    reset_runtime_config();
  }
};

TEST_F(FloatEnvTest, BodiesComputeRightAndTheCallerKeepsItsState) {
  set_num_threads(4);
  const unsigned states[] = {
      kDefault, kDefault | kFlushToZero | kDenormalsAreZero, kDefault | kRoundUp,
      kDefault | kRoundUp | kFlushToZero | kDenormalsAreZero, kDefault | kInvalidFlag};
  for (const unsigned state : states) {
    for (const int64_t min_per_thread : {1, 100000}) {
      _mm_setcsr(state);
      const std::vector<Found> found = look(20000, min_per_thread);
      const unsigned after = _mm_getcsr();
      _mm_setcsr(kDefault);
      expect_right(found);
      EXPECT_EQ(after, state);
    }
  }
}

TEST_F(FloatEnvTest, ThreadsStartedInAForeignStateComputeRight) {
  // More threads than any test before: new ones inherit the state of this one.
  set_num_threads(24);
  _mm_setcsr(kDefault | kRoundUp | kFlushToZero | kDenormalsAreZero);
  const std::vector<Found> found = look(50000, 1);
  _mm_setcsr(kDefault);
  expect_right(found);
}

TEST_F(FloatEnvTest, UnmaskedExceptionsDoNotTrapInBodies) {
  set_num_threads(4);
  for (const int64_t min_per_thread : {1, 100000}) {
    _mm_setcsr(0);
    std::vector<float> quotients(5000);
    volatile float zero = 0.0f;
    parallel_for(5000, min_per_thread, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) quotients[static_cast<size_t>(i)] = 1.0f / zero;
    });
    const unsigned after = _mm_getcsr();
    _mm_setcsr(kDefault);
    EXPECT_EQ(after, 0u);
    for (const float quotient : quotients) ASSERT_TRUE(std::isinf(quotient));
  }
}

TEST_F(FloatEnvTest, IsRestoredWhenABodyThrows) {
  set_num_threads(4);
  const unsigned state = kDefault | kFlushToZero;
  for (const int64_t min_per_thread : {1, 100000}) {
    _mm_setcsr(state);
    EXPECT_THROW(parallel_for(1000, min_per_thread, [](int64_t, int64_t) { throw 1; }), int);
    EXPECT_EQ(_mm_getcsr(), state);
  }
}

TEST_F(FloatEnvTest, NestsAndRestores) {
  _mm_setcsr(kDefault | kRoundUp);
  {
    const FloatEnv outer;
    EXPECT_EQ(_mm_getcsr(), kDefault);
    {
      const FloatEnv inner;
      EXPECT_EQ(_mm_getcsr(), kDefault);
    }
    EXPECT_EQ(_mm_getcsr(), kDefault);
  }
  EXPECT_EQ(_mm_getcsr(), kDefault | kRoundUp);
}

#endif

TEST(FloatEnv, RoundsToNearestWhateverWasSet) {
  const int before = fegetround();
  ASSERT_EQ(fesetround(FE_UPWARD), 0);
  {
    const FloatEnv float_env;
    volatile float one = 1.0f;
    volatile float tiny = 0x1p-30f;
    const volatile float sum = one + tiny;
    EXPECT_EQ(sum, 1.0f);
  }
  volatile float one = 1.0f;
  volatile float tiny = 0x1p-30f;
  const volatile float sum = one + tiny;
  EXPECT_EQ(sum, 0x1.000002p0f);
  fesetround(before);
}

}  // namespace
}  // namespace tilekernels::cpu
