// normalize_weight on SIMD lanes: whole rows in vectors, the tree of the sum by permutations.
#include "ops/moe/normalize_weight/op.h"

#include <algorithm>

#include "runtime/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/moe/normalize_weight/cpu.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tilekernels::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Rows are short: more lanes would hold padding.
using DF = hn::CappedTag<float, 8>;
constexpr DF kF;
using VF = hn::Vec<DF>;
constexpr int32 kLanes = static_cast<int32>(hn::MaxLanes(kF));
static_assert(kLanes == 4 || kLanes == 8);

// The first `count` elements, zeros behind them; touches no others.
VF load_some(const float* from, int32 count) {
  if (count >= kLanes) return hn::LoadU(kF, from);
#if HWY_TARGET == HWY_AVX2  // which masks loads of 4 bytes
  return hn::MaskedLoad(hn::FirstN(kF, static_cast<size_t>(count)), kF, from);
#else
  alignas(32) float padded[kLanes] = {};
  std::copy_n(from, count, padded);
  return hn::Load(kF, padded);
#endif
}

void store_some(VF v, int32 count, float* to) {
  if (count >= kLanes) return hn::StoreU(v, kF, to);
#if HWY_TARGET == HWY_AVX2
  hn::BlendedStore(v, hn::FirstN(kF, static_cast<size_t>(count)), kF, to);
#else
  alignas(32) float padded[kLanes];
  hn::Store(v, kF, padded);
  std::copy_n(padded, count, to);
#endif
}

// The same where a whole vector may be read: faster.
VF load_some_of_many(const float* from, int32 count) {
  const VF v = hn::LoadU(kF, from);
  if (count >= kLanes) return v;
  return hn::IfThenElseZero(hn::FirstN(kF, static_cast<size_t>(count)), v);
}

VF canonical(VF v) { return hn::IfThenElse(hn::IsNaN(v), hn::Set(kF, numerics::kCanonicalNan), v); }

// Adds to every lane those of its aligned group of kSlots lanes, larger strides first.
template <int32 kSlots>
VF sum_of_group(VF v) {
  if constexpr (kSlots >= 8) v = hn::Add(v, hn::SwapAdjacentBlocks(v));
  if constexpr (kSlots >= 4) v = hn::Add(v, hn::Shuffle1032(v));
  if constexpr (kSlots >= 2) v = hn::Add(v, hn::Shuffle2301(v));
  return v;
}

VF denominator_of(VF sum) { return hn::Add(sum, hn::Set(kF, kWeightEpsilon)); }

// Rows that fill kSlots slots, several in a vector.
template <int32 kSlots>
void dense_rows(const NormalizeWeightArgs& args, int64 begin, int64 end) {
  constexpr int32 kRows = kLanes / kSlots;
  for (int64 row = begin; row < end; row += kRows) {
    const auto rows = static_cast<int32>(std::min<int64>(kRows, end - row));
    const VF weights = load_some(args.topk_weights + row * kSlots, rows * kSlots);
    const VF denominator = denominator_of(sum_of_group<kSlots>(weights));
    const VF normalized = canonical(hn::Div(weights, denominator));
    store_some(normalized, rows * kSlots, args.normalized_weights + row * kSlots);
    alignas(32) float of_lanes[kLanes];
    hn::Store(canonical(denominator), kF, of_lanes);
    for (int32 r = 0; r < rows; ++r) args.denominator[row + r] = of_lanes[r * kSlots];
  }
}

// Rows of kSlots slots, the last of which may have no weight, in one vector or more.
template <int32 kSlots>
void padded_rows(const NormalizeWeightArgs& args, int32 num_topk, int64 begin, int64 end) {
  constexpr int32 kVectors = kSlots <= kLanes ? 1 : kSlots / kLanes;
  for (int64 row = begin; row < end; ++row) {
    const float* from = args.topk_weights + row * num_topk;
    float* to = args.normalized_weights + row * num_topk;
    // Later rows have room for what a whole vector reads and writes too much.
    const bool has_room = (end - row - 1) * num_topk >= kLanes;
    VF weights[kVectors];
    VF sums[kVectors];
    for (int32 v = 0; v < kVectors; ++v) {
      const int32 count = std::max(0, num_topk - v * kLanes);
      const float* part = from + num_topk - count;
      weights[v] = has_room ? load_some_of_many(part, count) : load_some(part, count);
      sums[v] = weights[v];
    }
    for (int32 half = kVectors / 2; half > 0; half /= 2) {
      for (int32 v = 0; v < half; ++v) sums[v] = hn::Add(sums[v], sums[v + half]);
    }
    const VF denominator = denominator_of(sum_of_group<std::min(kSlots, kLanes)>(sums[0]));
    for (int32 v = 0; v < kVectors; ++v) {
      const int32 count = std::max(0, num_topk - v * kLanes);
      const VF normalized = canonical(hn::Div(weights[v], denominator));
      store_some(normalized, has_room ? kLanes : count, to + num_topk - count);
    }
    args.denominator[row] = hn::GetLane(canonical(denominator));
  }
}

template <int32 kSlots>
void rows(const NormalizeWeightArgs& args, int32 num_topk, int64 begin, int64 end) {
  if constexpr (kSlots <= kLanes) {
    if (num_topk == kSlots) return dense_rows<kSlots>(args, begin, end);
  }
  padded_rows<kSlots>(args, num_topk, begin, end);
}

}  // namespace

void normalize_weight(const NormalizeWeightArgs& args, const NormalizeWeightShape& shape,
                      int64 begin, int64 end) {
  const int32 num_topk = shape.num_topk;
  switch (power_of_two_from(num_topk)) {
    case 1:
      return rows<1>(args, num_topk, begin, end);
    case 2:
      return rows<2>(args, num_topk, begin, end);
    case 4:
      return rows<4>(args, num_topk, begin, end);
    case 8:
      return rows<8>(args, num_topk, begin, end);
    case 16:
      return rows<16>(args, num_topk, begin, end);
    default:
      return rows<32>(args, num_topk, begin, end);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace tilekernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilekernels::cpu {
namespace {

HWY_EXPORT(normalize_weight);

}  // namespace

void normalize_weight(const NormalizeWeightArgs& args, const NormalizeWeightShape& shape,
                      const Launch&) {
  const auto of_target = HWY_DYNAMIC_DISPATCH(normalize_weight);
  const double nanoseconds = 2.0 + 0.6 * shape.num_topk;
  parallel_for(args.num_tokens, items_per_thread(nanoseconds),
               [&](int64 begin, int64 end) { of_target(args, shape, begin, end); });
}

}  // namespace tilekernels::cpu
#endif
