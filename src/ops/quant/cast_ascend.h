// per_token_cast and per_block_cast on the vector core.
//
// An item is a strip of block_rows rows by a span of columns. Its rows come in together; one vector
// function finds the groups' maxima, one their scaling factors and inverses, one the codes. e4m3
// codes are made of quads: lane i of four registers holds the elements 4i … 4i + 3, whose codes
// meet in one 32-bit lane. FP4 codes go by bf16, rounded to odd, so that only the cast rounds.
#pragma once

#include "ops/quant/cast.h"
#include "ops/quant/scales_ascend.h"

namespace tilekernels::ascend::cast_kernel {

using numerics::kDTypeBF16;
using numerics::kDTypeE2M1x2;
using numerics::kDTypeE4M3;
using numerics::kDTypeF16;
using numerics::kDTypeF32;
using numerics::kSfE4M3;
using numerics::kSfF32;

/// Tile constants, made by `plan`.
struct Tile {
  int32 stages;    // items in flight
  int32 span;      // columns of an item
  int64 ub_bytes;  // what the kernel allocates
};

// ------------------------------ scaling factors

// From the groups' maxima (the element type's absolute bits) to what is stored (`words`, one
// uint32 a group) and to inverses; `keep` is 0 for bad groups, else ones. Lanes beyond `count`
// store 0.
template <int32 kSfKind, bool kIsE2M1, int32 kDType>
TILEKERNELS_VF void make_scales(Ub<uint32> words, Ub<float> inverses, Ub<uint32> keep,
                                Ub<uint8> amax, uint32 count, float amax_clamp) {
  constexpr float kMax = numerics::max_magnitude(kIsE2M1);
  const Mask all = pset<uint32>();
  const auto clamp = numerics::bit_cast<uint32>(amax_clamp);
  Reg<uint32> a;
  Reg<uint32> sf;
  Reg<float> inverse;
  Reg<float> limit;
  Reg<uint32> special;
  Mask is_bad;
  const auto turns = static_cast<uint16>((count + kF32Lanes - 1) / kF32Lanes);
  for (uint16 i = 0; i < turns; ++i) {
    const Mask valid = plt<uint32>(count);
    if constexpr (kDType == kDTypeF16) {
      const Mask halves = pset<uint8>();
      Reg<F16> half;
      vlds<Dist::kUnpack>(half, as_ub<F16>(amax) + i * kF32Lanes);
      vcvt<0, Round::kNone, Saturate::kNo>(as<float>(a), half, halves);
    } else if constexpr (kDType == kDTypeBF16) {
      vlds<Dist::kUnpack>(as<uint16>(a), as_ub<uint16>(amax) + i * kF32Lanes);
      vshls(a, a, 16, valid);
    } else {
      vlds(a, as_ub<uint32>(amax) + i * kF32Lanes);
    }
    vmaxs(a, a, clamp, valid);
    vcmps<Cmp::kGe>(is_bad, a, numerics::kInfBits, valid);
    if constexpr (kSfKind == kSfF32 || kSfKind == kSfE4M3) {
      vdup(limit, kMax, all);
      vdiv<Precision::kExact>(as<float>(sf), as<float>(a), limit, valid);
      if constexpr (kSfKind == kSfF32) {
        vdiv<Precision::kExact>(inverse, limit, as<float>(a), valid);
        vdup(special, kScaleNanBits, all);
      } else {
        const Mask bytes = pset<uint8>();
        Reg<E4M3> code;
        vcvt<0, Round::kRint, Saturate::kYes>(code, as<float>(sf), valid);
        vcvt<0, Round::kNone, Saturate::kNo>(as<float>(sf), code, bytes);
        vdup(limit, 1.0f, all);
        vdiv<Precision::kExact>(inverse, limit, as<float>(sf), valid);
        vdup(special, 0x7Fu, all);
        vand(sf, as<uint32>(code), as<uint32>(code), valid);
      }
    } else {
      // The exponent of the smallest power of two that is not below a / kMax
      constexpr uint32 kRoundUp = kIsE2M1 ? 0x3FFFFF : 0x1FFFFF;
      constexpr uint32 kDown = kIsE2M1 ? 2 : 8;
      Reg<uint32> exponent;
      vadds(exponent, a, kRoundUp, valid);
      vshrs(exponent, exponent, 23, valid);
      vadds(exponent, exponent, 0u - kDown, valid);
      vdup(special, 254u, all);
      vsub(as<uint32>(inverse), special, exponent, valid);
      vshls(as<uint32>(inverse), as<uint32>(inverse), 23, valid);
      if constexpr (kSfKind == numerics::kSfUE8M0) {
        vand(sf, exponent, exponent, valid);
        vdup(special, 0xFFu, all);
      } else {
        vshls(sf, exponent, 23, valid);
        vdup(special, kScaleNanBits, all);
      }
    }
    vsel(sf, special, sf, is_bad);
    vsts(words + i * kF32Lanes, sf, all);
    vdup(special, kScaleNanBits, all);
    vsel(as<uint32>(inverse), special, as<uint32>(inverse), is_bad);
    vsts(inverses + i * kF32Lanes, inverse, all);
    if constexpr (kIsE2M1) {
      vdup(sf, ~0u, all);
      vdup(special, 0u, all);
      vsel(sf, special, sf, is_bad);
      vsts(keep + i * kF32Lanes, sf, all);
    }
  }
}

// Inverses of given scaling factors; `keep` is 0 where the factor is NaN.
template <bool kIsE2M1>
TILEKERNELS_VF void invert(Ub<float> inverses, Ub<uint32> keep, Ub<float> table, uint32 count) {
  const Mask all = pset<uint32>();
  Reg<float> one;
  Reg<float> value;
  Reg<uint32> none;
  Reg<uint32> ones;
  Mask is_nan;
  vdup(one, 1.0f, all);
  vdup(none, 0u, all);
  vdup(ones, ~0u, all);
  const auto turns = static_cast<uint16>((count + kF32Lanes - 1) / kF32Lanes);
  for (uint16 i = 0; i < turns; ++i) {
    const Mask valid = plt<float>(count);
    vlds(value, table + i * kF32Lanes);
    vdiv<Precision::kExact>(value, one, value, valid);
    vsts(inverses + i * kF32Lanes, value, valid);
    if constexpr (kIsE2M1) {
      Reg<uint32> mine;
      vcmp<Cmp::kNe>(is_nan, value, value, valid);
      vsel(mine, none, ones, is_nan);
      vsts(keep + i * kF32Lanes, mine, valid);
    }
  }
}

// Zeros of padding.
TILEKERNELS_VF void make_zeros(Ub<uint32> words, uint16 turns) {
  const Mask all = pset<uint32>();
  Reg<uint32> zero;
  vdup(zero, 0u, all);
  for (uint16 i = 0; i < turns; ++i) vsts(words + i * kF32Lanes, zero, all);
}

// The low bytes of words, back to back.
TILEKERNELS_VF void pack_bytes(Ub<uint8> bytes, Ub<uint32> words, uint16 turns) {
  const Mask all = pset<uint32>();
  Reg<uint32> word;
  for (uint16 i = 0; i < turns; ++i) {
    vlds(word, words + i * kF32Lanes);
    vsts_pack<StoreDist::kPack4>(bytes + i * kF32Lanes, word, all);
  }
}

// Every word to a block of its own, for copies out by column.
template <class T>
TILEKERNELS_VF void spread(Ub<uint8> blocks, Ub<T> words, uint16 turns) {
  constexpr int32 kBlocks = kVectorBytes / kBlockBytes;
  const Mask all = pset<T>();
  Reg<T> word;
  for (uint16 i = 0; i < turns; ++i) {
    vlds<Dist::kE2b>(word, words + i * kBlocks);
    vsts(as_ub<T>(blocks + i * kVectorBytes), word, all);
  }
}

// ------------------------------ values of a quantized x

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

// ------------------------------ codes

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

// ------------------------------ the tile

constexpr int64 kSlotTail = 1024;  // what loads of quads may read past a row

constexpr int64 ub_slot(int64 bytes, int64 tail = kVectorBytes) {
  return numerics::align_up(bytes, kBlockBytes) + tail;
}

// Sizes of the buffers of a tile, in elements or bytes as the name says.
struct Sizes {
  int64 x_pitch_bytes;
  int64 x_bytes;
  int64 raw_offset;  // of scaling factors in a slot
  int64 in_bytes;    // of a slot
  int64 out_pitch_bytes;
  int64 out_bytes;
  int64 groups;        // of a span, whole registers
  int64 table;         // entries of one row of scaling factors of x
  int64 tables;        // such rows
  int64 table_pitch;   // bytes
  int64 words_bytes;   // raw words of one row
  int64 blocks_bytes;  // spread scaling factors
};

constexpr int64 whole_registers(int64 lanes) { return numerics::align_up(lanes, 2 * kF32Lanes); }

constexpr Sizes sizes(const CastShape& shape, int64 span, int64 x_pack_k, int64 x_word_bytes) {
  Sizes s{};
  s.x_pitch_bytes = numerics::align_up(bytes_of(shape.x_dtype, span), kBlockBytes);
  s.x_bytes = shape.block_rows * s.x_pitch_bytes;
  s.out_pitch_bytes = numerics::align_up(bytes_of(shape.fmt, span), kBlockBytes);
  s.out_bytes = shape.mode == kCastSfOnly ? 0 : shape.block_rows * s.out_pitch_bytes;
  s.groups = whole_registers(numerics::ceil_div(span, shape.block_cols));
  if (is_quantized(shape.x_dtype)) {
    const int64 words = most_sf_words(span, shape.x_block_cols, x_pack_k);
    s.table = words * x_pack_k;
    s.tables = numerics::min_of<int64>(shape.block_rows, shape.block_rows / shape.x_block_rows + 2);
    s.table_pitch = numerics::align_up(4 * s.table, kBlockBytes);
    s.words_bytes = numerics::align_up(words * x_word_bytes, kBlockBytes);
  }
  s.raw_offset = s.x_bytes + kSlotTail;
  const int64 raw = is_quantized(shape.x_dtype)  ? s.tables * s.words_bytes
                    : shape.mode == kCastGivenSf ? 4 * s.groups
                                                 : 0;
  s.in_bytes = raw == 0 ? s.x_bytes : s.raw_offset + raw;
  s.blocks_bytes = numerics::max_of(s.groups * kBlockBytes, int64{4} * kVectorBytes);
  return s;
}

constexpr int64 ub_bytes(const CastShape& shape, int64 stages, int64 span, int64 x_pack_k,
                         int64 x_word_bytes) {
  const Sizes s = sizes(shape, span, x_pack_k, x_word_bytes);
  const bool quantized = is_quantized(shape.x_dtype);
  int64 bytes = stages * (ub_slot(s.in_bytes, kSlotTail) + ub_slot(s.out_bytes));
  bytes += stages * ub_slot(s.blocks_bytes);
  if (quantized) bytes += ub_slot(s.tables * s.table_pitch);
  const int64 row = ub_slot(4 * numerics::align_up(span, kQuad), kSlotTail);
  bytes += (quantized ? 2 : 1) * row;  // maxima by column
  // Cells, pairs, amax; words, bytes, inverses, keep, given table
  bytes += 3 * ub_slot(4 * numerics::align_up(span, kQuad) / 8, kSlotTail);
  bytes += 5 * ub_slot(4 * s.groups, kSlotTail);
  bytes += ub_slot(4 * numerics::align_up(span, kQuad) / 8) +
           ub_slot(4 * numerics::align_up(span, kQuad) / 16);  // expanded inverses, keep
  return bytes;
}

/// The widest span, and as many stages as fit, up to 3; a span is whole groups.
constexpr Tile plan(const CastShape& shape, int32 x_pack_k, int32 x_word_bytes) {
  const int64 most =
      numerics::min_of<int64>(kMaxSpan, numerics::align_up(numerics::max_of(shape.hidden, 1), 128));
  for (int64 span = most; span >= 128; span = numerics::align_up(span / 2, 128)) {
    for (int32 stages = 3; stages >= 2; --stages) {
      const int64 bytes = ub_bytes(shape, stages, span, x_pack_k, x_word_bytes);
      if (bytes <= kUbBytes) return {stages, static_cast<int32>(span), bytes};
    }
    if (span == 128) break;
  }
  return {1, 128, ub_bytes(shape, 1, 128, x_pack_k, x_word_bytes)};
}

// ------------------------------ core code

// A strip of rows by a span of columns; or, beyond the last strip, padding of the scaling factors.
struct Item {
  int64 m;    // row of scaling factors
  int64 row;  // first row of x
  int64 rows;
  int64 start;  // first column
  int64 cols;
  int64 first_group;
  int64 groups;
  bool is_last;  // of its strip
};

TILEKERNELS_CORE int64 num_spans(const CastShape& shape, const Tile& tile) {
  return numerics::ceil_div(shape.hidden, tile.span);
}
TILEKERNELS_CORE int64 num_items(const CastArgs& args, const CastShape& shape, const Tile& tile) {
  const int64 strips = shape.mode == kCastGivenSf
                           ? row_blocks(args, shape)
                           : numerics::max_of(row_blocks(args, shape), args.out_sf.padded_m);
  return strips * num_spans(shape, tile);
}

TILEKERNELS_CORE Item item_of(const CastArgs& args, const CastShape& shape, const Tile& tile,
                              int64 index) {
  const int64 spans = num_spans(shape, tile);
  Item item{};
  item.m = index / spans;
  item.row = item.m * shape.block_rows;
  item.rows = numerics::min_of<int64>(shape.block_rows, args.num_tokens - item.row);
  item.start = index % spans * tile.span;
  item.cols = numerics::min_of<int64>(tile.span, shape.hidden - item.start);
  item.first_group = item.start / shape.block_cols;
  item.groups = numerics::ceil_div(item.cols, shape.block_cols);
  item.is_last = item.start + item.cols == shape.hidden;
  return item;
}

// Everything that the items of a kernel share.
struct Cast {
  const CastArgs& args;
  const CastShape& shape;
  const Tile tile;
  const SfWords x_words;
  const Sizes size;
  MutexPool pool{};
  // x and, behind it, scaling factors as they are in memory: those of x, a row after the other, or
  // the given ones. All come in together and so need one mutex.
  InRing<uint8> in;
  OutRing<uint8> out;
  OutRing<uint8> sf;
  Ub<float> tables{};       // decoded x_raw
  Ub<uint32> largest[2]{};  // by column
  Ub<uint8> cells{}, pairs{};
  Ub<uint8> amax{};
  Ub<uint32> words{};
  Ub<uint8> bytes{};
  Ub<float> inverses{}, expanded{};
  Ub<uint32> keep{}, expanded_keep{};
  Ub<float> given_table{};

