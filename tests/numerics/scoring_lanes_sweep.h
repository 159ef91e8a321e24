// Checks of the activations' lane twins against the scalar functions, on every target.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "numerics/exact.h"
#include "numerics/lanes_sweep.h"
#include "numerics/scoring.h"
#include "numerics/scoring_lanes.h"

namespace tilekernels::test {

struct LaneTwin {
  const char* name;
  LaneFunction lanes;
  float (*scalar)(float);
};

inline const LaneTwin kLaneTwins[] = {
    {"exp_f32", LaneFunction::kExp, numerics::exp_f32},
    {"sqrt_softplus", LaneFunction::kSqrtSoftplus, numerics::sqrt_softplus},
    {"sqrt_softplus_derivative", LaneFunction::kSqrtSoftplusDerivative,
     numerics::sqrt_softplus_derivative},
    {"sigmoid", LaneFunction::kSigmoid, numerics::sigmoid},
};

/// All functions of the numbers x, as many as fill vectors. Any NaN equals any other.
template <class Activate>
void check_activation_lanes(const std::vector<float>& x, Activate activate) {
  std::vector<float> expected(x.size());
  std::vector<float> out(x.size());
  for (const LaneTwin& twin : kLaneTwins) {
    for (size_t i = 0; i < x.size(); ++i) expected[i] = twin.scalar(x[i]);
    for_each_target([&](bool short_vectors) {
      activate(twin.lanes, short_vectors, x.data(), out.data(), x.size());
      for (size_t i = 0; i < x.size(); ++i) {
        if (to_bits(out[i]) == to_bits(expected[i])) continue;
        if (std::isnan(out[i]) && std::isnan(expected[i])) continue;
        FAIL() << twin.name << " of " << x[i] << std::hex << ", 0x" << to_bits(x[i]) << ": got 0x"
               << to_bits(out[i]) << ", expected 0x" << to_bits(expected[i]);
      }
    });
    if (::testing::Test::HasFatalFailure()) return;
  }
}

/// Every `stride`-th pattern of both signs, and NaN too.
template <class Activate>
void sweep_activation_lanes(uint64_t stride, Activate activate) {
  std::vector<float> x(size_t{1} << 16);
  for (uint64_t bits = 0; bits < 0x100000000; bits += stride * x.size()) {
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = from_bits(static_cast<uint32_t>(bits + i * stride));  // past the end it begins anew
    }
    check_activation_lanes(x, activate);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace tilekernels::test
