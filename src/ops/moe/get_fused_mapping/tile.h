// How the CUDA kernels of get_fused_mapping are cut: what launch and device text share.
// Device-safe.
#pragma once

#include "numerics/types.h"

namespace tilekernels {

// Few entries take one launch, in which every block counts all of them, one places them, and the
// others share the padding. Of many, blocks count a part each, then place it.
constexpr int32 kMapAtOnce = 0;
constexpr int32 kMapCount = 1;
constexpr int32 kMapPlace = 2;

struct GetFusedMappingTile {
  int32 phase;
  int32 parts;  // of a block's entries: a warp each, which has counts of its own to place them
  int32 loads;  // of a lane, in flight
};

constexpr int32 kMapWarps = 16;  // of a block
/// Shared memory for the counts of all warps.
constexpr int32 kMapCountBytes = 32 * 1024;

}  // namespace tilekernels
