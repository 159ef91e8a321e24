// Every case of every op on every backend and SIMD target of this machine.
#include <gtest/gtest.h>

#include "cases/case.h"
#include "cases/verify.h"
#include "tilekernels/config.h"

namespace tilekernels::cases {
namespace {

void verify_all(Backend backend) {
  int ran = 0;
  for (const OpCases& op : all_ops()) {
    for (const Case& test : op.cases) {
      if (test.bench) continue;
      const Verdict verdict = verify(test, backend);
      EXPECT_TRUE(verdict.passed) << verdict.failure;
      ++ran;
    }
  }
  EXPECT_GT(ran, 0);
}

bool is_available(Backend backend) { return backends()[static_cast<size_t>(backend)].available; }

TEST(RunCases, Reference) { verify_all(Backend::kReference); }

TEST(RunCases, CpuOnEveryTarget) {
  if (!is_available(Backend::kCpu)) GTEST_SKIP() << "absent: cpu";
  for (const std::string& target : cpu_targets()) {
    SCOPED_TRACE(target);
    set_cpu_target(target);
    EXPECT_EQ(get_cpu_target(), target);
    verify_all(Backend::kCpu);
  }
  set_cpu_target("");
}

TEST(RunCases, CpuOnOtherThreadCounts) {
  if (!is_available(Backend::kCpu)) GTEST_SKIP() << "absent: cpu";
  for (int threads : {1, 3, 7}) {
    set_num_threads(threads);
    verify_all(Backend::kCpu);
  }
  set_num_threads(0);
}

TEST(RunCases, Cuda) {
  if (!is_available(Backend::kCuda)) GTEST_SKIP() << "absent: cuda";
  verify_all(Backend::kCuda);
}

TEST(RunCases, Ascend) {
  if (!is_available(Backend::kAscend)) GTEST_SKIP() << "absent: ascend";
  verify_all(Backend::kAscend);
}

}  // namespace
}  // namespace tilekernels::cases
