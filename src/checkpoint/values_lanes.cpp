// The loops of values.h that run over every number of a checkpoint, on SIMD lanes.
#include "checkpoint/values_lanes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "checkpoint/values_lanes.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "numerics/formats-inl.h"
#include "runtime/cpu/targets.h"

HWY_BEFORE_NAMESPACE();
namespace tilekernels::checkpoint::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
namespace nm = numerics::HWY_NAMESPACE;
using io::StDType;
using DF = hn::ScalableTag<float>;
using DF64 = hn::Repartition<double, DF>;
using Pair = nm::Pair<DF>;
constexpr DF kF;
constexpr nm::U16Of<DF> kU16;
constexpr int64_t kLanes = static_cast<int64_t>(hn::MaxLanes(kF));
constexpr int64_t kStep = 2 * kLanes;

template <StDType kType>
Pair load(const void* in, int64_t i) {
  if constexpr (kType == StDType::kF32) {
    const float* from = static_cast<const float*>(in) + i;
    return nm::zip_f32(kF, hn::LoadU(kF, from), hn::LoadU(kF, from + kLanes));
  } else {
    const auto bits = hn::LoadU(kU16, static_cast<const uint16_t*>(in) + i);
    return kType == StDType::kF16 ? nm::widen_f16(kF, bits) : nm::widen_bf16(kF, bits);
  }
}

template <StDType kType>
void store(const Pair& x, void* out, int64_t i) {
  if constexpr (kType == StDType::kF32) {
    float* to = static_cast<float*>(out) + i;
    const Pair y = nm::unzip_f32(kF, x);
    hn::StoreU(nm::canonical(kF, y.lo), kF, to);
    hn::StoreU(nm::canonical(kF, y.hi), kF, to + kLanes);
  } else {
    const auto bits = kType == StDType::kF16 ? nm::narrow_f16(kF, x) : nm::narrow_bf16(kF, x);
    hn::StoreU(bits, kU16, static_cast<uint16_t*>(out) + i);
  }
}

template <StDType kFrom, StDType kTo>
int64_t convert(const void* in, void* out, int64_t count) {
  int64_t i = 0;
  for (; i + kStep <= count; i += kStep) store<kTo>(load<kFrom>(in, i), out, i);
  return i;
}

template <StDType kFrom>
int64_t convert_to(StDType to, const void* in, void* out, int64_t count) {
  switch (to) {
    case StDType::kF32:
      return convert<kFrom, StDType::kF32>(in, out, count);
    case StDType::kF16:
      return convert<kFrom, StDType::kF16>(in, out, count);
    default:
      return convert<kFrom, StDType::kBF16>(in, out, count);
  }
}

using VF64 = hn::Vec<DF64>;

VF64 add_squares(hn::Vec<DF> v, VF64 sum) {
  constexpr DF64 kF64;
  const hn::Half<DF> half;
  const VF64 lower = hn::PromoteTo(kF64, hn::LowerHalf(half, v));
  const VF64 upper = hn::PromoteTo(kF64, hn::UpperHalf(half, v));
  return hn::MulAdd(upper, upper, hn::MulAdd(lower, lower, sum));
}

template <StDType kType>
int64_t measure(const void* before, const float* after, int64_t count, ErrorSums* sums) {
  constexpr DF64 kF64;
  VF64 errors[2] = {hn::Zero(kF64), hn::Zero(kF64)};
  VF64 squares[2] = {hn::Zero(kF64), hn::Zero(kF64)};
  hn::Vec<DF> largest = hn::Zero(kF);
  int64_t i = 0;
  for (; i + kStep <= count; i += kStep) {
    const Pair x = load<kType>(before, i);
    const Pair y = load<StDType::kF32>(after, i);
    const auto take = [&](hn::Vec<DF> from, hn::Vec<DF> to, VF64* error, VF64* square) {
      // Not finite as soon as one side is not.
      const auto difference = hn::Sub(to, from);
      const auto finite = hn::IsFinite(difference);
      const auto e = hn::IfThenElseZero(finite, difference);
      *error = add_squares(e, *error);
      *square = add_squares(hn::IfThenElseZero(finite, from), *square);
      largest = hn::Max(largest, hn::Abs(e));
    };
    take(x.lo, y.lo, &errors[0], &squares[0]);
    take(x.hi, y.hi, &errors[1], &squares[1]);
  }
  sums->errors += hn::GetLane(hn::SumOfLanes(kF64, hn::Add(errors[0], errors[1])));
  sums->squares += hn::GetLane(hn::SumOfLanes(kF64, hn::Add(squares[0], squares[1])));
  sums->max_abs = hn::GetLane(hn::MaxOfLanes(kF, largest));
  return i;
}

}  // namespace

int64_t convert_lanes(StDType from, const void* in, StDType to, void* out, int64_t count) {
  switch (from) {
    case StDType::kF32:
      return convert_to<StDType::kF32>(to, in, out, count);
    case StDType::kF16:
      return convert_to<StDType::kF16>(to, in, out, count);
    default:
      return convert_to<StDType::kBF16>(to, in, out, count);
  }
}

int64_t measure_lanes(StDType dtype, const void* before, const float* after, int64_t count,
                      ErrorSums* sums) {
  switch (dtype) {
    case StDType::kF32:
      return measure<StDType::kF32>(before, after, count, sums);
    case StDType::kF16:
      return measure<StDType::kF16>(before, after, count, sums);
    default:
      return measure<StDType::kBF16>(before, after, count, sums);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace tilekernels::checkpoint::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilekernels::checkpoint {

HWY_EXPORT(convert_lanes);
HWY_EXPORT(measure_lanes);

int64_t convert_on_lanes(io::StDType from, const void* in, io::StDType to, void* out,
                         int64_t count) {
  return cpu::has_simd() ? HWY_DYNAMIC_DISPATCH(convert_lanes)(from, in, to, out, count) : 0;
}

int64_t measure_on_lanes(io::StDType dtype, const void* before, const float* after, int64_t count,
                         ErrorSums* sums) {
  return cpu::has_simd() ? HWY_DYNAMIC_DISPATCH(measure_lanes)(dtype, before, after, count, sums)
                         : 0;
}

}  // namespace tilekernels::checkpoint
#endif
