// How the CUDA kernel of the casts is cut: what its launch and its device text share. Device-safe.
#pragma once

#include "ops/quant/cast.h"

namespace tilekernels {

// A thread takes a chunk of columns of `rows` rows: of one scaling block, or, when these have one
// row, of as many. A team is the threads that share scaling blocks.
struct CastTile {
  int32 threads;  // of a block, whole teams
  int32 rows;
  int32 wide;        // 1: every chunk is whole and aligned; 0: element by element
  int32 pack;        // scaling factors in a word of out_sf, along the columns
  int32 min_blocks;  // that a multiprocessor has room for: a bound on registers
};

/// Elements of a chunk: 16 bytes of x, of e2m1 8.
constexpr int32 chunk_of(int32 x_dtype) {
  return x_dtype == numerics::kDTypeE2M1x2 ? 16 : 16 / bytes_per_unit(x_dtype);
}

/// From one row of a thread to its next.
constexpr int32 row_step(const CastShape& shape, const CastTile& tile) {
  return shape.block_rows == 1 ? 1 : shape.block_rows / tile.rows;
}

/// Threads of a team, a power of two.
constexpr int32 team_of(const CastShape& shape, const CastTile& tile) {
  return shape.block_cols / chunk_of(shape.x_dtype) * row_step(shape, tile);
}

}  // namespace tilekernels
