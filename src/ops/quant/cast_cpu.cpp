// per_token_cast and per_block_cast on SIMD lanes: tile by tile of x that stays in the cache, first
// the largest magnitudes, then the scaling factors, then the codes.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "hwy/cache_control.h"
#include "ops/quant/cast.h"
#include "runtime/cpu/cache.h"
#include "runtime/cpu/parallel.h"
#include "tilekernels/config.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/quant/cast_cpu.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "numerics/formats-inl.h"
#include "ops/quant/scales-inl.h"
#include "runtime/cpu/store-inl.h"

#ifndef TILEKERNELS_OPS_QUANT_CAST_CPU_CPP_
#define TILEKERNELS_OPS_QUANT_CAST_CPU_CPP_
namespace tilekernels::cpu {

constexpr int64 kMaxTileCols = 4096;
constexpr int64 kMinGroup = 16;
constexpr int64 kMaxTileGroups = kMaxTileCols / kMinGroup;
// Rows of scaling blocks in a tile where scaling factors lie by column: 16 of them are a line.
constexpr int64 kMaxTileRows = 16;
// Four groups of 128: a tile's scaling factors are whole packs.
constexpr int64 kColsMultiple = 512;
// Elements behind the last one that vectors may run over.
constexpr int64 kPad = 64;

// Of 16, 32, 64 or 128.
constexpr int log2_of(int64 cols) { return cols == 16 ? 4 : cols == 32 ? 5 : cols == 64 ? 6 : 7; }

constexpr int64 bits_of(int32 dtype) {
  return dtype == numerics::kDTypeF32      ? 32
         : dtype == numerics::kDTypeE4M3   ? 8
         : dtype == numerics::kDTypeE2M1x2 ? 4
                                           : 16;
}

// How a call is walked: everything that does not depend on the tile.
struct CastWalk {
  int64 rows;       // of scaling blocks
  int64 tile_rows;  // in scaling blocks
  int64 tile_cols;  // in elements, a multiple of kColsMultiple
  int64 num_tile_rows;
  int64 num_tile_cols;
  int64 item_tiles;       // neighbouring tiles that one thread does, one after the other
  int64 num_items;        // in a row of tiles
  int64 out_pitch;        // bytes
  int64 prefetch_offset;  // bytes from what is encoded to what is read next, in the same item
  bool stream;            // whether codes bypass the cache …
  bool by_row;            // … after they were gathered in a row, for want of alignment
};

// A thread's memory besides the tensors.
struct CastScratch {
  alignas(64) uint32 amax[kMaxTileGroups + kPad];
  alignas(64) float inv[kMaxTileGroups + kPad];
  alignas(64) float bases[kMaxTileGroups + kPad];  // bits of what exponent_bases gives
  alignas(64) uint8 sf[kMaxTileRows][4 * (kMaxTileGroups + kPad)];  // as stored
  alignas(64) uint8 row[kMaxTileCols + kPad];                       // codes
  // Of a quantized x: scaling factors of the blocks in a row of the tile, then one for every unit;
  // what codes are multiplied by, largest codes or magnitudes by unit, values
  alignas(64) float scales[kMaxTileCols + kPad];
  alignas(64) float units[kMaxTileCols + kPad];
  alignas(64) float factors[kMaxTileGroups + kPad];
  alignas(64) uint32 unit_amax[kMaxTileGroups + kPad];
  alignas(64) float values[kMaxTileCols + kPad];
  alignas(64) uint8 raw[kMaxTileCols + kPad];
};

}  // namespace tilekernels::cpu
#endif  // TILEKERNELS_OPS_QUANT_CAST_CPU_CPP_

