// Casts: e4m3 codes of rows. They are made of quads: lane i of four registers holds the elements
// 4i … 4i + 3, whose codes meet in one 32-bit lane.
#pragma once

#include "ops/quant/cast_values_ascend.h"

namespace tilekernels::ascend::cast_kernel {

// With kAnyNan single products may be NaN: under given scaling factors, and of a quantized x, whose
// scaling factors may be negative and huge. Otherwise a NaN takes the whole group.

// What a vector function of codes needs to know of the input's scaling factors.
// kNone: x is not quantized. kByQuad: the four elements of a lane share one.
constexpr int32 kSfNone = 0;
constexpr int32 kSfByQuad = 1;
constexpr int32 kSfByElement = 2;

// Adds the codes of y, one a lane, to byte kPart of `codes`.
template <int32 kPart>
TILEKERNELS_CALLEE void add_codes(Reg<uint32>& codes, const Reg<float>& y, const Mask& valid,
                                  const Mask& bytes) {
  Reg<E4M3> code;
  vcvt<kPart, Round::kRint, Saturate::kYes>(code, y, valid);
  if constexpr (kPart == 0) {
    vmov(codes, as<uint32>(code));
  } else {
    vor(as<uint8>(codes), as<uint8>(codes), as<uint8>(code), bytes);
  }
}

// Adds the codes of x · f, one a lane, to byte kPart of `codes`; `left` columns are left.
template <int32 kPart, bool kAnyNan>
TILEKERNELS_CALLEE void encode(Reg<uint32>& codes, Reg<float>& x, const Reg<float>& f,
                               const Mask& valid, const Mask& bytes, uint32 left) {
  vmul(x, x, f, valid);
  add_codes<kPart>(codes, x, valid, bytes);
  if constexpr (kAnyNan) {
    // The cast makes 0 of it.
    Reg<uint32> nan;
    Mask is_nan;
    vcmp<Cmp::kNe>(is_nan, x, x, prefix<float>((left + 3 - kPart) / 4));
    vdup(nan, 0x7Fu << (8 * kPart), is_nan);
    vor(as<uint8>(codes), as<uint8>(codes), as<uint8>(nan), bytes);
  }
}

// The same of bf16 rows under powers of two, by which a product of bf16 is exact, but for one that
// is too small for any code but 0. `inverses` holds one every 32 columns, as bf16.
TILEKERNELS_VF void make_e4m3_pow2(Ub<uint8> out, int32 out_pitch, Ub<uint8> x, int32 pitch,
                                   uint16 rows, Ub<uint16> inverses, uint32 cols) {
  const Mask halves = pset<uint8>();
  Reg<BF16> inverse;
  Mask is_bad;
  constexpr int32 kStepBytes = static_cast<int32>(bytes_of(kDTypeBF16, kQuad));
  const auto turns = static_cast<uint16>((cols + kQuad - 1) / kQuad);
  for (uint16 i = 0; i < turns; ++i) {
    const Mask valid = prefix<float>((cols + 3) / 4);
    const Mask bytes = plt<uint8>(cols);
    vlds<Dist::kE2b>(as<uint16>(inverse), inverses + i * 8);
    vcmps<Cmp::kGe>(is_bad, as<uint32>(inverse), numerics::kInfBits, valid);
    for (uint16 row = 0; row < rows; ++row) {
      Reg<BF16> even;
      Reg<BF16> odd;
      Reg<float> y;
      Reg<uint32> codes;
      Reg<uint32> nan;
      vld_deintlv(even, odd, as_ub<BF16>(x + (row * pitch + i * kStepBytes)));
      vmul(even, even, inverse, halves);
      vmul(odd, odd, inverse, halves);
      vcvt<0, Round::kNone, Saturate::kNo>(y, even, halves);
      add_codes<0>(codes, y, valid, bytes);
      vcvt<0, Round::kNone, Saturate::kNo>(y, odd, halves);
      add_codes<1>(codes, y, valid, bytes);
      vcvt<1, Round::kNone, Saturate::kNo>(y, even, halves);
      add_codes<2>(codes, y, valid, bytes);
      vcvt<1, Round::kNone, Saturate::kNo>(y, odd, halves);
      add_codes<3>(codes, y, valid, bytes);
      vdup(nan, 0x7F7F7F7Fu, valid);
      vsel(codes, nan, codes, is_bad);
      vsts(out + (row * out_pitch + i * kQuad), as<uint8>(codes), bytes);
    }
  }
}

// e4m3 codes of `rows` rows. `inverses` holds one a group, or with kExpanded one every 32 columns.
template <int32 kDType, int32 kXSf, bool kExpanded, bool kAnyNan>
TILEKERNELS_VF void make_e4m3(Ub<uint8> out, int32 out_pitch, Ub<uint8> x, int32 pitch, uint16 rows,
                              Ub<float> inverses, float inverse_of_group, Ub<float> table,
                              float first, float inverse_of_cols, uint32 cols) {
  const Mask all = pset<float>();
  Reg<float> column;
  Reg<float> column_of_table;
  Reg<float> inverse;
  if constexpr (!kExpanded) number_columns(column, 0.5f, 4.0f, all);
  if constexpr (kXSf != kSfNone) number_columns(column_of_table, first, 4.0f, all);
  constexpr int32 kStepBytes = static_cast<int32>(bytes_of(kDType, kQuad));
  const auto turns = static_cast<uint16>((cols + kQuad - 1) / kQuad);
  uint32 left = cols;
  for (uint16 i = 0; i < turns; ++i) {
    const uint32 here = left;  // columns from this quad on
    const Mask valid = prefix<float>((here + 3) / 4);
    const Mask bytes = plt<uint8>(left);
    if constexpr (kExpanded) {
      vlds<Dist::kE2b>(inverse, inverses + i * 8);
    } else {
      look_up(inverse, inverses, column, inverse_of_group, valid);
      vadds(column, column, static_cast<float>(kQuad), all);
    }
    Mask is_bad;
    vcmp<Cmp::kNe>(is_bad, inverse, inverse, valid);
    Reg<float> factor[kXSf == kSfByElement ? 4 : 1];
    if constexpr (kXSf != kSfNone) {
      Reg<float> at;
      for (int32 p = 0; p < (kXSf == kSfByElement ? 4 : 1); ++p) {
        const Mask mine = prefix<float>((here + 3 - static_cast<uint32>(p)) / 4);
        vadds(at, column_of_table, static_cast<float>(p), all);
        look_up(factor[p], table, at, inverse_of_cols, mine);
        fuse_factor(factor[p], factor[p], inverse, mine);
      }
      vadds(column_of_table, column_of_table, static_cast<float>(kQuad), all);
    }
    for (uint16 row = 0; row < rows; ++row) {
      Reg<float> q[4];
      Reg<uint32> codes;
      load_quad<kDType>(q, x + (row * pitch + i * kStepBytes));
      constexpr bool kOne = kXSf == kSfNone;
      constexpr bool kEach = kXSf == kSfByElement;
      encode<0, kAnyNan>(codes, q[0], kOne ? inverse : factor[0], valid, bytes, here);
      encode<1, kAnyNan>(codes, q[1], kOne ? inverse : factor[kEach], valid, bytes, here);
      encode<2, kAnyNan>(codes, q[2], kOne ? inverse : factor[2 * kEach], valid, bytes, here);
      encode<3, kAnyNan>(codes, q[3], kOne ? inverse : factor[3 * kEach], valid, bytes, here);
      if constexpr (!kAnyNan) {
        // Only a bad group makes NaN, and it takes all its codes.
        Reg<uint32> nan;
        vdup(nan, 0x7F7F7F7Fu, valid);
        vsel(codes, nan, codes, is_bad);
      }
      vsts(out + (row * out_pitch + i * kQuad), as<uint8>(codes), bytes);
    }
  }
}

}  // namespace tilekernels::ascend::cast_kernel
