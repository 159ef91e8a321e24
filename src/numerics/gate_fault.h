// The kinds of fault that gates with a bias and with copies of experts add to those of fault.h.
#pragma once

#include "numerics/fault.h"

namespace tilekernels::numerics {

constexpr int32 kFaultNan = 4;              ///< a bias is NaN
constexpr int32 kFaultCountOutOfRange = 5;  ///< a number of copies is not in 1..those there are

}  // namespace tilekernels::numerics
