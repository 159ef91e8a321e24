// topk_sum_and_topk_group_idx: group by group, then one pass over all groups for every slot.
#include "ops/moe/topk_sum_and_topk_group_idx/op.h"

namespace tilekernels::reference {

void topk_sum_and_topk_group_idx(const TopkSumAndTopkGroupIdxArgs& args,
                                 const TopkSumAndTopkGroupIdxShape& shape, const Launch&) {
  for (int64 token = 0; token < args.num_tokens; ++token) {
    int32 keys[kMaxExpertGroups];
    for (int32 group = 0; group < shape.num_groups; ++group) {
      const float* scores =
          args.scores + (token * shape.num_groups + group) * int64{shape.group_size};
      int32 best = numerics::kTopkTaken;
      int32 second = numerics::kTopkTaken;
      for (int32 i = 0; i < shape.group_size; ++i) {
        if (!numerics::is_finite(scores[i])) {
          note_fault(args.fault, token, kTopkSumAndTopkGroupIdxId, numerics::kFaultNotFinite);
        }
        const int32 key = numerics::topk_key(scores[i]);
        if (key > best) {
          second = best;
          best = key;
        } else if (key > second) {
          second = key;
        }
      }
      keys[group] = group_key(best, second, shape.num_topk_sum);
    }
    for (int32 slot = 0; slot < shape.num_topk_groups; ++slot) {
      int32 best = 0;
      for (int32 group = 1; group < shape.num_groups; ++group) {
        if (keys[group] > keys[best]) best = group;
      }
      keys[best] = numerics::kTopkTaken;
      args.group_idx[token * shape.num_topk_groups + slot] = best;
    }
  }
}

}  // namespace tilekernels::reference
