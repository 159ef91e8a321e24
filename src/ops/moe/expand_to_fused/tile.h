// How the CUDA kernels of expand_to_fused are cut: what launch and device text share. Device-safe.
#pragma once

#include "numerics/types.h"

namespace tilekernels {

constexpr int32 kExpandSmall = 0;  // few entries: positions look for their own
constexpr int32 kExpandClaim = 1;  // entries claim positions, in scratch memory
constexpr int32 kExpandCopy = 2;   // what was claimed is copied, the rest zeroed

struct ExpandToFusedTile {
  int32 phase;
  int32 unit;     // bytes of a load: 16, 8, 4, 2 or 1
  int32 threads;  // of a block
};

constexpr int32 kExpandThreads = 128;  // at most
constexpr int32 kExpandLoads = 8;      // of a thread in flight, at most

/// Positions that a block looks at: of few entries, for all that it finds; else for free ones, of
/// which there are few. So many that it writes about as much as others: 16 KiB where all are
/// written, and 64 where most are not free.
constexpr int32 expand_rows(int32 phase, int32 row_bytes) {
  const int32 rows = ((phase == kExpandSmall ? 1 : 4) << 14) / row_bytes;
  return numerics::max_of(1, numerics::min_of(rows, 32));
}

/// Loads of a thread in one span of a row, what a block takes.
constexpr int32 expand_loads(int32 row_bytes, const ExpandToFusedTile& tile) {
  const int32 loads = static_cast<int32>(numerics::ceil_div(row_bytes, tile.threads * tile.unit));
  return numerics::max_of(1, numerics::min_of(loads, kExpandLoads));
}
constexpr int32 expand_span(int32 row_bytes, const ExpandToFusedTile& tile) {
  return tile.threads * tile.unit * expand_loads(row_bytes, tile);
}
/// Spans of a row.
constexpr int64 expand_spans(int32 row_bytes, const ExpandToFusedTile& tile) {
  return numerics::ceil_div(row_bytes, expand_span(row_bytes, tile));
}

/// Blocks of words of scaling factors, which come first.
constexpr int64 expand_sf_blocks(int32 sf_words, int64 padded_expanded,
                                 const ExpandToFusedTile& tile) {
  return sf_words != 0 ? numerics::ceil_div(padded_expanded, int64{tile.threads}) : 0;
}

}  // namespace tilekernels
