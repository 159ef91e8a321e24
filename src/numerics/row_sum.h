// The order in which a row is summed on every backend.
//
// Partial sum j takes the elements of columns j, j + 1024, … in rising order, from +0; then
// neighbours are added pairwise, ten levels, and +0 at last. A partial sum without elements counts
// as zero of either sign, so a backend may leave it out.
#pragma once

#include "numerics/types.h"

namespace tilekernels::numerics {

constexpr int32 kRowPartials = 1024;

/// The sum of kRowPartials partial sums, which are overwritten.
inline float sum_partials(float* partials) {
  for (int32 num = kRowPartials / 2; num > 0; num /= 2) {
    for (int32 k = 0; k < num; ++k) partials[k] = partials[2 * k] + partials[2 * k + 1];
  }
  return partials[0] + 0.0f;
}

}  // namespace tilekernels::numerics
