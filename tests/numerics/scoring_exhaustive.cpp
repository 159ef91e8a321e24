// The elementary functions and activations over all fp32 numbers. Minutes; run by hand.
#include <gtest/gtest.h>

#include "numerics/scoring_sweep.h"

namespace tilekernels::test {
namespace {

TEST(ScoringExhaustive, EveryFp32) {
  for (const Activation& activation : kActivations) check_activation(activation, 0, 1);
  check_sqrt_softplus_derivative(0, 1);
  check_exp_of_minus_half(0, 1);
}

}  // namespace
}  // namespace tilekernels::test
