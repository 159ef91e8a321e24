// Every case of every op on every backend of this machine; cpu on every SIMD target, and with
// other numbers of threads.
#include <gtest/gtest.h>

#include <functional>

#include "cases/case.h"
#include "cases/verify.h"
#include "sanitized.h"
#include "tilekernels/config.h"
#include "tilekernels/error.h"

namespace tilekernels::cases {
namespace {

// Under a sanitizer one is enough: it looks for bad accesses, and equal bytes are judged elsewhere.
const std::vector<int> kThreadCounts = kSanitized ? std::vector{3} : std::vector{1, 3, 7};

// Calls `judge` for every case that is small enough for a test.
void for_each_case(std::string_view op_name, const std::function<void(Judge&)>& judge) {
  for (const OpCases& op : all_ops()) {
    if (op.op != op_name) continue;
    int count = 0;
    for (const Case& test : op.cases) {
      if (test.bench) continue;
      Judge one(test);
      judge(one);
      ++count;
    }
    EXPECT_GT(count, 0) << "no case of " << op_name;
  }
}

void expect_passed(Judge& judge, Backend backend) {
  const Verdict verdict = judge.verify(backend);
  EXPECT_TRUE(verdict.passed) << verdict.failure;
}

bool is_available(Backend backend) { return backends()[static_cast<size_t>(backend)].available; }

// Whether an op has a kernel for an available backend; docs/support.md is tested to keep it.
bool has_kernel(std::string_view op_name, Backend backend) {
  for (const OpCases& op : all_ops()) {
    if (op.op != op_name) continue;
    for (const Case& test : op.cases) {
      if (test.bench || !test.error.empty()) continue;
      const Buffers buffers(test, 0);
      if (buffers.outputs()[0].numel() == 0) continue;
      try {
        test.out(buffers.outputs(), buffers.inputs(), Call{.backend = backend});
      } catch (const Unsupported&) {
        return false;
      } catch (const DataError&) {
      }
      return true;
    }
  }
  return false;
}

class RunCases : public testing::TestWithParam<std::string_view> {
 protected:
  void TearDown() override { reset_runtime_config(); }
};

TEST_P(RunCases, HostBackends) {
  const bool on_cpu = has_kernel(GetParam(), Backend::kCpu);
  const std::vector<std::string> targets = on_cpu ? cpu_targets() : std::vector<std::string>();
  for_each_case(GetParam(), [&](Judge& judge) {
    expect_passed(judge, Backend::kReference);
    for (const std::string& target : targets) {
      SCOPED_TRACE(target);
      set_cpu_target(target);
      set_num_threads(0);
      expect_passed(judge, Backend::kCpu);
    }
    if (targets.empty()) return;
    set_cpu_target("");
    for (int threads : kThreadCounts) {
      SCOPED_TRACE(threads);
      set_num_threads(threads);
      expect_passed(judge, Backend::kCpu);
    }
  });
  if (targets.empty()) GTEST_SKIP() << "absent: cpu";
}

TEST_P(RunCases, Cuda) {
  if (!is_available(Backend::kCuda)) GTEST_SKIP() << "absent: cuda";
  for_each_case(GetParam(), [](Judge& judge) { expect_passed(judge, Backend::kCuda); });
}

TEST_P(RunCases, Ascend) {
  if (!has_kernel(GetParam(), Backend::kAscend)) GTEST_SKIP() << "absent: an ascend kernel";
  for_each_case(GetParam(), [](Judge& judge) {
    // The model of a core is slow; under a sanitizer the largest cases are left out.
    constexpr int64_t kMostBytes = 8 << 20;
    const bool runs = judge.test().error.empty();
    if (kSanitized && runs && bytes_moved(judge.test()) > kMostBytes) return;
    expect_passed(judge, Backend::kAscend);
  });
}

std::vector<std::string_view> op_names() {
  std::vector<std::string_view> names;
  for (const OpCases& op : all_ops()) names.push_back(op.op);
  return names;
}

INSTANTIATE_TEST_SUITE_P(AllOps, RunCases, testing::ValuesIn(op_names()),
                         [](const auto& op) { return std::string(op.param); });

}  // namespace
}  // namespace tilekernels::cases
