// How the CUDA kernels of expand_to_fused are cut: what launch and device text share. Device-safe.
#pragma once

#include "numerics/types.h"

namespace tilekernels {

constexpr int32 kExpandSmall = 0;  // few entries: every position looks for its own
constexpr int32 kExpandClaim = 1;  // entries claim positions, in scratch memory
constexpr int32 kExpandCopy = 2;   // what was claimed is copied, the rest zeroed
constexpr int32 kExpandSf = 3;     // the same for words of scaling factors

struct ExpandToFusedTile {
  int32 phase;
  int32 unit;  // bytes of a load: 16, 8, 4, 2 or 1
};

constexpr int32 kExpandThreads = 128;
constexpr int32 kExpandLoads = 4;      // of a lane; a warp takes so many units of a row
constexpr int32 kExpandZeroRows = 16;  // positions that a warp looks at

/// Bytes of a row that a warp takes.
constexpr int32 expand_span(int32 unit) { return 32 * kExpandLoads * unit; }

/// Spans of a row; of a long row several rows' worth of blocks.
constexpr int64 expand_spans(int64 row_bytes, int32 unit) {
  return numerics::ceil_div(row_bytes, expand_span(unit));
}

}  // namespace tilekernels
