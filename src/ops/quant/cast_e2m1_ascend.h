// Casts: FP4 codes of rows. They go by bf16, rounded to odd, so that only the cast rounds; it makes
// 0 of NaN, and so of a bad group.
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

// Codes of 128 columns of rows: `a` by `factor_a`, then `b`. With kAnyNan single products may be
// NaN, and `kept` is 0 where their group's scaling factor is.
template <int32 kDType, bool kAnyNan>
TILEKERNELS_CALLEE void make_e2m1_pairs(Ub<uint8> out, int32 out_pitch, Ub<uint8> x, int32 pitch,
                                        uint16 rows, const Reg<float>& factor_a,
                                        const Reg<float>& factor_b, const Reg<uint32>& kept,
                                        const Mask& valid_a, const Mask& valid_b, const Mask& valid,
                                        const Reg<uint16>& zero, const Mask& halves) {
  for (uint16 row = 0; row < rows; ++row) {
    Reg<float> a;
    Reg<float> b;
    Reg<BF16> odd;
    Reg<E2M1x2> codes;
    if constexpr (kDType == kDTypeBF16) {
      vlds(odd, as_ub<BF16>(x + row * pitch));
      vintlv(as<uint16>(a), as<uint16>(b), zero, as<uint16>(odd));
    } else {
      load_pair<kDType>(a, b, x + row * pitch);
    }
    if constexpr (kAnyNan) {
      Reg<float> y;
      vmul(y, a, factor_a, valid_a);
      nan_to_limit(y, a, valid_a);
      vmov(a, y);
      vmul(y, b, factor_b, valid_b);
      nan_to_limit(y, b, valid_b);
      vmov(b, y);
    } else {
      vmul(a, a, factor_a, valid_a);
      vmul(b, b, factor_b, valid_b);
    }
    round_to_odd(odd, a, b, halves);
    vcvt<0, Round::kRint, Saturate::kYes>(codes, odd, halves);
    if constexpr (kAnyNan) vand(as<uint32>(codes), as<uint32>(codes), kept, valid);
    vsts_pack<StoreDist::kPack4>(out + row * out_pitch, as<uint32>(codes), valid);
  }
}

// Factors of 128 columns, from their inverses and, where that is quantized, x's `table`.
template <bool kQuantized>
TILEKERNELS_CALLEE void load_factors(Reg<float>& factor_a, Reg<float>& factor_b, Ub<float> inverses,
                                     Reg<float>& column, Ub<float> table, float inverse_of_cols,
                                     const Mask& valid_a, const Mask& valid_b) {
  vlds<Dist::kE2b>(factor_a, inverses);
  vlds<Dist::kE2b>(factor_b, inverses + 8);
  if constexpr (kQuantized) {
    const Mask all = pset<float>();
    Reg<float> sf;
    look_up(sf, table, column, inverse_of_cols, valid_a);
    fuse_factor(factor_a, sf, factor_a, valid_a);
    vadds(column, column, static_cast<float>(kF32Lanes), all);
    look_up(sf, table, column, inverse_of_cols, valid_b);
    fuse_factor(factor_b, sf, factor_b, valid_b);
    vadds(column, column, static_cast<float>(kF32Lanes), all);
  }
}

// FP4 codes. `inverses` holds one every 8 columns, `keep`, read with kAnyNan, one every 16. With
// kQuantized the factors of `table` are looked up by column.
template <int32 kDType, bool kQuantized, bool kAnyNan>
TILEKERNELS_VF void make_e2m1(Ub<uint8> out, int32 out_pitch, Ub<uint8> x, int32 pitch, uint16 rows,
                              Ub<float> inverses, Ub<uint32> keep, Ub<float> table, float first,
                              float inverse_of_cols, uint32 cols) {
  const Mask all = pset<float>();
  const Mask halves = pset<uint8>();
  Reg<float> column;
  Reg<float> factor_a;
  Reg<float> factor_b;
  Reg<uint32> kept;
  Reg<uint16> zero;
  if constexpr (kQuantized) number_columns(column, first, 1.0f, all);
  vdup(kept, 0u, all);
  vdup(zero, uint16{0}, halves);
  constexpr int32 kStepBytes = static_cast<int32>(bytes_of(kDType, kPair));
  const auto whole = static_cast<uint16>(cols / kPair);
  for (uint16 i = 0; i < whole; ++i) {
    load_factors<kQuantized>(factor_a, factor_b, inverses + i * 16, column, table, inverse_of_cols,
                             all, all);
    if constexpr (kAnyNan) vlds<Dist::kE2b>(kept, keep + i * 8);
    make_e2m1_pairs<kDType, kAnyNan>(out + i * kF32Lanes, out_pitch, x + i * kStepBytes, pitch,
                                     rows, factor_a, factor_b, kept, all, all, all, zero, halves);
  }
  uint32 left = cols - whole * static_cast<uint32>(kPair);
  const auto turns = static_cast<uint16>((cols + kPair - 1) / kPair);
  const Mask valid = prefix<uint32>(left / 2);
  const Mask valid_a = plt<float>(left);
  const Mask valid_b = plt<float>(left);
  for (uint16 i = whole; i < turns; ++i) {
    load_factors<kQuantized>(factor_a, factor_b, inverses + i * 16, column, table, inverse_of_cols,
                             valid_a, valid_b);
    if constexpr (kAnyNan) vlds<Dist::kE2b>(kept, keep + i * 8);
    make_e2m1_pairs<kDType, kAnyNan>(out + i * kF32Lanes, out_pitch, x + i * kStepBytes, pitch,
                                     rows, factor_a, factor_b, kept, valid_a, valid_b, valid, zero,
                                     halves);
  }
}