  TILEKERNELS_CORE bool quantized() const { return is_quantized(shape.x_dtype); }
  TILEKERNELS_CORE bool is_e2m1() const { return shape.fmt == kDTypeE2M1x2; }

  TILEKERNELS_CORE Cast(const CastArgs& a, const CastShape& s, const Tile& t)
      : args(a),
        shape(s),
        tile(t),
        x_words(is_quantized(s.x_dtype) ? sf_words(a.x_sf.map, s.x_sf_kind) : SfWords{1, 1, 1}),
        size(sizes(s, t.span, x_words.pack_k, x_words.word_bytes)),
        in(pool, "x", t.stages, size.in_bytes, kSlotTail),
        out(pool, "out", s.mode == kCastSfOnly ? 0 : t.stages, size.out_bytes),
        sf(pool, "out_sf", s.mode == kCastGivenSf ? 0 : t.stages, size.blocks_bytes) {
    const int64 row = numerics::align_up(tile.span, kQuad);
    if (quantized() && shape.x_sf_kind != kSfF32) {
      tables = ub_alloc<float>("x_sf table", size.tables * size.table_pitch / 4);
    }
    if (shape.mode != kCastGivenSf) {
      const bool by_column = quantized() || shape.block_rows > 1;
      if (by_column) largest[0] = ub_alloc<uint32>("maxima by column", row, kSlotTail);
      if (quantized()) largest[1] = ub_alloc<uint32>("maxima by column", row, kSlotTail);
      cells = ub_alloc<uint8>("cells", 4 * row / 8, kSlotTail);
      pairs = ub_alloc<uint8>("pairs of cells", 4 * row / 8, kSlotTail);
      amax = ub_alloc<uint8>("amax", 4 * row / 8, kSlotTail);
      words = ub_alloc<uint32>("sf words", size.groups);
      bytes = ub_alloc<uint8>("sf bytes", size.groups);
    }
    inverses = ub_alloc<float>("inverses", size.groups);
    keep = ub_alloc<uint32>("keep", size.groups);
    if (shape.mode == kCastGivenSf) given_table = ub_alloc<float>("given table", size.groups);
    if (shape.mode == kCastSfOnly) return;
    expanded = ub_alloc<float>("expanded inverses", row / 8);
    if (is_e2m1()) expanded_keep = ub_alloc<uint32>("expanded keep", row / 16);
  }

