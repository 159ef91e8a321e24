// The SIMD targets: what is listed can be forced, what is forced runs.
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "runtime/cpu/targets.h"
#include "tilekernels/config.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/targets_test.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tilekernels::cpu::HWY_NAMESPACE {
namespace {

static_assert(HWY_NATIVE_FMA, "a target that rounds a fused multiply-add twice");

int64_t running_target() { return HWY_TARGET; }

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace tilekernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilekernels::cpu {
namespace {

HWY_EXPORT(running_target);

std::string running() { return hwy::TargetName(HWY_DYNAMIC_DISPATCH(running_target)()); }

class TargetsTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_simd()) GTEST_SKIP() << "no SIMD target on this machine";
  }
  void TearDown() override { set_cpu_target(""); }
};

TEST_F(TargetsTest, TheBestRunsWhenNoneIsForced) {
  set_cpu_target("");
  EXPECT_EQ(get_cpu_target(), cpu_targets().front());
  EXPECT_EQ(running(), get_cpu_target());
}

TEST_F(TargetsTest, EachCanBeForced) {
  const std::vector<std::string> names = cpu_targets();
  for (const std::string& name : names) {
    set_cpu_target(name);
    EXPECT_EQ(get_cpu_target(), name);
    EXPECT_EQ(running(), name);
    // Forcing one does not hide the others.
    EXPECT_EQ(cpu_targets(), names);
  }
}

TEST_F(TargetsTest, AnUnknownNameChangesNothing) {
  const std::string before = get_cpu_target();
  for (const char* name : {"SSE4", "SCALAR", "avx2", "no such target"}) {
    EXPECT_THROW(set_cpu_target(name), std::invalid_argument) << name;
    EXPECT_EQ(get_cpu_target(), before);
    EXPECT_EQ(running(), before);
  }
}

TEST_F(TargetsTest, NoneIsBelowFusedMultiplyAdd) {
  for (const std::string& name : cpu_targets()) {
    EXPECT_NE(name, "SSSE3");
    EXPECT_NE(name, "SSE4");
    EXPECT_NE(name, "EMU128");
    EXPECT_NE(name, "SCALAR");
  }
}

}  // namespace
}  // namespace tilekernels::cpu
#endif
