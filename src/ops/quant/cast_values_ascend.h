// Casts of a quantized x: the magnitudes of its values, and what its codes are multiplied by.
#pragma once

#include "ops/quant/cast_tile_ascend.h"

namespace tilekernels::ascend::cast_kernel {

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

// All e4m3 codes as bf16.
TILEKERNELS_VF void make_value_table(Ub<uint16> table) {
  const Mask all = pset<float>();
  Reg<int32> code;
  Reg<float> value;
  Reg<BF16> half;
  for (uint16 i = 0; i < 4; ++i) {
    vci(code, 0);
    vadds(code, code, i * kF32Lanes, all);
    vcvt<0, Round::kNone, Saturate::kNo>(value, as<E4M3>(code), pset<uint8>());
    vcvt<0, Round::kRint, Saturate::kNo>(half, value, all);
    vsts_pack<StoreDist::kPack>(table + i * kF32Lanes, as<uint32>(half), all);
  }
}

// ------------------------------ scaling factors that change at multiples of 16 columns

// Codes of 128 columns without their sign: those of e4m3, or the bits of the values as bf16.
template <int32 kDType>
TILEKERNELS_CALLEE void load_magnitudes(Reg<uint16>& code, Ub<uint8> from, const Reg<uint16>& abs,
                                        const Mask& valid) {
  if constexpr (kDType == kDTypeE4M3) {
    vlds<Dist::kUnpack>(as<uint8>(code), from);
  } else {
    Reg<E2M1x2> codes;
    vlds<Dist::kUnpack4>(codes, as_ub<E2M1x2>(from));
    vcvt<0, Round::kNone, Saturate::kNo>(as<BF16>(code), codes, pset<uint8>());
  }
  vand(code, code, abs, valid);
}

template <int32 kDType>
TILEKERNELS_CALLEE void cells_of_rows(Ub<uint16> cells, Ub<uint8> x, int32 pitch, uint16 rows,
                                      const Reg<uint16>& abs, const Mask& valid, const Mask& all) {
  Reg<uint16> largest;
  load_magnitudes<kDType>(largest, x, abs, valid);
  for (uint16 row = 1; row < rows; ++row) {
    Reg<uint16> code;
    load_magnitudes<kDType>(code, x + row * pitch, abs, valid);
    vmax(largest, largest, code, all);
  }
  vcgmax(largest, largest, all);
  vstu(cells, largest, kPair / 16);
}

// The largest magnitude of a code orders as that of its value does, under whatever factor. So a
// cell of 16 columns needs one.
template <int32 kDType>
TILEKERNELS_VF void code_max(Ub<uint16> cells, Ub<uint8> x, int32 pitch, uint16 rows, uint32 cols) {
  constexpr uint16 kAbs = kDType == kDTypeE4M3 ? 0x7F : 0x7FFF;
  constexpr int32 kCells = kPair / 16;
  constexpr int32 kStepBytes = static_cast<int32>(bytes_of(kDType, kPair));
  const Mask all = pset<uint16>();
  Reg<uint16> abs;
  vdup(abs, kAbs, all);
  const auto whole = static_cast<uint16>(cols / kPair);
  const auto turns = static_cast<uint16>((cols + kPair - 1) / kPair);
  for (uint16 i = 0; i < whole; ++i) {
    cells_of_rows<kDType>(cells + i * kCells, x + i * kStepBytes, pitch, rows, abs, all, all);
  }
  const Mask valid = prefix<uint16>(cols - whole * static_cast<uint32>(kPair));
  for (uint16 i = whole; i < turns; ++i) {
    cells_of_rows<kDType>(cells + i * kCells, x + i * kStepBytes, pitch, rows, abs, valid, all);
  }
}

// |code · sf| of cells, sf one a cell, and 0 beyond them. Without kFirst the largest bits with
// those before.
template <int32 kDType, bool kFirst>
TILEKERNELS_VF void cell_values(Ub<uint32> out, Ub<uint32> before, Ub<uint16> cells, Ub<float> sf,
                                uint32 count) {
  const Mask all = pset<uint32>();
  Reg<uint32> abs;
  vdup(abs, 0x7FFFFFFFu, all);
  const auto turns = static_cast<uint16>((count + kF32Lanes - 1) / kF32Lanes);
  for (uint16 i = 0; i < turns; ++i) {
    Reg<float> value;
    Reg<float> factor;
    Reg<uint32> earlier;
    const Mask valid = plt<uint32>(count);
    if constexpr (kDType == kDTypeE4M3) {
      Reg<uint16> code;
      vlds<Dist::kUnpack>(code, cells + i * kF32Lanes);
      vcvt<0, Round::kNone, Saturate::kNo>(value, as<E4M3>(code), pset<uint8>());
    } else {
      vlds<Dist::kUnpack>(as<uint16>(value), cells + i * kF32Lanes);
      vshls(as<uint32>(value), as<uint32>(value), 16, all);
    }
    vlds(factor, sf + i * kF32Lanes);
    vmul(value, value, factor, valid);
    vand(as<uint32>(value), as<uint32>(value), abs, valid);
    if constexpr (!kFirst) {
      vlds(earlier, before + i * kF32Lanes);
      vmax(as<uint32>(value), as<uint32>(value), earlier, valid);
    }
    vsts(out + i * kF32Lanes, as<uint32>(value), all);
  }
}

// What codes are multiplied by, in place of the inverses, and what e4m3 codes are or'ed with: where
// the factor is NaN, or -Inf, which only codes of 0 share, every product is NaN.
TILEKERNELS_VF void fuse_factors(Ub<float> factors, Ub<uint32> bad, Ub<float> sf,
                                 Ub<float> inverses, uint32 count) {
  const Mask all = pset<float>();
  Reg<float> f;
  Reg<float> inverse;
  Reg<uint32> none;
  Reg<uint32> nan;
  Mask is_good;
  vdup(none, 0u, all);
  vdup(nan, kNanCodes, all);
  const auto turns = static_cast<uint16>((count + kF32Lanes - 1) / kF32Lanes);
  for (uint16 i = 0; i < turns; ++i) {
    Reg<uint32> mine;
    const Mask valid = plt<float>(count);
    vlds(f, sf + i * kF32Lanes);
    vlds(inverse, inverses + i * kF32Lanes);
    fuse_factor(f, f, inverse, valid);
    vcmps<Cmp::kGt>(is_good, f, numerics::bit_cast<float>(0xFF800000u), valid);
    vsel(mine, none, nan, is_good);
    vsts(factors + i * kF32Lanes, f, all);
    vsts(bad + i * kF32Lanes, mine, all);
  }
}

// ------------------------------ scaling factors that change at any column

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

}  // namespace tilekernels::ascend::cast_kernel