  // Rows of x's scaling factors that an item needs.
  TILEKERNELS_CORE int64 first_table(const Item& item) const {
    return item.row / shape.x_block_rows;
  }
  TILEKERNELS_CORE int64 num_tables(const Item& item) const {
    return (item.row + item.rows - 1) / shape.x_block_rows - first_table(item) + 1;
  }

  TILEKERNELS_CORE void load(const Item& item) {
    if (item.rows <= 0) return;
    const int64 row_bytes = bytes_of(shape.x_dtype, item.cols);
    const Ub<uint8> slot = in.fill();
    copy_in(slot, gm(args.x + item.row * args.x_pitch_bytes + bytes_of(shape.x_dtype, item.start)),
            {item.rows, row_bytes, args.x_pitch_bytes, size.x_pitch_bytes});
    if (quantized()) {
      const SfSpan span = sf_span(x_words, item.start, item.cols, shape.x_block_cols);
      for (int64 t = 0; t < num_tables(item); ++t) {
        const int64 m = first_table(item) + t;
        copy_in_words(slot + (size.raw_offset + t * size.words_bytes),
                      args.x_sf.base + m / x_words.pack_m * args.x_sf.map.stride_m +
                          span.first * args.x_sf.map.stride_k,
                      x_words, args.x_sf.map.stride_k, span.count);
      }
    }
    if (shape.mode == kCastGivenSf) {
      const SfWords given_words = sf_words(args.given_sf.map, shape.sf_kind);
      copy_in_words(slot + size.raw_offset, args.given_sf.at(item.m, item.first_group), given_words,
                    args.given_sf.map.stride_k, item.groups);
    }
    in.filled();
  }

