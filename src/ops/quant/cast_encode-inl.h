// From elements and their factors to codes, a row at a time.
#if defined(TILEKERNELS_OPS_QUANT_CAST_ENCODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TILEKERNELS_OPS_QUANT_CAST_ENCODE_INL_H_
#undef TILEKERNELS_OPS_QUANT_CAST_ENCODE_INL_H_
#else
#define TILEKERNELS_OPS_QUANT_CAST_ENCODE_INL_H_
#endif

#include <cstring>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "ops/quant/cast_lanes-inl.h"
#include "runtime/cpu/store-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tilekernels::cpu::HWY_NAMESPACE {
namespace {

template <int32 kX, class D>
HWY_INLINE nm::Quad<D> load(D d, const uint8* x) {
  constexpr auto kNum = static_cast<int64>(hn::MaxLanes(D()));
  const nm::U8Of<D> d8;
  const nm::U16Of<D> d16;
  if constexpr (kX == kDTypeF32) {
    const auto* at = reinterpret_cast<const float*>(x);
    return {nm::zip_f32(d, hn::LoadU(d, at), hn::LoadU(d, at + kNum)),
            nm::zip_f32(d, hn::LoadU(d, at + 2 * kNum), hn::LoadU(d, at + 3 * kNum))};
  } else if constexpr (kX == kDTypeE4M3) {
    return nm::widen_e4m3(d, hn::LoadU(d8, x));
  } else if constexpr (kX == kDTypeE2M1x2) {
    return nm::widen_e2m1(d, hn::LoadU(hn::Half<decltype(d8)>(), x));
  } else {
    const auto* at = reinterpret_cast<const uint16*>(x);
    const auto lower = hn::LoadU(d16, at);
    const auto upper = hn::LoadU(d16, at + 2 * kNum);
    if constexpr (kX == kDTypeBF16) {
      return {nm::widen_bf16(d, lower), nm::widen_bf16(d, upper)};
    } else {
      return {nm::widen_f16(d, lower), nm::widen_f16(d, upper)};
    }
  }
}

template <class D, class F>
HWY_INLINE nm::Quad<D> map2(const nm::Quad<D>& a, const nm::Quad<D>& b, F f) {
  return {{f(a.lower.lo, b.lower.lo), f(a.lower.hi, b.lower.hi)},
          {f(a.upper.lo, b.upper.lo), f(a.upper.hi, b.upper.hi)}};
}

// ------------------------------ a row of a tile

// The values of a step of columns from `value`(column), which changes at multiples of kBlockCols
// only.
template <class F>
HWY_INLINE Quad by_block(int64 col, F value) {
  const auto pair = [&](int64 c) {
    VF v = hn::Set(kF, value(c));
    // In zipped order, too, the first half of a pair's columns is in the first half of each vector.
    if constexpr (kPairCols == 2 * kBlockCols) {
      v = hn::ConcatLowerLower(kF, hn::Set(kF, value(c + kBlockCols)), v);
    }
    static_assert(kPairCols <= 2 * kBlockCols);
    return Pair{v, v};
  };
  return {pair(col), pair(col + kPairCols)};
}

struct PlainFactors {
  const float* inv;
  int group_shift;

  HWY_INLINE float at(int64 col) const { return inv[col >> group_shift]; }
  HWY_INLINE Quad operator()(int64 col) const {
    if (kPairCols > kBlockCols && (kPairCols >> group_shift) <= 1) {  // a pair lies in one group
      const VF lower = hn::Set(kF, at(col));
      const VF upper = hn::Set(kF, at(col + kPairCols));
      return {{lower, lower}, {upper, upper}};
    }
    return by_block(col, [this](int64 c) { return at(c); });
  }
};

// fused_factor. What a NaN becomes does not matter: its group is bad.
HWY_INLINE VF fused_factors(VF sf, VF inv) {
  return hn::Min(hn::Mul(sf, inv), hn::Set(kF, kFloatMax));
}

// Of a quantized x with a scaling factor for each column.
struct FactorsByCol {
  PlainFactors inv;
  const float* sf;

