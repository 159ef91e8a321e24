// get_fused_mapping: a walk over all entries for every expert.
#include "ops/moe/get_fused_mapping/op.h"

namespace tilekernels::reference {

void get_fused_mapping(const GetFusedMappingArgs& args, const GetFusedMappingShape& shape,
                       const Launch&) {
  const auto report = [&](int64 entry, int32 kind) {
    note_fault(args.fault, entry / shape.num_topk, kGetFusedMappingId, kind);
  };
  for (int64 i = 0; i < args.num_entries; ++i) {
    args.token_topk_to_pos[i] = -1;
    if (is_bad_index(args.topk_idx[i], shape.num_experts)) {
      report(i, numerics::kFaultIndexOutOfRange);
    }
  }
  for (int64 pos = 0; pos < args.num_expanded; ++pos) {
    args.pos_to_expert[pos] = -1;
    args.pos_to_token[pos] = -1;
    args.pos_to_token_topk[pos] = -1;
  }
  int64 start = 0;
  for (int32 expert = 0; expert < shape.num_experts; ++expert) {
    int64 count = 0;
    for (int64 i = 0; i < args.num_entries; ++i) count += args.topk_idx[i] == expert ? 1 : 0;
    const int64 aligned = numerics::align_up(count, args.alignment);
    const bool fits = start + aligned <= args.num_expanded;
    int64 pos = start;
    for (int64 i = 0; i < args.num_entries; ++i) {
      if (args.topk_idx[i] != expert) continue;
      if (!fits) report(i, numerics::kFaultPositionOutOfRange);
      if (pos < args.num_expanded) {
        args.pos_to_expert[pos] = expert;
        args.pos_to_token[pos] = static_cast<int32>(i / shape.num_topk);
        args.pos_to_token_topk[pos] = static_cast<int32>(i);
        args.token_topk_to_pos[i] = static_cast<int32>(pos);
      }
      ++pos;
    }
    args.expert_start[expert] = clipped(start, args.num_expanded);
    args.expert_end[expert] = clipped(start + aligned, args.num_expanded);
    args.num_tokens_per_expert[expert] = static_cast<int32>(aligned);
    args.psum_num_tokens_per_expert[expert] = clipped(start + count, args.num_expanded);
    start += aligned;
  }
}

}  // namespace tilekernels::reference
