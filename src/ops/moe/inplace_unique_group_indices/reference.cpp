// inplace_unique_group_indices: every index is compared with all before it.
#include "ops/moe/inplace_unique_group_indices/op.h"

namespace tilekernels::reference {

void inplace_unique_group_indices(const InplaceUniqueGroupIndicesArgs& args,
                                  const InplaceUniqueGroupIndicesShape& shape, const Launch&) {
  for (int64 token = 0; token < args.num_tokens; ++token) {
    int64* const row = args.group_indices + token * shape.num_topk;
    // From the right, so that what stands to the left is as it was.
    for (int32 k = shape.num_topk - 1; k >= 0; --k) {
      if (row[k] >= args.num_groups) {
        note_fault(args.fault, token, kInplaceUniqueGroupIndicesId,
                   numerics::kFaultIndexOutOfRange);
      } else if (row[k] >= 0) {
        bool is_first = true;
        for (int32 before = 0; before < k; ++before) is_first = is_first && row[before] != row[k];
        if (!is_first) row[k] = -1;
      }
    }
  }
}

}  // namespace tilekernels::reference
