// per_token_cast and per_block_cast: block by block, element by element.
#include "ops/quant/cast.h"

namespace tilekernels::reference {
namespace {

using numerics::is_nan;
using numerics::Scale;

float load(int32 dtype, const uint8* row, int64 col) {
  switch (dtype) {
    case numerics::kDTypeF32:
      return reinterpret_cast<const float*>(row)[col];
    case numerics::kDTypeF16:
      return numerics::load_f16(reinterpret_cast<const uint16*>(row)[col]);
    case numerics::kDTypeBF16:
      return numerics::load_bf16(reinterpret_cast<const uint16*>(row)[col]);
    case numerics::kDTypeE4M3:
      return numerics::e4m3_to_f32(row[col]);
    default: {
      const uint8 pair = row[col / 2];
      return numerics::e2m1_to_f32(col % 2 == 0 ? numerics::even_e2m1(pair)
                                                : numerics::odd_e2m1(pair));
    }
  }
}

uint8 e2m1_code(float x, float factor, float sf) {
  return is_nan(sf) ? uint8{0} : numerics::quantize_e2m1(x, x * factor);
}

uint8 e4m3_code(float x, float factor, float sf) {
  return is_nan(sf) ? uint8{0x7F} : numerics::quantize_e4m3(x, factor);
}

// One scaling block.
class Block {
 public:
  Block(const CastArgs& args, const CastShape& shape, int64 m, int64 k)
      : args_(args),
        shape_(shape),
        row_begin_(m * shape.block_rows),
        row_end_(numerics::min_of(row_begin_ + shape.block_rows, args.num_tokens)),
        col_begin_(k * shape.block_cols),
        col_end_(numerics::min_of(col_begin_ + shape.block_cols, int64{shape.hidden})) {}

  Scale scale() const {
    uint32 amax_bits = 0;
    for (int64 row = row_begin_; row < row_end_; ++row) {
      for (int64 col = col_begin_; col < col_end_; ++col) {
        const float x = element(row, col);
        const float v = is_quantized(shape_.x_dtype) ? x * x_scale(row, col) : x;
        amax_bits = numerics::amax_update(amax_bits, v);
      }
    }
    return numerics::compute_scale(shape_.sf_kind, is_e2m1(), amax_bits, args_.amax_clamp);
  }

  void write_codes(const Scale& scale) const {
    const int64 pitch = shape_.hidden / elements_per_unit(shape_.fmt);
    for (int64 row = row_begin_; row < row_end_; ++row) {
      uint8* out = args_.out + row * pitch;
      for (int64 col = col_begin_; col < col_end_; ++col) {
        const float x = element(row, col);
        const float factor = is_quantized(shape_.x_dtype)
                                 ? numerics::fused_factor(x_scale(row, col), scale.inv)
                                 : scale.inv;
        if (!is_e2m1()) {
          out[col] = e4m3_code(x, factor, scale.sf);
        } else {
          const uint8 code = e2m1_code(x, factor, scale.sf);
          uint8& pair = out[col / 2];
          pair = col % 2 == 0 ? code : numerics::pack_e2m1(pair, code);
        }
      }
    }
  }

 private:
  bool is_e2m1() const { return shape_.fmt == numerics::kDTypeE2M1x2; }

  float element(int64 row, int64 col) const {
    return load(shape_.x_dtype, args_.x + row * args_.x_pitch_bytes, col);
  }

  float x_scale(int64 row, int64 col) const {
    return load_scale(shape_.x_sf_kind,
                      args_.x_sf.at(row / shape_.x_block_rows, col / shape_.x_block_cols));
  }

  const CastArgs& args_;
  const CastShape& shape_;
  const int64 row_begin_, row_end_;
  const int64 col_begin_, col_end_;
};

}  // namespace

void cast_blocks(const CastArgs& args, const CastShape& shape, const Launch&) {
  const int64 rows = row_blocks(args, shape);
  const int64 cols = col_blocks(shape);
  for (int64 m = 0; m < rows; ++m) {
    for (int64 k = 0; k < cols; ++k) {
      const Block block(args, shape, m, k);
      if (shape.mode == kCastGivenSf) {
        const float sf = load_scale(shape.sf_kind, args.given_sf.at(m, k));
        block.write_codes({sf, numerics::inverse_of_scale(sf), 0});
        continue;
      }
      const Scale scale = block.scale();
      store_scale(shape.sf_kind, scale, args.out_sf.at(m, k));
      if (shape.mode == kCastAll) block.write_codes(scale);
    }
  }
  if (shape.mode == kCastGivenSf) return;
  for (int64 m = 0; m < args.out_sf.padded_m; ++m) {
    for (int64 k = m < rows ? cols : 0; k < args.out_sf.padded_k; ++k) {
      store_zero_scale(shape.sf_kind, args.out_sf.at(m, k));
    }
  }
}

}  // namespace tilekernels::reference
