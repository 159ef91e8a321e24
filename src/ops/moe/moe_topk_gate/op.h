// moe_topk_gate and top2_sum_gate: the contract that their kernels share. Device-safe.
//
// Symbols: E = num_experts, K = num_topk, S = num_shared, P = K + S slots, L = E + S logical
// experts, D = num_copies. RN is one rounding to fp32. Of row `token` (t), the first rule that
// applies:
//
// 1. has_mask and mask[t] is 0: topk_idx -1 and topk_weights 0 in all P slots, the row of unmapped
//    -1, the row of scores 0. The logits are not read.
// 2. has_random and force_random[t] is not 0: P distinct physical ids by random_draw, below; the
//    rows of unmapped and scores as in 1. The logits are not read.
// 3. Otherwise u_e, the score of expert e, is by `scoring`:
//      kScoringSqrtSoftplus  numerics::sqrt_softplus(logit_e)
//      kScoringSigmoid       numerics::sigmoid(logit_e)
//      kScoringSoftmax       RN(exp_f32(RN(logit_e - m)) / sum), m the largest logit (NaN is passed
//                            over where there is a number), sum in the order of
//                            numerics/row_sum.h. With column = 128 i + 4 lane + j that is two
//                            levels in a lane's registers, five shuffles, and the rest in
//                            registers; whole vectors pairwise on SIMD lanes; one cross-lane sum
//                            per register on the vector core.
//    and z_e, what selection sees, is RN(u_e + b_e); with kScoringSoftmax RN(logit_e + b_e). b is
//    image_bias where has_image_bias and image_token_mask[t] is not 0, else bias where has_bias,
//    else 0.
// 4. Experts of the K routed slots: where has_fixed and fix_routing_mask[t] is not 0, the row of
//    unmapped as it stands, repeats allowed. Else the K largest by topk_key(z), equal keys to the
//    lower index, each taken once. With num_groups > 0 only experts of the num_topk_groups best
//    groups of E / num_groups neighbours take part: a group's score is RN(v1 + v2), the values
//    with its two largest keys, ranked by topk_key, equal ones to the lower group.
// 5. Weights: with norm_topk_prob w_k = RN(RN(u_k / weight_denominator(u, K)) * s), else
//    RN(u_k * s); s = routed_scaling_factor. The S shared slots behind them have expert E + j and
//    weight 1.
// 6. unmapped, where it is given: the K routed experts before any map; a fixed row stays as it is.
// 7. has_map: expert i becomes to_physical_map[i][choose_copy(ep_rank, t, logical_count[i])], in
//    all P slots. Then has_tp: mask_by_tp of it; weights stay.
// 8. has_scores: the row of scores is u.
//
// NaN in topk_weights and scores is canonical. Faults, each for its row, the lowest word wins;
// every output is complete all the same:
//   kFaultNotFinite            rule 3 meets a logit that is NaN or Inf. The formulas go on.
//   kFaultNan                  a z is NaN in a row that selects (its logits or its bias are).
//   kFaultIndexOutOfRange      a fixed expert outside [0, E): its u is 0 and its id -1, mapped or
//                              not; unmapped keeps it.
//   kFaultCountOutOfRange      the logical_count of an expert that is looked up is outside 1..D:
//                              the id is -1, the map is not read. In a random row: any of the L
//                              counts is, or N < P.
//   kFaultPositionOutOfRange   the entry of the map is negative: the id is -1. Other entries are
//                              passed on unread.
//
// Random rows: N = L, or with a map the sum of the counts, each taken as clamp(count, 0, D).
// In slots 0..min(P, N) - 1 the weight is the draw's, and the id is the r-th smallest of [0, N)
// that no earlier slot has, r = number mod (N - slot). Slots from N on have id -1 and weight 0.
// No call has both has_random and has_tp.
#pragma once

#include "numerics/gate_fault.h"
#include "numerics/kernel.h"
#include "numerics/row_sum.h"
#include "numerics/scoring.h"
#include "numerics/topk_key.h"
#include "numerics/types.h"
#include "ops/moe/gate.h"
#include "ops/moe/scoring.h"

namespace tilekernels {

// In the error word, as args.op_id.
constexpr int32 kMoeTopkGateId = 2;
constexpr int32 kTop2SumGateId = 12;

// Pointers that the Shape's flags leave out are null.
struct MoeTopkGateArgs {
  const float* logits;            // num_tokens x E
  const float* bias;              // E
  const float* image_bias;        // E
  const uint8* image_token_mask;  // num_tokens, as are the three below: 0 is false
  const uint8* mask;
  const uint8* fix_routing_mask;
  const uint8* force_random;
  const int32* to_physical_map;  // L x D
  const int32* logical_count;    // L
  int64* unmapped_topk_idx;      // num_tokens x K, read by fixed rows and written by the others
  int64 unmapped_stride;         // elements from row to row, >= K
  int64* topk_idx;               // num_tokens x P
  float* topk_weights;           // num_tokens x P
  float* scores;                 // num_tokens x E
  int64 num_tokens;
  float routed_scaling_factor;  // finite
  int32 ep_rank;
  int32 experts_per_rank;  // >= 1
  int32 tp_rank;           // in [0, num_tp_ranks)
  int32 num_tp_ranks;      // >= 1
  int32 op_id;
  uint64* fault;
};
static_assert(sizeof(MoeTopkGateArgs) == 152);

struct MoeTopkGateShape {
  int32 scoring;  // kScoring…
  int32 norm_topk_prob;
  int32 has_bias;
  int32 has_image_bias;  // and image_token_mask
  int32 has_mask;
  int32 has_fixed;
  int32 has_random;
  int32 has_map;  // and logical_count
  int32 has_unmapped;
  int32 has_scores;
  int32 has_tp;
  int32 num_experts;
  int32 num_topk;
  int32 num_shared;
  int32 num_copies;       // 0 without a map
  int32 num_groups;       // 0: experts are not grouped; else 2..kMaxExpertGroups, groups of >= 2
  int32 num_topk_groups;  // 1..num_groups - 1, of at least K experts in all
};

using MoeTopkGateKernel = Kernel<MoeTopkGateArgs, MoeTopkGateShape>;
namespace reference {
MoeTopkGateKernel moe_topk_gate;
/// Tokens begin <= t < end alone: what a kernel on the host does with rows that are odd.
void moe_topk_gate_rows(const MoeTopkGateArgs& args, const MoeTopkGateShape& shape, int64 begin,
                        int64 end);
}  // namespace reference
namespace cpu {
MoeTopkGateKernel moe_topk_gate;
}
namespace cuda {
MoeTopkGateKernel moe_topk_gate;
}
namespace ascend {
MoeTopkGateKernel moe_topk_gate;
}

}  // namespace tilekernels