  // The table of one row of x's scaling factors.
  TILEKERNELS_CORE Ub<float> table(Ub<uint8> raw, int64 t) const {
    return shape.x_sf_kind == kSfF32 ? as_ub<float>(raw + t * size.words_bytes)
                                     : tables + t * size.table_pitch / 4;
  }

  // Calls visit(first row of the strip, rows, table) for rows that share their scaling factors.
  template <class Visit>
  TILEKERNELS_CORE void for_each_table(const Item& item, Ub<uint8> raw, const Visit& visit) const {
    for (int64 t = 0; t < num_tables(item); ++t) {
      const int64 m = first_table(item) + t;
      const int64 begin = numerics::max_of(m * shape.x_block_rows, item.row);
      const int64 end = numerics::min_of((m + 1) * int64{shape.x_block_rows}, item.row + item.rows);
      visit(begin - item.row, end - begin, table(raw, t));
    }
  }

  template <class T>
  TILEKERNELS_CORE void call_group_max(Ub<T> row, uint32 cols) {
    const Ub<T> to = as_ub<T>(amax);
    const Ub<T> a = as_ub<T>(cells);
    const Ub<T> b = as_ub<T>(pairs);
    switch (shape.block_cols) {
      case 16:
        return vf_call<group_max<T, 16>>("group_max", to, row, a, b, cols);
      case 32:
        return vf_call<group_max<T, 32>>("group_max", to, row, a, b, cols);
      case 64:
        return vf_call<group_max<T, 64>>("group_max", to, row, a, b, cols);
      default:
        return vf_call<group_max<T, 128>>("group_max", to, row, a, b, cols);
    }
  }

