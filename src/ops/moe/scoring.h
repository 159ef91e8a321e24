// The numbers of ScoringFunc in Shapes of gates. Device-safe.
#pragma once

#include "numerics/types.h"

namespace tilekernels {

constexpr int32 kScoringSqrtSoftplus = 0;
constexpr int32 kScoringSigmoid = 1;
constexpr int32 kScoringSoftmax = 2;

}  // namespace tilekernels
