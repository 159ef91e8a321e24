// The vectors that the casts work on.
#if defined(TILEKERNELS_OPS_QUANT_CAST_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TILEKERNELS_OPS_QUANT_CAST_LANES_INL_H_
#undef TILEKERNELS_OPS_QUANT_CAST_LANES_INL_H_
#else
#define TILEKERNELS_OPS_QUANT_CAST_LANES_INL_H_
#endif

#include "hwy/highway.h"
#include "numerics/formats-inl.h"
#include "ops/quant/cast.h"

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
  return cols * element_bits(kDType) / 8;
}

// Of 16, 32, 64 or 128.
constexpr int log2_of(int64 cols) { return cols == 16 ? 4 : cols == 32 ? 5 : cols == 64 ? 6 : 7; }

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace tilekernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // TILEKERNELS_OPS_QUANT_CAST_LANES_INL_H_
