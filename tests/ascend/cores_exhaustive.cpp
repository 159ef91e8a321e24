// Every case on every number of cores: the same bytes. A few minutes.
#include <gtest/gtest.h>

#include "cases/verify.h"
#include "runtime/ascend/model/core.h"

namespace tilekernels::ascend {
namespace {

TEST(Cores, EveryCaseGivesTheSameBytes) {
  int64 cases = 0;
  for (const cases::OpCases& op : cases::all_ops()) {
    for (const cases::Case& test : op.cases) {
      if (test.bench || !test.error.empty()) continue;
      cases::Judge judge(test);
      for (int64 num_cores : {1, 3, 40, 64}) {
        model::Options options;
        options.num_cores = num_cores;
        options.schedule = num_cores == 1 ? model::Schedule::kCopiesLate : model::Schedule::kByCore;
        const model::ScopedOptions scope(options);
        const cases::Verdict verdict = judge.verify(Backend::kAscend);
        EXPECT_TRUE(verdict.passed) << num_cores << " cores: " << verdict.failure;
      }
      ++cases;
    }
  }
  EXPECT_GT(cases, 400);
}

}  // namespace
}  // namespace tilekernels::ascend
