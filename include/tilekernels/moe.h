// Mixture-of-experts routing.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tilekernels/quant.h"
#include "tilekernels/stream.h"
#include "tilekernels/tensor.h"

namespace tilekernels {

/// The `num_topk` best experts of every token.
///
/// Args:
///   scores: (num_tokens, num_experts) f32, contiguous, finite; num_experts >= 1.
///   num_topk: experts per token, in 1..min(num_experts, 32).
/// Returns: topk_idx (num_tokens, num_topk) i64, contiguous.
/// Errors: std::invalid_argument for shape, dtype, stride or range; DataError for a row with a
///   score that is not finite (its ids are still distinct and in range, other rows are right).
/// Numerics: ids by descending score, equal scores by ascending index, -0 equal to +0; NaN ranks
///   below every number. No arithmetic on values, so every backend gives the same ids.
/// Source: stable descending sort of the scores, cut to num_topk; TileKernels `topk_gate`.
Tensor topk_gate(const TensorView& scores, int num_topk, const Call& call = {});
TensorSpec topk_gate_spec(const TensorSpec& scores, int num_topk);
void topk_gate_out(const TensorView& topk_idx, const TensorView& scores, int num_topk,
                   const Call& call = {});

/// What `normalize_weight` returns.
struct NormalizedWeights {
  Tensor denominator;         ///< (num_tokens)
  Tensor normalized_weights;  ///< (num_tokens, num_topk)
};
struct NormalizedWeightsSpec {
  TensorSpec denominator;
  TensorSpec normalized_weights;
};

/// Divides the weights of every token by their sum.
///
/// Args:
///   topk_weights: (num_tokens, num_topk) f32, contiguous; num_topk in 1..32.
/// Returns: denominator (num_tokens) f32 and normalized_weights (num_tokens, num_topk) f32,
///   contiguous.
/// Errors: std::invalid_argument for shape, dtype, stride or range. No DataError: NaN and Inf
///   follow IEEE.
/// Numerics: the sum of 32 slots, absent ones +0, by the tree in which slot i takes slot i + 16,
///   then i + 8, 4, 2, 1; then + 1e-20, so a row of zeros stays one; division correctly rounded.
///   The denominator has the bits of the gate's. NaN is canonical.
/// Source: TileKernels `normalize_weight`.
NormalizedWeights normalize_weight(const TensorView& topk_weights, const Call& call = {});
NormalizedWeightsSpec normalize_weight_spec(const TensorSpec& topk_weights);
void normalize_weight_out(const TensorView& denominator, const TensorView& normalized_weights,
                          const TensorView& topk_weights, const Call& call = {});

/// How a router turns logits into scores.
enum class ScoringFunc : int32_t {
  kSqrtSoftplus,  ///< √(ln(1 + e^x)): DeepSeek-V4
  kSigmoid,       ///< 1 / (1 + e^-x): DeepSeek-V3 and V3.2, Kimi K2, GLM-4.5
  kSoftmax,       ///< over all experts of the token: Mixtral, Qwen-MoE, DeepSeek-V2-Lite
};

/// The options of `moe_topk_gate_forward` that are no tensors.
///
/// What models take, by the names of their configuration files: DeepSeek-V3 and V3.2: kSigmoid,
/// num_groups = n_group, num_topk_groups = topk_group, routed_scaling_factor, norm_topk_prob, bias
/// = e_score_correction_bias. V4: kSqrtSoftplus without groups; layers that route by token id give
/// their experts through fix_routing_mask. Kimi K2, GLM-4.5: as V3, without groups. Qwen-MoE:
/// kSoftmax, norm_topk_prob as configured. Mixtral, gpt-oss: kSoftmax with norm_topk_prob, equal to
/// a softmax over the chosen logits but for rounding. DeepSeek-V2-Lite: kSoftmax without
/// norm_topk_prob. (V2 ranks a group by its largest score, not by the sum of two: no option.)
struct MoeTopkGateOptions {
  bool use_shared_as_routed = false;
  int num_shared_experts = 0;  ///< 1 or 2 with `use_shared_as_routed`, not looked at without
  float routed_scaling_factor = 1.0f;
  int ep_rank = 0;
  ScoringFunc scoring_func = ScoringFunc::kSqrtSoftplus;
  bool norm_topk_prob = true;  ///< divide the weights of a token by their sum
  int num_groups = 0;          ///< 0: experts are not grouped
  int num_topk_groups = 0;     ///< equal to num_groups: no limit
  bool save_scores = false;    ///< for the backward pass
};

/// The optional tensors of `moe_topk_gate_forward`. Contiguous but where said otherwise.
struct MoeTopkGateInputSpecs {
  std::optional<TensorSpec> mask;               ///< num_tokens elements, bool
  std::optional<TensorSpec> bias;               ///< (num_experts,) f32
  std::optional<TensorSpec> image_bias;         ///< (num_experts,) f32
  std::optional<TensorSpec> image_token_mask;   ///< (num_tokens,) bool
  std::optional<TensorSpec> fix_routing_mask;   ///< (num_tokens,) bool
  std::optional<TensorSpec> to_physical_map;    ///< (num_logical, num_copies) i32
  std::optional<TensorSpec> logical_count;      ///< (num_logical,) i32
  std::optional<TensorSpec> unmapped_topk_idx;  ///< (num_tokens, num_topk) i64, any row stride
  std::optional<TensorSpec> force_random;       ///< (num_tokens,) bool
};
struct MoeTopkGateInputs {
  std::optional<TensorView> mask;
  std::optional<TensorView> bias;
  std::optional<TensorView> image_bias;
  std::optional<TensorView> image_token_mask;
  std::optional<TensorView> fix_routing_mask;
  std::optional<TensorView> to_physical_map;
  std::optional<TensorView> logical_count;
  std::optional<TensorView> unmapped_topk_idx;  ///< read and written
  std::optional<TensorView> force_random;
};

/// What a gate returns.
struct RoutingSpec {
  TensorSpec topk_idx;
  TensorSpec topk_weights;
  std::optional<TensorSpec> scores{};
};
struct RoutingView {
  TensorView topk_idx;
  TensorView topk_weights;
  std::optional<TensorView> scores{};
};
struct RoutingTensor {
  Tensor topk_idx;
  Tensor topk_weights;
  std::optional<Tensor> scores{};
};

/// Routes every token to its experts: scores of the logits, a selection by score and bias, weights
/// of the chosen scores, and where the experts lie.
///
/// Args:
///   logits: (num_tokens, num_experts) f32, contiguous, finite.
///   num_topk: routed experts per token, in 1..min(num_experts, 32).
///   options: see there. num_topk and num_shared_experts are at most 32 together. num_groups is at
///     most 32 and divides num_experts into groups of at least 2, of which num_topk_groups hold at
///     least num_topk experts. ep_rank: chooses copies, and seeds force_random.
///   inputs, each optional:
///     mask: false for a padding token: ids -1, weights 0; its logits may be anything.
///     bias: added to the scores for the selection alone. -Inf forbids an expert while num_topk
///       others are there.
///     image_bias, image_token_mask: together; image tokens take image_bias instead of bias.
///     fix_routing_mask: true takes the token's experts from unmapped_topk_idx, which must be
///       there.
///     to_physical_map, logical_count: together; num_logical = num_experts + num_shared_experts.
///       Token t takes copy (ep_rank + 23333 t) mod logical_count[i] of expert i.
///     unmapped_topk_idx: receives the routed experts before the map; -1 for masked and random
///       ones.
///     force_random: true for a token that takes random physical experts and weights, the same ones
///       at every call: they depend on ep_rank and the token's number.
/// Returns: topk_idx (num_tokens, num_topk + num_shared_experts) i64 and topk_weights f32 of the
///   same shape, contiguous: routed slots by falling selection score, then the shared experts,
///   which have the indices from num_experts on and weight 1. scores (num_tokens, num_experts) f32,
///   without bias, with `save_scores`; zeros for masked and random tokens.
/// Errors: std::invalid_argument for shape, dtype, stride or range; DataError for a token that is
///   neither masked nor random with a logit that is not finite, a bias that is NaN, a fixed expert
///   outside [0, num_experts), a count outside 1..num_copies or a negative entry of the map; and
///   for a random token with fewer physical experts than slots. Other tokens are right, and the
///   outputs of that one defined: a bad id is -1.
/// Numerics: selection is by z = score + bias (kSoftmax: logit + bias) in f32, larger ones first,
///   equal ones by ascending index, each expert once. With groups: the num_topk_groups groups of
///   the largest sums of their two largest z take part. weight = score / (sum of the num_topk
///   scores, as a tree of 32 slots by xor 16, 8, 4, 2, 1, + 1e-20) * routed_scaling_factor, each
///   step rounded to f32; without norm_topk_prob score * routed_scaling_factor. Scores are by own
///   functions, see docs/numerics.md, so that every backend gives the same bits.
/// Source: TileKernels `moe_topk_gate_forward`; DeepSeek-V3 for groups. Random experts:
///   Philox4x32-10 with key ep_rank and counter (0, 32 token + slot).
RoutingTensor moe_topk_gate_forward(const TensorView& logits, int num_topk,
                                    const MoeTopkGateOptions& options = {},
                                    const MoeTopkGateInputs& inputs = {}, const Call& call = {});
RoutingSpec moe_topk_gate_forward_spec(const TensorSpec& logits, int num_topk,
                                       const MoeTopkGateOptions& options = {},
                                       const MoeTopkGateInputSpecs& inputs = {});
void moe_topk_gate_forward_out(const RoutingView& out, const TensorView& logits, int num_topk,
                               const MoeTopkGateOptions& options = {},
                               const MoeTopkGateInputs& inputs = {}, const Call& call = {});

/// `moe_topk_gate_forward` by its other name.
RoutingTensor moe_topk_gate(const TensorView& logits, int num_topk,
                            const MoeTopkGateOptions& options = {},
                            const MoeTopkGateInputs& inputs = {}, const Call& call = {});
RoutingSpec moe_topk_gate_spec(const TensorSpec& logits, int num_topk,
                               const MoeTopkGateOptions& options = {},
                               const MoeTopkGateInputSpecs& inputs = {});
void moe_topk_gate_out(const RoutingView& out, const TensorView& logits, int num_topk,
                       const MoeTopkGateOptions& options = {}, const MoeTopkGateInputs& inputs = {},
                       const Call& call = {});

/// What the backward pass of a gate may be given besides its tensors.
template <class T>
struct MoeTopkGateBackwardOptionsOf {
  ScoringFunc scoring_func = ScoringFunc::kSqrtSoftplus;
  std::optional<T> mask{};             ///< (num_tokens,) bool, contiguous
  std::optional<T> grad_scores_sum{};  ///< (num_sequences, num_experts) f32, contiguous
};
using MoeTopkGateBackwardSpecs = MoeTopkGateBackwardOptionsOf<TensorSpec>;
using MoeTopkGateBackwardOptions = MoeTopkGateBackwardOptionsOf<TensorView>;

/// The gradient of `moe_topk_gate_forward` by its logits, from the gradient of the normalized
/// weights and, for a balance loss, from that of each sequence's summed relative scores.
///
/// Args:
///   scores: (num_tokens, num_experts) f32, contiguous, as the forward pass saved them.
///   topk_idx: (num_tokens, num_topk) i64, contiguous: the logical routed experts, without shared
///     ones and before any map (`unmapped_topk_idx`). -1 is none; an expert may be there twice.
///     num_topk is in 1..min(num_experts, 32).
///   topk_weights, grad_topk_weights: (num_tokens, num_topk) f32, contiguous: the weights of the
///     forward pass, without shared ones, and their gradient. Those of index -1 may be anything.
///   routed_scaling_factor: that of the forward pass; finite.
///   options: scoring_func of the forward pass, kSqrtSoftplus or kSigmoid. mask and grad_scores_sum
///     together: the gradient H by the sums over a sequence of scores / (sum of the token's
///     scores); num_sequences divides num_tokens, and sequences are rows one after the other. mask
///     is false for tokens that have no part in these sums; it has no effect on the other term.
/// Returns: grad_logits (num_tokens, num_experts) f32, contiguous.
/// Errors: std::invalid_argument for shape, dtype, stride or range; Unsupported for kSoftmax;
///   DataError for a token with an index outside of [-1, num_experts), which counts as -1.
/// Numerics: with u the scores, g the gradient, w the weights and s the factor, f32 with a rounding
///   a step: delta = (s g - sum of g w) / (sum of the chosen u + 1e-20), both sums by the gate's
///   tree; R = the deltas of an expert, in the order of the slots; A = (H - dot(H, u) r) r with r
///   = 1 / sum of u, both in the house's order of row sums; result (R + A) times the derivative of
///   the score. A is left out for tokens that are masked or whose scores are all 0: such scores do
///   not depend on logits. Without A an expert that is not chosen gets +0. NaN is canonical. Same
///   bits on every backend.
/// Source: TileKernels `moe_topk_gate_backward`, which adds repeated experts in any order.
Tensor moe_topk_gate_backward(const TensorView& scores, const TensorView& topk_idx,
                              const TensorView& topk_weights, const TensorView& grad_topk_weights,
                              float routed_scaling_factor,
                              const MoeTopkGateBackwardOptions& options = {},
                              const Call& call = {});
TensorSpec moe_topk_gate_backward_spec(const TensorSpec& scores, const TensorSpec& topk_idx,
                                       const TensorSpec& topk_weights,
                                       const TensorSpec& grad_topk_weights,
                                       float routed_scaling_factor,
                                       const MoeTopkGateBackwardSpecs& options = {});
void moe_topk_gate_backward_out(const TensorView& grad_logits, const TensorView& scores,
                                const TensorView& topk_idx, const TensorView& topk_weights,
                                const TensorView& grad_topk_weights, float routed_scaling_factor,
                                const MoeTopkGateBackwardOptions& options = {},
                                const Call& call = {});

/// The options of `top2_sum_gate` that are no tensors; see `MoeTopkGateOptions`.
struct Top2SumGateOptions {
  int num_topk_groups = 0;
  int num_groups = 0;
  bool use_shared_as_routed = false;
  int num_shared_experts = 0;
  float routed_scaling_factor = 1.0f;
  int ep_rank = 0;
  int num_ep_ranks = 1;
  int tp_rank = 0;
  int num_tp_ranks = 1;
  ScoringFunc scoring_func = ScoringFunc::kSigmoid;
};

/// The optional tensors of `top2_sum_gate`; see `MoeTopkGateInputSpecs`.
struct Top2SumGateInputSpecs {
  std::optional<TensorSpec> mask;
  std::optional<TensorSpec> fix_routing_mask;
  std::optional<TensorSpec> to_physical_map;
  std::optional<TensorSpec> logical_count;
  std::optional<TensorSpec> unmapped_topk_idx;
};
struct Top2SumGateInputs {
  std::optional<TensorView> mask;
  std::optional<TensorView> fix_routing_mask;
  std::optional<TensorView> to_physical_map;
  std::optional<TensorView> logical_count;
  std::optional<TensorView> unmapped_topk_idx;  ///< read and written
};

/// `moe_topk_gate_forward` with a bias always, limited to the best groups of experts, for experts
/// that tensor-parallel ranks share.
///
/// Args, as there, and:
///   bias: (num_experts,) f32, contiguous.
///   options: num_experts_per_rank = (num_experts + num_copies - 1) / num_ep_ranks (num_copies 1
///     without a map) is at least 1; tp_rank in 0..num_tp_ranks - 1. Shared experts: their number
///     divides num_topk, num_topk / num_shared_experts divides num_experts, and with a map they are
///     fewer than num_copies.
/// Returns: topk_idx and topk_weights as there. Behind the map an id v that another tensor-parallel
///   rank has, (v / num_experts_per_rank) mod num_tp_ranks != tp_rank, becomes -1, and the others
///   count this rank's experts alone; weights stay.
/// Errors, Numerics: as there. Weights are always divided by their sum.
/// Source: TileKernels `top2_sum_gate` (April 2025); its sum of weights was from left to right.
RoutingTensor top2_sum_gate(const TensorView& logits, const TensorView& bias, int num_topk,
                            const Top2SumGateOptions& options = {},
                            const Top2SumGateInputs& inputs = {}, const Call& call = {});
RoutingSpec top2_sum_gate_spec(const TensorSpec& logits, const TensorSpec& bias, int num_topk,
                               const Top2SumGateOptions& options = {},
                               const Top2SumGateInputSpecs& inputs = {});
void top2_sum_gate_out(const RoutingView& out, const TensorView& logits, const TensorView& bias,
                       int num_topk, const Top2SumGateOptions& options = {},
                       const Top2SumGateInputs& inputs = {}, const Call& call = {});

/// Where the tokens of every expert lie in a fused buffer of num_expanded_tokens rows
/// ("positions"), one segment an expert. All tensors are i32 and contiguous.
template <class T>
struct FusedMappingOf {
  T pos_to_expert;               ///< (num_expanded_tokens,); -1: padding
  T pos_to_token;                ///< (num_expanded_tokens,); -1: padding
  T pos_to_token_topk;           ///< (num_expanded_tokens,) token * num_topk + k; -1: padding
  T token_topk_to_pos;           ///< (num_tokens, num_topk); -1: none
  T expert_start;                ///< (num_experts,) first position of a segment
  T expert_end;                  ///< (num_experts,) the position behind it
  T num_tokens_per_expert;       ///< (num_experts,) tokens rounded up to the alignment
  T psum_num_tokens_per_expert;  ///< (num_experts,) the position behind the last token
};
using FusedMappingSpec = FusedMappingOf<TensorSpec>;
using FusedMappingView = FusedMappingOf<TensorView>;
struct FusedMapping : FusedMappingOf<Tensor> {
  /// The values of num_tokens_per_expert, where the call waited for them; else empty.
  std::vector<int32_t> num_tokens_per_expert_list;

