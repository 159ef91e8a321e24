// How the CUDA kernel of group_count and aux_fi is cut: what its launch and its device text share.
// Device-safe.
#pragma once

#include "numerics/types.h"

namespace tilekernels {

// What a launch does
constexpr int32 kHistogramWhole = 0;   // one block counts all and stores the result
constexpr int32 kHistogramAdd = 1;     // every block adds what it counted to `out`, zeros before
constexpr int32 kHistogramPart = 2;    // every block stores what it counted
constexpr int32 kHistogramFinish = 3;  // sums of such counts become the result

constexpr int32 kHistogramFinishBins = 8;  // of a block that adds counts up

struct HistogramTile {
  int32 phase;     // one of the above
  int32 threads;   // of a block
  int32 max_bins;  // in shared memory; 0: counts go to memory straight away
  int32 loads;     // of a thread, in flight
};

}  // namespace tilekernels
