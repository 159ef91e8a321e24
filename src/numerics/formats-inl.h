// The conversions of formats.h for SIMD lanes: the same bits, whole vectors at a time.
//
// A Pair holds the fp32 values of one vector of 16-bit elements, a Quad those of one vector of
// bytes. Their element order is "zipped": inside each 128-bit block, `lo` has the lower and `hi`
// the upper elements of the 16-bit vector. That is what unpack and pack instructions give without
// crossing blocks. Arithmetic by element needs no knowledge of it; what has memory order on the
// other side enters by a widen_* function and leaves by a narrow_* one, or by zip_f32 and
// unzip_f32 for fp32. From codes to codes, zipping may be left out: a 128-bit block of codes is
// then the same block of each of a Quad's vectors. Descriptors of 128 bits serve the tails of rows
// on every target.
//
// No fp32 subnormal is made or read on the way to and from bf16, e4m3 and e2m1 (some machines take
// 150 cycles for one), but for a bf16 that is one.
#if defined(TILEKERNELS_NUMERICS_FORMATS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TILEKERNELS_NUMERICS_FORMATS_INL_H_
#undef TILEKERNELS_NUMERICS_FORMATS_INL_H_
#else
#define TILEKERNELS_NUMERICS_FORMATS_INL_H_
#endif

#include <hwy/highway.h>

#include "numerics/types.h"

#ifdef HWY_DISABLE_F16C
#error "f16 needs the machine's own conversions: Highway's software ones truncate"
#endif

HWY_BEFORE_NAMESPACE();
namespace tilekernels::numerics::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Descriptors that go with the fp32 descriptor D.
template <class D>
using U8Of = hn::Repartition<uint8, D>;
template <class D>
using U16Of = hn::Repartition<uint16, D>;
template <class D>
using U32Of = hn::Repartition<uint32, D>;

template <class D>
struct Pair {
  hn::Vec<D> lo;
  hn::Vec<D> hi;
};

template <class D>
struct Quad {
  Pair<D> lower;  // the first half of the elements
  Pair<D> upper;
};

/// The value of every element under `f`.
template <class D, class F>
HWY_INLINE Pair<D> map(const Pair<D>& x, F f) {
  return {f(x.lo), f(x.hi)};
}
template <class D, class F>
HWY_INLINE Quad<D> map(const Quad<D>& x, F f) {
  return {map(x.lower, f), map(x.upper, f)};
}

// ------------------------------ packs: inside each 128-bit block, first a, then b

/// i32 -> i16, saturating.
template <class V, class D16 = hn::Repartition<int16, hn::DFromV<V>>>
HWY_INLINE hn::Vec<D16> pack_i16(V a, V b) {
  return hn::ReorderDemote2To(D16(), a, b);
}

/// i32 -> u16, saturating.
template <class V, class D16 = hn::Repartition<uint16, hn::DFromV<V>>>
HWY_INLINE hn::Vec<D16> pack_u16(V a, V b) {
#if HWY_TARGET <= HWY_AVX3
  if constexpr (sizeof(a) == 64) return hn::Vec<D16>{_mm512_packus_epi32(a.raw, b.raw)};
#endif
#if HWY_TARGET <= HWY_AVX2
  if constexpr (sizeof(a) == 32) return hn::Vec<D16>{_mm256_packus_epi32(a.raw, b.raw)};
  if constexpr (sizeof(a) == 16) return hn::Vec<D16>{_mm_packus_epi32(a.raw, b.raw)};
#else
  const hn::Half<D16> half;
  return hn::Combine(D16(), hn::DemoteTo(half, b), hn::DemoteTo(half, a));
#endif
}

