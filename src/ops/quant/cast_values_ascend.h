// Casts of a quantized x: its values by column, and what its codes are multiplied by.
#pragma once

#include "ops/quant/cast_tile_ascend.h"

namespace tilekernels::ascend::cast_kernel {

// |code · sf| of rows that share a row of scaling factors, by column the largest bits. Without
// kFirst those of earlier rows count too.
template <int32 kDType, bool kFirst>
TILEKERNELS_VF void value_max(Ub<uint32> out, Ub<uint32> before, Ub<uint8> x, int32 pitch,
                              uint16 rows, Ub<float> table, float first, float inverse,
                              uint32 cols) {
  const Mask all = pset<float>();
  Reg<float> column;
  Reg<float> column_b;
  Reg<float> a;
  Reg<float> b;
  Reg<float> sf_a;
  Reg<float> sf_b;
  Reg<uint32> largest_a;
  Reg<uint32> largest_b;
  Reg<uint32> abs;
  vdup(abs, 0x7FFFFFFFu, all);
  number_columns(column, first, 1.0f, all);
  constexpr int32 kStepBytes = static_cast<int32>(bytes_of(kDType, kPair));
  const auto turns = static_cast<uint16>((cols + kPair - 1) / kPair);
  for (uint16 i = 0; i < turns; ++i) {
    const Mask valid_a = plt<float>(cols);
    const Mask valid_b = plt<float>(cols);
    vadds(column_b, column, static_cast<float>(kF32Lanes), all);
    look_up(sf_a, table, column, inverse, valid_a);
    look_up(sf_b, table, column_b, inverse, valid_b);
    vadds(column, column, static_cast<float>(kPair), all);
    if constexpr (kFirst) {
      vdup(largest_a, 0u, all);
      vdup(largest_b, 0u, all);
    } else {
      vlds(largest_a, before + i * kPair);
      vlds(largest_b, before + (i * kPair + kF32Lanes));
    }
    for (uint16 row = 0; row < rows; ++row) {
      load_pair<kDType>(a, b, x + (row * pitch + i * kStepBytes));
      vmul(a, a, sf_a, valid_a);
      vmul(b, b, sf_b, valid_b);
      vand(as<uint32>(a), as<uint32>(a), abs, valid_a);
      vand(as<uint32>(b), as<uint32>(b), abs, valid_b);
      vmax(largest_a, largest_a, as<uint32>(a), valid_a);
      vmax(largest_b, largest_b, as<uint32>(b), valid_b);
    }
    vsts(out + i * kPair, largest_a, valid_a);
    vsts(out + (i * kPair + kF32Lanes), largest_b, valid_b);
  }
}

// min(sf · inv, FLT_MAX), NaN kept.
TILEKERNELS_CALLEE void fuse_factor(Reg<float>& f, const Reg<float>& sf, const Reg<float>& inverse,
                                    const Mask& valid) {
  Reg<float> most;
  Mask is_more;
  vmul(f, sf, inverse, valid);
  vdup(most, numerics::kFloatMax, valid);
  vcmp<Cmp::kGt>(is_more, f, most, valid);
  vsel(f, most, f, is_more);
}

}  // namespace tilekernels::ascend::cast_kernel