HWY_BEFORE_NAMESPACE();
namespace tilekernels::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
namespace nm = numerics::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;
// For what needs that a vector of 16-bit elements lies in one group of 16.
using DF8 = hn::CappedTag<float, 8>;
using DU32 = nm::U32Of<DF>;
using DU16 = nm::U16Of<DF>;
using DU8 = nm::U8Of<DF>;
using D4 = hn::CappedTag<uint32, 4>;
constexpr DF kF;
constexpr DU32 kU32;
constexpr DU16 kU16;
constexpr DU8 kU8;
constexpr D4 kU32x4;
using VF = hn::Vec<DF>;
using VU32 = hn::Vec<DU32>;
using VU16 = hn::Vec<DU16>;
using V8 = hn::Vec<DU8>;
using V4 = hn::Vec<D4>;
using Pair = nm::Pair<DF>;
using Quad = nm::Quad<DF>;
constexpr int64 kLanes = static_cast<int64>(hn::MaxLanes(kF));
constexpr int64 kStep = 4 * kLanes;  // columns at a time
constexpr int64 kPairCols = 2 * kLanes;
constexpr int64 kBlockCols = 16;  // codes in a 128-bit block

using namespace numerics;  // NOLINT: the ids of dtypes and kinds

// Bytes of `cols` elements.
template <int32 kDType>
constexpr int64 bytes_of(int64 cols) {
  return cols * bits_of(kDType) / 8;
}

// ------------------------------ the largest magnitude of a group

// The larger of a vector's halves, down to 128 bits.
template <class V>
HWY_INLINE auto fold(V bits) {
  if constexpr (sizeof(bits) > 16) {
    const hn::Half<hn::DFromV<V>> half;
    return fold(hn::Max(hn::LowerHalf(half, bits), hn::UpperHalf(half, bits)));
  } else {
    return bits;
  }
}

template <int32 kX, class D>
using BitsOf = std::conditional_t<kX == kDTypeF32, nm::U32Of<D>,
                                  std::conditional_t<is_quantized(kX), nm::U8Of<D>, nm::U16Of<D>>>;

// The magnitudes of a vector of elements, of e2m1 the larger ones of pairs.
template <int32 kX, class D, class V>
HWY_INLINE V magnitudes(D d, V x) {
  using T = hn::TFromD<D>;
  if constexpr (kX == kDTypeE2M1x2) {
    const hn::Repartition<uint16, D> d16;
    const auto mask = hn::Set(d, T{7});
    const auto odd = hn::BitCast(d, hn::ShiftRight<4>(hn::BitCast(d16, x)));
    return hn::Max(hn::And(x, mask), hn::And(odd, mask));
  } else {
    return hn::And(x, hn::Set(d, static_cast<T>(static_cast<T>(~T{0}) >> 1)));
  }
}

// The largest magnitudes of a group, lane by lane; `group` is whole vectors, or half of one.
template <int32 kX, class D>
HWY_INLINE hn::Vec<BitsOf<kX, D>> group_amax(D, const uint8* x, int64 group) {
  const BitsOf<kX, D> d;
  using T = hn::TFromD<decltype(d)>;
  const auto num = static_cast<int64>(hn::Lanes(d));
  const int64 end = bytes_of<kX>(group) / static_cast<int64>(sizeof(T));
  const auto* at = reinterpret_cast<const T*>(x);
  if constexpr (kX == kDTypeE2M1x2) {
    if (end < num) {
      uint64 half;
      std::memcpy(&half, x, 8);
      return magnitudes<kX>(d, hn::BitCast(d, hn::Set(hn::Repartition<uint64, D>(), half)));
    }
  }
  const auto load = [&](int64 i) { return magnitudes<kX>(d, hn::LoadU(d, at + i)); };
  auto amax = load(0);
  if (end == num) return amax;
  auto odd = load(num);  // vectors are one, or an even number
  for (int64 i = 2 * num; i < end; i += 2 * num) {
    amax = hn::Max(amax, load(i));
    odd = hn::Max(odd, load(i + num));
  }
  return hn::Max(amax, odd);
}