/// i16 -> u8, saturating.
template <class V, class D8 = hn::Repartition<uint8, hn::DFromV<V>>>
HWY_INLINE hn::Vec<D8> pack_u8(V a, V b) {
#if HWY_TARGET <= HWY_AVX3
  if constexpr (sizeof(a) == 64) return hn::Vec<D8>{_mm512_packus_epi16(a.raw, b.raw)};
#endif
#if HWY_TARGET <= HWY_AVX2
  if constexpr (sizeof(a) == 32) return hn::Vec<D8>{_mm256_packus_epi16(a.raw, b.raw)};
  if constexpr (sizeof(a) == 16) return hn::Vec<D8>{_mm_packus_epi16(a.raw, b.raw)};
#else
  const hn::Half<D8> half;
  return hn::Combine(D8(), hn::DemoteTo(half, b), hn::DemoteTo(half, a));
#endif
}

/// i16 -> i8, saturating, so that every byte keeps the sign bit.
template <class V, class D8 = hn::Repartition<int8, hn::DFromV<V>>>
HWY_INLINE hn::Vec<D8> pack_i8(V a, V b) {
#if HWY_TARGET <= HWY_AVX3
  if constexpr (sizeof(a) == 64) return hn::Vec<D8>{_mm512_packs_epi16(a.raw, b.raw)};
#endif
#if HWY_TARGET <= HWY_AVX2
  if constexpr (sizeof(a) == 32) return hn::Vec<D8>{_mm256_packs_epi16(a.raw, b.raw)};
  if constexpr (sizeof(a) == 16) return hn::Vec<D8>{_mm_packs_epi16(a.raw, b.raw)};
#else
  const hn::Half<D8> half;
  return hn::Combine(D8(), hn::DemoteTo(half, b), hn::DemoteTo(half, a));
#endif
}

/// In each 32-bit lane kLow · (lower 16 bits) + (upper 16 bits), halves below 2^15.
template <int16 kLow, class V>
HWY_INLINE V join_halves(V v) {
  const hn::DFromV<V> d;
#if HWY_TARGET <= HWY_AVX2
  const auto factors = hn::Set(d, 0x10000 | kLow);
#endif
#if HWY_TARGET <= HWY_AVX3
  if constexpr (sizeof(v) == 64) return V{_mm512_madd_epi16(v.raw, factors.raw)};
#endif
#if HWY_TARGET <= HWY_AVX2
  if constexpr (sizeof(v) == 32) return V{_mm256_madd_epi16(v.raw, factors.raw)};
  if constexpr (sizeof(v) == 16) return V{_mm_madd_epi16(v.raw, factors.raw)};
#else
  const auto low = hn::And(v, hn::Set(d, 0xFFFF));
  return hn::Add(hn::Mul(low, hn::Set(d, kLow)), hn::ShiftRight<16>(v));
#endif
}

// ------------------------------ crossing blocks

/// From memory order to zipped order: the 64-bit lanes 0, n/2, 1, n/2 + 1, … of n.
template <class D, class V>
HWY_INLINE V zip_bytes(D /*d8*/, V v) {
#if HWY_TARGET <= HWY_AVX3
  if constexpr (sizeof(v) == 64) {
    const __m512i index = _mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7);
    return V{_mm512_permutexvar_epi64(index, v.raw)};
  }
#endif
#if HWY_TARGET <= HWY_AVX2
  if constexpr (sizeof(v) == 32) return V{_mm256_permute4x64_epi64(v.raw, 0xD8)};
#endif
  static_assert(sizeof(v) <= 64);
  return v;
}

/// The inverse of zip_bytes.
template <class D, class V>
HWY_INLINE V unzip_bytes(D /*d8*/, V v) {
#if HWY_TARGET <= HWY_AVX3
  if constexpr (sizeof(v) == 64) {
    const __m512i index = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    return V{_mm512_permutexvar_epi64(index, v.raw)};
  }
#endif
#if HWY_TARGET <= HWY_AVX2
  if constexpr (sizeof(v) == 32) return V{_mm256_permute4x64_epi64(v.raw, 0xD8)};
#endif
  return v;
}