  template <int32 kDType>
  TILEKERNELS_CORE void call_value_max(const Item& item, Ub<uint8> tile_of_x, Ub<uint8> raw,
                                       const Columns& columns_of_x) {
    int32 turn = 0;
    for_each_table(item, raw, [&](int64 row, int64 rows, Ub<float> of) {
      const Ub<uint8> from = tile_of_x + row * size.x_pitch_bytes;
      const auto pitch = static_cast<int32>(size.x_pitch_bytes);
      const auto cols = static_cast<uint32>(item.cols);
      const Ub<uint32> to = largest[turn % 2];
      const Ub<uint32> before = largest[(turn + 1) % 2];
      if (turn++ == 0) {
        vf_call<value_max<kDType, true>>("value_max", to, before, from, pitch, trips(rows), of,
                                         columns_of_x.first, columns_of_x.inverse, cols);
      } else {
        vf_call<value_max<kDType, false>>("value_max", to, before, from, pitch, trips(rows), of,
                                          columns_of_x.first, columns_of_x.inverse, cols);
      }
    });
    call_group_max<uint32>(largest[(turn + 1) % 2], static_cast<uint32>(item.cols));
  }

  template <class T>
  TILEKERNELS_CORE void call_plain_max(const Item& item, Ub<uint8> tile_of_x) {
    const auto cols = static_cast<uint32>(item.cols);
    if (shape.block_rows == 1) return call_group_max<T>(as_ub<T>(tile_of_x), cols);
    const auto pitch = static_cast<int32>(size.x_pitch_bytes / static_cast<int64>(sizeof(T)));
    vf_call<column_max<T>>("column_max", as_ub<T>(largest[0]), as_ub<T>(tile_of_x), pitch,
                           trips(item.rows), cols);
    call_group_max<T>(as_ub<T>(largest[0]), cols);
  }

  template <int32 kSfKind, bool kIsE2M1>
  TILEKERNELS_CORE void call_make_scales(Ub<uint32> to, uint32 groups) {
    if (shape.x_dtype == kDTypeF16) {
      vf_call<make_scales<kSfKind, kIsE2M1, kDTypeF16>>("make_scales", to, inverses, keep, amax,
                                                        groups, args.amax_clamp);
    } else if (shape.x_dtype == kDTypeBF16) {
      vf_call<make_scales<kSfKind, kIsE2M1, kDTypeBF16>>("make_scales", to, inverses, keep, amax,
                                                         groups, args.amax_clamp);
    } else {
      vf_call<make_scales<kSfKind, kIsE2M1, kDTypeF32>>("make_scales", to, inverses, keep, amax,
                                                        groups, args.amax_clamp);
    }
  }