  HWY_INLINE Quad operator()(int64 col) const {
    return map2(load<kDTypeF32>(kF, reinterpret_cast<const uint8*>(sf + col)), inv(col),
                fused_factors);
  }
};

// Of any other, for each block of kBlockCols codes.
void fuse_factors(const float* units, int unit_shift, const float* inv, int group_shift, int64 cols,
                  float* factors) {
  const hn::RebindToSigned<DU32> i32;
  constexpr int kShift = 4;
  static_assert(kBlockCols == 1 << kShift);
  const auto lanes = [&](int shift) {
    return hn::IndicesFromVec(kF, hn::ShiftRightSame(hn::Iota(i32, 0), shift - kShift));
  };
  const auto unit_lanes = lanes(unit_shift);
  const auto group_lanes = lanes(group_shift);
  for (int64 col = 0; col < cols; col += kLanes * kBlockCols) {
    const VF sf = hn::TableLookupLanes(hn::LoadU(kF, units + (col >> unit_shift)), unit_lanes);
    const VF i = hn::TableLookupLanes(hn::LoadU(kF, inv + (col >> group_shift)), group_lanes);
    hn::StoreU(fused_factors(sf, i), kF, factors + (col >> kShift));
  }
}

struct FactorsByBlock {
  const float* factors;

