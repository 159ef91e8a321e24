// Settings: defaults, limits, the environment, and calls from many threads.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tilekernels/config.h"

namespace tilekernels {
namespace {

class Settings : public testing::Test {
 protected:
  void SetUp() override { reset_runtime_config(); }
  void TearDown() override { reset_runtime_config(); }
};

TEST_F(Settings, ClampDefaultsAreUpstreams) {
  EXPECT_EQ(get_amax_clamp_for_quant(DType::kE4M3, false), 1e-4f);
  EXPECT_EQ(get_amax_clamp_for_quant(DType::kE4M3, true), 0.875f);
  EXPECT_EQ(get_amax_clamp_for_quant(DType::kE2M1x2, false), 6 * 0x1p-126f);
  EXPECT_EQ(get_amax_clamp_for_quant(DType::kE2M1x2, true), 0.01171875f);
}

TEST_F(Settings, TokenAlignmentAndDeterminism) {
  EXPECT_EQ(get_token_alignment(), 128);
  set_token_alignment(16);
  EXPECT_EQ(get_token_alignment(), 16);
  for (int bad : {0, -1, (1 << 20) + 1}) {
    EXPECT_THROW(set_token_alignment(bad), std::invalid_argument) << bad;
  }
  EXPECT_FALSE(get_deterministic_algorithms());
  use_deterministic_algorithms(true);
  EXPECT_TRUE(get_deterministic_algorithms());
  reset_runtime_config();
  EXPECT_EQ(get_token_alignment(), 128);
  EXPECT_FALSE(get_deterministic_algorithms());
}

TEST_F(Settings, FactsOfTheVectorCore) {
  const Device npu{DeviceType::kAscend, 0};
  EXPECT_EQ(get_device_num_sms(npu), 32);
  EXPECT_EQ(get_num_sms(npu), 32);
  EXPECT_EQ(get_num_ai_cores(npu), 32);
  EXPECT_EQ(get_num_cube_cores(npu), 32);
  EXPECT_EQ(get_num_vec_cores(npu), 64);
  EXPECT_EQ(get_max_ub_per_vector_core(), 216 * 1024);
  EXPECT_EQ(get_max_ub_per_vector_core(false), 248 * 1024);
  EXPECT_THROW(get_max_smem_per_sm(npu), std::invalid_argument);
  EXPECT_THROW(get_num_sms(Device{DeviceType::kCpu, 0}), std::invalid_argument);
  EXPECT_EQ(get_device(), is_ascend() ? DeviceType::kAscend : DeviceType::kCuda);
}

TEST_F(Settings, ClampKeepsTheScaleNormal) {
  const float least = 448 * 0x1p-126f;
  EXPECT_NO_THROW(set_amax_clamp_for_quant(DType::kE4M3, false, least));
  EXPECT_EQ(get_amax_clamp_for_quant(DType::kE4M3, false), least);
  for (float bad : {std::nextafter(least, 0.0f), 0.0f, -1.0f, INFINITY, NAN}) {
    EXPECT_THROW(set_amax_clamp_for_quant(DType::kE4M3, false, bad), std::invalid_argument) << bad;
  }
  EXPECT_THROW(set_amax_clamp_for_quant(DType::kE4M3, true, 0.8f), std::invalid_argument);
  EXPECT_THROW(set_amax_clamp_for_quant(DType::kBF16, false, 1.0f), std::invalid_argument);
  EXPECT_EQ(get_amax_clamp_for_quant(DType::kE4M3, false), least);
  reset_runtime_config();
  EXPECT_EQ(get_amax_clamp_for_quant(DType::kE4M3, false), 1e-4f);
}

TEST_F(Settings, ThreadsHaveLimits) {
  EXPECT_GE(get_num_threads(), 1);
  set_num_threads(5);
  EXPECT_EQ(get_num_threads(), 5);
  EXPECT_THROW(set_num_threads(-1), std::invalid_argument);
  EXPECT_THROW(set_num_threads(1025), std::invalid_argument);
  EXPECT_EQ(get_num_threads(), 5);
}

TEST_F(Settings, CpuTargetsAreNamed) {
  const std::vector<std::string> targets = cpu_targets();
  for (const std::string& target : targets) {
    set_cpu_target(target);
    EXPECT_EQ(get_cpu_target(), target);
  }
  EXPECT_THROW(set_cpu_target("AVX1"), std::invalid_argument);
  set_cpu_target("");
  EXPECT_EQ(get_cpu_target(), targets.empty() ? "" : targets.front());
}

TEST_F(Settings, AreSafeFromManyThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < 1000; ++i) {
        set_num_threads(1 + t);
        set_check_data(i % 2 == 0);
        set_backend(i % 2 == 0 ? std::optional(Backend::kReference) : std::nullopt);
        set_amax_clamp_for_quant(DType::kE4M3, false, 1.0f + static_cast<float>(t));
        EXPECT_GE(get_num_threads(), 1);
        EXPECT_GE(get_amax_clamp_for_quant(DType::kE4M3, false), 1e-4f);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tilekernels
