// Scaling factors on SIMD lanes: a run of them read from any layout, computed, or written to any.
#if defined(TILEKERNELS_OPS_QUANT_SCALES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TILEKERNELS_OPS_QUANT_SCALES_INL_H_
#undef TILEKERNELS_OPS_QUANT_SCALES_INL_H_
#else
#define TILEKERNELS_OPS_QUANT_SCALES_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "hwy/highway.h"
#include "numerics/formats-inl.h"
#include "ops/quant/common.h"

HWY_BEFORE_NAMESPACE();
namespace tilekernels::cpu::HWY_NAMESPACE {
namespace {

namespace scales {

namespace hn = hwy::HWY_NAMESPACE;
namespace nm = numerics::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;
using DU32 = nm::U32Of<DF>;
using VF = hn::Vec<DF>;
using VU32 = hn::Vec<DU32>;
constexpr DF kF;
constexpr DU32 kU32;
constexpr int64 kLanes = static_cast<int64>(hn::MaxLanes(kF));
/// Arrays of scaling factors, and of what they are computed from, are read and written in whole
/// steps: so many elements may lie behind the last one.
constexpr int64 kStep = 4 * kLanes;

inline VF nan() { return hn::BitCast(kF, hn::Set(kU32, 0x7FC00000u)); }

/// Whether the bits of a magnitude are Inf or NaN.
inline hn::Mask<DF> is_bad(VU32 bits) {
  const hn::RebindToSigned<DU32> i32;
  return hn::RebindMask(kF, hn::Gt(hn::BitCast(i32, bits), hn::Set(i32, 0x7F7FFFFF)));
}

inline VF widen_ue8m0(VU32 byte) {
  const VU32 number = hn::IfThenElse(hn::Eq(byte, hn::Zero(kU32)), hn::Set(kU32, 0x00400000u),
                                     hn::ShiftLeft<23>(byte));
  const auto is_nan = hn::RebindMask(kF, hn::Eq(byte, hn::Set(kU32, 255u)));
  return hn::IfThenElse(is_nan, nan(), hn::BitCast(kF, number));
}

inline VF widen_e4m3(VU32 byte) {
  // Exponent and mantissa moved to their places in fp32 make the number times 2^-120.
  const hn::RebindToSigned<DU32> i32;
  const auto moved = hn::ShiftRight<4>(hn::BitCast(i32, hn::ShiftLeft<24>(byte)));
  const VU32 bits = hn::And(hn::BitCast(kU32, moved), hn::Set(kU32, 0x87F00000u));
  const VF number = hn::Mul(hn::BitCast(kF, bits), hn::Set(kF, 0x1p120f));
  const VU32 magnitude = hn::Set(kU32, 0x7Fu);
  const auto is_nan = hn::RebindMask(kF, hn::Eq(hn::And(byte, magnitude), magnitude));
  return hn::IfThenElse(is_nan, nan(), number);
}

/// Lays the one-byte scaling factors E(m, begin) to E(m, begin + num - 1) side by side in `raw`,
/// scratch for num bytes and a step; returns the first.
inline const uint8* read_bytes(const SfRead& sf, int64 m, int64 begin, int64 num, uint8* raw) {
  const int64 stride = sf.map.stride_k;
  const int64 pack = sf.map.pack_k;
  const int64 skip = begin % pack;
  const uint8* from = sf.at(m, begin - skip);
  if (sf.map.pack_m > 1) {
    for (int64 k = 0; k < num; ++k) raw[k] = from[k * stride];
    return raw;
  }
  num += skip;
  if (stride == pack || num <= pack) {
    std::memcpy(raw, from, static_cast<size_t>(num));
  } else if (pack == 1) {
    for (int64 k = 0; k < num; ++k) raw[k] = from[k * stride];
  } else if (pack == 2) {
    for (int64 k = 0; k < num; k += 2) std::memcpy(raw + k, from + k / 2 * stride, 2);
  } else {
    for (int64 k = 0; k < num; k += 4) std::memcpy(raw + k, from + k / 4 * stride, 4);
  }
  return raw + skip;
}

inline void widen(int32 sf_kind, const uint8* bytes, int64 num, float* numbers) {
  for (int64 k = 0; k < num; k += kLanes) {
    const VU32 byte = hn::PromoteTo(kU32, hn::LoadU(hn::Rebind<uint8, DF>(), bytes + k));
    hn::StoreU(sf_kind == numerics::kSfE4M3 ? widen_e4m3(byte) : widen_ue8m0(byte), kF,
               numbers + k);
  }
}

/// The same as numbers, of any kind.
inline void read(const SfRead& sf, int32 sf_kind, int64 m, int64 begin, int64 num, uint8* raw,
                 float* numbers) {
  if (num <= 0) return;
  if (!is_wide_sf(sf_kind)) {
    return widen(sf_kind, read_bytes(sf, m, begin, num, raw), num, numbers);
  }
  const uint8* from = sf.at(m, begin);
  if (sf.map.stride_k == 4 || num == 1) {
    std::memcpy(numbers, from, static_cast<size_t>(num) * 4);
  } else {
    for (int64 k = 0; k < num; ++k) std::memcpy(numbers + k, from + k * sf.map.stride_k, 4);
  }
}

/// Gives every unit of a row the scaling factor of its block: block_units of them have one, but the
/// first block has `skip` units before the row. Writes up to a step more.
inline void spread(const float* sf, int64 block_units, int64 skip, int64 num_units, float* units) {
  int64 end = block_units - skip;
  for (int64 unit = 0; unit < num_units; end += block_units) {
    const VF scale = hn::Set(kF, *sf++);
    for (; unit < end && unit < num_units; unit += kLanes) hn::StoreU(scale, kF, units + unit);
    unit = std::min(end, num_units);
  }
}

/// The e4m3 scaling factors of a step of groups, and their inverses.
inline void compute_e4m3(const uint32* amax_bits, VU32 clamp, VF q, float* inv, uint8* sf) {
  const hn::Repartition<uint8, DF> d8;
  const auto ratio = [&](int64 i) {
    const VU32 bits = hn::Max(hn::LoadU(kU32, amax_bits + i * kLanes), clamp);
    return hn::IfThenElse(is_bad(bits), nan(), hn::Div(hn::BitCast(kF, bits), q));
  };
  const auto bytes = nm::narrow_e4m3(
      kF, {nm::zip_f32(kF, ratio(0), ratio(1)), nm::zip_f32(kF, ratio(2), ratio(3))});
  hn::StoreU(bytes, d8, sf);
  const nm::Quad<DF> numbers = nm::widen_e4m3(kF, bytes);
  const auto store = [&](const nm::Pair<DF>& pair, float* to) {
    const nm::Pair<DF> x = nm::unzip_f32(kF, pair);
    const VF one = hn::Set(kF, 1.0f);
    hn::StoreU(hn::Div(one, x.lo), kF, to);
    hn::StoreU(hn::Div(one, x.hi), kF, to + kLanes);
  };
  store(numbers.lower, inv);
  store(numbers.upper, inv + 2 * kLanes);
}

/// Scaling factors from the bits of amax, as compute_scale: `inv`, NaN for bad groups, and `sf` as
/// it is stored, f32 or bytes. Returns the largest of the groups' amax bits.
inline uint32 compute(int32 sf_kind, bool is_e2m1, const uint32* amax_bits, int64 num,
                      float amax_clamp, float* inv, uint8* sf) {
  const hn::Rebind<uint8, DF> d8;
  const VU32 clamp = hn::BitCast(kU32, hn::Set(kF, amax_clamp));
  const VF q = hn::Set(kF, numerics::max_magnitude(is_e2m1));
  auto largest = hn::Zero(kU32);
  for (int64 k = 0; k < num; k += kLanes) {
    const VU32 bits = hn::Max(hn::LoadU(kU32, amax_bits + k), clamp);
    largest = hn::Max(largest, bits);
    const auto bad = is_bad(bits);
    const VF a = hn::BitCast(kF, bits);
    if (sf_kind == numerics::kSfF32) {
      hn::StoreU(hn::IfThenElse(bad, nan(), hn::Div(a, q)), kF, reinterpret_cast<float*>(sf) + k);
      hn::StoreU(hn::IfThenElse(bad, nan(), hn::Div(q, a)), kF, inv + k);
    } else if (sf_kind == numerics::kSfE4M3) {
      if (k % kStep == 0) compute_e4m3(amax_bits + k, clamp, q, inv + k, sf + k);
    } else {
      // power_of_two_exponent
      const VU32 carry = hn::Add(bits, hn::Set(kU32, is_e2m1 ? 0x3FFFFFu : 0x1FFFFFu));
      const VU32 exponent = hn::Sub(hn::ShiftRight<23>(carry), hn::Set(kU32, is_e2m1 ? 2u : 8u));
      const VF inverse = hn::BitCast(kF, hn::ShiftLeft<23>(hn::Sub(hn::Set(kU32, 254u), exponent)));
      hn::StoreU(hn::IfThenElse(bad, nan(), inverse), kF, inv + k);
      if (is_wide_sf(sf_kind)) {
        const VF power = hn::BitCast(kF, hn::ShiftLeft<23>(exponent));
        hn::StoreU(hn::IfThenElse(bad, nan(), power), kF, reinterpret_cast<float*>(sf) + k);
      } else {
        const VU32 byte = hn::IfThenElse(hn::RebindMask(kU32, bad), hn::Set(kU32, 255u), exponent);
        hn::StoreU(hn::DemoteTo(d8, hn::BitCast(hn::RebindToSigned<DU32>(), byte)), d8, sf + k);
      }
    }
  }
  return hn::GetLane(hn::MaxOfLanes(kU32, largest));
}

template <class Word>
inline void write_columns(const SfWrite& sf, int64 m_begin, int64 num_m, int64 k_begin, int64 num_k,
                          const uint8* rows, int64 pitch_bytes) {
  constexpr int64 kSize = sizeof(Word);
  for (int64 word = 0; word < num_k / sf.map.pack_k; ++word) {
    uint8* to = sf.at(m_begin, k_begin + word * sf.map.pack_k);
    const uint8* from = rows + word * kSize;
    for (int64 m = 0; m < num_m; ++m) {
      std::memcpy(to + m * sf.map.stride_m, from + m * pitch_bytes, kSize);
    }
  }
}

/// Writes a tile of stored scaling factors, num_m rows of num_k at a pitch, to any layout but
/// kTokenPacked. k_begin and num_k are whole packs.
inline void write(const SfWrite& sf, int32 sf_bytes, int64 m_begin, int64 num_m, int64 k_begin,
                  int64 num_k, const uint8* rows, int64 pitch_bytes) {
  const int64 word_bytes = sf_bytes * sf.map.pack_k;
  if (sf.map.stride_k == word_bytes) {
    for (int64 m = 0; m < num_m; ++m) {
      std::memcpy(sf.at(m_begin + m, k_begin), rows + m * pitch_bytes,
                  static_cast<size_t>(num_k * sf_bytes));
    }
  } else if (word_bytes == 4) {
    write_columns<uint32>(sf, m_begin, num_m, k_begin, num_k, rows, pitch_bytes);
  } else if (word_bytes == 2) {
    write_columns<uint16>(sf, m_begin, num_m, k_begin, num_k, rows, pitch_bytes);
  } else {
    write_columns<uint8>(sf, m_begin, num_m, k_begin, num_k, rows, pitch_bytes);
  }
}

}  // namespace scales

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace tilekernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TILEKERNELS_OPS_QUANT_SCALES_INL_H_
