// cast_back: the contract that its kernels share. Device-safe.
//
// out(m, k) = narrow(canonical(RN(code(m, k) * sf(m / block_rows, k / block_cols)))): one rounding
// of the product to fp32, one of that to out_dtype. Codes widen exactly, e4m3 0x7F and 0xFF to
// NaN; e2m1 has none, and its code 8 is -0. Scaling factors widen exactly, whatever their sign and
// size. Every NaN of the result is canonical: fp32 0x7FFFFFFF, bf16 and f16 0x7FFF.
#pragma once

#include "numerics/kernel.h"
#include "numerics/types.h"
#include "ops/quant/common.h"

namespace tilekernels {

struct CastBackArgs {
  const uint8* x;  // codes: num_tokens rows of hidden e4m3 bytes, or of hidden / 2 e2m1 pairs
  int64 x_stride;  // bytes from one row to the next
  SfRead x_sf;     // ceil(num_tokens / block_rows) x ceil(hidden / block_cols)
  void* out;       // num_tokens x hidden, contiguous
  int64 num_tokens;
};
static_assert(sizeof(CastBackArgs) == 64);

struct CastBackShape {
  int32 x_dtype;    // kDTypeE4M3 or kDTypeE2M1x2
  int32 sf_kind;    // kSfF32, kSfUE8M0 or kSfE4M3
  int32 out_dtype;  // kDTypeBF16, kDTypeF16 or kDTypeF32
  int32 block_rows;
  int32 block_cols;
  int32 hidden;
};

using CastBackKernel = Kernel<CastBackArgs, CastBackShape>;
namespace reference {
CastBackKernel cast_back;
}
namespace cpu {
CastBackKernel cast_back;
}
namespace cuda {
CastBackKernel cast_back;
}
namespace ascend {
CastBackKernel cast_back;
}

}  // namespace tilekernels