/// Zips two fp32 vectors in memory order, `first` the lower elements.
template <class D, class V>
HWY_INLINE Pair<D> zip_f32(D d, V first, V second) {
#if HWY_TARGET <= HWY_AVX3
  if constexpr (sizeof(first) == 64) {
    return {V{_mm512_shuffle_f32x4(first.raw, second.raw, 0x88)},
            V{_mm512_shuffle_f32x4(first.raw, second.raw, 0xDD)}};
  }
#endif
  if constexpr (sizeof(first) == 32) {
    return {hn::ConcatLowerLower(d, second, first), hn::ConcatUpperUpper(d, second, first)};
  } else {
    return {first, second};
  }
}

/// The inverse of zip_f32: `lo` the first vector in memory order, `hi` the second.
template <class D>
HWY_INLINE Pair<D> unzip_f32(D d, const Pair<D>& x) {
#if HWY_TARGET <= HWY_AVX3
  if constexpr (sizeof(x.lo) == 64) {
    const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
    return {hn::Vec<D>{_mm512_permutex2var_ps(x.lo.raw, first, x.hi.raw)},
            hn::Vec<D>{_mm512_permutex2var_ps(x.lo.raw, second, x.hi.raw)}};
  }
#endif
  if constexpr (sizeof(x.lo) == 32) {
    return {hn::ConcatLowerLower(d, x.hi, x.lo), hn::ConcatUpperUpper(d, x.hi, x.lo)};
  } else {
    return x;
  }
}

// ------------------------------ NaN

/// v, any NaN replaced by the canonical one.
template <class D, class V>
HWY_INLINE V canonical(D d, V v) {
  const auto nan = hn::BitCast(d, hn::Set(U32Of<D>(), 0x7FFFFFFFu));
  return hn::IfThenElse(hn::IsNaN(v), nan, v);
}

/// y, with the sign bit of x where y is NaN: what narrow_e2m1 wants under a given scale.
template <class D, class V>
HWY_INLINE V nan_sign_from(D /*d*/, V y, V x) {
  return hn::IfThenElse(hn::IsNaN(y), hn::CopySign(y, x), y);
}

// ------------------------------ bf16, f16

/// Exact, as load_bf16.
template <class D>
HWY_INLINE Pair<D> widen_bf16(D d, hn::Vec<U16Of<D>> x) {
  const U16Of<D> d16;
  const auto zero = hn::Zero(d16);
  return {hn::BitCast(d, hn::InterleaveLower(d16, zero, x)),
          hn::BitCast(d, hn::InterleaveUpper(d16, zero, x))};
}

/// The NaN of bf16 as an fp32.
template <class D>
HWY_INLINE hn::Vec<D> bf16_nan(D d) {
  return hn::BitCast(d, hn::Set(U32Of<D>(), 0x7FFF0000u));
}

/// As f32_to_bf16 where every NaN is bf16_nan: faster.
template <class D>
HWY_INLINE hn::Vec<U16Of<D>> narrow_bf16_nan(D /*d*/, const Pair<D>& x) {
  const U32Of<D> d32;
  const hn::RebindToSigned<U32Of<D>> di32;
  const auto round = [&](hn::Vec<D> v) {
    const auto bits = hn::BitCast(d32, v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1u));
    const auto sum = hn::Add(hn::Add(bits, hn::Set(d32, 0x7FFFu)), odd);
    return hn::BitCast(di32, hn::ShiftRight<16>(sum));
  };
  return pack_u16(round(x.lo), round(x.hi));
}

/// As f32_to_bf16.
template <class D>
HWY_INLINE hn::Vec<U16Of<D>> narrow_bf16(D d, const Pair<D>& x) {
  return narrow_bf16_nan(
      d, map(x, [d](hn::Vec<D> v) { return hn::IfThenElse(hn::IsNaN(v), bf16_nan(d), v); }));
}

/// Exact, as load_f16.
template <class D>
HWY_INLINE Pair<D> widen_f16(D d, hn::Vec<U16Of<D>> x) {
  const hn::Repartition<hwy::float16_t, D> df16;
  const hn::Half<decltype(df16)> half;
  const auto bits = hn::BitCast(df16, x);
  return zip_f32(d, hn::PromoteTo(d, hn::LowerHalf(half, bits)),
                 hn::PromoteTo(d, hn::UpperHalf(half, bits)));
}

