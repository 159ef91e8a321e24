// topk_sum_and_topk_group_idx on SIMD lanes: each lane keeps its two best scores of a group, then
// the lanes are merged pairwise. Rows with a score that is not finite go by keys.
#include "ops/moe/topk_sum_and_topk_group_idx/op.h"

#include <algorithm>
#include <limits>

#include "runtime/cpu/fault.h"
#include "runtime/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/moe/topk_sum_and_topk_group_idx/cpu.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "ops/moe/top_two-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tilekernels::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 8>;  // groups are short
using DI = hn::RebindToSigned<DF>;
constexpr DF kF;
constexpr DI kI;
using VF = hn::Vec<DF>;
using VI = hn::Vec<DI>;
constexpr int32 kLanes = static_cast<int32>(hn::MaxLanes(kF));

VI magnitude(VF x) { return hn::And(hn::BitCast(kI, x), hn::Set(kI, 0x7FFFFFFF)); }

// The key of a group of finite scores; raises `largest` to the magnitudes seen.
int32 key_of_group(const float* scores, int32 group_size, int32 num_topk_sum, VI& largest) {
  const VF lowest = hn::Set(kF, -std::numeric_limits<float>::infinity());
  TopTwo<VF> best{lowest, lowest};
  int32 i = 0;
  for (; i + kLanes <= group_size; i += kLanes) {
    const VF x = hn::LoadU(kF, scores + i);
    largest = hn::Max(largest, magnitude(x));
    best = merge(best, x, lowest);
  }
  if (i < group_size) {
    alignas(32) float rest[kLanes];
    std::fill_n(rest, kLanes, -numerics::kFloatMax);
    std::copy(scores + i, scores + group_size, rest);
    const VF x = hn::Load(kF, rest);
    largest = hn::Max(largest, magnitude(x));
    // Only scores may be among the best.
    const auto is_score = hn::FirstN(kF, static_cast<size_t>(group_size - i));
    best = merge(best, hn::IfThenElse(is_score, x, lowest), lowest);
  }
  best = top_two_of_lanes(kF, best);
  const float first = hn::GetLane(best.first);
  if (num_topk_sum == 1) return numerics::topk_key(first);
  return numerics::topk_key(first + hn::GetLane(best.second));
}

// Any group.
int32 key_of_any_group(const float* scores, int32 group_size, int32 num_topk_sum) {
  int32 best = numerics::kTopkTaken;
  int32 second = numerics::kTopkTaken;
  for (int32 i = 0; i < group_size; ++i) {
    const int32 key = numerics::topk_key(scores[i]);
    second = std::max(second, std::min(best, key));
    best = std::max(best, key);
  }
  return group_key(best, second, num_topk_sum);
}

// A group's place is the number of those that rank before it.
void store_ranked(const int32* keys, int32 num_groups, int32 num_topk_groups, int64* group_idx) {
  for (int32 group = 0; group < num_groups; ++group) {
    int32 place = 0;
    for (int32 other = 0; other < group; ++other) place += keys[other] >= keys[group];
    for (int32 other = group + 1; other < num_groups; ++other) place += keys[other] > keys[group];
    if (place < num_topk_groups) group_idx[place] = group;
  }
}

}  // namespace

// Returns the first row of [begin, end) with a score that is not finite, or end.
int64 topk_sum_and_topk_group_idx(const TopkSumAndTopkGroupIdxArgs& args,
                                  const TopkSumAndTopkGroupIdxShape& shape, int64 begin,
                                  int64 end) {
  const VI inf = hn::Set(kI, static_cast<int32>(numerics::kInfBits));
  int64 first_fault = end;
  for (int64 token = begin; token < end; ++token) {
    const float* row = args.scores + token * shape.num_groups * int64{shape.group_size};
    int32 keys[kMaxExpertGroups];
    VI largest = hn::Zero(kI);
    for (int32 group = 0; group < shape.num_groups; ++group) {
      keys[group] = key_of_group(row + group * int64{shape.group_size}, shape.group_size,
                                 shape.num_topk_sum, largest);
    }
    if (!hn::AllTrue(kI, hn::Lt(largest, inf))) {
      first_fault = std::min(first_fault, token);
      for (int32 group = 0; group < shape.num_groups; ++group) {
        keys[group] = key_of_any_group(row + group * int64{shape.group_size}, shape.group_size,
                                       shape.num_topk_sum);
      }
    }
    store_ranked(keys, shape.num_groups, shape.num_topk_groups,
                 args.group_idx + token * shape.num_topk_groups);
  }
  return first_fault;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace tilekernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilekernels::cpu {
namespace {

HWY_EXPORT(topk_sum_and_topk_group_idx);

}  // namespace

void topk_sum_and_topk_group_idx(const TopkSumAndTopkGroupIdxArgs& args,
                                 const TopkSumAndTopkGroupIdxShape& shape, const Launch&) {
  const auto of_target = HWY_DYNAMIC_DISPATCH(topk_sum_and_topk_group_idx);
  const double nanoseconds =
      shape.num_groups * (8.0 + 0.3 * shape.group_size + 0.7 * shape.num_groups);
  parallel_for(args.num_tokens, items_per_thread(nanoseconds), [&](int64 begin, int64 end) {
    const int64 row = of_target(args, shape, begin, end);
    if (row == end) return;
    note_fault(args.fault, row, kTopkSumAndTopkGroupIdxId, numerics::kFaultNotFinite);
  });
}

}  // namespace tilekernels::cpu
#endif
