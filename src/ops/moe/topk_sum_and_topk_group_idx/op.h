// topk_sum_and_topk_group_idx: the contract that its kernels share. Device-safe.
//
// The value of a group is its best score by topk_key, or the RN sum of its two best. Per row the
// num_topk_groups groups of the largest topk_key(value), equal keys by ascending index, each once.
// Keys make numbers of scores: -0 is +0 and every NaN the same. A row with a score that is NaN or
// Inf is a fault (kFaultNotFinite); its groups are defined all the same.
#pragma once

#include "numerics/fault.h"
#include "numerics/kernel.h"
#include "numerics/topk_key.h"
#include "numerics/types.h"
#include "ops/moe/common.h"

namespace tilekernels {

constexpr int32 kTopkSumAndTopkGroupIdxId = 3;  // in the error word

struct TopkSumAndTopkGroupIdxArgs {
  const float* scores;  // num_tokens x num_groups x group_size
  int64* group_idx;     // num_tokens x num_topk_groups
  int64 num_tokens;
  uint64* fault;
};
static_assert(sizeof(TopkSumAndTopkGroupIdxArgs) == 32);

struct TopkSumAndTopkGroupIdxShape {
  int32 num_groups;  // 1..kMaxExpertGroups
  int32 group_size;
  int32 num_topk_sum;     // 1 or 2, at most group_size
  int32 num_topk_groups;  // 1..num_groups
};

/// The key of a group's value, from the keys of its two best scores.
inline int32 group_key(int32 best, int32 second, int32 num_topk_sum) {
  if (num_topk_sum == 1) return best;
  return numerics::topk_key(numerics::number_of_topk_key(best) +
                            numerics::number_of_topk_key(second));
}

using TopkSumAndTopkGroupIdxKernel =
    Kernel<TopkSumAndTopkGroupIdxArgs, TopkSumAndTopkGroupIdxShape>;
namespace reference {
TopkSumAndTopkGroupIdxKernel topk_sum_and_topk_group_idx;
}
namespace cpu {
TopkSumAndTopkGroupIdxKernel topk_sum_and_topk_group_idx;
}
namespace cuda {
TopkSumAndTopkGroupIdxKernel topk_sum_and_topk_group_idx;
}
namespace ascend {
TopkSumAndTopkGroupIdxKernel topk_sum_and_topk_group_idx;
}

}  // namespace tilekernels
