// How the CUDA kernels of get_fused_mapping are cut: what launch and device text share.
// Device-safe.
#pragma once

#include "numerics/types.h"

namespace tilekernels {

// Few entries take one launch, in which every block counts all of them, and blocks share the
// positions. Of many, blocks count some parts each, then blocks place a part each.
constexpr int32 kMapAtOnce = 0;
constexpr int32 kMapCount = 1;
constexpr int32 kMapPlace = 2;

struct GetFusedMappingTile {
  int32 phase;
  int32 parts;   // of a block's entries, with counts of their own: what a block places later, or
                 // where it places them itself, what a warp does
  int32 loads;   // of a lane, in flight; all of them where a block sorts
  int32 sorted;  // entries that a block that places them sorts by expert in shared memory at most,
                 // to write those of an expert together; 0: it does not
};

constexpr int32 kMapWarps = 16;  // of a block
/// Shared memory for the counts of all parts of a block, at most where they are more than one; and
/// where the block sorts.
constexpr int32 kMapCountBytes = 32 * 1024;
constexpr int32 kMapSortedCountBytes = 24 * 1024;
constexpr int32 kMostSortedExperts = 512;  // one a thread
constexpr int32 kMostSortedLoads = 8;      // of a lane
/// Sums over the experts of entries in a block that sorts are below 2^13; those of their segments,
/// in alignments, below 2^19.
constexpr int32 kSortedEntryBits = 13;

constexpr int32 kMapGroups = 8;  // of threads, that share the counts of all parts

/// Parts that a block of many entries counts.
constexpr int32 map_counted_parts(int32 num_experts) {
  int32 parts = 4;
  while (parts > 1 && parts * num_experts * 4 > kMapCountBytes) parts /= 2;
  return parts;
}

}  // namespace tilekernels
