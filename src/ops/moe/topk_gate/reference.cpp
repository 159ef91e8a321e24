// topk_gate: one pass over all experts for every slot.
#include <cstddef>
#include <vector>

#include "ops/moe/common.h"
#include "ops/moe/topk_gate/op.h"

namespace tilekernels::reference {

void topk_gate(const TopkGateArgs& args, const TopkGateShape& shape, const Launch&) {
  std::vector<int32> keys(static_cast<std::size_t>(shape.num_experts));
  for (int64 token = 0; token < args.num_tokens; ++token) {
    const float* scores = args.scores + token * shape.num_experts;
    for (int32 expert = 0; expert < shape.num_experts; ++expert) {
      keys[static_cast<std::size_t>(expert)] = numerics::topk_key(scores[expert]);
      if (!numerics::is_finite(scores[expert])) {
        note_fault(args.fault, token, kTopkGateId, numerics::kFaultNotFinite);
      }
    }
    for (int32 slot = 0; slot < shape.num_topk; ++slot) {
      std::size_t best = 0;
      for (std::size_t expert = 1; expert < keys.size(); ++expert) {
        if (keys[expert] > keys[best]) best = expert;
      }
      keys[best] = numerics::kTopkTaken;
      args.topk_idx[token * shape.num_topk + slot] = static_cast<int64>(best);
    }
  }
}

}  // namespace tilekernels::reference
