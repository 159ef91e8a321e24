// Casts: e4m3 codes of rows. Columns are taken by pairs: lane i of two registers holds the elements
// 2i and 2i + 1, whose codes meet in the low half of one 32-bit lane.
#pragma once

#include "ops/quant/cast_values_ascend.h"

namespace tilekernels::ascend::cast_kernel {

// Of 256 columns of bf16 the even ones, or the odd ones, as fp32: those of the first 128 columns,
// then the others. A bf16 is the upper half of its fp32.
TILEKERNELS_CALLEE void spread_pairs(Reg<float>& first, Reg<float>& second, const Reg<BF16>& x,
                                     const Reg<uint16>& zero) {
  vintlv(as<uint16>(first), as<uint16>(second), zero, as<uint16>(x));
}

TILEKERNELS_CALLEE uint32 up_to_pair(uint32 left) {
  return numerics::min_of<uint32>(left, static_cast<uint32>(kPair));
}

// Stores the codes of 128 columns. With kAnyNan single ones may be NaN, under given scaling
// factors; otherwise the groups that are bad, whose codes the cast makes 0, have theirs in `bad`.
template <bool kAnyNan>
TILEKERNELS_CALLEE void store_pairs(Ub<uint8> out, const Reg<float>& even, const Reg<float>& odd,
                                    const Reg<uint32>& bad, const Mask& valid_even,
                                    const Mask& valid_odd) {
  Reg<E4M3> code;
  Reg<uint32> codes;
  vcvt<0, Round::kRint, Saturate::kYes>(as<E4M3>(codes), even, valid_even);
  vcvt<1, Round::kRint, Saturate::kYes>(code, odd, valid_odd);
  vor(codes, codes, as<uint32>(code), valid_even);
  if constexpr (kAnyNan) {
    Mask is_nan;
    vcmp<Cmp::kNe>(is_nan, even, even, valid_even);
    vdup(as<uint32>(code), 0x7Fu, is_nan);
    vor(codes, codes, as<uint32>(code), valid_even);
    vcmp<Cmp::kNe>(is_nan, odd, odd, valid_odd);
    vdup(as<uint32>(code), 0x7F00u, is_nan);
    vor(codes, codes, as<uint32>(code), valid_even);
  } else {
    vor(codes, codes, bad, valid_even);
  }
  vsts_pack<StoreDist::kPack>(as_ub<uint16>(out), codes, valid_even);
}

// The same of x · f.
template <bool kAnyNan>
TILEKERNELS_CALLEE void encode_pairs(Ub<uint8> out, Reg<float>& even, Reg<float>& odd,
                                     const Reg<float>& f, const Reg<uint32>& bad,
                                     const Mask& valid_even, const Mask& valid_odd) {
  vmul(even, even, f, valid_even);
  vmul(odd, odd, f, valid_odd);
  store_pairs<kAnyNan>(out, even, odd, bad, valid_even, valid_odd);
}

// e4m3 codes of `rows` rows. `factors` and `bad` hold one every 16 columns, `values`, of use for
// e4m3 codes, what make_value_table makes: a gather leaves the arithmetic unit alone, a cast takes
// two cycles of it.
template <int32 kDType, bool kAnyNan>
TILEKERNELS_VF void make_e4m3(Ub<uint8> out, int32 out_pitch, Ub<uint8> x, int32 pitch, uint16 rows,
                              Ub<float> factors, Ub<uint32> bad, Ub<uint16> values, uint32 cols) {
  constexpr int32 kPairs = kDType == kDTypeBF16 ? 2 : 1;  // of a turn
  constexpr int32 kStep = kPairs * kPair;
  constexpr int32 kStepBytes = static_cast<int32>(bytes_of(kDType, kStep));
  constexpr int32 kEntries = kPair / 16;
  const Mask all = pset<uint8>();
  const auto turns = static_cast<uint16>((cols + kStep - 1) / kStep);
  Reg<float> f[kPairs];
  Reg<uint32> of_bad[kPairs];
  Reg<uint16> zero;
  if constexpr (kPairs == 2) vdup(zero, uint16{0}, pset<uint16>());
  for (uint16 i = 0; i < turns; ++i) {
    const uint32 first = up_to_pair(cols);
    const uint32 second = up_to_pair(cols - first);
    const Mask even_a = prefix<float>((first + 1) / 2);
    const Mask odd_a = prefix<float>(first / 2);
    for (int32 k = 0; k < kPairs; ++k) {
      vlds<Dist::kE2b>(f[k], factors + (i * kPairs + k) * kEntries);
      if constexpr (kAnyNan) {
        vdup(of_bad[k], 0u, all);
      } else {
        vlds<Dist::kE2b>(of_bad[k], bad + (i * kPairs + k) * kEntries);
      }
    }
    if constexpr (kPairs == 2) {
      const Mask even_b = prefix<float>((second + 1) / 2);
      const Mask odd_b = prefix<float>(second / 2);
      const auto has_second = static_cast<uint16>(second > 0 ? 1 : 0);
      for (uint16 row = 0; row < rows; ++row) {
        Reg<BF16> low;
        Reg<BF16> high;
        Reg<float> even[2];
        Reg<float> odd[2];
        vld_deintlv(low, high, as_ub<BF16>(x + (row * pitch + i * kStepBytes)));
        spread_pairs(even[0], even[1], low, zero);
        spread_pairs(odd[0], odd[1], high, zero);
        const Ub<uint8> to = out + (row * out_pitch + i * kStep);
        encode_pairs<kAnyNan>(to, even[0], odd[0], f[0], of_bad[0], even_a, odd_a);
        for (uint16 once = 0; once < has_second; ++once) {
          encode_pairs<kAnyNan>(to + kPair, even[1], odd[1], f[1], of_bad[1], even_b, odd_b);
        }
      }
      cols -= first + second;
    } else if constexpr (kDType == kDTypeE4M3) {
      const Mask valid = prefix<uint16>(first);
      for (uint16 row = 0; row < rows; ++row) {
        Reg<uint16> code;
        Reg<uint16> value;
        Reg<float> even;
        Reg<float> odd;
        vlds<Dist::kUnpack>(as<uint8>(code), x + (row * pitch + i * kStepBytes));
        vgather(value, values, code, valid);
        vcvt<0, Round::kNone, Saturate::kNo>(even, as<BF16>(value), all);
        vcvt<1, Round::kNone, Saturate::kNo>(odd, as<BF16>(value), all);
        encode_pairs<kAnyNan>(out + (row * out_pitch + i * kStep), even, odd, f[0], of_bad[0],
                              even_a, odd_a);
      }
      cols -= first;
    } else {
      for (uint16 row = 0; row < rows; ++row) {
        Reg<float> even;
        Reg<float> odd;
        load_even_odd<kDType>(even, odd, x + (row * pitch + i * kStepBytes));
        encode_pairs<kAnyNan>(out + (row * out_pitch + i * kStep), even, odd, f[0], of_bad[0],
                              even_a, odd_a);
      }
      cols -= first;
    }
  }
}

// The same of a quantized x whose scaling factors change at any column: they and the inverses are
// looked up. Products may be NaN: under factors that are negative and huge.
template <int32 kDType>
TILEKERNELS_VF void make_e4m3_by_column(Ub<uint8> out, int32 out_pitch, Ub<uint8> x, int32 pitch,
                                        uint16 rows, Ub<float> inverses, float inverse_of_group,
                                        Ub<float> table, float first, float inverse_of_cols,
                                        uint32 cols) {
  const Mask all = pset<float>();
  Reg<float> column;
  Reg<float> column_of_table;
  Reg<float> inverse;
  Reg<float> factor_even;
  Reg<float> factor_odd;
  Reg<uint32> none;
  number_columns(column, 0.5f, 2.0f, all);
  number_columns(column_of_table, first, 2.0f, all);
  vdup(none, 0u, all);
  constexpr int32 kStepBytes = static_cast<int32>(bytes_of(kDType, kPair));
  const auto turns = static_cast<uint16>((cols + kPair - 1) / kPair);
  for (uint16 i = 0; i < turns; ++i) {
    const uint32 here = up_to_pair(cols);
    const Mask valid_even = prefix<float>((here + 1) / 2);
    const Mask valid_odd = prefix<float>(here / 2);
    look_up(inverse, inverses, column, inverse_of_group, valid_even);
    look_up(factor_even, table, column_of_table, inverse_of_cols, valid_even);
    fuse_factor(factor_even, factor_even, inverse, valid_even);
    vadds(column, column, static_cast<float>(kPair), all);
    vadds(column_of_table, column_of_table, 1.0f, all);
    look_up(factor_odd, table, column_of_table, inverse_of_cols, valid_odd);
    fuse_factor(factor_odd, factor_odd, inverse, valid_odd);
    vadds(column_of_table, column_of_table, static_cast<float>(kPair - 1), all);
    for (uint16 row = 0; row < rows; ++row) {
      Reg<float> even;
      Reg<float> odd;
      load_even_odd<kDType>(even, odd, x + (row * pitch + i * kStepBytes));
      vmul(even, even, factor_even, valid_even);
      vmul(odd, odd, factor_odd, valid_odd);
      store_pairs<true>(out + (row * out_pitch + i * kPair), even, odd, none, valid_even,
                        valid_odd);
    }
    cols -= here;
  }
}

}  // namespace tilekernels::ascend::cast_kernel