  operator FusedMappingView() const {  // NOLINT: a tensor is a view it owns
    return {pos_to_expert, pos_to_token, pos_to_token_topk,     token_topk_to_pos,
            expert_start,  expert_end,   num_tokens_per_expert, psum_num_tokens_per_expert};
  }
};

/// Sorts the routed tokens by expert, segments padded to `alignment` rows.
///
/// Args:
///   topk_idx: (num_tokens, num_topk) i64, contiguous; -1 is none. num_tokens * num_topk must be
///     below 2^31 - alignment.
///   num_experts: in 1..8192.
///   num_expanded_tokens: positions that there are. 0 makes room for any routing,
///     floor((num_tokens * num_topk + (alignment - 1) * num_experts) / alignment) * alignment,
///     then waits for the counts and cuts the pos_ tensors to the positions in use.
///   alignment: in 1..2^30.
///   force_no_sync: with num_expanded_tokens = 0, neither waits nor cuts.
/// The `_out` form takes the number of positions from `pos_to_expert`, and never waits.
/// Returns: the mapping, and the counts as a list if the call waited. Segments of experts follow
///   each other without gaps; expert_end and psum_num_tokens_per_expert give the layout that the
///   grouped ops take: the tokens of expert e are at expert_start[e] <= pos <
///   psum_num_tokens_per_expert[e].
/// Errors: std::invalid_argument; DataError for a token with an index outside of
///   [-1, num_experts), which counts as -1, and for one whose expert's segment does not fit: then
///   segments are cut off at num_expanded_tokens, entries behind that have position -1, and
///   num_tokens_per_expert still says what is needed.
/// Numerics: none. Inside a segment ascending token * num_topk + k: stable, and the same on every
///   backend and machine.
/// Source: TileKernels `get_fused_mapping`, whose order depends on the number of SMs.
FusedMapping get_fused_mapping(const TensorView& topk_idx, int num_experts,
                               int64_t num_expanded_tokens, int alignment,
                               bool force_no_sync = false, const Call& call = {});
FusedMappingSpec get_fused_mapping_spec(const TensorSpec& topk_idx, int num_experts,
                                        int64_t num_expanded_tokens, int alignment);
void get_fused_mapping_out(const FusedMappingView& out, const TensorView& topk_idx, int num_experts,
                           int alignment, const Call& call = {});

/// Copies every token's row to its positions.
///
/// Args:
///   x: (num_tokens, hidden) of any dtype, rows contiguous, any row stride >= hidden.
///   token_topk_to_pos: (num_tokens, num_topk) i32, contiguous, num_topk <= 32; negative is none.
///   pos_to_expert: (num_expanded_tokens,) i32, contiguous; negative is padding.
/// Returns: out (num_expanded_tokens, hidden) of x's dtype, contiguous. Rows of padding, and rows
///   that no token has, are zero. Of several tokens that name one position the last one, in order
///   of token * num_topk + k, is there.
/// Errors: std::invalid_argument; DataError for a token with a position that is not below
///   num_expanded_tokens, which counts as none.
/// Numerics: none, bytes are copied.
/// Source: TileKernels `expand_to_fused`.
Tensor expand_to_fused(const TensorView& x, const TensorView& token_topk_to_pos,
                       const TensorView& pos_to_expert, const Call& call = {});
TensorSpec expand_to_fused_spec(const TensorSpec& x, const TensorSpec& token_topk_to_pos,
                                const TensorSpec& pos_to_expert);
void expand_to_fused_out(const TensorView& out, const TensorView& x,
                         const TensorView& token_topk_to_pos, const TensorView& pos_to_expert,
                         const Call& call = {});

/// How the scaling factors of an expansion lie.
struct SfExpansion {
  /// False: row-major. True: column-major, columns padded as `SfLayout::kCol` is.
  bool col_major = false;
  /// Of f32, e4m3 and e8m0 scaling factors; packed ones keep their own.
  SfPitch pitch = SfPitch::kDevice;
};

/// The same for a quantized x: codes and scaling factors.
///
/// Args: as `expand_to_fused`, and
///   x.sf: (num_tokens, ceil(hidden / num_per_channels)) f32, e4m3 or e8m0, or that divided by 4
///     (i32) or 2 (i16), rounded up, of packed exponents; rows or columns contiguous.
///   num_per_channels: 16, 32, 64 or 128; hidden counts elements, two a byte of e2m1.
/// Returns: data as above; sf as `sf_spec` for num_expanded_tokens rows. Scaling factors of rows
///   that are zero are 0, and so is the padding.
/// Errors, Numerics: as `expand_to_fused`.
/// Source: TileKernels `expand_to_fused_with_sf`.
QuantTensor expand_to_fused_with_sf(const QuantView& x, int num_per_channels,
                                    const TensorView& token_topk_to_pos,
                                    const TensorView& pos_to_expert, const SfExpansion& sf = {},
                                    const Call& call = {});
QuantSpec expand_to_fused_with_sf_spec(const QuantSpec& x, int num_per_channels,
                                       const TensorSpec& token_topk_to_pos,
                                       const TensorSpec& pos_to_expert, const SfExpansion& sf = {});
void expand_to_fused_with_sf_out(const QuantView& out, const QuantView& x, int num_per_channels,
                                 const TensorView& token_topk_to_pos,
                                 const TensorView& pos_to_expert, const SfExpansion& sf = {},
                                 const Call& call = {});

/// What a reduction may be given besides rows and positions.
template <class T>
struct ReduceFusedOptionsOf {
  std::optional<T> topk_weights{};  ///< (num_tokens, num_topk) f32, contiguous
  std::optional<T> x_sf{};          ///< (num_expanded_tokens,) f32, contiguous: a factor of a row
  std::optional<T> sf{};            ///< (1,) f32: a factor of all results, e4m3 only
  std::optional<DType> fmt{};       ///< kE4M3: the dtype of the output, otherwise that of x
};
using ReduceFusedSpecs = ReduceFusedOptionsOf<TensorSpec>;
using ReduceFusedOptions = ReduceFusedOptionsOf<TensorView>;

/// Adds up the rows of every token's positions.
///
/// Args:
///   x: (num_expanded_tokens, hidden) f32, bf16, f16 or e4m3, rows contiguous, any row stride >=
///     hidden.
///   token_topk_to_pos: (num_tokens, num_topk) i32, contiguous, num_topk <= 32; negative is none.
/// Returns: out (num_tokens, hidden) of x's dtype or e4m3, contiguous.
/// Errors: std::invalid_argument; DataError for a token with a position that is not below
///   num_expanded_tokens, which counts as none.
/// Numerics: f32 sum from +0, one fused multiply-add a position in the order of k, by the factor
///   topk_weights or 1, times x_sf in f32; then times sf in f32; one rounding to the output, e4m3
///   saturating. NaN is canonical. Same bits on every backend.
/// Source: TileKernels `reduce_fused`, whose e4m3 output saturates on CUDA.
Tensor reduce_fused(const TensorView& x, const TensorView& token_topk_to_pos,
                    const ReduceFusedOptions& options = {}, const Call& call = {});
TensorSpec reduce_fused_spec(const TensorSpec& x, const TensorSpec& token_topk_to_pos,
                             const ReduceFusedSpecs& options = {});
void reduce_fused_out(const TensorView& out, const TensorView& x,
                      const TensorView& token_topk_to_pos, const ReduceFusedOptions& options = {},
                      const Call& call = {});

/// How many indices name each group.
///
/// Args:
///   group_idx: (num_tokens, num_topk) i64, contiguous, fewer than 2^31 indices in all; -1 names no
///     group and is not counted.
///   num_groups: at least 1.
/// Returns: count (num_groups) i32; zeros for no tokens.
/// Errors: std::invalid_argument for shape, dtype, stride or range; DataError for a row with an
///   index below -1 or above num_groups - 1 (it is not counted, all else is).
/// Numerics: exact.
/// Source: TileKernels `group_count`.
Tensor group_count(const TensorView& group_idx, int num_groups, const Call& call = {});
TensorSpec group_count_spec(const TensorSpec& group_idx, int num_groups);
void group_count_out(const TensorView& count, const TensorView& group_idx, int num_groups,
                     const Call& call = {});

/// The share of the routes that each expert takes, times the number of experts: 1 for all when they
/// are balanced. A factor of the auxiliary loss.
///
/// Args:
///   topk_idx: (num_tokens, num_topk) i64, contiguous, fewer than 2^31 indices in all; -1 names no
///     expert and is not counted.
///   num_experts: at least 1.
///   num_aux_topk: routes of a token that make up the whole, at least 1.
/// Returns: fi (num_experts) f32; zeros for no tokens.
/// Errors: std::invalid_argument for shape, dtype, stride or range; DataError for a row with an
///   index below -1 or above num_experts - 1 (it is not counted, all else is).
/// Numerics: exact counts; count · num_experts and num_tokens · num_aux_topk, in 64 bits, are
///   rounded to f32 once each, then their quotient. No order of sums shows.
/// Source: TileKernels `aux_fi`.
Tensor aux_fi(const TensorView& topk_idx, int num_experts, int num_aux_topk, const Call& call = {});
TensorSpec aux_fi_spec(const TensorSpec& topk_idx, int num_experts, int num_aux_topk);
void aux_fi_out(const TensorView& fi, const TensorView& topk_idx, int num_experts, int num_aux_topk,
                const Call& call = {});

/// Keeps the indices of the experts in one tensor-parallel column and renumbers them.
///
/// Experts are dealt out in runs of p = floor(n / num_ep_ranks) to ranks, and ranks in turn to
/// num_tp_ranks columns.
///
/// Args:
///   indices: (num_tokens, num_topk) i64 or i32, contiguous.
///   n: number of experts, at least 1.
///   num_ep_ranks: 1..n, so that p >= 1.
///   tp_rank: the column, 0..num_tp_ranks - 1.
///   num_tp_ranks: at least 1.
/// Returns: masked, of the shape and dtype of indices, contiguous: for v >= 0 of rank
///   r = floor(v / p) with r mod num_tp_ranks = tp_rank, floor(r / num_tp_ranks) · p + v mod p;
///   else -1.
/// Errors: std::invalid_argument for shape, dtype, stride or range; DataError for a row with an
///   index of n or more (it becomes -1, other indices are right).
/// Numerics: exact.
/// Source: TileKernels `mask_indices_by_tp`.
Tensor mask_indices_by_tp(const TensorView& indices, int n, int num_ep_ranks, int tp_rank,
                          int num_tp_ranks, const Call& call = {});
TensorSpec mask_indices_by_tp_spec(const TensorSpec& indices, int n, int num_ep_ranks, int tp_rank,
                                   int num_tp_ranks);
void mask_indices_by_tp_out(const TensorView& masked, const TensorView& indices, int n,
                            int num_ep_ranks, int tp_rank, int num_tp_ranks, const Call& call = {});

/// Leaves every group in a row once, in place: from left to right, a group that has occurred before
/// becomes -1.
///
/// Args:
///   group_indices: (num_tokens, num_topk) i64, contiguous; num_topk in 1..32. Changed.
///   num_groups: 1..128.
/// Returns: nothing; the `_spec` form that of group_indices.
/// Errors: std::invalid_argument for shape, dtype, stride or range; DataError for a row with an
///   index of num_groups or more. Such indices, and negative ones, stay as they are.
/// Numerics: exact.
/// Source: TileKernels `inplace_unique_group_indices`.
TensorSpec inplace_unique_group_indices_spec(const TensorSpec& group_indices, int num_groups);
void inplace_unique_group_indices_out(const TensorView& group_indices, int num_groups,
                                      const Call& call = {});

/// The groups of experts with the best scores.
///
/// Args:
///   scores: (num_tokens, num_groups, group_size) f32, contiguous, finite; num_groups in 1..32.
///   num_topk_sum: best scores of a group that make up its value, 1 or 2, at most group_size.
///   num_topk_groups: groups per token, in 1..num_groups.
/// Returns: group_idx (num_tokens, num_topk_groups) i64, contiguous.
/// Errors: std::invalid_argument for shape, dtype, stride or range; DataError for a row with a
///   score that is not finite (its ids are still distinct and in range, other rows are right).
/// Numerics: a value is the best score, or the sum of the two best, rounded once; ids by descending
///   value, equal values by ascending index, -0 equal to +0; NaN ranks below every number.
/// Source: TileKernels `topk_sum_and_topk_group_idx`.
Tensor topk_sum_and_topk_group_idx(const TensorView& scores, int num_topk_sum, int num_topk_groups,
                                   const Call& call = {});
TensorSpec topk_sum_and_topk_group_idx_spec(const TensorSpec& scores, int num_topk_sum,
                                            int num_topk_groups);
void topk_sum_and_topk_group_idx_out(const TensorView& group_idx, const TensorView& scores,
                                     int num_topk_sum, int num_topk_groups, const Call& call = {});

}  // namespace tilekernels