  template <bool kIsE2M1>
  TILEKERNELS_CORE void call_make_scales(Ub<uint32> to, uint32 groups) {
    switch (shape.sf_kind) {
      case kSfF32:
        return call_make_scales<kSfF32, kIsE2M1>(to, groups);
      case numerics::kSfRoundedF32:
        return call_make_scales<numerics::kSfRoundedF32, kIsE2M1>(to, groups);
      case numerics::kSfUE8M0:
        return call_make_scales<numerics::kSfUE8M0, kIsE2M1>(to, groups);
      default:
        return call_make_scales<kSfE4M3, kIsE2M1>(to, groups);
    }
  }

  // Codes of plain rows under the inverses of their groups.
  template <int32 kDType, bool kAnyNan>
  TILEKERNELS_CORE void call_plain_codes(const Item& item, Ub<uint8> to, Ub<uint8> from) {
    const auto pitch = static_cast<int32>(size.x_pitch_bytes);
    const auto out_pitch = static_cast<int32>(size.out_pitch_bytes);
    const auto cols = static_cast<uint32>(item.cols);
    const float inverse_of_group = 1.0f / static_cast<float>(shape.block_cols);
    if (is_e2m1()) {
      vf_call<make_e2m1<kDType, false, kAnyNan>>("make_e2m1", to, out_pitch, from, pitch,
                                                 trips(item.rows), expanded, expanded_keep,
                                                 inverses, 0.5f, 1.0f, cols);
    } else if (shape.block_cols >= 32) {
      vf_call<make_e4m3<kDType, kSfNone, true, kAnyNan>>("make_e4m3", to, out_pitch, from, pitch,
                                                         trips(item.rows), expanded, 0.0f, inverses,
                                                         0.5f, 1.0f, cols);
    } else {
      vf_call<make_e4m3<kDType, kSfNone, false, kAnyNan>>(
          "make_e4m3", to, out_pitch, from, pitch, trips(item.rows), inverses, inverse_of_group,
          inverses, 0.5f, 1.0f, cols);
    }
  }

  template <int32 kDType>
  TILEKERNELS_CORE void call_plain_codes(const Item& item, Ub<uint8> to, Ub<uint8> from) {
    if (shape.mode == kCastGivenSf) {
      call_plain_codes<kDType, true>(item, to, from);
    } else {
      call_plain_codes<kDType, false>(item, to, from);
    }
  }

  template <int32 kDType, int32 kXSf>
  TILEKERNELS_CORE void call_e4m3_again(Ub<uint8> to, Ub<uint8> from, int64 rows, Ub<float> of,
                                        const Columns& columns_of_x, uint32 cols) {
    const auto pitch = static_cast<int32>(size.x_pitch_bytes);
    const auto out_pitch = static_cast<int32>(size.out_pitch_bytes);
    const float inverse_of_group = 1.0f / static_cast<float>(shape.block_cols);
    if (shape.block_cols >= 32) {
      vf_call<make_e4m3<kDType, kXSf, true, true>>("make_e4m3", to, out_pitch, from, pitch,
                                                   trips(rows), expanded, 0.0f, of,
                                                   columns_of_x.first, columns_of_x.inverse, cols);
    } else {
      vf_call<make_e4m3<kDType, kXSf, false, true>>("make_e4m3", to, out_pitch, from, pitch,
                                                    trips(rows), inverses, inverse_of_group, of,
                                                    columns_of_x.first, columns_of_x.inverse, cols);
    }
  }

  // Codes of quantized rows.
  template <int32 kDType>
  TILEKERNELS_CORE void call_codes_again(const Item& item, Ub<uint8> to, Ub<uint8> from,
                                         Ub<uint8> raw, const Columns& columns_of_x) {
    const auto cols = static_cast<uint32>(item.cols);
    for_each_table(item, raw, [&](int64 row, int64 rows, Ub<float> of) {
      const Ub<uint8> mine = from + row * size.x_pitch_bytes;
      const Ub<uint8> codes = to + row * size.out_pitch_bytes;
      if (is_e2m1()) {
        vf_call<make_e2m1<kDType, true, true>>(
            "make_e2m1", codes, static_cast<int32>(size.out_pitch_bytes), mine,
            static_cast<int32>(size.x_pitch_bytes), trips(rows), expanded, expanded_keep, of,
            columns_of_x.first, columns_of_x.inverse, cols);
      } else if (shape.x_block_cols % 4 == 0) {
        call_e4m3_again<kDType, kSfByQuad>(codes, mine, rows, of, columns_of_x, cols);
      } else {
        call_e4m3_again<kDType, kSfByElement>(codes, mine, rows, of, columns_of_x, cols);
      }
    });
  }

