// The tree of row_sum.h on SIMD lanes.
#if defined(TILEKERNELS_NUMERICS_ROW_SUM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TILEKERNELS_NUMERICS_ROW_SUM_INL_H_
#undef TILEKERNELS_NUMERICS_ROW_SUM_INL_H_
#else
#define TILEKERNELS_NUMERICS_ROW_SUM_INL_H_
#endif

#include <hwy/highway.h>

#include "numerics/row_sum.h"

HWY_BEFORE_NAMESPACE();
namespace tilekernels::numerics::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// sum_partials of the first `num` partial sums, a power of two, where the others are zeros.
/// Overwrites them.
template <class D>
HWY_INLINE float sum_partials(D d, float* partials, int32 num) {
  constexpr auto kLanes = static_cast<int32>(hn::MaxLanes(D()));
  while (num >= 2 * kLanes) {
    for (int32 i = 0; i < num; i += 2 * kLanes) {
      const auto low = hn::LoadU(d, partials + i);
      const auto high = hn::LoadU(d, partials + i + kLanes);
      const auto sums = hn::Add(hn::ConcatEven(d, high, low), hn::ConcatOdd(d, high, low));
      hn::StoreU(sums, d, partials + i / 2);
    }
    num /= 2;
  }
  for (num /= 2; num > 0; num /= 2) {
    for (int32 k = 0; k < num; ++k) partials[k] = partials[2 * k] + partials[2 * k + 1];
  }
  return partials[0] + 0.0f;
}

}  // namespace tilekernels::numerics::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TILEKERNELS_NUMERICS_ROW_SUM_INL_H_