/// As f32_to_f16.
template <class D>
HWY_INLINE hn::Vec<U16Of<D>> narrow_f16(D d, const Pair<D>& x) {
  const hn::Rebind<hwy::float16_t, D> half;
  const hn::Rebind<uint16, D> half16;
  const Pair<D> y = unzip_f32(d, x);
  return hn::Combine(U16Of<D>(), hn::BitCast(half16, hn::DemoteTo(half, canonical(d, y.hi))),
                     hn::BitCast(half16, hn::DemoteTo(half, canonical(d, y.lo))));
}

// ------------------------------ e4m3, e2m1

/// What is known of values to be narrowed, and spares work.
enum class Range {
  kAny,
  kBounded,    ///< all |y| < 2^100
  kMagnitude,  ///< all 0 <= y < 2^100, no -0
  kFitting,    ///< the same, and none rounds to more than the format's largest number
};

/// The magnitude codes of four vectors as bytes in zipped order, for a format of kMantissa bits
/// whose largest number and smallest normal one have the fp32 bits kMax and kMinNormal. Saturates,
/// NaN too. Adding 2^(e + 23 - kMantissa), e the exponent, rounds to the format's step there: the
/// sum's low bits count steps, its exponent field holds e, and together they are the code.
template <int kMantissa, uint32 kMax, uint32 kMinNormal, Range kRange, class D>
HWY_INLINE hn::Vec<U8Of<D>> magnitude_codes(D d, const Quad<D>& y) {
  const U32Of<D> d32;
  const hn::RebindToSigned<U32Of<D>> di32;
  const hn::Repartition<int16, D> d16;
  constexpr uint32 kStep = static_cast<uint32>(23 - kMantissa) << 23;
  constexpr uint32 kBase = (kMinNormal + kStep) >> (23 - kMantissa);  // the code of no steps
  constexpr int kShift = 7 - kMantissa;  // of the exponent field in the upper 16 bits
  // 2^kShift · (code + kBase - 2^kMantissa), below 2^15
  const auto scaled = [&](hn::Vec<D> v) {
    auto t = hn::BitCast(d32, v);
    if constexpr (kRange < Range::kMagnitude) t = hn::And(t, hn::Set(d32, 0x7FFFFFFFu));
    if constexpr (kRange == Range::kAny) t = hn::Min(t, hn::Set(d32, kMax));
    const auto exponent = hn::And(hn::Max(t, hn::Set(d32, kMinNormal)), hn::Set(d32, 0x7F800000u));
    const auto magic = hn::BitCast(d, hn::Add(exponent, hn::Set(d32, kStep)));
    const auto sum = hn::Add(hn::BitCast(d, t), magic);
    return join_halves<1 << kShift>(hn::BitCast(di32, sum));
  };
  const auto codes = [&](const Pair<D>& p) {
    const auto v = hn::ShiftRight<kShift>(pack_i16(scaled(p.lo), scaled(p.hi)));
    return hn::Sub(v, hn::Set(d16, static_cast<int16>(kBase)));
  };
  const auto bytes = pack_u8(codes(y.lower), codes(y.upper));
  if constexpr (kRange == Range::kAny || kRange == Range::kFitting) return bytes;
  constexpr uint32 kMaxCode =
      (kMax >> (23 - kMantissa)) - (kMinNormal >> (23 - kMantissa)) + (1u << kMantissa);
  return hn::Min(bytes, hn::Set(U8Of<D>(), static_cast<uint8>(kMaxCode)));
}