  // Whether bf16 products are exact.
  TILEKERNELS_CORE bool by_pow2() const {
    const bool pow2 =
        shape.sf_kind == numerics::kSfRoundedF32 || shape.sf_kind == numerics::kSfUE8M0;
    return shape.x_dtype == kDTypeBF16 && shape.mode == kCastAll && pow2 &&
           (is_e2m1() || shape.block_cols >= 32);
  }

  TILEKERNELS_CORE void call_pow2_codes(const Item& item, Ub<uint8> to, Ub<uint8> from) {
    const auto pitch = static_cast<int32>(size.x_pitch_bytes);
    const auto out_pitch = static_cast<int32>(size.out_pitch_bytes);
    const auto cols = static_cast<uint32>(item.cols);
    const Ub<uint16> inverses_bf16 = as_ub<uint16>(expanded);
    if (is_e2m1()) {
      vf_call<make_e2m1_pow2>("make_e2m1", to, out_pitch, from, pitch, trips(item.rows),
                              inverses_bf16, expanded_keep, cols);
    } else {
      vf_call<make_e4m3_pow2>("make_e4m3", to, out_pitch, from, pitch, trips(item.rows),
                              inverses_bf16, cols);
    }
  }

  // Inverses as the functions of codes read them.
  TILEKERNELS_CORE void expand_inverses(const Item& item) {
    const float inverse_of_group = 1.0f / static_cast<float>(shape.block_cols);
    const auto every = [&](int64 stride) {
      return static_cast<uint32>(numerics::ceil_div(item.cols, stride));
    };
    if (by_pow2()) {
      const int64 stride = is_e2m1() ? 16 : 32;
      vf_call<expand_bf16>("expand", as_ub<uint16>(expanded), inverses, 0.5f, inverse_of_group,
                           static_cast<float>(stride), every(stride));
    } else if (is_e2m1()) {
      vf_call<expand>("expand", expanded, inverses, 0.5f, inverse_of_group, 8.0f, every(8));
    } else if (shape.block_cols >= 32) {
      vf_call<expand>("expand", expanded, inverses, 0.5f, inverse_of_group, 32.0f, every(32));
    }
    if (is_e2m1()) {
      vf_call<expand>("expand", as_ub<float>(expanded_keep), as_ub<float>(keep), 0.5f,
                      inverse_of_group, 16.0f, every(16));
    }
  }

  // Whether scaling factors lie one after the other in memory, a strip's.
  TILEKERNELS_CORE bool in_a_row(const SfWords& of) const {
    return args.out_sf.map.stride_k == of.word_bytes;
  }

  TILEKERNELS_CORE void compute_scales(const Item& item) {
    const SfWords of = sf_words(args.out_sf.map, shape.sf_kind);
    const auto groups = static_cast<uint32>(item.groups);
    const Ub<uint8> slot = sf.fill();
    const bool direct = is_wide_sf(shape.sf_kind) && in_a_row(of);
    const Ub<uint32> to = direct ? as_ub<uint32>(slot) : words;
    const uint16 turns = trips(numerics::ceil_div(item.groups, kF32Lanes));
    if (item.rows <= 0) {
      vf_call<make_zeros>("make_zeros", to, turns);
    } else if (is_e2m1()) {
      call_make_scales<true>(to, groups);
    } else {
      call_make_scales<false>(to, groups);
    }
    store_scales(item, of, slot, direct);
  }

  TILEKERNELS_CORE void store_scales(const Item& item, const SfWords& of, Ub<uint8> slot,
                                     bool direct) {
    const int64 sf_size = numerics::sf_bytes(shape.sf_kind);
    // With a strip's last span goes the padding of its last word.
    const int64 count = item.is_last ? args.out_sf.padded_k - item.first_group : item.groups;
    const uint16 turns = trips(numerics::ceil_div(item.groups, kF32Lanes));
    constexpr int64 kBlocks = kVectorBytes / kBlockBytes;
    uint8* const to = args.out_sf.at(item.m, item.first_group);
    if (in_a_row(of)) {
      if (!direct) vf_call<pack_bytes>("pack_bytes", slot, words, turns);
      sf.filled();
      copy_out(gm(to), sf.empty(), {1, count * sf_size});
      sf.emptied();
      return;
    }
    const bool whole_words =
        item.first_group % of.pack_k == 0 && (item.is_last || item.groups % of.pack_k == 0);
    const int64 pieces = whole_words ? numerics::ceil_div(count, of.pack_k) : count;
    const uint16 spreads = trips(numerics::ceil_div(pieces, kBlocks));
    if (of.pack_k > 1 && whole_words) {
      vf_call<pack_bytes>("pack_bytes", bytes, words, turns);
      if (of.pack_k == 2) {
        vf_call<spread<uint16>>("spread", slot, as_ub<uint16>(bytes), spreads);
      } else {
        vf_call<spread<uint32>>("spread", slot, as_ub<uint32>(bytes), spreads);
      }
    } else {
      vf_call<spread<uint32>>("spread", slot, words, spreads);
    }
    sf.filled();
    const Ub<uint8> from = sf.empty();
    if (whole_words) {
      copy_out(gm(to), from, {pieces, of.word_bytes, args.out_sf.map.stride_k, kBlockBytes});
    } else {
      // Spans of less than a word: byte by byte.
      for (int64 k = 0; k < pieces; ++k) {
        copy_out(gm(args.out_sf.at(item.m, item.first_group + k)), from + k * kBlockBytes, {1, 1});
      }
    }
    sf.emptied();
  }

