// normalize_weight: row by row.
#include "ops/moe/normalize_weight/op.h"

namespace tilekernels::reference {

void normalize_weight(const NormalizeWeightArgs& args, const NormalizeWeightShape& shape,
                      const Launch&) {
  for (int64 token = 0; token < args.num_tokens; ++token) {
    const float* weights = args.topk_weights + token * shape.num_topk;
    float* normalized = args.normalized_weights + token * shape.num_topk;
    const float denominator = weight_denominator(weights, shape.num_topk);
    args.denominator[token] = numerics::canonical(denominator);
    for (int32 k = 0; k < shape.num_topk; ++k) {
      normalized[k] = numerics::canonical(weights[k] / denominator);
    }
  }
}

}  // namespace tilekernels::reference
