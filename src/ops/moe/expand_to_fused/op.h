// expand_to_fused: the contract that its kernels share. Device-safe.
//
// Position p of the output holds the row of the token that a token_topk_to_pos of p belongs to; of
// several, the last one in order of token * num_topk + k. It is zero if there is none, or if
// pos_to_expert[p] is negative. A negative entry of token_topk_to_pos is none; one that is not
// below num_expanded is a fault of its token (kFaultPositionOutOfRange) and counts as none.
// Scaling factors follow their rows word by word; the padding of their buffer is zero.
#pragma once

#include "numerics/kernel.h"
#include "numerics/types.h"
#include "ops/moe/common.h"

namespace tilekernels {

// In the error word
constexpr int32 kExpandToFusedId = 9;
constexpr int32 kExpandToFusedWithSfId = 13;

/// A matrix of words of scaling factors: bytes from one row or column to the next.
struct ExpandSf {
  uint8* base;
  int64 row_stride;
  int64 col_stride;
};

struct ExpandToFusedArgs {
  const uint8* x;                  // num_tokens rows of row_bytes
  int64 x_stride;                  // bytes from one row to the next
  const int32* token_topk_to_pos;  // num_tokens x num_topk
  const int32* pos_to_expert;      // num_expanded
  uint8* out;                      // num_expanded x row_bytes, contiguous
  ExpandSf sf;                     // num_tokens rows, not written
  ExpandSf out_sf;                 // padded_expanded rows
  int64 num_tokens;
  int64 num_expanded;
  int64 padded_expanded;  // num_expanded or, of scaling factors in columns, their pitch
  int32* owner;           // scratch of the compiled kernels: by position, the entry it belongs to
  uint64* fault;
};
static_assert(sizeof(ExpandToFusedArgs) == 128);

struct ExpandToFusedShape {
  int32 row_bytes;
  int32 num_topk;
  int32 sf_words;       // of a row; 0: no scaling factors
  int32 sf_word_bytes;  // 1, 2 or 4
  int32 sf_by_col;      // 1: out_sf lies in columns
};

constexpr int32 expand_op_id(const ExpandToFusedShape& shape) {
  return shape.sf_words != 0 ? kExpandToFusedWithSfId : kExpandToFusedId;
}

using ExpandToFusedKernel = Kernel<ExpandToFusedArgs, ExpandToFusedShape>;
namespace reference {
ExpandToFusedKernel expand_to_fused;
}
namespace cpu {
ExpandToFusedKernel expand_to_fused;
}
namespace cuda {
ExpandToFusedKernel expand_to_fused;
}
namespace ascend {
ExpandToFusedKernel expand_to_fused;
}

}  // namespace tilekernels
