// The lane conversions behind one function a target, for the tests: included once a target.
#if defined(TILEKERNELS_TESTS_NUMERICS_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TILEKERNELS_TESTS_NUMERICS_LANES_INL_H_
#undef TILEKERNELS_TESTS_NUMERICS_LANES_INL_H_
#else
#define TILEKERNELS_TESTS_NUMERICS_LANES_INL_H_
#endif

#include "numerics/formats-inl.h"
#include "numerics/lanes.h"

HWY_BEFORE_NAMESPACE();
namespace tilekernels::test::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
namespace lanes = numerics::HWY_NAMESPACE;

template <class D>
lanes::Quad<D> load_f32(D d, const float* x) {
  const size_t n = hn::Lanes(d);
  return {lanes::zip_f32(d, hn::LoadU(d, x), hn::LoadU(d, x + n)),
          lanes::zip_f32(d, hn::LoadU(d, x + 2 * n), hn::LoadU(d, x + 3 * n))};
}

template <class D>
void store_f32(D d, const lanes::Quad<D>& x, float* out) {
  const size_t n = hn::Lanes(d);
  const lanes::Pair<D> lower = lanes::unzip_f32(d, x.lower);
  const lanes::Pair<D> upper = lanes::unzip_f32(d, x.upper);
  hn::StoreU(lower.lo, d, out);
  hn::StoreU(lower.hi, d, out + n);
  hn::StoreU(upper.lo, d, out + 2 * n);
  hn::StoreU(upper.hi, d, out + 3 * n);
}

template <class D>
void convert_as(D d, Conversion conversion, const void* x, void* out, size_t count) {
  const lanes::U8Of<D> d8;
  const lanes::U16Of<D> d16;
  const hn::Half<lanes::U8Of<D>> half8;
  const size_t n = hn::Lanes(d);
  const auto* x8 = static_cast<const uint8_t*>(x);
  const auto* x16 = static_cast<const uint16_t*>(x);
  const auto* x32 = static_cast<const float*>(x);
  auto* out8 = static_cast<uint8_t*>(out);
  auto* out16 = static_cast<uint16_t*>(out);
  auto* out32 = static_cast<float*>(out);
  for (size_t i = 0; i < count; i += 4 * n) {
    switch (conversion) {
      case Conversion::kWidenBF16:
        store_f32(d,
                  {lanes::widen_bf16(d, hn::LoadU(d16, x16 + i)),
                   lanes::widen_bf16(d, hn::LoadU(d16, x16 + i + 2 * n))},
                  out32 + i);
        break;
      case Conversion::kWidenF16:
        store_f32(d,
                  {lanes::widen_f16(d, hn::LoadU(d16, x16 + i)),
                   lanes::widen_f16(d, hn::LoadU(d16, x16 + i + 2 * n))},
                  out32 + i);
        break;
      case Conversion::kWidenE4M3:
        store_f32(d, lanes::widen_e4m3(d, hn::LoadU(d8, x8 + i)), out32 + i);
        break;
      case Conversion::kWidenE2M1:
        store_f32(d, lanes::widen_e2m1(d, hn::LoadU(half8, x8 + i / 2)), out32 + i);
        break;
      case Conversion::kNarrowBF16: {
        const lanes::Quad<D> y = load_f32(d, x32 + i);
        hn::StoreU(lanes::narrow_bf16(d, y.lower), d16, out16 + i);
        hn::StoreU(lanes::narrow_bf16(d, y.upper), d16, out16 + i + 2 * n);
        break;
      }
      case Conversion::kNarrowF16: {
        const lanes::Quad<D> y = load_f32(d, x32 + i);
        hn::StoreU(lanes::narrow_f16(d, y.lower), d16, out16 + i);
        hn::StoreU(lanes::narrow_f16(d, y.upper), d16, out16 + i + 2 * n);
        break;
      }
      case Conversion::kNarrowE4M3:
        hn::StoreU(lanes::narrow_e4m3(d, load_f32(d, x32 + i)), d8, out8 + i);
        break;
      case Conversion::kNarrowE4M3Numbers:
        hn::StoreU(lanes::narrow_e4m3_numbers(d, load_f32(d, x32 + i)), d8, out8 + i);
        break;
      case Conversion::kNarrowE2M1:
        hn::StoreU(lanes::narrow_e2m1(d, load_f32(d, x32 + i)), half8, out8 + i / 2);
        break;
      case Conversion::kNarrowE2M1Numbers:
        hn::StoreU(lanes::narrow_e2m1_numbers(d, load_f32(d, x32 + i)), half8, out8 + i / 2);
        break;
      case Conversion::kCanonical:
        store_f32(d,
                  lanes::map(load_f32(d, x32 + i), [&](auto v) { return lanes::canonical(d, v); }),
                  out32 + i);
        break;
    }
  }
}

}  // namespace

inline void convert(Conversion conversion, bool short_vectors, const void* x, void* out,
                    size_t count) {
  if (short_vectors) {
    convert_as(hn::CappedTag<float, 4>(), conversion, x, out, count);
  } else {
    convert_as(hn::ScalableTag<float>(), conversion, x, out, count);
  }
}

inline void nan_sign_from(const float* y, const float* x, float* out, size_t count) {
  const hn::ScalableTag<float> d;
  for (size_t i = 0; i < count; i += hn::Lanes(d)) {
    hn::StoreU(lanes::nan_sign_from(d, hn::LoadU(d, y + i), hn::LoadU(d, x + i)), d, out + i);
  }
}

}  // namespace tilekernels::test::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TILEKERNELS_TESTS_NUMERICS_LANES_INL_H_
