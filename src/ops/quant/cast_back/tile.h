// How the CUDA kernel of cast_back is cut: what its launch and its device text share. Device-safe.
#pragma once

#include "ops/quant/cast_back/op.h"

namespace tilekernels {

// A thread takes one chunk of columns, 16 bytes of out, of `rows` rows.
struct CastBackTile {
  int32 threads;
  int32 rows;
  int32 wide;  // 1: every chunk is whole and aligned; 0: element by element
};

/// Elements of a chunk.
constexpr int32 chunk_of(const CastBackShape& shape) {
  return 16 / bytes_per_unit(shape.out_dtype);
}

}  // namespace tilekernels