/// A byte of four vectors' elements with the sign bit in bit 7, in zipped order.
template <class D>
HWY_INLINE hn::Vec<U8Of<D>> sign_bytes(D /*d*/, const Quad<D>& y) {
  const hn::RebindToSigned<U32Of<D>> di32;
  const U8Of<D> d8;
  const auto bits = [&](hn::Vec<D> v) { return hn::BitCast(di32, v); };
  const auto signs = pack_i8(pack_i16(bits(y.lower.lo), bits(y.lower.hi)),
                             pack_i16(bits(y.upper.lo), bits(y.upper.hi)));
  return hn::And(hn::BitCast(d8, signs), hn::Set(d8, uint8{0x80}));
}

/// The same of two vectors of bf16 or f16, in memory order each.
template <class D>
HWY_INLINE hn::Vec<U8Of<D>> sign_bytes(D /*d*/, hn::Vec<U16Of<D>> lower, hn::Vec<U16Of<D>> upper) {
  const hn::Repartition<int16, D> di16;
  const U8Of<D> d8;
  const auto signs = pack_i8(hn::BitCast(di16, lower), hn::BitCast(di16, upper));
  return hn::And(hn::BitCast(d8, signs), hn::Set(d8, uint8{0x80}));
}

/// Codes in the order of y's bytes: zipped, if y is.
template <Range kRange, class D>
HWY_INLINE hn::Vec<U8Of<D>> e4m3_codes(D d, const Quad<D>& y, hn::Vec<U8Of<D>> signs) {
  return hn::Or(magnitude_codes<3, 0x43E00000, 0x3C800000, kRange>(d, y), signs);
}

/// As f32_to_e4m3. The codes are in memory order.
template <class D>
HWY_INLINE hn::Vec<U8Of<D>> narrow_e4m3(D d, const Quad<D>& y) {
  const U32Of<D> d32;
  const hn::RebindToSigned<U32Of<D>> di32;
  const U8Of<D> d8;
  const auto nan = [&](hn::Vec<D> v) {
    const auto mask = hn::VecFromMask(d32, hn::RebindMask(d32, hn::IsNaN(v)));
    return hn::BitCast(di32, mask);
  };
  const auto nans = hn::BitCast(d8, pack_i8(pack_i16(nan(y.lower.lo), nan(y.lower.hi)),
                                            pack_i16(nan(y.upper.lo), nan(y.upper.hi))));
  const auto codes = e4m3_codes<Range::kAny>(d, y, sign_bytes(d, y));
  return unzip_bytes(d8, hn::IfThenElse(hn::MaskFromVec(nans), hn::Set(d8, uint8{0x7F}), codes));
}

/// As f32_to_e4m3 where all |y| < 2^100, as under a scale that was computed from them: faster.
/// Other elements get any code.
template <class D>
HWY_INLINE hn::Vec<U8Of<D>> narrow_e4m3_numbers(D d, const Quad<D>& y) {
  return unzip_bytes(U8Of<D>(), e4m3_codes<Range::kBounded>(d, y, sign_bytes(d, y)));
}

/// The same from magnitudes that fit and the bytes of `sign_bytes`.
template <class D>
HWY_INLINE hn::Vec<U8Of<D>> narrow_e4m3_magnitudes(D d, const Quad<D>& y, hn::Vec<U8Of<D>> signs) {
  return unzip_bytes(U8Of<D>(), e4m3_codes<Range::kFitting>(d, y, signs));
}

/// A byte each, in the order of y's bytes.
template <Range kRange, class D>
HWY_INLINE hn::Vec<U8Of<D>> e2m1_codes(D d, const Quad<D>& y, hn::Vec<U8Of<D>> signs8) {
  const U8Of<D> d8;
  const auto signs = hn::BitCast(d8, hn::ShiftRight<4>(hn::BitCast(U16Of<D>(), signs8)));
  return hn::Or(magnitude_codes<1, 0x40C00000, 0x3F800000, kRange>(d, y), signs);
}