// The bits of the largest magnitudes of four groups, those of 16-bit formats in the upper halves.
template <int32 kX, class D, class V>
HWY_INLINE V4 join_amax(D, V a, V b, V c, V e) {
  const BitsOf<kX, D> d;
  const nm::U32Of<D> d32;
  const hn::Repartition<uint64, D> d64;
  // In each 128-bit block a, b, a, b of 32 bits
  const auto two = [&](V p, V q) {
    const auto p32 = hn::BitCast(d32, p);
    const auto q32 = hn::BitCast(d32, q);
    return hn::Max(hn::BitCast(d, hn::InterleaveLower(d32, p32, q32)),
                   hn::BitCast(d, hn::InterleaveUpper(d32, p32, q32)));
  };
  const auto ab = hn::BitCast(d64, two(a, b));
  const auto ce = hn::BitCast(d64, two(c, e));
  const auto all = hn::Max(hn::BitCast(d, hn::InterleaveLower(d64, ab, ce)),
                           hn::BitCast(d, hn::InterleaveUpper(d64, ab, ce)));
  if constexpr (kX == kDTypeF32) {
    return fold(all);
  } else if constexpr (is_quantized(kX)) {
    V4 codes = hn::BitCast(kU32x4, fold(all));
    const hn::Repartition<uint8, D4> d8;
    const auto max = [&](V4 p, V4 q) {
      return hn::BitCast(kU32x4, hn::Max(hn::BitCast(d8, p), hn::BitCast(d8, q)));
    };
    codes = max(codes, hn::ShiftRight<16>(codes));
    return hn::And(max(codes, hn::ShiftRight<8>(codes)), hn::Set(kU32x4, 0xFFu));
  } else {
    const auto pairs = hn::BitCast(d32, all);
    return fold(hn::Max(hn::ShiftLeft<16>(pairs), hn::And(pairs, hn::Set(d32, 0xFFFF0000u))));
  }
}

// Takes a row of a tile into the maxima of its groups, which it starts if it is the first.
template <int32 kX, class D>
HWY_INLINE void row_amax(D d, const uint8* x, int64 cols, int64 group, bool is_first,
                         uint32* amax) {
  const int64 bytes = bytes_of<kX>(group);
  const auto update = [&](V4 bits) {
    if (!is_first) bits = hn::Max(bits, hn::Load(kU32x4, amax));
    hn::Store(bits, kU32x4, amax);
    amax += 4;
  };
  int64 col = 0;
  for (; col + 4 * group <= cols; col += 4 * group, x += 4 * bytes) {
    update(join_amax<kX>(d, group_amax<kX>(d, x, group), group_amax<kX>(d, x + bytes, group),
                         group_amax<kX>(d, x + 2 * bytes, group),
                         group_amax<kX>(d, x + 3 * bytes, group)));
  }
  if (col == cols) return;
  alignas(64) uint8 rest[4 * 128 * 4] = {};
  std::memcpy(rest, x, static_cast<size_t>(bytes_of<kX>(cols - col)));
  update(join_amax<kX>(d, group_amax<kX>(d, rest, group), group_amax<kX>(d, rest + bytes, group),
                       group_amax<kX>(d, rest + 2 * bytes, group),
                       group_amax<kX>(d, rest + 3 * bytes, group)));
}

template <int32 kX>
void row_amax(const uint8* x, int64 cols, int64 group, bool is_first, uint32* amax) {
  const int64 bytes = bytes_of<kX>(group);
  if (bytes >= static_cast<int64>(sizeof(VF)) && group >= kPairCols) {
    row_amax<kX>(kF, x, cols, group, is_first, amax);
  } else if (!is_quantized(kX) || bytes >= static_cast<int64>(sizeof(hn::Vec<DF8>))) {
    row_amax<kX>(DF8(), x, cols, group, is_first, amax);
  } else {
    row_amax<kX>(hn::CappedTag<float, 4>(), x, cols, group, is_first, amax);
  }
}

// From the largest magnitude codes of units to the bits of what they stand for.
template <int32 kX>
void widen_amax_codes(int64 units, const float* sf, uint32* amax) {
  constexpr int kMantissa = kX == kDTypeE4M3 ? 3 : 1;
  constexpr int kBias = kX == kDTypeE4M3 ? 7 : 1;
  for (int64 k = 0; k < units; k += kLanes) {
    const VU32 code = hn::LoadU(kU32, amax + k);
    // widen_magnitude
    const VF small = hn::Mul(hn::ConvertTo(kF, hn::BitCast(hn::RebindToSigned<DU32>(), code)),
                             hn::Set(kF, pow2(1 - kBias - kMantissa)));
    const VU32 normal = hn::Add(hn::ShiftLeft<23 - kMantissa>(code),
                                hn::Set(kU32, static_cast<uint32>(127 - kBias) << 23));
    const auto is_small = hn::Eq(hn::ShiftRight<kMantissa>(code), hn::Zero(kU32));
    VF number = hn::IfThenElse(hn::RebindMask(kF, is_small), small, hn::BitCast(kF, normal));
    if constexpr (kX == kDTypeE4M3) {
      const auto is_nan = hn::RebindMask(kF, hn::Eq(code, hn::Set(kU32, 0x7Fu)));
      number = hn::IfThenElse(is_nan, hn::Set(kF, kCanonicalNan), number);
    }
    const VF value = hn::Abs(hn::Mul(number, hn::LoadU(kF, sf + k)));
    hn::StoreU(hn::BitCast(kU32, value), kU32, amax + k);
  }
}

