// cast_back: one element at a time.
#include "ops/quant/cast_back/op.h"

namespace tilekernels::reference {
namespace {

float widen_code(int32 x_dtype, const uint8* row, int64 k) {
  if (x_dtype == numerics::kDTypeE4M3) return numerics::e4m3_to_f32(row[k]);
  const uint8 pair = row[k / 2];
  return numerics::e2m1_to_f32(k % 2 == 0 ? numerics::even_e2m1(pair) : numerics::odd_e2m1(pair));
}

void store(int32 out_dtype, void* out, int64 i, float value) {
  if (out_dtype == numerics::kDTypeF32) {
    static_cast<float*>(out)[i] = numerics::canonical(value);
  } else if (out_dtype == numerics::kDTypeF16) {
    static_cast<uint16*>(out)[i] = numerics::f32_to_f16(value);
  } else {
    static_cast<uint16*>(out)[i] = numerics::f32_to_bf16(value);
  }
}

}  // namespace

void cast_back(const CastBackArgs& args, const CastBackShape& shape, const Launch&) {
  for (int64 m = 0; m < args.num_tokens; ++m) {
    const uint8* row = args.x + m * args.x_stride;
    for (int64 k = 0; k < shape.hidden; ++k) {
      const uint8* sf = args.x_sf.at(m / shape.block_rows, k / shape.block_cols);
      const float value = widen_code(shape.x_dtype, row, k) * load_scale(shape.sf_kind, sf);
      store(shape.out_dtype, args.out, m * shape.hidden + k, value);
    }
  }
}

}  // namespace tilekernels::reference
