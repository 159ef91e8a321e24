// The kernels of the device bench through the real compiler.
#include <gtest/gtest.h>

#include "cases/cuda/device_bench.h"
#include "runtime/cuda/compile.h"

namespace tilekernels::cuda {

extern const Text bench_copy_text;
extern const Text bench_flush_text;
extern const Text bench_empty_text;

namespace {

void expect_no_stack(const Text& text, const std::vector<int32_t>& shape) {
  const KernelResources resources = compile({&text, shape, {}, "sm_90a", false}, nvrtc()).resources;
  EXPECT_GT(resources.registers, 0);
  EXPECT_EQ(resources.spill_bytes, 0);
  EXPECT_EQ(resources.stack_bytes, 0);
}

TEST(BenchKernels, UseNoStack) {
  if (!nvrtc_problem().empty()) GTEST_SKIP() << "absent: " << nvrtc_problem();
  for (const cases::CopyTile& tile : cases::DeviceBench::tiles()) {
    SCOPED_TRACE(cases::text(tile));
    expect_no_stack(bench_copy_text, {tile.threads, tile.words, tile.streaming ? 1 : 0,
                                      tile.blocks_per_sm > 0 ? 1 : 0});
  }
  expect_no_stack(bench_flush_text, {512, 8});
  expect_no_stack(bench_empty_text, {32});
}

}  // namespace
}  // namespace tilekernels::cuda
