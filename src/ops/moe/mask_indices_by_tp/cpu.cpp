// mask_indices_by_tp on SIMD lanes: an index a lane of 64 bits, divisions by long multiplications.
#include "ops/moe/mask_indices_by_tp/op.h"

#include <algorithm>

#include "runtime/cpu/fault.h"
#include "runtime/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/moe/mask_indices_by_tp/cpu.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tilekernels::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using DW = hn::ScalableTag<uint32>;  // words, of which the even ones count
using DL = hn::RepartitionToWide<DW>;
constexpr DW kWords;
constexpr DL kLongs;
constexpr hn::RebindToSigned<DL> kSigned;
using VL = hn::Vec<DL>;
using VS = hn::Vec<hn::RebindToSigned<DL>>;

// The product of the low words.
VL product(VL a, VL b) { return hn::MulEven(hn::BitCast(kWords, a), hn::BitCast(kWords, b)); }

VL set(int32 value) { return hn::Set(kLongs, static_cast<uint64>(value)); }

VL quotient(VL x, const numerics::Divisor& by) {
  return hn::ShiftRightSame(product(x, hn::Set(kLongs, uint64{by.magic})), 31 + by.shift);
}

// The new indices; adds to `faults` the lanes that are too large.
VS mask(VS index, const MaskIndicesByTpArgs& args, VS& faults) {
  const VS none = hn::Set(kSigned, int64{-1});
  const auto too_large = hn::Gt(index, hn::Set(kSigned, int64{args.num_experts} - 1));
  faults = hn::Or(faults, hn::VecFromMask(kSigned, too_large));
  const auto is_expert = hn::AndNot(too_large, hn::Gt(index, none));
  const VL expert = hn::BitCast(kLongs, hn::IfThenElseZero(is_expert, index));
  const VL rank = quotient(expert, args.experts_per_rank);
  const VL turn = quotient(rank, args.num_tp_ranks);
  const VL column = hn::Sub(rank, product(turn, set(args.num_tp_ranks.divisor)));
  const VL per_rank = set(args.experts_per_rank.divisor);
  const VL in_rank = hn::Sub(expert, product(rank, per_rank));
  const VS result = hn::BitCast(kSigned, hn::Add(product(turn, per_rank), in_rank));
  const auto is_here = hn::Eq(hn::BitCast(kSigned, column), hn::Set(kSigned, int64{args.tp_rank}));
  return hn::IfThenElse(hn::And(is_expert, is_here), result, none);
}

template <class T>
VS load(const T* from) {
  if constexpr (sizeof(T) == 8) {
    return hn::LoadU(kSigned, from);
  } else {
    return hn::PromoteTo(kSigned, hn::LoadU(hn::Rebind<int32, DL>(), from));
  }
}

template <class T>
void store(VS v, T* to) {
  if constexpr (sizeof(T) == 8) {
    hn::StoreU(v, kSigned, to);
  } else {
    const hn::Rebind<uint32, DL> narrow;
    const auto words = hn::TruncateTo(narrow, hn::BitCast(kLongs, v));
    hn::StoreU(hn::BitCast(hn::Rebind<int32, DL>(), words), hn::Rebind<int32, DL>(), to);
  }
}

// Whether an index of [begin, end) is too large.
template <class T>
bool mask_all(const MaskIndicesByTpArgs& args, int64 begin, int64 end) {
  const auto* const from = static_cast<const T*>(args.indices);
  auto* const to = static_cast<T*>(args.out);
  const auto lanes = static_cast<int64>(hn::Lanes(kLongs));
  VS faults = hn::Zero(kSigned);
  int64 i = begin;
  for (; i + lanes <= end; i += lanes) store(mask(load(from + i), args, faults), to + i);
  if (i < end) {
    T rest[hn::MaxLanes(kLongs)] = {};
    std::copy(from + i, from + end, rest);
    store(mask(load(rest), args, faults), rest);
    std::copy_n(rest, end - i, to + i);
  }
  return !hn::AllTrue(kSigned, hn::Eq(faults, hn::Zero(kSigned)));
}

}  // namespace

bool mask_indices_by_tp(const MaskIndicesByTpArgs& args, const MaskIndicesByTpShape& shape,
                        int64 begin, int64 end) {
  return shape.dtype == numerics::kDTypeI32 ? mask_all<int32>(args, begin, end)
                                            : mask_all<int64>(args, begin, end);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace tilekernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilekernels::cpu {
namespace {

HWY_EXPORT(mask_indices_by_tp);

// The first index of [begin, end) that is too large; there is one.
template <class T>
int64 first_fault(const MaskIndicesByTpArgs& args, int64 begin) {
  const auto* const indices = static_cast<const T*>(args.indices);
  int64 i = begin;
  while (indices[i] < args.num_experts) ++i;
  return i;
}

}  // namespace

void mask_indices_by_tp(const MaskIndicesByTpArgs& args, const MaskIndicesByTpShape& shape,
                        const Launch&) {
  const auto of_target = HWY_DYNAMIC_DISPATCH(mask_indices_by_tp);
  parallel_for(args.count, items_per_thread(1.0), [&](int64 begin, int64 end) {
    if (!of_target(args, shape, begin, end)) return;
    const int64 at = shape.dtype == numerics::kDTypeI32 ? first_fault<int32>(args, begin)
                                                        : first_fault<int64>(args, begin);
    note_fault(args.fault, at / args.row_length, kMaskIndicesByTpId,
               numerics::kFaultIndexOutOfRange);
  });
}

}  // namespace tilekernels::cpu
#endif