/// Two codes a byte in memory order, from a byte each in zipped order.
template <class D>
HWY_INLINE hn::Vec<hn::Half<U8Of<D>>> join_e2m1(D /*d*/, hn::Vec<U8Of<D>> zipped) {
  const U8Of<D> d8;
  const U16Of<D> d16;
  const hn::Repartition<int16, D> di16;
  const U32Of<D> d32;
  const auto codes = hn::BitCast(d16, zipped);
  const auto pairs = hn::And(hn::Or(codes, hn::ShiftRight<4>(codes)), hn::Set(d16, uint16{0xFF}));
  const auto bytes = pack_u8(hn::BitCast(di16, pairs), hn::BitCast(di16, pairs));
  // 32-bit lanes hold 8 elements; block j has 8j… and then those of the Quad's upper half.
  constexpr size_t kBlocks = hn::MaxLanes(D()) / 4;
  alignas(64) static constexpr auto kIndex = [] {
    struct {
      int32 lane[hn::MaxLanes(D())];
    } index{};
    for (size_t half = 0; half < 2; ++half) {
      for (size_t block = 0; block < kBlocks; ++block) {
        index.lane[half * kBlocks + block] = static_cast<int32>(4 * block + half);
      }
    }
    return index;
  }();
  const auto index = hn::SetTableIndices(d32, kIndex.lane);
  const auto ordered = hn::TableLookupLanes(hn::BitCast(d32, bytes), index);
  return hn::LowerHalf(hn::Half<U8Of<D>>(), hn::BitCast(d8, ordered));
}

/// As f32_to_e2m1, two codes a byte in memory order: half a vector.
template <class D>
HWY_INLINE hn::Vec<hn::Half<U8Of<D>>> narrow_e2m1(D d, const Quad<D>& y) {
  return join_e2m1(d, e2m1_codes<Range::kAny>(d, y, sign_bytes(d, y)));
}

/// As f32_to_e2m1 where all |y| < 2^100; other elements get any code.
template <class D>
HWY_INLINE hn::Vec<hn::Half<U8Of<D>>> narrow_e2m1_numbers(D d, const Quad<D>& y) {
  return join_e2m1(d, e2m1_codes<Range::kBounded>(d, y, sign_bytes(d, y)));
}

/// The same from magnitudes and the bytes of `sign_bytes`.
template <class D>
HWY_INLINE hn::Vec<hn::Half<U8Of<D>>> narrow_e2m1_magnitudes(D d, const Quad<D>& y,
                                                             hn::Vec<U8Of<D>> signs) {
  return join_e2m1(d, e2m1_codes<Range::kMagnitude>(d, y, signs));
}

/// The fp32 values of bf16 numbers given as their upper and lower bytes, in zipped order.
template <class D, class V8>
HWY_INLINE Quad<D> join_bf16(D d, V8 upper, V8 lower) {
  const U8Of<D> d8;
  const U16Of<D> d16;
  return {widen_bf16(d, hn::BitCast(d16, hn::InterleaveLower(d8, lower, upper))),
          widen_bf16(d, hn::BitCast(d16, hn::InterleaveUpper(d8, lower, upper)))};
}

/// A vector of bf16 bits, by byte.
template <class V8>
struct Bf16Bytes {
  V8 upper;
  V8 lower;
};

/// Of e4m3 magnitude codes; NaN becomes some number.
template <class D, class V8>
HWY_INLINE Bf16Bytes<V8> e4m3_bytes(D /*d*/, V8 abs) {
  const U8Of<D> d8;
  const hn::Repartition<int8, D> di8;
  const auto x16 = hn::BitCast(U16Of<D>(), abs);
  // A normal code is a bf16 of exponent field 120 + e: 0x3C00 + 16 · code.
  const auto top = hn::And(hn::BitCast(d8, hn::ShiftRight<4>(x16)), hn::Set(d8, uint8{0x07}));
  const auto normal_upper = hn::Add(top, hn::Set(d8, uint8{0x3C}));
  const auto normal_lower =
      hn::And(hn::BitCast(d8, hn::ShiftLeft<4>(x16)), hn::Set(d8, uint8{0xF0}));
  // Codes below 8 are code · 2^-9.
  alignas(16) static constexpr uint8 kUpper[16] = {0x00, 0x3B, 0x3B, 0x3B, 0x3C, 0x3C, 0x3C, 0x3C};
  alignas(16) static constexpr uint8 kLower[16] = {0x00, 0x00, 0x80, 0xC0, 0x00, 0x20, 0x40, 0x60};
  const auto is_small = hn::RebindMask(d8, hn::Lt(hn::BitCast(di8, abs), hn::Set(di8, int8{8})));
  return {
      hn::IfThenElse(is_small, hn::TableLookupBytes(hn::LoadDup128(d8, kUpper), abs), normal_upper),
      hn::IfThenElse(is_small, hn::TableLookupBytes(hn::LoadDup128(d8, kLower), abs),
                     normal_lower)};
}

