// How the CUDA kernel of reduce_fused is cut: what its launch and its device text share.
// Device-safe.
#pragma once

#include "ops/moe/reduce_fused/op.h"

namespace tilekernels {

struct ReduceFusedTile {
  int32 wide;  // 1: every lane's part is whole and aligned; 0: element by element
};

constexpr int32 kReduceThreads = 128;

/// Columns of a lane: 16 bytes of x.
constexpr int32 reduce_chunk(const ReduceFusedShape& shape) {
  return 16 / reduced_bytes(shape.x_dtype);
}

/// Warps that a row takes.
constexpr int64 reduce_spans(const ReduceFusedShape& shape) {
  return numerics::ceil_div(shape.hidden, 32 * reduce_chunk(shape));
}

}  // namespace tilekernels
