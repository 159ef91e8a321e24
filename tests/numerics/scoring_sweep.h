// Sweeps of fp32 bit patterns through the elementary functions and activations, against the same
// in double.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "numerics/exact.h"
#include "numerics/scoring.h"

namespace tilekernels::test {

/// The distance of neighbours in fp32 at that magnitude.
inline double ulp_at(double value) {
  const double magnitude = std::fabs(value);
  if (magnitude < 0x1p-126) return 0x1p-149;
  int exponent;
  std::frexp(magnitude, &exponent);
  return std::ldexp(1.0, exponent - 24);
}

/// A function under test.
struct Activation {
  const char* name;
  float (*f)(float);
  double (*exact)(double);
  double max_ulp;     // the stated bound of its error
  double flat_below;  // further out it has one value to the last bit
  double flat_above;
  float descends_within;  // neighbours may descend for |x| up to here, by 2 ulp at most
};

/// So near to 0 each of the functions has one value to the last bit.
constexpr float kFlatWithin = 0x1p-30f;

inline double exact_sqrt_softplus(double x) {
  if (x < -40) return std::exp(x / 2) * (1 - std::exp(x) / 4);
  if (x > 40) return std::sqrt(x);
  return std::sqrt(std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))));
}

inline const Activation kActivations[] = {
    {"exp_f32", numerics::exp_f32, [](double x) { return std::exp(x); }, 0.99, -105, 89, 0},
    {"sqrt_softplus", numerics::sqrt_softplus, exact_sqrt_softplus, 2.41, -212, 3.5e38, 3},
    {"sigmoid", numerics::sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, 2.49, -105, 20,
     0},
};

/// What a sweep saw.
struct Accuracy {
  double max_ulp = 0;
  float at = 0;
  uint64_t checked = 0;
  uint64_t descents = 0;
  double max_descent_ulp = 0;
  float descends_to = 0;  // the largest |x| of them
};

/// The largest error over every `stride`-th number from `first` on, in rising order of the
/// numbers, and where the function falls from one to the next. With a stride above 1, that is 61
/// times as wide where the function is flat.
inline Accuracy sweep_activation(const Activation& of, uint64_t first, uint64_t stride) {
  const double at_zero = of.exact(0);
  const double lowest = of.exact(of.flat_below);
  Accuracy seen;
  float before = -std::numeric_limits<float>::infinity();
  uint64_t step = stride;
  for (uint64_t place = first; place < 0x100000000; place += step) {
    step = stride;
    const auto rising = static_cast<uint32_t>(place);
    const float x = from_bits(rising >> 31 ? rising & 0x7FFFFFFF : ~rising);
    if (!std::isfinite(x)) continue;
    const bool is_zero = std::fabs(x) < kFlatWithin;
    const bool is_low = x < of.flat_below;
    if ((is_zero || is_low || x > 300) && stride > 1) step = 61 * stride;
    const float value = of.f(x);
    if (value < before) {
      ++seen.descents;
      seen.max_descent_ulp =
          std::max(seen.max_descent_ulp, (static_cast<double>(before) - value) / ulp_at(value));
      seen.descends_to = std::max(seen.descends_to, std::fabs(x));
    }
    before = value;
    ++seen.checked;
    const double exact = is_zero  ? at_zero
                         : is_low ? lowest
                                  : of.exact(std::min(static_cast<double>(x), of.flat_above));
    if (exact > static_cast<double>(std::numeric_limits<float>::max())) {
      if (value != std::numeric_limits<float>::infinity()) seen.max_ulp = HUGE_VAL;
      continue;
    }
    const double error = std::fabs(value - exact) / ulp_at(exact);
    if (error > seen.max_ulp || std::isnan(error)) {
      seen.max_ulp = error;
      seen.at = x;
    }
  }
  return seen;
}

inline void check_activation(const Activation& of, uint64_t first, uint64_t stride) {
  const Accuracy seen = sweep_activation(of, first, stride);
  std::printf(
      "  %s: %llu numbers, at most %.4f ulp, at %a; %llu descents of at most %.1f ulp, "
      "up to |x| = %g\n",
      of.name, static_cast<unsigned long long>(seen.checked), seen.max_ulp,
      static_cast<double>(seen.at), static_cast<unsigned long long>(seen.descents),
      seen.max_descent_ulp, static_cast<double>(seen.descends_to));
  EXPECT_GT(seen.checked, 0u);
  EXPECT_LE(seen.max_ulp, of.max_ulp) << of.name << " at " << seen.at;
  EXPECT_LE(seen.descends_to, of.descends_within) << of.name;
  EXPECT_LE(seen.max_descent_ulp, 2.0) << of.name;
}

/// The derivative of √softplus by its value y: every `stride`-th y >= 0.
inline void check_sqrt_softplus_derivative(uint64_t first, uint64_t stride) {
  double max_ulp[2] = {0, 0};  // y² < 1, y² >= 1
  uint64_t step = stride;
  for (uint64_t bits = first; bits < 0x7F800000; bits += step) {
    const float y = from_bits(static_cast<uint32_t>(bits));
    const double wide = y;
    const bool is_simple = y < 0x1p-30f || y > 7;  // y / 2, or 1 / (2 y)
    step = is_simple && stride > 1 ? 61 * stride : stride;
    const double exact = y < 0x1p-30f ? wide / 2
                         : y > 7      ? 1 / (2 * wide)
                                      : -std::expm1(-wide * wide) / (2 * wide);
    const double error = std::fabs(numerics::sqrt_softplus_derivative(y) - exact) / ulp_at(exact);
    double& max = max_ulp[y * y >= 1 ? 1 : 0];
    max = std::max(max, error);
  }
  std::printf("  sqrt_softplus_derivative: at most %.4f ulp for y² < 1, %.4f beyond\n", max_ulp[0],
              max_ulp[1]);
  EXPECT_LE(max_ulp[0], 1.21);
  EXPECT_LE(max_ulp[1], 1.49);
}

/// The same bits as exp_f32 gives.
inline void check_exp_of_minus_half(uint64_t first, uint64_t stride) {
  uint64_t different = 0;
  for (uint64_t bits = first; bits <= numerics::bit_cast<uint32_t>(numerics::kMinusHalfRange);
       bits += stride) {
    const float x = from_bits(static_cast<uint32_t>(bits));
    different += numerics::bit_cast<uint32_t>(numerics::exp_of_minus_half(x)) !=
                 numerics::bit_cast<uint32_t>(numerics::exp_f32(-0.5f * x));
  }
  EXPECT_EQ(different, 0u);
}

}  // namespace tilekernels::test