// The lanes that complete the last vector, and the last group, hold anything before.
HWY_INLINE void clear_step(uint32* end) {
  for (int64 i = 0; i < kStep; i += kLanes) hn::StoreU(hn::Zero(kU32), kU32, end + i);
}

// From maxima of neighbours, `ratio` a group, to those of the groups.
void join_units(int64 groups, int64 ratio, uint32* amax) {
  for (; ratio > 1; ratio /= 2) {
    const int64 num = groups * ratio / 2;
    for (int64 k = 0; k < num; k += kLanes) {
      const VU32 a = hn::LoadU(kU32, amax + 2 * k);
      const VU32 b = hn::LoadU(kU32, amax + 2 * k + kLanes);
      hn::StoreU(hn::Max(hn::ConcatEven(kU32, b, a), hn::ConcatOdd(kU32, b, a)), kU32, amax + k);
    }
  }
}

// The bits of f16 magnitudes, in the upper halves, as those of fp32.
void widen_amax_f16(int64 groups, uint32* amax) {
  const hn::Rebind<uint16, DF> d16;
  const hn::Rebind<hwy::float16_t, DF> df16;
  for (int64 k = 0; k < groups; k += kLanes) {
    const VU32 bits = hn::ShiftRight<16>(hn::LoadU(kU32, amax + k));
    const auto half = hn::DemoteTo(d16, hn::BitCast(hn::RebindToSigned<DU32>(), bits));
    hn::StoreU(hn::BitCast(kU32, hn::PromoteTo(kF, hn::BitCast(df16, half))), kU32, amax + k);
  }
}

// ------------------------------ elements, kStep at a time

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

// Encodes kStep elements. kChecked: products may be NaN, or 2^100 and more; else factors of a plain
// x are positive.
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

// The same of codes that are numbers, under one factor >= 0 for each 128-bit block. Bytes stay in
// their blocks on the way, so nothing is zipped.
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
    store(stream, nm::e4m3_codes<nm::Range::kMagnitude>(kF, y, signs), kU8, out);
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

template <int32 kX, int32 kFmt>
void encode_row_of_codes(const uint8* x, int64 cols, const float* factors, bool stream,
                         int64 prefetch_offset, uint8* out) {
  const hn::RebindToSigned<DU32> i32;
  const auto blocks = hn::IndicesFromVec(kF, hn::ShiftRight<2>(hn::Iota(i32, 0)));
  encode_steps<kX, kFmt>(x, 0, cols, stream, prefetch_offset, out,
                         [&](const uint8* at, int64 c, bool streams, uint8* to) {
                           const VF four = hn::LoadDup128(kF, factors + c / kBlockCols);
                           encode_codes<kX, kFmt>(at, hn::TableLookupLanes(four, blocks), streams,
                                                  to);
                         });
}

// ------------------------------ tiles

template <int32 kX, int32 kFmt>
class Tile {
 public:
  Tile(const CastArgs& args, const CastShape& shape, const CastWalk& walk, int64 tile_row,
       int64 tile_col, bool is_first, int64 prefetch_offset, CastScratch& scratch)
      : args_(args),
        shape_(shape),
        walk_(walk),
        is_first_(is_first),
        prefetch_offset_(prefetch_offset),
        scratch_(scratch) {
    m_begin_ = tile_row * walk.tile_rows;
    const bool is_last = tile_col + 1 == walk.num_tile_cols;
    col_begin_ = tile_col * walk.tile_cols;
    cols_ = (is_last ? shape.hidden : col_begin_ + walk.tile_cols) - col_begin_;
    k_begin_ = col_begin_ / shape.block_cols;
    groups_ = ceil_div(cols_, shape.block_cols);
    padded_groups_ = is_last ? args.out_sf.padded_k - k_begin_ : groups_;
    group_shift_ = log2_of(shape.block_cols);
  }

