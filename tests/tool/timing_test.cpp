// How the bench command condenses samples.
#include "../../tools/timing.h"

#include <gtest/gtest.h>

namespace tilekernels::tool {
namespace {

TEST(Timing, IsMedianAndSpread) {
  const Timing time = timing({5, 1, 2, 3, 4});
  EXPECT_EQ(time.us, 3);
  EXPECT_DOUBLE_EQ(time.p10, 1.4);
  EXPECT_DOUBLE_EQ(time.p90, 4.6);
}

// A copy by two threads that are asleep as a rule: one call is faster than any of one thread's.
TEST(Timing, TheYardstickIsNotChosenByItsBestMoment) {
  const std::vector<double> one_thread = {1.3, 1.2, 1.2, 1.3, 1.4};
  const std::vector<double> two_threads = {50, 0.8, 49, 51, 52};
  EXPECT_EQ(least_median({one_thread, two_threads}), 0u);
  EXPECT_EQ(least_median({two_threads, one_thread}), 1u);
  EXPECT_EQ(least_median({one_thread, one_thread}), 0u);
}

}  // namespace
}  // namespace tilekernels::tool
