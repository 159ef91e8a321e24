// normalize_weight: the contract that its kernels share. Device-safe.
//
// Per row den = weight_denominator(weights) and weight / den, one rounding each; NaN is canonical.
#pragma once

#include "numerics/kernel.h"
#include "numerics/types.h"
#include "ops/moe/common.h"

namespace tilekernels {

struct NormalizeWeightArgs {
  const float* topk_weights;  // num_tokens x num_topk
  float* denominator;         // num_tokens
  float* normalized_weights;  // num_tokens x num_topk
  int64 num_tokens;
};
static_assert(sizeof(NormalizeWeightArgs) == 32);

struct NormalizeWeightShape {
  int32 num_topk;  // 1..kWeightSlots
};

using NormalizeWeightKernel = Kernel<NormalizeWeightArgs, NormalizeWeightShape>;
namespace reference {
NormalizeWeightKernel normalize_weight;
}
namespace cpu {
NormalizeWeightKernel normalize_weight;
}
namespace cuda {
NormalizeWeightKernel normalize_weight;
}
namespace ascend {
NormalizeWeightKernel normalize_weight;
}

}  // namespace tilekernels