  void run() {
    if (shape_.mode == kCastGivenSf) {
      const int64 end = std::min(m_begin_ + walk_.tile_rows, walk_.rows);
      for (int64 m = m_begin_; m < end; ++m) encode_given(m);
      return;
    }
    const int64 end = std::min(m_begin_ + walk_.tile_rows, args_.out_sf.padded_m);
    const int64 sf_size = sf_bytes(shape_.sf_kind);
    for (int64 m = m_begin_; m < end; ++m) {
      uint8* sf = scratch_.sf[m - m_begin_];
      const int64 groups = m < walk_.rows ? groups_ : 0;
      if (groups > 0) cast(m, sf);
      std::memset(sf + groups * sf_size, 0,
                  static_cast<size_t>((padded_groups_ - groups) * sf_size));
    }
    scales::write(args_.out_sf, sf_bytes(shape_.sf_kind), m_begin_, end - m_begin_, k_begin_,
                  padded_groups_, scratch_.sf[0], sizeof(scratch_.sf[0]));
  }

 private:
  static constexpr bool kIsQuantized = is_quantized(kX);
  static constexpr int64 kRowsAhead = 4;
  static constexpr uint32 kBoundedAmax = bit_cast<uint32>(0x1p90f);

  const uint8* row(int64 row) const {
    return args_.x + row * args_.x_pitch_bytes + bytes_of<kX>(col_begin_);
  }

  // One row of scaling blocks.
  void cast(int64 m, uint8* sf) {
    const int64 row_begin = m * shape_.block_rows;
    const int64 row_end = std::min(row_begin + shape_.block_rows, args_.num_tokens);
    for (int64 r = row_begin; r < row_end; ++r) {
      if constexpr (kIsQuantized) {
        read_units(r);
        quantized_amax(row(r), r == row_begin);
      } else {
        if (is_first_ && r + kRowsAhead < row_end) {
          const uint8* ahead = row(r + kRowsAhead);
          for (int64 i = 0; i < bytes_of<kX>(cols_); i += 64) hwy::Prefetch(ahead + i);
        }
        row_amax<kX>(row(r), cols_, shape_.block_cols, r == row_begin, scratch_.amax);
      }
    }
    clear_step(scratch_.amax + groups_);
    if constexpr (kX == kDTypeF16) widen_amax_f16(groups_, scratch_.amax);
    const uint32 largest = scales::compute(shape_.sf_kind, kFmt == kDTypeE2M1x2, scratch_.amax,
                                           groups_, args_.amax_clamp, scratch_.inv, sf);
    if (shape_.mode != kCastAll) return;
    const bool any_bad = largest >= kInfBits;
    // e4m3 scaling factors saturate, and then products are as large as x.
    const bool is_bounded = shape_.sf_kind != kSfE4M3 || largest < kBoundedAmax;
    if (is_bounded) {
      encode_rows<false>(row_begin, row_end, any_bad);
    } else {
      encode_rows<true>(row_begin, row_end, any_bad);
    }
  }

  void encode_given(int64 m) {
    float* inv = scratch_.inv;
    scales::read(args_.given_sf, shape_.sf_kind, m, k_begin_, groups_, scratch_.raw, inv);
    bool any_bad = false;
    for (int64 k = 0; k < groups_; ++k) {
      inv[k] = inverse_of_scale(inv[k]);
      any_bad |= is_nan(inv[k]);
    }
    const int64 row_begin = m * shape_.block_rows;
    const int64 row_end = std::min(row_begin + shape_.block_rows, args_.num_tokens);
    encode_rows<true>(row_begin, row_end, any_bad);
  }