  HWY_INLINE Quad operator()(int64 col) const {
    return by_block(col, [this](int64 c) { return factors[c / kBlockCols]; });
  }
};

// Encodes kStep elements. kChecked: products may be NaN, 2^100 and more, or above the largest e4m3;
// else factors of a plain x are positive.
template <int32 kX, int32 kFmt, bool kChecked>
HWY_INLINE void encode(const uint8* x, const Quad& factors, bool stream, uint8* out) {
  const auto times = [](VF a, VF b) { return hn::Mul(a, b); };
  if constexpr (kX == kDTypeBF16 && !kChecked) {
    const auto* at = reinterpret_cast<const uint16*>(x);
    const auto mask = hn::Set(kU16, uint16{0x7FFF});
    const auto lower = hn::LoadU(kU16, at);
    const auto upper = hn::LoadU(kU16, at + kPairCols);
    const auto signs = nm::sign_bytes(kF, lower, upper);
    const Quad magnitudes{nm::widen_bf16(kF, hn::And(lower, mask)),
                          nm::widen_bf16(kF, hn::And(upper, mask))};
    const Quad y = map2(magnitudes, factors, times);
    if constexpr (kFmt == kDTypeE4M3) {
      store(stream, nm::narrow_e4m3_magnitudes(kF, y, signs), kU8, out);
    } else {
      store(stream, nm::narrow_e2m1_magnitudes(kF, y, signs), hn::Half<DU8>(), out);
    }
    return;
  }
  const Quad values = load<kX>(kF, x);
  Quad y = map2(values, factors, times);
  if constexpr (kFmt == kDTypeE4M3) {
    if constexpr (kChecked) {
      store(stream, nm::narrow_e4m3(kF, y), kU8, out);
    } else {
      store(stream, nm::narrow_e4m3_numbers(kF, y), kU8, out);
    }
  } else if constexpr (kChecked) {
    y = map2(y, values, [](VF p, VF a) { return nm::nan_sign_from(kF, p, a); });
    store(stream, nm::narrow_e2m1(kF, y), hn::Half<DU8>(), out);
  } else {
    store(stream, nm::narrow_e2m1_numbers(kF, y), hn::Half<DU8>(), out);
  }
}

// ------------------------------ bf16 under powers of two, on 16-bit lanes
//
// Multiplying by a power of two adds to the exponent field; `bases` are what to subtract from
// bf16 bits instead, so that what is left is the code, or tells it.
//
// e4m3: bits are rounded to 3 bits of mantissa first and then are the code, where that is normal.
// From 2^-10 to 2^-6 codes are subnormal: then kBelow codes below 0 and the first 8 are in use.
// e2m1: 2^-3 becomes 0, so 6 becomes 704. Less two bits, which leave a sticky one, that is a byte,
// of which each 16 values have two codes at most.

constexpr int kBelow = 25;
// The inverses under which bf16 subnormals are below all that.
constexpr float kMaxPowerInverse = 0x1p100f;

// A base in both halves of 32 bits; 0, which serves zeros, where the inverse is too large.
template <int32 kFmt>
HWY_INLINE VF exponent_bases(VF inv) {
  const hn::RebindToSigned<DU32> i32;
  constexpr int kMantissa = kFmt == kDTypeE4M3 ? 3 : 7;
  constexpr int kZero = kFmt == kDTypeE4M3 ? (127 + 127 - 7) * 8 - kBelow : (127 + 127 - 3) * 128;
  const auto exponent = hn::BitCast(i32, hn::ShiftRight<23 - kMantissa>(hn::BitCast(kU32, inv)));
  const auto base = hn::Max(hn::Sub(hn::Set(i32, kZero), exponent), hn::Zero(i32));
  return hn::BitCast(kF, hn::Or(base, hn::ShiftLeft<16>(base)));
}

// Returns false, having stored nothing, if codes are subnormal.
HWY_INLINE bool encode_e4m3_exponents(VU16 lower, VU16 upper, VU16 lower_base, VU16 upper_base,
                                      bool stream, uint8* out) {
  const auto codes = [](VU16 v, VU16 base) {
    const VU16 bits = hn::And(v, hn::Set(kU16, uint16{0x7FFF}));
    const VU16 odd = hn::And(hn::ShiftRight<4>(bits), hn::Set(kU16, uint16{1}));
    const VU16 rounded = hn::ShiftRight<4>(hn::Add(hn::Add(bits, hn::Set(kU16, uint16{7})), odd));
    return hn::BitCast(hn::RebindToSigned<DU16>(), hn::SaturatedSub(rounded, base));
  };
  const V8 shifted = nm::pack_u8(codes(lower, lower_base), codes(upper, upper_base));
  const V8 less = hn::Sub(shifted, hn::Set(kU8, uint8{1}));  // 0 becomes 255
  const auto is_subnormal = hn::Eq(hn::Min(less, hn::Set(kU8, uint8{kBelow + 6})), less);
  if (HWY_UNLIKELY(!hn::AllFalse(kU8, is_subnormal))) return false;
  const V8 magnitudes = hn::SaturatedSub(shifted, hn::Set(kU8, uint8{kBelow}));
  const V8 signs = nm::sign_bytes(kF, lower, upper);
  store(stream, nm::unzip_bytes(kU8, hn::Or(magnitudes, signs)), kU8, out);
  return true;
}

HWY_INLINE void encode_e2m1_exponents(VU16 lower, VU16 upper, VU16 lower_base, VU16 upper_base,
                                      bool stream, uint8* out) {
  const auto bytes = [](VU16 v, VU16 base) {
    const VU16 bits = hn::And(v, hn::Set(kU16, uint16{0x7FFF}));
    const VU16 above = hn::SaturatedSub(bits, base);
    const VU16 sticky = hn::Min(hn::And(above, hn::Set(kU16, uint16{3})), hn::Set(kU16, uint16{1}));
    return hn::BitCast(hn::RebindToSigned<DU16>(), hn::Or(hn::ShiftRight<2>(above), sticky));
  };
  const V8 x = nm::pack_u8(bytes(lower, lower_base), bytes(upper, upper_base));
  // By the upper four bits: the code, and the largest lower bits that do not make it one more.
  // Ties are even: 2^-2 at 0x20, 0.75 at 0x50, 1.25 at 0x68, 1.75 at 0x78 and so on.
  alignas(16) static constexpr uint8 kCode[16] = {0, 0, 0, 1, 1, 2, 2, 3, 4, 5, 6, 7, 7, 7, 7, 7};
  alignas(16) static constexpr uint8 kLast[16] = {15, 15, 0, 15, 15, 15, 8,  7,
                                                  8,  7,  8, 15, 15, 15, 15, 15};
  const hn::RebindToSigned<DU8> i8;
  const V8 nibble = hn::Set(kU8, uint8{15});
  const V8 top = hn::And(hn::BitCast(kU8, hn::ShiftRight<4>(hn::BitCast(kU16, x))), nibble);
  const V8 code = hn::TableLookupBytes(hn::LoadDup128(kU8, kCode), top);
  const V8 last = hn::TableLookupBytes(hn::LoadDup128(kU8, kLast), top);
  const auto is_more = hn::Gt(hn::BitCast(i8, hn::And(x, nibble)), hn::BitCast(i8, last));
  const V8 magnitudes = hn::Sub(code, hn::BitCast(kU8, hn::VecFromMask(i8, is_more)));
  const VU16 signs = hn::ShiftRight<4>(hn::BitCast(kU16, nm::sign_bytes(kF, lower, upper)));
  const V8 codes = hn::Or(magnitudes, hn::BitCast(kU8, signs));
  store(stream, nm::join_e2m1(kF, codes), hn::Half<DU8>(), out);
}

template <int32 kFmt>
HWY_INLINE void encode_exponents(const uint8* x, const Quad& bases, const Quad& factors,
                                 bool stream, uint8* out) {
  const auto* at = reinterpret_cast<const uint16*>(x);
  const VU16 lower = hn::LoadU(kU16, at);
  const VU16 upper = hn::LoadU(kU16, at + kPairCols);
  const VU16 lower_base = hn::BitCast(kU16, bases.lower.lo);
  const VU16 upper_base = hn::BitCast(kU16, bases.upper.lo);
  if constexpr (kFmt == kDTypeE2M1x2) {
    encode_e2m1_exponents(lower, upper, lower_base, upper_base, stream, out);
  } else if (!encode_e4m3_exponents(lower, upper, lower_base, upper_base, stream, out)) {
    encode<kDTypeBF16, kFmt, false>(x, factors, stream, out);
  }
}

// As `encode`, unchecked, of codes that are numbers, under one factor >= 0 for each 128-bit block.
// Bytes stay in their blocks on the way, so nothing is zipped.
template <int32 kX, int32 kFmt>
HWY_INLINE void encode_codes(const uint8* x, VF factor, bool stream, uint8* out) {
  V8 signs;
  Quad values;
  if constexpr (kX == kDTypeE4M3) {
    const V8 codes = hn::LoadU(kU8, x);
    signs = hn::And(codes, hn::Set(kU8, uint8{0x80}));
    values = nm::widen_e4m3_magnitudes(kF, hn::Xor(codes, signs));
  } else {
    const V8 codes = nm::split_e2m1(kF, hn::LoadU(hn::Half<DU8>(), x));
    const V8 upper = hn::BitCast(kU8, hn::ShiftLeft<4>(hn::BitCast(kU16, codes)));
    signs = hn::And(upper, hn::Set(kU8, uint8{0x80}));
    values = nm::widen_e2m1_codes(kF, hn::And(codes, hn::Set(kU8, uint8{7})));
  }
  const Quad y = nm::map(values, [factor](VF v) { return hn::Mul(v, factor); });
  if constexpr (kFmt == kDTypeE4M3) {
    store(stream, nm::e4m3_codes<nm::Range::kFitting>(kF, y, signs), kU8, out);
  } else {
    const V8 codes = nm::e2m1_codes<nm::Range::kMagnitude>(kF, y, signs);
    store(stream, nm::join_e2m1(kF, nm::zip_bytes(kU8, codes)), hn::Half<DU8>(), out);
  }
}

template <int32 kX>
HWY_INLINE void prefetch(const uint8* x) {
  for (int64 line = 0; line < bytes_of<kX>(kStep); line += 64) hwy::Prefetch(x + line);
}

// A row by `encode_step`(x, column, stream, out), kStep columns a time, from `col` on.
template <int32 kX, int32 kFmt, class F>
HWY_INLINE void encode_steps(const uint8* x, int64 col, int64 cols, bool stream,
                             int64 prefetch_offset, uint8* out, F encode_step) {
  for (; col + kStep <= cols; col += kStep) {
    const uint8* at = x + bytes_of<kX>(col);
    prefetch<kX>(at + prefetch_offset);
    encode_step(at, col, stream, out + bytes_of<kFmt>(col));
  }
  if (col == cols) return;
  alignas(64) uint8 rest[4 * kStep] = {};
  alignas(64) uint8 codes[kStep];
  std::memcpy(rest, x + bytes_of<kX>(col), static_cast<size_t>(bytes_of<kX>(cols - col)));
  encode_step(rest, col, false, codes);
  std::memcpy(out + bytes_of<kFmt>(col), codes, static_cast<size_t>(bytes_of<kFmt>(cols - col)));
}

template <int32 kX, int32 kFmt, bool kChecked, class Factors>
void encode_row(const uint8* x, int64 cols, const Factors& factors, bool stream,
                int64 prefetch_offset, uint8* out) {
  int64 col = 0;
  // Steps that lie in one group
  if constexpr (!is_quantized(kX)) {
    const int64 group = int64{1} << factors.group_shift;
    while (group > kStep && col + group <= cols) {
      const VF factor = hn::Set(kF, factors.at(col));
      const Quad all{{factor, factor}, {factor, factor}};
      for (const int64 end = col + group; col < end; col += kStep) {
        const uint8* at = x + bytes_of<kX>(col);
        prefetch<kX>(at + prefetch_offset);
        encode<kX, kFmt, kChecked>(at, all, stream, out + bytes_of<kFmt>(col));
      }
    }
  }
  encode_steps<kX, kFmt>(x, col, cols, stream, prefetch_offset, out,
                         [&](const uint8* at, int64 c, bool streams, uint8* to) {
                           encode<kX, kFmt, kChecked>(at, factors(c), streams, to);
                         });
}

template <int32 kFmt>
void encode_row_by_exponent(const uint8* x, int64 cols, const PlainFactors& factors,
                            const PlainFactors& bases, bool stream, int64 prefetch_offset,
                            uint8* out) {
  encode_steps<kDTypeBF16, kFmt>(x, 0, cols, stream, prefetch_offset, out,
                                 [&](const uint8* at, int64 c, bool streams, uint8* to) {
                                   encode_exponents<kFmt>(at, bases(c), factors(c), streams, to);
                                 });
}

// encode_codes, given the factors of blocks.
template <int32 kX, int32 kFmt>
HWY_INLINE void encode_code_blocks(const uint8* x, const float* factors, bool stream, uint8* out) {
  const hn::RebindToSigned<DU32> i32;
  const auto blocks = hn::IndicesFromVec(kF, hn::ShiftRight<2>(hn::Iota(i32, 0)));
  const VF four = hn::LoadDup128(kF, factors);
  encode_codes<kX, kFmt>(x, hn::TableLookupLanes(four, blocks), stream, out);
}

template <int32 kX, int32 kFmt>
void encode_row_of_codes(const uint8* x, int64 cols, const float* factors, bool stream,
                         int64 prefetch_offset, uint8* out) {
  encode_steps<kX, kFmt>(x, 0, cols, stream, prefetch_offset, out,
                         [&](const uint8* at, int64 c, bool streams, uint8* to) {
                           encode_code_blocks<kX, kFmt>(at, factors + c / kBlockCols, streams, to);
                         });
}

// ------------------------------ e4m3 to e4m3, by table
//
// As long as the results are normal, a factor takes codes of one mantissa to codes of one mantissa,
// and to the exponent adds a constant. So a unit, which has one factor, has a table of 16 bytes:
// the results of the codes below 8, then by mantissa what to add to the exponent bits of the rest.

constexpr int64 kTableBytes = 16;

// `tables` of units from the factors of their blocks. Entries of results that are not normal codes
// are anything below 8, or make such a sum.
HWY_INLINE void write_e4m3_tables(const float* factors, int64 unit_blocks, int64 num_units,
                                  uint8* tables) {
  // Entries in the order in which packs take them.
  constexpr bool kByTwo = kLanes == 8;
  alignas(64) static constexpr auto kEntries = [] {
    // Codes are 8 a power of two: less the bias of fp32, plus that of e4m3; numbers are codes ·
    // 2^9, or mantissas · 2^10 under an exponent of 0.
    constexpr int32 kLow = (127 - 7 + 9) * 8;
    constexpr int32 kHigh = (127 - 7 + 10) * 8;
    struct {
      float number[kTableBytes];
      int32 bias[kTableBytes];  // rounds, less the base
    } entries{};
    for (int32 i = 0; i < kTableBytes; ++i) {
      const int32 number = kByTwo ? (i & 3) | (i & 4) << 1 | (i & 8) >> 1 : i;
      entries.number[i] = static_cast<float>(number);
      entries.bias[i] = 0x7FFFF - ((number == 0 ? 0 : number < 8 ? kLow : kHigh) << 20);
    }
    return entries;
  }();
  const hn::RebindToSigned<DU32> i32;
  const auto rounded = [&](VF factor, int64 i) {
    const VU32 bits = hn::BitCast(kU32, hn::Mul(hn::Load(kF, kEntries.number + i), factor));
    const VU32 odd = hn::And(hn::ShiftRight<20>(bits), hn::Set(kU32, 1u));
    const auto sum =
        hn::Add(hn::BitCast(i32, hn::Add(bits, odd)), hn::Load(i32, kEntries.bias + i));
    return hn::ShiftRight<20>(sum);
  };
  for (int64 unit = 0; unit < num_units; ++unit) {
    const VF factor = hn::Set(kF, factors[unit * unit_blocks]);
    auto* const to = reinterpret_cast<int8*>(tables) + unit * kTableBytes;
    if constexpr (kByTwo) {
      const hn::Repartition<int16, DF> i16;
      const hn::Rebind<int8, decltype(i16)> i8;
      const auto both = hn::ReorderDemote2To(i16, rounded(factor, 0), rounded(factor, kLanes));
      hn::StoreU(hn::DemoteTo(i8, both), i8, to);
    } else {
      const hn::Rebind<int8, DF> i8;
      for (int64 i = 0; i < kTableBytes; i += kLanes) {
        hn::StoreU(hn::DemoteTo(i8, rounded(factor, i)), i8, to + i);
      }
    }
  }
}

// Returns false, having stored nothing, if results are not normal.
HWY_INLINE bool encode_by_table(const uint8* x, V8 tables, bool stream, uint8* out) {
  const hn::RebindToSigned<DU8> i8;
  const V8 codes = hn::LoadU(kU8, x);
  const V8 signs = hn::And(codes, hn::Set(kU8, uint8{0x80}));
  const V8 abs = hn::Xor(codes, signs);
  const V8 exponents = hn::And(codes, hn::Set(kU8, uint8{0x78}));
  const V8 mantissas = hn::And(codes, hn::Set(kU8, uint8{0x07}));
  const V8 index = hn::Min(abs, hn::Or(mantissas, hn::Set(kU8, uint8{0x08})));
  const V8 entries = hn::TableLookupBytes(tables, index);
  const auto sums = hn::SaturatedAdd(hn::BitCast(i8, entries), hn::BitCast(i8, exponents));
  const auto is_small = hn::Lt(sums, hn::Set(i8, int8{8}));
  const auto is_number = hn::Gt(hn::BitCast(i8, abs), hn::Zero(i8));
  if (HWY_UNLIKELY(!hn::AllFalse(i8, hn::And(is_small, is_number)))) return false;
  store(stream, hn::Or(hn::BitCast(kU8, sums), signs), kU8, out);
  return true;
}

// As encode_row_of_codes, under tables of units of 2^unit_shift columns.
inline void encode_row_by_table(const uint8* x, int64 cols, const float* factors,
                                const uint8* tables, int unit_shift, bool stream,
                                int64 prefetch_offset, uint8* out) {
  const hn::RebindToSigned<DU32> i32;
  const auto lane = hn::Iota(i32, 0);
  // 32-bit lanes of a table are four, and so are those of a block.
  const auto unit = hn::ShiftRightSame(lane, unit_shift - 4 + 2);
  const auto lanes =
      hn::IndicesFromVec(kU32, hn::Or(hn::ShiftLeft<2>(unit), hn::And(lane, hn::Set(i32, 3))));
  encode_steps<kDTypeE4M3, kDTypeE4M3>(
      x, 0, cols, stream, prefetch_offset, out,
      [&](const uint8* at, int64 c, bool streams, uint8* to) {
        const uint8* from = tables + (c >> unit_shift) * kTableBytes;
        const VU32 table = hn::BitCast(kU32, hn::LoadU(kU8, from));
        const V8 of_blocks = hn::BitCast(kU8, hn::TableLookupLanes(table, lanes));
        if (!encode_by_table(at, of_blocks, streams, to)) {
          encode_code_blocks<kDTypeE4M3, kDTypeE4M3>(at, factors + c / kBlockCols, streams, to);
        }
      });
}

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace tilekernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TILEKERNELS_OPS_QUANT_CAST_ENCODE_INL_H_
