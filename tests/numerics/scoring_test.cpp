// Elementary functions, activations, random numbers and the order of row sums.
#include "numerics/scoring.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "numerics/philox.h"
#include "numerics/row_sum.h"
#include "numerics/scoring_sweep.h"
#include "sanitized.h"

namespace tilekernels::test {
namespace {

using namespace numerics;  // NOLINT: the functions under test

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(Scoring, ErrorOfEvery64thFp32) {
  for (const Activation& activation : kActivations) {
    check_activation(activation, 0, sweep_step(64));
  }
  check_sqrt_softplus_derivative(0, sweep_step(64));
  check_exp_of_minus_half(0, sweep_step(64));
}

TEST(Scoring, ErrorOfOddFp32) {
  for (const Activation& activation : kActivations) check_activation(activation, 0x1B5, 8191);
  check_sqrt_softplus_derivative(0x1B5, 8191);
  check_exp_of_minus_half(0x1B5, 8191);
}

TEST(Scoring, ExpAtItsEnds) {
  EXPECT_EQ(exp_f32(0.0f), 1.0f);
  EXPECT_EQ(exp_f32(-0.0f), 1.0f);
  EXPECT_EQ(exp_f32(kInf), kInf);
  EXPECT_EQ(to_bits(exp_f32(-kInf)), 0u);
  EXPECT_EQ(exp_f32(std::numeric_limits<float>::max()), kInf);
  EXPECT_EQ(to_bits(exp_f32(-std::numeric_limits<float>::max())), 0u);
  EXPECT_EQ(exp_f32(from_bits(1)), 1.0f);
  EXPECT_EQ(exp_f32(from_bits(0x42B17218)), kInf);  // 88.72284, the first
  EXPECT_LT(exp_f32(from_bits(0x42B17217)), kInf);  // 88.72283
  EXPECT_EQ(exp_f32(-103.0f), 0x1p-149f);           // subnormal results are kept
  EXPECT_EQ(to_bits(exp_f32(-104.0f)), 0u);
  EXPECT_GT(exp_f32(-87.5f), 0.0f);
  EXPECT_TRUE(std::isnan(exp_f32(kNan)));
  EXPECT_TRUE(std::isnan(exp_f32(-kNan)));
}

TEST(Scoring, SqrtSoftplusAtItsEnds) {
  EXPECT_EQ(sqrt_softplus(kInf), kInf);
  EXPECT_EQ(to_bits(sqrt_softplus(-kInf)), 0u);
  EXPECT_EQ(sqrt_softplus(0.0f), sqrt_softplus(-0.0f));
  EXPECT_EQ(sqrt_softplus(0.0f), 0.8325546383857727f);  // √(ln 2)
  EXPECT_EQ(sqrt_softplus(std::numeric_limits<float>::max()),
            std::sqrt(std::numeric_limits<float>::max()));
  // The tail, where 1 + e^x is 1 and e^x has gone: e^(x/2).
  EXPECT_EQ(sqrt_softplus(-104.0f), exp_f32(-52.0f));
  EXPECT_EQ(sqrt_softplus(-200.0f), exp_f32(-100.0f));
  EXPECT_GT(sqrt_softplus(-206.0f), 0.0f);
  EXPECT_TRUE(std::isnan(sqrt_softplus(kNan)));
}

TEST(Scoring, SigmoidAtItsEnds) {
  EXPECT_EQ(sigmoid(0.0f), 0.5f);
  EXPECT_EQ(sigmoid(-0.0f), 0.5f);
  EXPECT_EQ(sigmoid(kInf), 1.0f);
  EXPECT_EQ(to_bits(sigmoid(-kInf)), 0u);
  EXPECT_EQ(sigmoid(-100.0f), exp_f32(-100.0f));  // 1 / (1 + e^100) would be 0
  EXPECT_GT(sigmoid(-88.8f), 0.0f);
  EXPECT_TRUE(std::isnan(sigmoid(kNan)));
}

TEST(Scoring, DerivativeAtItsEnds) {
  EXPECT_EQ(to_bits(sqrt_softplus_derivative(0.0f)), 0u);
  EXPECT_EQ(sqrt_softplus_derivative(kInf), 0.0f);
  EXPECT_EQ(sqrt_softplus_derivative(0x1p-100f), 0x1p-101f);
  EXPECT_TRUE(std::isnan(sqrt_softplus_derivative(kNan)));
}

TEST(Philox, PublishedWords) {
  const PhiloxWords zero = philox(0, 0, 0);
  EXPECT_EQ(zero.word[0], 0x6627E8D5u);
  EXPECT_EQ(zero.word[1], 0xE169C58Du);
  EXPECT_EQ(zero.word[2], 0xBC57AC4Cu);
  EXPECT_EQ(zero.word[3], 0x9B00DBD8u);
  const PhiloxWords ones = philox(~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0});
  EXPECT_EQ(ones.word[0], 0x408F276Du);
  EXPECT_EQ(ones.word[1], 0x41C83B0Eu);
  EXPECT_EQ(ones.word[2], 0xA20BC7C6u);
  EXPECT_EQ(ones.word[3], 0x6D5451FDu);
}

TEST(Philox, UniformIsAboveZeroAndAtMostOne) {
  EXPECT_EQ(uniform(0), 0x1p-33f);
  EXPECT_EQ(uniform(~0u), 1.0f);
  EXPECT_EQ(uniform(0x80000000u), 0.5f);
}

TEST(RowSum, AddsNeighboursFirst) {
  std::vector<float> partials(kRowPartials, 0.0f);
  partials[0] = 1.0f;
  partials[1] = 0x1p-24f;  // lost when added to 1 alone, and so is its twin
  partials[2] = 0x1p-24f;
  partials[3] = 0x1p-24f;
  EXPECT_EQ(sum_partials(partials.data()), 1.0f + 0x1p-23f);
  std::vector<float> negative(kRowPartials, -0.0f);
  EXPECT_EQ(to_bits(sum_partials(negative.data())), 0u);
}

}  // namespace
}  // namespace tilekernels::test
