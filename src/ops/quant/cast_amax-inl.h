// The largest magnitudes of groups of a row.
#if defined(TILEKERNELS_OPS_QUANT_CAST_AMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TILEKERNELS_OPS_QUANT_CAST_AMAX_INL_H_
#undef TILEKERNELS_OPS_QUANT_CAST_AMAX_INL_H_
#else
#define TILEKERNELS_OPS_QUANT_CAST_AMAX_INL_H_
#endif

#include <cstring>
#include <type_traits>

#include "hwy/highway.h"
#include "ops/quant/cast_lanes-inl.h"
#include "ops/quant/scales-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tilekernels::cpu::HWY_NAMESPACE {
namespace {

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

// What completes the last step of scaling factors, and the last group, holds anything before.
HWY_INLINE void clear_step(uint32* end) {
  for (int64 i = 0; i < scales::kStep; i += kLanes) hn::StoreU(hn::Zero(kU32), kU32, end + i);
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

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace tilekernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TILEKERNELS_OPS_QUANT_CAST_AMAX_INL_H_
