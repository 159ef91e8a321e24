// Registers the ops of tilekernels/moe.h.
#include "tilekernels/moe.h"

#include <string>
#include <vector>

#include "call.h"

namespace tilekernels::python {
namespace {

const OpRegistration kTopkGate(
    "topk_gate", "topk_gate",
    [](PyCall& call) {
      const TensorSpec scores = call.spec();
      call.give({topk_gate_spec(scores, call.integer("num_topk"))});
    },
    [](PyCall& call) {
      const TensorView topk_idx = call.tensor();
      const TensorView scores = call.tensor();
      const int num_topk = call.integer("num_topk");
      topk_gate_out(topk_idx, scores, num_topk, call.options(scores.device));
    });

const OpRegistration kNormalizeWeight(
    "normalize_weight", "normalize_weight",
    [](PyCall& call) {
      const NormalizedWeightsSpec spec = normalize_weight_spec(call.spec());
      call.give({spec.denominator, spec.normalized_weights});
    },
    [](PyCall& call) {
      const TensorView denominator = call.tensor();
      const TensorView normalized_weights = call.tensor();
      const TensorView topk_weights = call.tensor();
      normalize_weight_out(denominator, normalized_weights, topk_weights,
                           call.options(topk_weights.device));
    });

const OpRegistration kGetFusedMapping(
    "get_fused_mapping", "get_fused_mapping",
    [](PyCall& call) {
      const TensorSpec topk_idx = call.spec();
      const int num_experts = call.integer("num_experts");
      const int num_expanded_tokens = call.integer("num_expanded_tokens");
      const int alignment = call.integer("alignment");
      const FusedMappingSpec spec =
          get_fused_mapping_spec(topk_idx, num_experts, num_expanded_tokens, alignment);
      call.give({spec.pos_to_expert, spec.pos_to_token, spec.pos_to_token_topk,
                 spec.token_topk_to_pos, spec.expert_start, spec.expert_end,
                 spec.num_tokens_per_expert, spec.psum_num_tokens_per_expert});
    },
    [](PyCall& call) {
      FusedMappingView out;
      for (TensorView* view : {&out.pos_to_expert, &out.pos_to_token, &out.pos_to_token_topk,
                               &out.token_topk_to_pos, &out.expert_start, &out.expert_end,
                               &out.num_tokens_per_expert, &out.psum_num_tokens_per_expert}) {
        *view = call.tensor();
      }
      const TensorView topk_idx = call.tensor();
      const int num_experts = call.integer("num_experts");
      call.integer("num_expanded_tokens");  // the outputs have it
      const int alignment = call.integer("alignment");
      get_fused_mapping_out(out, topk_idx, num_experts, alignment, call.options(topk_idx.device));
    });

const OpRegistration kExpandToFused(
    "expand_to_fused", "expand_to_fused",
    [](PyCall& call) {
      const TensorSpec x = call.spec();
      const TensorSpec token_topk_to_pos = call.spec();
      const TensorSpec pos_to_expert = call.spec();
      call.give({expand_to_fused_spec(x, token_topk_to_pos, pos_to_expert)});
    },
    [](PyCall& call) {
      const TensorView out = call.tensor();
      const TensorView x = call.tensor();
      const TensorView token_topk_to_pos = call.tensor();
      const TensorView pos_to_expert = call.tensor();
      expand_to_fused_out(out, x, token_topk_to_pos, pos_to_expert, call.options(x.device));
    });

SfExpansion sf_expansion(PyCall& call) {
  SfExpansion sf;
  sf.col_major = call.flag();
  const std::optional<std::string> pitch = call.maybe_text();
  if (pitch == "cuda") {
    sf.pitch = SfPitch::kCuda;
  } else if (pitch == "ascend") {
    sf.pitch = SfPitch::kAscend;
  } else if (pitch) {
    call.refuse("sf_pitch", "must be None, 'cuda' or 'ascend'", *pitch);
  }
  return sf;
}

const OpRegistration kExpandToFusedWithSf(
    "expand_to_fused_with_sf", "expand_to_fused_with_sf",
    [](PyCall& call) {
      const TensorSpec x = call.spec();
      const TensorSpec x_sf = call.spec();
      const TensorSpec token_topk_to_pos = call.spec();
      const TensorSpec pos_to_expert = call.spec();
      const int num_per_channels = call.integer("num_per_channels");
      const QuantSpec spec = expand_to_fused_with_sf_spec(
          {x, x_sf}, num_per_channels, token_topk_to_pos, pos_to_expert, sf_expansion(call));
      call.give({spec.data, spec.sf});
    },
    [](PyCall& call) {
      const TensorView out = call.tensor();
      const TensorView out_sf = call.tensor();
      const TensorView x = call.tensor();
      const TensorView x_sf = call.tensor();
      const TensorView token_topk_to_pos = call.tensor();
      const TensorView pos_to_expert = call.tensor();
      const int num_per_channels = call.integer("num_per_channels");
      const SfExpansion sf = sf_expansion(call);
      expand_to_fused_with_sf_out({out, out_sf}, {x, x_sf}, num_per_channels, token_topk_to_pos,
                                  pos_to_expert, sf, call.options(x.device));
    });

// Which of the optional arrays a call of reduce_fused has: a function each.
constexpr int kWithWeights = 1;
constexpr int kWithXSf = 2;
constexpr int kWithSf = 4;

template <class T, class Take>
ReduceFusedOptionsOf<T> reduce_options(int with, const Take& take) {
  ReduceFusedOptionsOf<T> options;
  if (with & kWithWeights) options.topk_weights = take();
  if (with & kWithXSf) options.x_sf = take();
  if (with & kWithSf) options.sf = take();
  return options;
}

template <int kWith>
void reduce_fused_spec_of(PyCall& call) {
  const TensorSpec x = call.spec();
  const TensorSpec token_topk_to_pos = call.spec();
  auto options = reduce_options<TensorSpec>(kWith, [&] { return call.spec(); });
  if (call.flag()) options.fmt = DType::kE4M3;
  call.give({reduce_fused_spec(x, token_topk_to_pos, options)});
}

template <int kWith>
void reduce_fused_out_of(PyCall& call) {
  const TensorView out = call.tensor();
  const TensorView x = call.tensor();
  const TensorView token_topk_to_pos = call.tensor();
  auto options = reduce_options<TensorView>(kWith, [&] { return call.tensor(); });
  if (call.flag()) options.fmt = DType::kE4M3;
  reduce_fused_out(out, x, token_topk_to_pos, options, call.options(x.device));
}

#define TILEKERNELS_REDUCE(with) \
  { "reduce_fused_" #with, "reduce_fused", reduce_fused_spec_of<with>, reduce_fused_out_of<with> }
const OpRegistration kReduceFused[] = {
    TILEKERNELS_REDUCE(0), TILEKERNELS_REDUCE(1), TILEKERNELS_REDUCE(2), TILEKERNELS_REDUCE(3),
    TILEKERNELS_REDUCE(4), TILEKERNELS_REDUCE(5), TILEKERNELS_REDUCE(6), TILEKERNELS_REDUCE(7)};
#undef TILEKERNELS_REDUCE

// ------------------------------ the gates

// A gate takes its arrays first, those that always go in and then the optional ones that are there;
// which ones says the bit set that opens its parameters.
template <class T>
using Optionals = std::vector<std::optional<T>>;

template <class T>
Optionals<T> spread(const std::vector<T>& arrays, size_t first, int given, size_t count) {
  Optionals<T> optionals(count);
  for (size_t bit = 0; bit < count; ++bit) {
    if (given >> bit & 1) optionals[bit] = arrays.at(first++);
  }
  return optionals;
}

std::vector<TensorSpec> take_specs(PyCall& call, int num_parameters) {
  std::vector<TensorSpec> specs;
  while (call.left() > num_parameters) specs.push_back(call.spec());
  return specs;
}

std::vector<TensorView> take_tensors(PyCall& call, int num_parameters) {
  std::vector<TensorView> tensors;
  while (call.left() > num_parameters) tensors.push_back(call.tensor());
  return tensors;
}

ScoringFunc scoring_func_of(PyCall& call) {
  const std::string name = call.text();
  if (name == "sqrtsoftplus") return ScoringFunc::kSqrtSoftplus;
  if (name == "sigmoid") return ScoringFunc::kSigmoid;
  if (name == "softmax") return ScoringFunc::kSoftmax;
  call.refuse("scoring_func", "must be 'sqrtsoftplus', 'sigmoid' or 'softmax'", "'" + name + "'");
}

// The bits of moe_topk_gate_forward; the saved scores are among the arrays that go in.
enum GateBit {
  kMask,
  kBias,
  kImageBias,
  kImageTokenMask,
  kFixRoutingMask,
  kToPhysicalMap,
  kLogicalCount,
  kUnmappedTopkIdx,
  kForceRandom,
  kScores,
  kNumGateBits
};
constexpr int kNumGateParameters = 10;

template <class Inputs, class T>
Inputs gate_inputs(const Optionals<T>& given) {
  return {
      given[kMask],           given[kBias],          given[kImageBias],    given[kImageTokenMask],
      given[kFixRoutingMask], given[kToPhysicalMap], given[kLogicalCount], given[kUnmappedTopkIdx],
      given[kForceRandom]};
}

struct GateParameters {
  int given;
  int num_topk;
  MoeTopkGateOptions options;
};

GateParameters take_gate_parameters(PyCall& call) {
  GateParameters parameters{};
  parameters.given = call.integer("given");
  parameters.num_topk = call.integer("num_topk");
  MoeTopkGateOptions& options = parameters.options;
  options.use_shared_as_routed = call.flag();
  options.num_shared_experts = call.integer("num_shared_experts");
  options.routed_scaling_factor = static_cast<float>(call.number());
  options.ep_rank = call.integer("ep_rank");
  options.scoring_func = scoring_func_of(call);
  options.norm_topk_prob = call.flag();
  options.num_groups = call.integer("num_groups");
  options.num_topk_groups = call.integer("num_topk_groups");
  options.save_scores = parameters.given >> kScores & 1;
  return parameters;
}

const OpRegistration kMoeTopkGate(
    "moe_topk_gate", "moe_topk_gate",
    [](PyCall& call) {
      const std::vector<TensorSpec> arrays = take_specs(call, kNumGateParameters);
      const GateParameters parameters = take_gate_parameters(call);
      const Optionals<TensorSpec> given = spread(arrays, 1, parameters.given, kNumGateBits);
      const RoutingSpec routing =
          moe_topk_gate_forward_spec(arrays.at(0), parameters.num_topk, parameters.options,
                                     gate_inputs<MoeTopkGateInputSpecs>(given));
      call.give({routing.topk_idx, routing.topk_weights});
    },
    [](PyCall& call) {
      RoutingView out{call.tensor(), call.tensor()};
      const std::vector<TensorView> arrays = take_tensors(call, kNumGateParameters + 1);
      const GateParameters parameters = take_gate_parameters(call);
      const Optionals<TensorView> given = spread(arrays, 1, parameters.given, kNumGateBits);
      out.scores = given[kScores];
      moe_topk_gate_forward_out(out, arrays.at(0), parameters.num_topk, parameters.options,
                                gate_inputs<MoeTopkGateInputs>(given),
                                call.options(arrays.at(0).device));
    });

// The bits of top2_sum_gate.
enum Top2Bit { kTop2Mask, kTop2Fix, kTop2Map, kTop2Count, kTop2Unmapped, kNumTop2Bits };
constexpr int kNumTop2Parameters = 12;

template <class Inputs, class T>
Inputs top2_inputs(const Optionals<T>& given) {
  return {given[kTop2Mask], given[kTop2Fix], given[kTop2Map], given[kTop2Count],
          given[kTop2Unmapped]};
}

struct Top2Parameters {
  int given;
  int num_topk;
  Top2SumGateOptions options;
};

Top2Parameters take_top2_parameters(PyCall& call) {
  Top2Parameters parameters{};
  parameters.given = call.integer("given");
  parameters.num_topk = call.integer("num_topk");
  Top2SumGateOptions& options = parameters.options;
  options.num_topk_groups = call.integer("num_topk_groups");
  options.num_groups = call.integer("num_groups");
  options.use_shared_as_routed = call.flag();
  options.num_shared_experts = call.integer("num_shared_experts");
  options.routed_scaling_factor = static_cast<float>(call.number());
  options.ep_rank = call.integer("ep_rank");
  options.num_ep_ranks = call.integer("num_ep_ranks");
  options.tp_rank = call.integer("tp_rank");
  options.num_tp_ranks = call.integer("num_tp_ranks");
  options.scoring_func = scoring_func_of(call);
  return parameters;
}

const OpRegistration kTop2SumGate(
    "top2_sum_gate", "top2_sum_gate",
    [](PyCall& call) {
      const std::vector<TensorSpec> arrays = take_specs(call, kNumTop2Parameters);
      const Top2Parameters parameters = take_top2_parameters(call);
      const Optionals<TensorSpec> given = spread(arrays, 2, parameters.given, kNumTop2Bits);
      const RoutingSpec routing =
          top2_sum_gate_spec(arrays.at(0), arrays.at(1), parameters.num_topk, parameters.options,
                             top2_inputs<Top2SumGateInputSpecs>(given));
      call.give({routing.topk_idx, routing.topk_weights});
    },
    [](PyCall& call) {
      const RoutingView out{call.tensor(), call.tensor()};
      const std::vector<TensorView> arrays = take_tensors(call, kNumTop2Parameters + 1);
      const Top2Parameters parameters = take_top2_parameters(call);
      const Optionals<TensorView> given = spread(arrays, 2, parameters.given, kNumTop2Bits);
      top2_sum_gate_out(out, arrays.at(0), arrays.at(1), parameters.num_topk, parameters.options,
                        top2_inputs<Top2SumGateInputs>(given), call.options(arrays.at(0).device));
    });

const OpRegistration kGroupCount(
    "group_count", "group_count",
    [](PyCall& call) {
      const TensorSpec group_idx = call.spec();
      call.give({group_count_spec(group_idx, call.integer("num_groups"))});
    },
    [](PyCall& call) {
      const TensorView count = call.tensor();
      const TensorView group_idx = call.tensor();
      const int num_groups = call.integer("num_groups");
      group_count_out(count, group_idx, num_groups, call.options(group_idx.device));
    });

const OpRegistration kAuxFi(
    "aux_fi", "aux_fi",
    [](PyCall& call) {
      const TensorSpec topk_idx = call.spec();
      const int num_experts = call.integer("num_experts");
      call.give({aux_fi_spec(topk_idx, num_experts, call.integer("num_aux_topk"))});
    },
    [](PyCall& call) {
      const TensorView fi = call.tensor();
      const TensorView topk_idx = call.tensor();
      const int num_experts = call.integer("num_experts");
      const int num_aux_topk = call.integer("num_aux_topk");
      aux_fi_out(fi, topk_idx, num_experts, num_aux_topk, call.options(topk_idx.device));
    });

const OpRegistration kMaskIndicesByTp(
    "mask_indices_by_tp", "mask_indices_by_tp",
    [](PyCall& call) {
      const TensorSpec indices = call.spec();
      const int n = call.integer("n");
      const int num_ep_ranks = call.integer("num_ep_ranks");
      const int tp_rank = call.integer("tp_rank");
      const int num_tp_ranks = call.integer("num_tp_ranks");
      call.give({mask_indices_by_tp_spec(indices, n, num_ep_ranks, tp_rank, num_tp_ranks)});
    },
    [](PyCall& call) {
      const TensorView masked = call.tensor();
      const TensorView indices = call.tensor();
      const int n = call.integer("n");
      const int num_ep_ranks = call.integer("num_ep_ranks");
      const int tp_rank = call.integer("tp_rank");
      const int num_tp_ranks = call.integer("num_tp_ranks");
      mask_indices_by_tp_out(masked, indices, n, num_ep_ranks, tp_rank, num_tp_ranks,
                             call.options(indices.device));
    });

const OpRegistration kInplaceUniqueGroupIndices(
    "inplace_unique_group_indices", "inplace_unique_group_indices",
    [](PyCall& call) {
      const TensorSpec group_indices = call.spec();
      call.give({inplace_unique_group_indices_spec(group_indices, call.integer("num_groups"))});
    },
    [](PyCall& call) {
      const TensorView group_indices = call.tensor();
      const int num_groups = call.integer("num_groups");
      inplace_unique_group_indices_out(group_indices, num_groups,
                                       call.options(group_indices.device));
    });

const OpRegistration kTopkSumAndTopkGroupIdx(
    "topk_sum_and_topk_group_idx", "topk_sum_and_topk_group_idx",
    [](PyCall& call) {
      const TensorSpec scores = call.spec();
      const int num_topk_sum = call.integer("num_topk_sum");
      const int num_topk_groups = call.integer("num_topk_groups");
      call.give({topk_sum_and_topk_group_idx_spec(scores, num_topk_sum, num_topk_groups)});
    },
    [](PyCall& call) {
      const TensorView group_idx = call.tensor();
      const TensorView scores = call.tensor();
      const int num_topk_sum = call.integer("num_topk_sum");
      const int num_topk_groups = call.integer("num_topk_groups");
      topk_sum_and_topk_group_idx_out(group_idx, scores, num_topk_sum, num_topk_groups,
                                      call.options(scores.device));
    });

// The bits of moe_topk_gate_backward.
enum BackwardBit { kBackwardMask, kBackwardSums, kNumBackwardBits };
constexpr int kNumBackwardParameters = 3;
constexpr size_t kNumBackwardArrays = 4;  // that always go in

struct BackwardParameters {
  int given;
  float routed_scaling_factor;
  ScoringFunc scoring_func;
};

BackwardParameters take_backward_parameters(PyCall& call) {
  BackwardParameters parameters{};
  parameters.given = call.integer("given");
  parameters.routed_scaling_factor = static_cast<float>(call.number());
  parameters.scoring_func = scoring_func_of(call);
  return parameters;
}

template <class T>
MoeTopkGateBackwardOptionsOf<T> backward_options(const std::vector<T>& arrays,
                                                 const BackwardParameters& parameters) {
  const Optionals<T> given = spread(arrays, kNumBackwardArrays, parameters.given, kNumBackwardBits);
  return {parameters.scoring_func, given[kBackwardMask], given[kBackwardSums]};
}

const OpRegistration kMoeTopkGateBackward(
    "moe_topk_gate_backward", "moe_topk_gate_backward",
    [](PyCall& call) {
      const std::vector<TensorSpec> arrays = take_specs(call, kNumBackwardParameters);
      const BackwardParameters parameters = take_backward_parameters(call);
      call.give({moe_topk_gate_backward_spec(arrays.at(0), arrays.at(1), arrays.at(2), arrays.at(3),
                                             parameters.routed_scaling_factor,
                                             backward_options(arrays, parameters))});
    },
    [](PyCall& call) {
      const TensorView out = call.tensor();
      const std::vector<TensorView> arrays = take_tensors(call, kNumBackwardParameters + 1);
      const BackwardParameters parameters = take_backward_parameters(call);
      moe_topk_gate_backward_out(out, arrays.at(0), arrays.at(1), arrays.at(2), arrays.at(3),
                                 parameters.routed_scaling_factor,
                                 backward_options(arrays, parameters),
                                 call.options(arrays[0].device));
    });

}  // namespace
}  // namespace tilekernels::python
