// How the CUDA kernel of mask_indices_by_tp is cut: what its launch and its device text share.
// Device-safe.
#pragma once

#include "numerics/types.h"

namespace tilekernels {

struct MaskIndicesByTpTile {
  int32 wide;  // 1: a thread takes 16 bytes; 0: one index
};

constexpr int32 kMaskIndicesThreads = 256;

}  // namespace tilekernels
