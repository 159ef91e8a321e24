// get_fused_mapping: the contract that its kernels share. Device-safe.
//
// Expert e has c_e entries: the flat indices i = token * num_topk + k with topk_idx[i] = e. Its
// segment of positions starts where the one before ends and is c_e rounded up to the alignment
// long; its entries fill the front in ascending order of i, the rest and all positions behind the
// last segment are padding, -1. What lies beyond num_expanded positions is cut off: segments are
// clipped, and an entry without a position has -1.
//
// Faults, at the token of the entry: an index outside of [-1, num_experts)
// (kFaultIndexOutOfRange), which counts as -1; an entry of a segment that does not fit
// (kFaultPositionOutOfRange).
#pragma once

#include "numerics/kernel.h"
#include "numerics/types.h"
#include "ops/moe/common.h"

namespace tilekernels {

constexpr int32 kGetFusedMappingId = 8;  // in the error word
/// Counts of so many experts fit on a core of every backend.
constexpr int32 kMaxFusedExperts = 8192;

struct GetFusedMappingArgs {
  const int64* topk_idx;     // num_tokens x num_topk
  int32* pos_to_expert;      // num_expanded
  int32* pos_to_token;       // num_expanded
  int32* pos_to_token_topk;  // num_expanded
  int32* token_topk_to_pos;  // num_tokens x num_topk
  int32* expert_start;       // num_experts, as the others below
  int32* expert_end;
  int32* num_tokens_per_expert;
  int32* psum_num_tokens_per_expert;
  int64 num_entries;  // num_tokens * num_topk
  int64 num_expanded;
  int64 alignment;
  int32* counts;  // scratch of the compiled kernels: entries by part and expert
  int64 part;     // entries of such a part
  uint64* fault;
};
static_assert(sizeof(GetFusedMappingArgs) == 120);

struct GetFusedMappingShape {
  int32 num_experts;
  int32 num_topk;
};

/// A segment that may be cut off: positions are at most num_expanded.
constexpr int32 clipped(int64 position, int64 num_expanded) {
  return static_cast<int32>(numerics::min_of(position, num_expanded));
}

using GetFusedMappingKernel = Kernel<GetFusedMappingArgs, GetFusedMappingShape>;
namespace reference {
GetFusedMappingKernel get_fused_mapping;
}
namespace cpu {
GetFusedMappingKernel get_fused_mapping;
}
namespace cuda {
GetFusedMappingKernel get_fused_mapping;
}
namespace ascend {
GetFusedMappingKernel get_fused_mapping;
}

}  // namespace tilekernels
