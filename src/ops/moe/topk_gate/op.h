// topk_gate: the contract that its kernels share. Device-safe.
//
// Per row the num_topk experts of the largest topk_key(score), equal keys by ascending index; an
// expert once taken is removed, so ids are distinct. A row with a score that is NaN or Inf is a
// fault (kFaultNotFinite); its ids are defined all the same.
#pragma once

#include "numerics/fault.h"
#include "numerics/kernel.h"
#include "numerics/topk_key.h"
#include "numerics/types.h"

namespace tilekernels {

constexpr int32 kTopkGateId = 1;  // in the error word
constexpr int32 kMaxTopk = 32;

struct TopkGateArgs {
  const float* scores;  // num_tokens x num_experts
  int64* topk_idx;      // num_tokens x num_topk
  int64 num_tokens;
  uint64* fault;
};
static_assert(sizeof(TopkGateArgs) == 32);

struct TopkGateShape {
  int32 num_experts;
  int32 num_topk;
};

using TopkGateKernel = Kernel<TopkGateArgs, TopkGateShape>;
namespace reference {
TopkGateKernel topk_gate;
}
namespace cpu {
TopkGateKernel topk_gate;
}
namespace cuda {
TopkGateKernel topk_gate;
}
namespace ascend {
TopkGateKernel topk_gate;
}

}  // namespace tilekernels