  TILEKERNELS_CORE void compute(const Item& item) {
    if (item.rows <= 0) return compute_scales(item);
    const Ub<uint8> from = in.empty();
    const Ub<uint8> raw = from + size.raw_offset;
    Columns columns_of_x{};
    if (quantized()) {
      const SfSpan span = sf_span(x_words, item.start, item.cols, shape.x_block_cols);
      columns_of_x = span.columns;
      for (int64 t = 0; t < num_tables(item) && shape.x_sf_kind != kSfF32; ++t) {
        call_decode(table(raw, t), raw + t * size.words_bytes, x_words, shape.x_sf_kind,
                    first_table(item) + t, span.count);
      }
    }
    if (shape.mode == kCastGivenSf) {
      const auto groups = static_cast<uint32>(item.groups);
      const bool is_f32 = is_wide_sf(shape.sf_kind);
      if (!is_f32) {
        call_decode(given_table, raw, SfWords{1, 1, 1}, shape.sf_kind, 0, item.groups);
      }
      const Ub<float> of = is_f32 ? as_ub<float>(raw) : given_table;
      if (is_e2m1()) {
        vf_call<invert<true>>("invert", inverses, keep, of, groups);
      } else {
        vf_call<invert<false>>("invert", inverses, keep, of, groups);
      }
    } else {
      if (shape.x_dtype == kDTypeE4M3) {
        call_value_max<kDTypeE4M3>(item, from, raw, columns_of_x);
      } else if (shape.x_dtype == kDTypeE2M1x2) {
        call_value_max<kDTypeE2M1x2>(item, from, raw, columns_of_x);
      } else if (shape.x_dtype == kDTypeF32) {
        call_plain_max<uint32>(item, from);
      } else {
        call_plain_max<uint16>(item, from);
      }
      compute_scales(item);
    }
    if (shape.mode != kCastSfOnly) compute_codes(item, from, raw, columns_of_x);
    in.emptied();
  }

  TILEKERNELS_CORE void compute_codes(const Item& item, Ub<uint8> from, Ub<uint8> raw,
                                      const Columns& columns_of_x) {
    expand_inverses(item);
    const Ub<uint8> to = out.fill();
    switch (shape.x_dtype) {
      case kDTypeF32:
        call_plain_codes<kDTypeF32>(item, to, from);
        break;
      case kDTypeF16:
        call_plain_codes<kDTypeF16>(item, to, from);
        break;
      case kDTypeBF16:
        if (by_pow2()) {
          call_pow2_codes(item, to, from);
        } else {
          call_plain_codes<kDTypeBF16>(item, to, from);
        }
        break;
      case kDTypeE4M3:
        call_codes_again<kDTypeE4M3>(item, to, from, raw, columns_of_x);
        break;
      default:
        call_codes_again<kDTypeE2M1x2>(item, to, from, raw, columns_of_x);
    }
    out.filled();
    const int64 pitch = bytes_of(shape.fmt, shape.hidden);
    copy_out(gm(args.out + item.row * pitch + bytes_of(shape.fmt, item.start)), out.empty(),
             {item.rows, bytes_of(shape.fmt, item.cols), pitch, size.out_pitch_bytes});
    out.emptied();
  }
};

TILEKERNELS_CORE void run(const CastArgs& args, const CastShape& shape, const Tile& tile) {
  prologue();
  Cast cast(args, shape, tile);
  pipeline(
      tile.stages, block_idx(), num_items(args, shape, tile), block_num(),
      [&](int64 index) { cast.load(item_of(args, shape, tile, index)); },
      [&](int64 index) { cast.compute(item_of(args, shape, tile, index)); });
  barrier_all();
}

}  // namespace tilekernels::ascend::cast_kernel