// FP4 codes of a row of bf16 and, in between, what group_max finds of the next one, which keeps
// both the issue slots and the arithmetic unit at work.
template <int32 kGroup>
TILEKERNELS_VF void make_e2m1_and_max(Ub<uint8> out, Ub<uint8> x, Ub<float> inverses,
                                      Ub<uint16> amax, Ub<uint16> next, uint32 cols) {
  static_assert(kGroup == 16 || kGroup == 32);
  constexpr bool kSingle = kGroup == 16;
  constexpr int32 kBlocks = kVectorBytes / kBlockBytes;
  const Mask all = pset<float>();
  const Mask halves = pset<uint8>();
  Reg<float> factor_a;
  Reg<float> factor_b;
  Reg<uint32> kept;
  Reg<uint16> zero;
  Reg<uint16> abs;
  vdup(zero, uint16{0}, halves);
  vdup(abs, uint16{0x7FFF}, halves);
  const auto encode = static_cast<uint16>(1);
  const auto whole = static_cast<uint16>(cols / (2 * kPair));
  for (uint16 i = 0; i < whole; ++i) {
    for (int32 k = 0; k < 2; ++k) {
      const int32 turn = 2 * i + k;
      vlds<Dist::kE2b>(factor_a, inverses + turn * 16);
      vlds<Dist::kE2b>(factor_b, inverses + (turn * 16 + 8));
      make_e2m1_pairs<kDTypeBF16, false>(out + turn * kF32Lanes, 0, x + turn * kVectorBytes, 0,
                                         encode, factor_a, factor_b, kept, all, all, all, zero,
                                         halves);
      if constexpr (kSingle) {
        block_cells<uint16, true>(amax + turn * kBlocks, next + turn * kPair, abs, halves, halves,
                                  halves);
      }
    }
    if constexpr (!kSingle) {
      block_cells<uint16, false>(amax + i * kBlocks, next + i * 2 * kPair, abs, halves, halves,
                                 halves);
    }
  }
  uint32 left = cols - whole * static_cast<uint32>(2 * kPair);
  const uint32 left_of_next = left;
  const auto turns = static_cast<uint16>((cols + kPair - 1) / kPair);
  for (auto turn = static_cast<uint16>(2 * whole); turn < turns; ++turn) {
    const Mask valid = prefix<uint32>(left / 2);
    const Mask valid_next = prefix<uint16>(left);
    const Mask valid_a = plt<float>(left);
    const Mask valid_b = plt<float>(left);
    vlds<Dist::kE2b>(factor_a, inverses + turn * 16);
    vlds<Dist::kE2b>(factor_b, inverses + (turn * 16 + 8));
    make_e2m1_pairs<kDTypeBF16, false>(out + turn * kF32Lanes, 0, x + turn * kVectorBytes, 0,
                                       encode, factor_a, factor_b, kept, valid_a, valid_b, valid,
                                       zero, halves);
    if constexpr (kSingle) {
      block_cells<uint16, true>(amax + turn * kBlocks, next + turn * kPair, abs, valid_next, halves,
                                halves);
    }
  }
  if constexpr (!kSingle) {
    const Mask even = prefix<uint16>((left_of_next + 1) / 2);
    const Mask odd = prefix<uint16>(left_of_next / 2);
    const auto has_rest = static_cast<uint16>(left_of_next > 0 ? whole + 1 : whole);
    for (uint16 i = whole; i < has_rest; ++i) {
      block_cells<uint16, false>(amax + i * kBlocks, next + i * 2 * kPair, abs, even, odd, halves);
    }
  }
}

// The same of bf16 rows under powers of two. `inverses` holds one every 16 columns, as bf16.
TILEKERNELS_VF void make_e2m1_pow2(Ub<uint8> out, int32 out_pitch, Ub<uint8> x, int32 pitch,
                                   uint16 rows, Ub<uint16> inverses, uint32 cols) {
  const Mask halves = pset<uint8>();
  Reg<BF16> inverse;
  constexpr int32 kStepBytes = static_cast<int32>(bytes_of(kDTypeBF16, kPair));
  const auto turns = static_cast<uint16>((cols + kPair - 1) / kPair);
  uint32 pairs = cols / 2;
  for (uint16 i = 0; i < turns; ++i) {
    const Mask valid = plt<uint32>(pairs);
    vlds<Dist::kE2b>(as<uint16>(inverse), inverses + i * 8);
    for (uint16 row = 0; row < rows; ++row) {
      Reg<BF16> y;
      Reg<E2M1x2> codes;
      vlds(y, as_ub<BF16>(x + (row * pitch + i * kStepBytes)));
      vmul(y, y, inverse, halves);
      vcvt<0, Round::kRint, Saturate::kYes>(codes, y, halves);
      vsts_pack<StoreDist::kPack4>(out + (row * out_pitch + i * kF32Lanes), as<uint32>(codes),
                                   valid);
    }
  }
}

}  // namespace tilekernels::ascend::cast_kernel
