// reduce_fused: the contract that its kernels share. Device-safe.
//
// acc = +0; for k = 0, 1, … with a position p = token_topk_to_pos[token, k] >= 0:
// acc = fma(x[p], c, acc) in fp32, c = topk_weights[token, k], or 1, and with x_sf
// c = RN(c * x_sf[p]). Then acc = RN(acc * sf) if sf is given, and one rounding to out's dtype;
// e4m3 saturates. NaN of results is canonical. A position that is not below num_expanded is a fault
// of its token (kFaultPositionOutOfRange) and counts as none.
#pragma once

#include "numerics/formats.h"
#include "numerics/ids.h"
#include "numerics/kernel.h"
#include "numerics/types.h"
#include "ops/moe/common.h"

namespace tilekernels {

constexpr int32 kReduceFusedId = 10;  // in the error word

struct ReduceFusedArgs {
  const uint8* x;                  // num_expanded x hidden
  int64 x_stride;                  // bytes from one row to the next
  const float* x_sf;               // num_expanded, or null
  const float* topk_weights;       // num_tokens x num_topk, or null
  const int32* token_topk_to_pos;  // num_tokens x num_topk
  const float* sf;                 // one, or null
  uint8* out;                      // num_tokens x hidden, contiguous
  int64 num_tokens;
  int64 num_expanded;
  uint64* fault;
};
static_assert(sizeof(ReduceFusedArgs) == 80);

struct ReduceFusedShape {
  int32 x_dtype;    // kDTypeF32, kDTypeBF16, kDTypeF16 or kDTypeE4M3
  int32 out_dtype;  // the same, or kDTypeE4M3
  int32 has_weights;
  int32 has_x_sf;
  int32 has_sf;
  int32 hidden;
  int32 num_topk;
};

/// Bytes of an element of x or out.
constexpr int32 reduced_bytes(int32 dtype) {
  return dtype == numerics::kDTypeF32 ? 4 : dtype == numerics::kDTypeE4M3 ? 1 : 2;
}

using ReduceFusedKernel = Kernel<ReduceFusedArgs, ReduceFusedShape>;
namespace reference {
ReduceFusedKernel reduce_fused;
}
namespace cpu {
ReduceFusedKernel reduce_fused;
}
namespace cuda {
ReduceFusedKernel reduce_fused;
}
namespace ascend {
ReduceFusedKernel reduce_fused;
}

}  // namespace tilekernels
