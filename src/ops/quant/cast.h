// The contract that the kernels of per_token_cast and per_block_cast share. Device-safe.
//
// The scaling block (m, k) covers block_rows x block_cols elements, cut at the edges. Plain input:
//   amax  integer maximum of the elements' absolute bits, so that NaN and Inf win
//   scale compute_scale(amax), or under kCastGivenSf the given sf and 1 / sf
//   codes of x · inv
// Quantized input, element x under the input scale s: amax over x · s; codes of
// x · fused_factor(s, inv).
// Codes round once, to nearest even, and saturate. A group whose scale is NaN has e4m3 codes 0x7F
// and e2m1 codes 0. Any other NaN product, possible under given scales only, gives e4m3 0x7F and
// e2m1 7 with the sign of x. Scaling factors of rows and columns beyond the blocks are padding: 0.
#pragma once

#include "numerics/kernel.h"
#include "ops/quant/common.h"

namespace tilekernels {

// What a cast computes
constexpr int32 kCastAll = 0;      // codes and their scaling factors
constexpr int32 kCastSfOnly = 1;   // the scaling factors alone
constexpr int32 kCastGivenSf = 2;  // the codes under given scaling factors

struct CastArgs {
  const uint8* x;       // num_tokens rows of hidden elements
  int64 x_pitch_bytes;  // from one row of x to the next
  SfRead x_sf;          // of a quantized x
  uint8* out;           // num_tokens rows of codes, contiguous
  SfWrite out_sf;       // unless kCastGivenSf
  SfRead given_sf;      // under kCastGivenSf
  int64 num_tokens;
  float amax_clamp;
};
static_assert(sizeof(CastArgs) == 152);

struct CastShape {
  int32 mode;
  int32 x_dtype;    // kDTypeF32, F16, BF16, or quantized: E4M3, E2M1x2
  int32 fmt;        // kDTypeE4M3 or E2M1x2
  int32 sf_kind;    // of out_sf, or of given_sf
  int32 x_sf_kind;  // of a quantized x, else 0
  int32 hidden;     // even for e2m1
  int32 block_rows;
  int32 block_cols;    // a multiple of 16
  int32 x_block_rows;  // of a quantized x, else 0
  int32 x_block_cols;  // divides block_cols or is a multiple of it
};

constexpr int64 element_bits(int32 dtype) {
  return 8 * bytes_per_unit(dtype) / elements_per_unit(dtype);
}

constexpr int64 row_blocks(const CastArgs& args, const CastShape& shape) {
  return numerics::ceil_div(args.num_tokens, shape.block_rows);
}
constexpr int64 col_blocks(const CastShape& shape) {
  return numerics::ceil_div(shape.hidden, shape.block_cols);
}

using CastKernel = Kernel<CastArgs, CastShape>;

// Both ops are this one kernel.
namespace reference {
CastKernel cast_blocks;
}
namespace cpu {
CastKernel cast_blocks;
}
namespace cuda {
struct Text;
void cast_blocks(const CastArgs& args, const CastShape& shape, const Launch& launch,
                 const Text& text);
}  // namespace cuda
namespace ascend {
struct Text;
void cast_blocks(const CastArgs& args, const CastShape& shape, const Launch& launch,
                 const Text& text);
}  // namespace ascend

}  // namespace tilekernels