/// The values of magnitude codes that are numbers, in the order of the codes.
template <class D>
HWY_INLINE Quad<D> widen_e4m3_magnitudes(D d, hn::Vec<U8Of<D>> codes) {
  const auto bytes = e4m3_bytes(d, codes);
  return join_bf16(d, bytes.upper, bytes.lower);
}

/// Exact, as e4m3_to_f32, but NaN codes give bf16_nan.
template <class D>
HWY_INLINE Quad<D> widen_e4m3(D d, hn::Vec<U8Of<D>> codes) {
  const U8Of<D> d8;
  const auto x = zip_bytes(d8, codes);
  const auto abs = hn::And(x, hn::Set(d8, uint8{0x7F}));
  const auto sign = hn::And(x, hn::Set(d8, uint8{0x80}));
  const auto bytes = e4m3_bytes(d, abs);
  const auto nan_code = hn::Set(d8, uint8{0x7F});
  const auto is_nan = hn::Eq(abs, nan_code);
  return join_bf16(d, hn::IfThenElse(is_nan, nan_code, hn::Or(bytes.upper, sign)),
                   hn::Or(bytes.lower, hn::VecFromMask(d8, is_nan)));
}

/// From code pairs to a byte each, in memory order.
template <class D>
HWY_INLINE hn::Vec<U8Of<D>> split_e2m1(D /*d*/, hn::Vec<hn::Half<U8Of<D>>> pairs) {
  const U16Of<D> d16;
  const auto wide = hn::PromoteTo(d16, pairs);
  const auto split = hn::And(hn::Or(wide, hn::ShiftLeft<4>(wide)), hn::Set(d16, uint16{0x0F0F}));
  return hn::BitCast(U8Of<D>(), split);
}

/// Exact, as e2m1_to_f32, from a byte each, in the order of the codes.
template <class D>
HWY_INLINE Quad<D> widen_e2m1_codes(D d, hn::Vec<U8Of<D>> codes) {
  const U8Of<D> d8;
  alignas(16) static constexpr uint8 kUpper[16] = {0x00, 0x3F, 0x3F, 0x3F, 0x40, 0x40, 0x40, 0x40,
                                                   0x80, 0xBF, 0xBF, 0xBF, 0xC0, 0xC0, 0xC0, 0xC0};
  alignas(16) static constexpr uint8 kLower[16] = {0x00, 0x00, 0x80, 0xC0, 0x00, 0x40, 0x80, 0xC0,
                                                   0x00, 0x00, 0x80, 0xC0, 0x00, 0x40, 0x80, 0xC0};
  return join_bf16(d, hn::TableLookupBytes(hn::LoadDup128(d8, kUpper), codes),
                   hn::TableLookupBytes(hn::LoadDup128(d8, kLower), codes));
}

/// The same from half a vector of code pairs in memory order.
template <class D>
HWY_INLINE Quad<D> widen_e2m1(D d, hn::Vec<hn::Half<U8Of<D>>> pairs) {
  return widen_e2m1_codes(d, zip_bytes(U8Of<D>(), split_e2m1(d, pairs)));
}

}  // namespace tilekernels::numerics::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TILEKERNELS_NUMERICS_FORMATS_INL_H_
