// The two largest numbers of a group on SIMD lanes: first of each lane, then of all.
#if defined(TILEKERNELS_OPS_MOE_TOP_TWO_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TILEKERNELS_OPS_MOE_TOP_TWO_INL_H_
#undef TILEKERNELS_OPS_MOE_TOP_TWO_INL_H_
#else
#define TILEKERNELS_OPS_MOE_TOP_TWO_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tilekernels::cpu::HWY_NAMESPACE {
namespace {

template <class V>
struct TopTwo {
  V first;
  V second;
};

// With two more, first >= second.
template <class V>
HWY_INLINE TopTwo<V> merge(const TopTwo<V>& two, V first, V second) {
  namespace hn = hwy::HWY_NAMESPACE;
  return {hn::Max(two.first, first),
          hn::Max(hn::Min(two.first, first), hn::Max(two.second, second))};
}

// The two largest of all lanes, in every lane: lanes with their mirror images, in blocks that
// double.
template <class D, class V = hwy::HWY_NAMESPACE::Vec<D>>
HWY_INLINE TopTwo<V> top_two_of_lanes(D d, TopTwo<V> two) {
  namespace hn = hwy::HWY_NAMESPACE;
  constexpr size_t kNumLanes = hn::MaxLanes(D());
  static_assert(kNumLanes == 4 || kNumLanes == 8 || kNumLanes == 16);
  two = merge(two, hn::Reverse2(d, two.first), hn::Reverse2(d, two.second));
  two = merge(two, hn::Reverse4(d, two.first), hn::Reverse4(d, two.second));
  if constexpr (kNumLanes >= 8) {
    two = merge(two, hn::Reverse8(d, two.first), hn::Reverse8(d, two.second));
  }
  if constexpr (kNumLanes == 16) {
    two = merge(two, hn::Reverse(d, two.first), hn::Reverse(d, two.second));
  }
  return two;
}

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace tilekernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