  template <bool kChecked>
  void encode_rows(int64 row_begin, int64 row_end, bool any_bad) {
    const int64 out_bytes = bytes_of<kFmt>(cols_);
    const bool by_row = walk_.by_row || any_bad;
    const PlainFactors inv{scratch_.inv, group_shift_};
    const PlainFactors bases{scratch_.bases, group_shift_};
    const bool by_exponent = kX == kDTypeBF16 && !kChecked && write_bases();
    for (int64 r = row_begin; r < row_end; ++r) {
      uint8* out = args_.out + r * walk_.out_pitch + bytes_of<kFmt>(col_begin_);
      uint8* to = by_row ? scratch_.row : out;
      const bool stream = walk_.stream && !by_row;
      if constexpr (kIsQuantized) {
        read_units(r);
        encode_quantized<kChecked>(row(r), inv, stream, to);
      } else if (by_exponent) {
        encode_row_by_exponent<kFmt>(row(r), cols_, inv, bases, stream, prefetch_offset_, to);
      } else {
        encode_row<kX, kFmt, kChecked>(row(r), cols_, inv, stream, prefetch_offset_, to);
      }
      if (any_bad) clear_bad_groups(to);
      if (!by_row) continue;
      if (walk_.stream) {
        stream_copy(out, to, out_bytes);
      } else {
        std::memcpy(out, to, static_cast<size_t>(out_bytes));
      }
    }
  }

  // Returns false if inverses are not powers of two, or too large for a group that is not all 0.
  bool write_bases() {
    if (shape_.sf_kind != kSfUE8M0 && shape_.sf_kind != kSfRoundedF32) return false;
    auto largest = hn::Zero(kU32);
    for (int64 k = 0; k < groups_; k += kLanes) {
      const VF inv = hn::LoadU(kF, scratch_.inv + k);
      const auto is_zero = hn::Eq(hn::LoadU(kU32, scratch_.amax + k), hn::Zero(kU32));
      largest = hn::Max(largest, hn::IfThenZeroElse(is_zero, hn::BitCast(kU32, inv)));
      hn::StoreU(exponent_bases<kFmt>(inv), kF, scratch_.bases + k);
    }
    return hn::GetLane(hn::MaxOfLanes(kU32, largest)) <= bit_cast<uint32>(kMaxPowerInverse);
  }

  template <bool kChecked>
  void encode_quantized(const uint8* x, const PlainFactors& inv, bool stream, uint8* to) {
    if (unit_cols_ == 1) {
      const FactorsByCol factors{inv, scratch_.units};
      encode_row<kX, kFmt, true>(x, cols_, factors, stream, prefetch_offset_, to);
      return;
    }
    float* factors = scratch_.factors;
    fuse_factors(scratch_.units, log2_of(unit_cols_), inv.inv, inv.group_shift, cols_, factors);
    // A negative factor may overflow, and -Inf times a zero code is NaN.
    if (kChecked || any_negative_unit_) {
      encode_row<kX, kFmt, true>(x, cols_, FactorsByBlock{factors}, stream, prefetch_offset_, to);
    } else {
      encode_row_of_codes<kX, kFmt>(x, cols_, factors, stream, prefetch_offset_, to);
    }
  }

  void clear_bad_groups(uint8* codes) const {
    for (int64 k = 0; k < groups_; ++k) {
      if (!is_nan(scratch_.inv[k])) continue;
      const int64 begin = bytes_of<kFmt>(k * shape_.block_cols);
      const int64 end = bytes_of<kFmt>(std::min(cols_, (k + 1) * shape_.block_cols));
      std::memset(codes + begin, kFmt == kDTypeE4M3 ? 0x7F : 0, static_cast<size_t>(end - begin));
    }
  }

  // ------------------------------ a quantized x

