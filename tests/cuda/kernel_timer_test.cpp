// How the records of a timed run become times.
#include "cases/cuda/kernel_timer.h"

#include <gtest/gtest.h>

#include "tilekernels/error.h"

namespace tilekernels::cases {
namespace {

const std::string kFlush = "bench_flush_kernel";

TEST(SplitAtFlushes, TakesWhatFollowsEachInTheOrderOfTime) {
  const std::vector<KernelRecord> records = {
      {"b", 5000, 7000},    {kFlush, 4000, 4900}, {"warm", 1, 2},
      {kFlush, 1000, 1900}, {"a", 2000, 2500},    {"a2", 2600, 3500},
  };
  EXPECT_EQ(split_at_flushes(records, 2), (std::vector<double>{1.5, 2.0}));
}

TEST(SplitAtFlushes, RefusesWhatDoesNotFit) {
  EXPECT_THROW(split_at_flushes({{kFlush, 1, 2}, {"a", 3, 4}}, 2), BackendError);
  EXPECT_THROW(split_at_flushes({{kFlush, 1, 2}, {kFlush, 3, 4}, {"a", 5, 6}}, 2), BackendError);
  EXPECT_THROW(split_at_flushes({{"a", 3, 4}}, 1), BackendError);
}

TEST(CuptiTimer, SaysWhyThereIsNone) {
  std::string problem;
  EXPECT_EQ(cupti_timer("/nosuch/libcupti.so", problem), nullptr);
  EXPECT_NE(problem.find("/nosuch/libcupti.so"), std::string::npos);
}

}  // namespace
}  // namespace tilekernels::cases
