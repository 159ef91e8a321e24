// Casts: FP4 codes of rows. They go by bf16, rounded to odd, so that only the cast rounds.
#pragma once

#include "ops/quant/cast_values_ascend.h"

namespace tilekernels::ascend::cast_kernel {

// bf16 rounded to odd: as a bf16, `a` then `b`.
TILEKERNELS_CALLEE void round_to_odd(Reg<BF16>& odd, Reg<float>& a, Reg<float>& b,
                                     const Mask& halves) {
  Reg<uint16> low;
  vdintlv(low, as<uint16>(odd), as<uint16>(a), as<uint16>(b));
  vmins(low, low, uint16{1}, halves);
  vor(as<uint16>(odd), as<uint16>(odd), low, halves);
}

// A NaN y becomes ±6 by the sign of x.
TILEKERNELS_CALLEE void nan_to_limit(Reg<float>& y, const Reg<float>& x, const Mask& valid) {
  Reg<uint32> limit;
  Reg<uint32> sign;
  Mask is_nan;
  vcmp<Cmp::kNe>(is_nan, y, y, valid);
  vdup(sign, 0x80000000u, valid);
  vand(sign, sign, as<uint32>(x), valid);
  vdup(limit, numerics::bit_cast<uint32>(numerics::kE2M1Max), valid);
  vor(limit, limit, sign, valid);
  vsel(as<uint32>(y), limit, as<uint32>(y), is_nan);
}

// FP4 codes. `inverses` holds one every 8 columns, `keep` one every 16.
template <int32 kDType, bool kQuantized, bool kAnyNan>
TILEKERNELS_VF void make_e2m1(Ub<uint8> out, int32 out_pitch, Ub<uint8> x, int32 pitch, uint16 rows,
                              Ub<float> inverses, Ub<uint32> keep, Ub<float> table, float first,
                              float inverse_of_cols, uint32 cols) {
  const Mask all = pset<float>();
  const Mask halves = pset<uint8>();
  Reg<float> column;
  Reg<float> factor[2];
  Reg<uint32> kept;
  if constexpr (kQuantized) number_columns(column, first, 1.0f, all);
  constexpr int32 kStepBytes = static_cast<int32>(bytes_of(kDType, kPair));
  const auto turns = static_cast<uint16>((cols + kPair - 1) / kPair);
  uint32 pairs = cols / 2;
  for (uint16 i = 0; i < turns; ++i) {
    const Mask valid_a = plt<float>(cols);
    const Mask valid_b = plt<float>(cols);
    const Mask valid = plt<uint32>(pairs);
    vlds<Dist::kE2b>(factor[0], inverses + i * 16);
    vlds<Dist::kE2b>(factor[1], inverses + (i * 16 + 8));
    vlds<Dist::kE2b>(kept, keep + i * 8);
    if constexpr (kQuantized) {
      Reg<float> sf;
      look_up(sf, table, column, inverse_of_cols, valid_a);
      fuse_factor(factor[0], sf, factor[0], valid_a);
      vadds(column, column, static_cast<float>(kF32Lanes), all);
      look_up(sf, table, column, inverse_of_cols, valid_b);
      fuse_factor(factor[1], sf, factor[1], valid_b);
      vadds(column, column, static_cast<float>(kF32Lanes), all);
    }
    for (uint16 row = 0; row < rows; ++row) {
      Reg<float> a;
      Reg<float> b;
      Reg<BF16> odd;
      Reg<E2M1x2> codes;
      load_pair<kDType>(a, b, x + (row * pitch + i * kStepBytes));
      if constexpr (kAnyNan) {
        Reg<float> y;
        vmul(y, a, factor[0], valid_a);
        nan_to_limit(y, a, valid_a);
        vmov(a, y);
        vmul(y, b, factor[1], valid_b);
        nan_to_limit(y, b, valid_b);
        vmov(b, y);
      } else {
        vmul(a, a, factor[0], valid_a);
        vmul(b, b, factor[1], valid_b);
      }
      round_to_odd(odd, a, b, halves);
      vcvt<0, Round::kRint, Saturate::kYes>(codes, odd, halves);
      vand(as<uint32>(codes), as<uint32>(codes), kept, valid);
      vsts_pack<StoreDist::kPack4>(out + (row * out_pitch + i * kF32Lanes), as<uint32>(codes),
                                   valid);
    }
  }
}

// The same of bf16 rows under powers of two. `inverses` holds one every 16 columns, as bf16.
TILEKERNELS_VF void make_e2m1_pow2(Ub<uint8> out, int32 out_pitch, Ub<uint8> x, int32 pitch,
                                   uint16 rows, Ub<uint16> inverses, Ub<uint32> keep, uint32 cols) {
  const Mask halves = pset<uint8>();
  Reg<BF16> inverse;
  Reg<uint32> kept;
  constexpr int32 kStepBytes = static_cast<int32>(bytes_of(kDTypeBF16, kPair));
  const auto turns = static_cast<uint16>((cols + kPair - 1) / kPair);
  uint32 pairs = cols / 2;
  for (uint16 i = 0; i < turns; ++i) {
    const Mask valid = plt<uint32>(pairs);
    vlds<Dist::kE2b>(as<uint16>(inverse), inverses + i * 8);
    vlds<Dist::kE2b>(kept, keep + i * 8);
    for (uint16 row = 0; row < rows; ++row) {
      Reg<BF16> y;
      Reg<E2M1x2> codes;
      vlds(y, as_ub<BF16>(x + (row * pitch + i * kStepBytes)));
      vmul(y, y, inverse, halves);
      vcvt<0, Round::kRint, Saturate::kYes>(codes, y, halves);
      vand(as<uint32>(codes), as<uint32>(codes), kept, valid);
      vsts_pack<StoreDist::kPack4>(out + (row * out_pitch + i * kF32Lanes), as<uint32>(codes),
                                   valid);
    }
  }
}

}  // namespace tilekernels::ascend::cast_kernel