  // Makes `units` the input scaling factors of that row: those of columns, or of parts of a group
  // and a block of x, whichever is narrower.
  void read_units(int64 r) {
    const int64 m = r / shape_.x_block_rows;
    if (m == units_of_) return;
    units_of_ = m;
    const int64 block = shape_.x_block_cols;
    unit_cols_ = block % kBlockCols != 0 ? 1 : std::min<int64>(block, shape_.block_cols);
    const int64 begin = col_begin_ / block;
    const int64 num = (col_begin_ + cols_ - 1) / block + 1 - begin;
    scales::read(args_.x_sf, shape_.x_sf_kind, m, begin, num, scratch_.raw, scratch_.scales);
    uint32 signs = 0;
    for (int64 i = 0; i < num; ++i) signs |= bit_cast<uint32>(scratch_.scales[i]);
    any_negative_unit_ = signs >> 31 != 0;
    const int64 units = ceil_div(cols_, unit_cols_);
    scales::spread(scratch_.scales, block / unit_cols_, col_begin_ % block / unit_cols_, units,
                   scratch_.units);
    clear_step(reinterpret_cast<uint32*>(scratch_.units + units));
  }

  // Takes a row into the maxima of its groups.
  void quantized_amax(const uint8* x, bool is_first) {
    if (unit_cols_ == 1) {
      const uint8* values = multiply(x);
      return row_amax<kDTypeF32>(values, cols_, shape_.block_cols, is_first, scratch_.amax);
    }
    // Columns of one group under one scaling factor: the largest code decides.
    uint32* amax = scratch_.unit_amax;
    const int64 units = ceil_div(cols_, unit_cols_);
    row_amax<kX>(x, cols_, unit_cols_, true, amax);
    clear_step(amax + units);
    widen_amax_codes<kX>(units, scratch_.units, amax);
    join_units(groups_, shape_.block_cols / unit_cols_, amax);
    for (int64 k = 0; k < groups_; k += kLanes) {
      const VU32 bits = hn::LoadU(kU32, amax + k);
      const VU32 before = is_first ? bits : hn::LoadU(kU32, scratch_.amax + k);
      hn::StoreU(hn::Max(bits, before), kU32, scratch_.amax + k);
    }
  }

  // The codes of a row, each times its scaling factor.
  const uint8* multiply(const uint8* x) {
    const auto step = [&](const uint8* at, int64 col) {
      const Quad values = load<kX>(kF, at);
      const auto store_pair = [&](const Pair& p, int64 i) {
        const Pair v = nm::unzip_f32(kF, p);
        const float* units = scratch_.units + i;
        hn::StoreU(hn::Mul(v.lo, hn::LoadU(kF, units)), kF, scratch_.values + i);
        hn::StoreU(hn::Mul(v.hi, hn::LoadU(kF, units + kLanes)), kF, scratch_.values + i + kLanes);
      };
      store_pair(values.lower, col);
      store_pair(values.upper, col + kPairCols);
    };
    int64 col = 0;
    for (; col + kStep <= cols_; col += kStep) step(x + bytes_of<kX>(col), col);
    if (col < cols_) {
      alignas(64) uint8 rest[kStep] = {};
      std::memcpy(rest, x + bytes_of<kX>(col), static_cast<size_t>(bytes_of<kX>(cols_ - col)));
      step(rest, col);
    }
    return reinterpret_cast<const uint8*>(scratch_.values);
  }

  const CastArgs& args_;
  const CastShape& shape_;
  const CastWalk& walk_;
  const bool is_first_;  // of an item: nobody has prefetched it
  const int64 prefetch_offset_;
  CastScratch& scratch_;
  int64 m_begin_;
  int64 col_begin_;
  int64 cols_;
  int64 k_begin_;
  int64 groups_;
  int64 padded_groups_;
  int group_shift_;
  int64 units_of_ = -1;
  int64 unit_cols_ = 0;  // of a multiple of kBlockCols, or 1
  bool any_negative_unit_ = false;
};

template <int32 kX, int32 kFmt>
void run_tiles(const CastArgs& args, const CastShape& shape, const CastWalk& walk, int64 begin,
               int64 end) {
  CastScratch scratch;
  for (int64 item = begin; item < end; ++item) {
    const int64 row = item / walk.num_items;
    const int64 first = item % walk.num_items * walk.item_tiles;
    const int64 last = std::min(first + walk.item_tiles, walk.num_tile_cols);
    for (int64 col = first; col < last; ++col) {
      // Rows of one block: the next row of the tile comes next, and then the next tile's.
      const bool prefetches = shape.block_rows == 1 || col + 1 < last;
      const int64 offset = prefetches ? walk.prefetch_offset : 0;
      Tile<kX, kFmt>(args, shape, walk, row, col, col == first, offset, scratch).run();
    }
  }
}

