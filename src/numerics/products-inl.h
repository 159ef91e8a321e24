// Codes times one scaling factor, by table: all products of a group are rounded once and looked up
// by code, instead of being widened, multiplied and rounded each. The same bits as multiplying in
// fp32 and rounding, with a third of the instructions; for groups of at least 64 codes.
#if defined(TILEKERNELS_NUMERICS_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TILEKERNELS_NUMERICS_PRODUCTS_INL_H_
#undef TILEKERNELS_NUMERICS_PRODUCTS_INL_H_
#else
#define TILEKERNELS_NUMERICS_PRODUCTS_INL_H_
#endif

#include "numerics/formats-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tilekernels::numerics::HWY_NAMESPACE {

/// Sixteen 16-bit products by their bytes, as a table lookup wants them.
struct Products {
  alignas(16) uint8 upper[16];
  alignas(16) uint8 lower[16];
};

// The 8 + 8 numbers x · sf as Products, `base` taken from the bits of the second 8.
template <class Narrow>
HWY_INLINE Products make_products(const float* x, float sf, int16 base, Narrow narrow) {
  using D = hn::CappedTag<float, 4>;
  const D d;
  const U8Of<D> d8;
  const U16Of<D> d16;
  const hn::Repartition<int16, D> di16;
  const auto scale = hn::Set(d, sf);
  const auto products = [&](const float* from) {
    return hn::BitCast(di16, narrow(d, Pair<D>{hn::Mul(hn::Load(d, from), scale),
                                               hn::Mul(hn::Load(d, from + 4), scale)}));
  };
  const auto first = products(x);
  const auto second = hn::Sub(products(x + 8), hn::Set(di16, base));
  const auto upper = [&](auto v) {
    return hn::BitCast(di16, hn::ShiftRight<8>(hn::BitCast(d16, v)));
  };
  const auto lower = [&](auto v) { return hn::And(v, hn::Set(di16, int16{0xFF})); };
  Products table;
  hn::Store(pack_u8(upper(first), upper(second)), d8, table.upper);
  hn::Store(pack_u8(lower(first), lower(second)), d8, table.lower);
  return table;
}

/// Whether e4m3_products holds for sf: no product of a code is a bf16 subnormal (but for codes
/// below 8) or overflows. False for 0, Inf and NaN.
HWY_INLINE bool has_e4m3_products(float sf) {
  const uint32 abs = abs_bits(sf);
  return abs >= 0x03800000u && abs < 0x7A800000u;  // 2^-120 <= |sf| < 2^118
}

/// The bf16 products of e4m3 magnitudes with sf: [0, 8) those of the subnormal codes, [8, 16)
/// those of (1 + m/8) · 2^-7, to which a code's exponent field is added.
HWY_INLINE Products e4m3_products(float sf) {
  alignas(16) static constexpr float kMagnitudes[16] = {
      0x0p-9f, 0x1p-9f, 0x2p-9f, 0x3p-9f, 0x4p-9f, 0x5p-9f, 0x6p-9f, 0x7p-9f,
      0x8p-3f, 0x9p-3f, 0xAp-3f, 0xBp-3f, 0xCp-3f, 0xDp-3f, 0xEp-3f, 0xFp-3f};
  return make_products(kMagnitudes, sf, int16{7 << 7},
                       [](auto d, const auto& p) { return narrow_bf16(d, p); });
}

/// bf16(code · sf) of a vector of e4m3 codes: two vectors in memory order.
template <class D8>
HWY_INLINE void multiply_e4m3(D8 d8, const Products& products, hn::Vec<D8> codes,
                              hn::Vec<hn::Repartition<uint16, D8>>& first,
                              hn::Vec<hn::Repartition<uint16, D8>>& second) {
  const hn::Repartition<int8, D8> di8;
  const hn::Repartition<uint16, D8> d16;
  const hn::Repartition<int16, D8> di16;
  const auto x = zip_bytes(d8, codes);
  const auto abs = hn::And(x, hn::Set(d8, uint8{0x7F}));
  // A lookup takes the low four bits: m, and 8 unless the code is subnormal.
  const auto is_normal = hn::VecFromMask(di8, hn::Gt(hn::BitCast(di8, abs), hn::Set(di8, int8{7})));
  const auto index = hn::Or(hn::And(x, hn::Set(d8, uint8{7})),
                            hn::And(hn::BitCast(d8, is_normal), hn::Set(d8, uint8{8})));
  const auto upper = hn::TableLookupBytes(hn::LoadDup128(d8, products.upper), index);
  const auto lower = hn::TableLookupBytes(hn::LoadDup128(d8, products.lower), index);
  const auto zero = hn::Zero(d8);
  const auto nan = hn::Eq(abs, hn::Set(d8, uint8{0x7F}));
  // Sign and exponent field of the codes at their places in a bf16. The sum of two sign bits is
  // the product's.
  const auto place = [&](auto wide) {
    const auto moved = hn::ShiftRight<4>(hn::BitCast(di16, wide));
    return hn::And(hn::BitCast(d16, moved), hn::Set(d16, uint16{0x8780}));
  };
  first = hn::Add(hn::BitCast(d16, hn::InterleaveLower(d8, lower, upper)),
                  place(hn::InterleaveLower(d8, zero, x)));
  second = hn::Add(hn::BitCast(d16, hn::InterleaveUpper(d8, lower, upper)),
                   place(hn::InterleaveUpper(d8, zero, x)));
  if (HWY_UNLIKELY(!hn::AllFalse(d8, nan))) {
    const auto bytes = hn::VecFromMask(d8, nan);
    const auto nan16 = hn::Set(d16, uint16{0x7FFF});
    first = hn::IfThenElse(hn::MaskFromVec(hn::BitCast(d16, hn::InterleaveLower(d8, bytes, bytes))),
                           nan16, first);
    second = hn::IfThenElse(
        hn::MaskFromVec(hn::BitCast(d16, hn::InterleaveUpper(d8, bytes, bytes))), nan16, second);
  }
}

/// The bf16 or f16 products of all e2m1 codes with sf, whatever sf is.
template <bool kF16>
HWY_INLINE Products e2m1_products(float sf) {
  alignas(16) static constexpr float kValues[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,
                                                    4.0f,  6.0f,  -0.0f, -0.5f, -1.0f, -1.5f,
                                                    -2.0f, -3.0f, -4.0f, -6.0f};
  return make_products(kValues, sf, int16{0}, [](auto d, const auto& p) {
    if constexpr (kF16) {
      return narrow_f16(d, p);
    } else {
      return narrow_bf16(d, p);
    }
  });
}

/// The products of half a vector of e2m1 code pairs: two vectors in memory order.
template <class D8>
HWY_INLINE void multiply_e2m1(D8 d8, const Products& products, hn::Vec<hn::Half<D8>> pairs,
                              hn::Vec<hn::Repartition<uint16, D8>>& first,
                              hn::Vec<hn::Repartition<uint16, D8>>& second) {
  const hn::Repartition<uint16, D8> d16;
  const auto codes = spread_e2m1(d8, pairs);
  const auto upper = hn::TableLookupBytes(hn::LoadDup128(d8, products.upper), codes);
  const auto lower = hn::TableLookupBytes(hn::LoadDup128(d8, products.lower), codes);
  first = hn::BitCast(d16, hn::InterleaveLower(d8, lower, upper));
  second = hn::BitCast(d16, hn::InterleaveUpper(d8, lower, upper));
}

}  // namespace tilekernels::numerics::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TILEKERNELS_NUMERICS_PRODUCTS_INL_H_