template <int32 kX>
void run_tiles(const CastArgs& args, const CastShape& shape, const CastWalk& walk, int64 begin,
               int64 end) {
  if (shape.fmt == kDTypeE4M3) {
    run_tiles<kX, kDTypeE4M3>(args, shape, walk, begin, end);
  } else {
    run_tiles<kX, kDTypeE2M1x2>(args, shape, walk, begin, end);
  }
}

}  // namespace

void cast_tiles(const CastArgs& args, const CastShape& shape, const CastWalk& walk, int64 begin,
                int64 end) {
  switch (shape.x_dtype) {
    case kDTypeF32:
      return run_tiles<kDTypeF32>(args, shape, walk, begin, end);
    case kDTypeF16:
      return run_tiles<kDTypeF16>(args, shape, walk, begin, end);
    case kDTypeBF16:
      return run_tiles<kDTypeBF16>(args, shape, walk, begin, end);
    case kDTypeE4M3:
      return run_tiles<kDTypeE4M3>(args, shape, walk, begin, end);
    default:
      return run_tiles<kDTypeE2M1x2>(args, shape, walk, begin, end);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace tilekernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilekernels::cpu {
namespace {

HWY_EXPORT(cast_tiles);

CastWalk plan_walk(const CastArgs& args, const CastShape& shape) {
  using numerics::align_up;
  using numerics::ceil_div;
  CastWalk walk;
  walk.rows = row_blocks(args, shape);
  const bool writes_sf = shape.mode != kCastGivenSf;
  const bool by_col = writes_sf && args.out_sf.map.stride_m < args.out_sf.map.stride_k;
  walk.tile_rows = by_col && shape.block_rows == 1 ? kMaxTileRows : 1;
  walk.num_tile_rows = ceil_div(writes_sf ? args.out_sf.padded_m : walk.rows, walk.tile_rows);

  // A quarter of a small second-level cache: the next tile arrives while one is encoded.
  constexpr int64 kTileBytes = 128 << 10;
  const int64 x_bits = bits_of(shape.x_dtype);
  const int64 fitting = kTileBytes * 8 / x_bits / shape.block_rows / kColsMultiple * kColsMultiple;
  const int64 most = std::clamp(fitting, kColsMultiple, kMaxTileCols);
  const int64 parts = ceil_div(shape.hidden, most);
  walk.tile_cols = align_up(ceil_div(shape.hidden, parts), kColsMultiple);
  walk.num_tile_cols = ceil_div(shape.hidden, walk.tile_cols);
  // Long items for the prefetches, but several for each thread.
  const int64 num_wanted = 4 * get_num_threads();
  walk.item_tiles = std::clamp<int64>(walk.num_tile_rows * walk.num_tile_cols / num_wanted, 1,
                                      shape.block_rows == 1 ? 1 : walk.num_tile_cols);
  walk.num_items = ceil_div(walk.num_tile_cols, walk.item_tiles);

  walk.out_pitch = shape.hidden / elements_per_unit(shape.fmt);
  walk.prefetch_offset = shape.block_rows == 1 ? args.x_pitch_bytes : walk.tile_cols * x_bits / 8;
  walk.stream = should_stream(args.num_tokens * walk.out_pitch);
  walk.by_row =
      walk.stream && !HWY_STATIC_DISPATCH(is_streamable)(args.out, walk.out_pitch, walk.out_pitch);
  return walk;
}

}  // namespace

void cast_blocks(const CastArgs& args, const CastShape& shape, const Launch&) {
  const auto cast = HWY_DYNAMIC_DISPATCH(cast_tiles);
  const CastWalk walk = plan_walk(args, shape);
  const double elements =
      static_cast<double>(walk.tile_rows * shape.block_rows) *
      static_cast<double>(std::min<int64>(walk.item_tiles * walk.tile_cols, shape.hidden));
  parallel_for(walk.num_tile_rows * walk.num_items, items_per_thread(0.3 * elements),
               [&](int64 begin, int64 end) { cast(args, shape, walk, begin, end); });
}

}  // namespace tilekernels::cpu
#endif
