// moe_topk_gate_forward and top2_sum_gate: checks, shapes and dispatch.
#include <algorithm>
#include <array>
#include <limits>
#include <string>

#include "core/check.h"
#include "core/kernel_table.h"
#include "ops/moe/moe_topk_gate/op.h"
#include "tilekernels/moe.h"

namespace tilekernels {
namespace {

static_assert(static_cast<int32>(ScoringFunc::kSqrtSoftplus) == kScoringSqrtSoftplus &&
              static_cast<int32>(ScoringFunc::kSigmoid) == kScoringSigmoid &&
              static_cast<int32>(ScoringFunc::kSoftmax) == kScoringSoftmax);

using Table = KernelTable<MoeTopkGateArgs, MoeTopkGateShape>;

constexpr Table table(const char* op, int32 op_id) {
  return {
      .op = op,
      .reference = reference::moe_topk_gate,
      .cpu = cpu::moe_topk_gate,
      .cuda = cuda::moe_topk_gate,
      .ascend = ascend::moe_topk_gate,
      .faults = {.op_id = op_id,
                 .not_finite = "logits",
                 .index_out_of_range = "unmapped_topk_idx",
                 .position_out_of_range = "to_physical_map",
                 .nan = op_id == kMoeTopkGateId ? "bias or image_bias" : "bias",
                 .count_out_of_range = "logical_count"},
  };
}
constexpr Table kMoeTopkGate = table("moe_topk_gate", kMoeTopkGateId);
constexpr Table kTop2SumGate = table("top2_sum_gate", kTop2SumGateId);

// So that every index of a logical expert is an int32.
constexpr int64_t kMaxExperts = int64_t{1} << 30;

// The optional tensors of both ops.
enum Optional {
  kMask,
  kBias,
  kImageBias,
  kImageTokenMask,
  kFixRoutingMask,
  kToPhysicalMap,
  kLogicalCount,
  kUnmapped,
  kForceRandom,
  kNumOptional
};
constexpr const char* kNames[kNumOptional] = {"mask",
                                              "bias",
                                              "image_bias",
                                              "image_token_mask",
                                              "fix_routing_mask",
                                              "to_physical_map",
                                              "logical_count",
                                              "unmapped_topk_idx",
                                              "force_random"};

// Null where one is not given.
template <class T>
using Given = std::array<const T*, kNumOptional>;

// Of MoeTopkGateInputSpecs and of MoeTopkGateInputs.
template <class Inputs>
auto given(const Inputs& in) {
  return Given<typename decltype(in.mask)::value_type>{or_null(in.mask),
                                                       or_null(in.bias),
                                                       or_null(in.image_bias),
                                                       or_null(in.image_token_mask),
                                                       or_null(in.fix_routing_mask),
                                                       or_null(in.to_physical_map),
                                                       or_null(in.logical_count),
                                                       or_null(in.unmapped_topk_idx),
                                                       or_null(in.force_random)};
}

template <class T, class Inputs>
Given<T> given(const T& bias, const Inputs& in) {
  return {or_null(in.mask),
          &bias,
          nullptr,
          nullptr,
          or_null(in.fix_routing_mask),
          or_null(in.to_physical_map),
          or_null(in.logical_count),
          or_null(in.unmapped_topk_idx),
          nullptr};
}

Given<TensorSpec> specs_of(const Given<TensorView>& views) {
  Given<TensorSpec> specs;
  std::copy(views.begin(), views.end(), specs.begin());
  return specs;
}

void check_together(const Check& check, const Given<TensorSpec>& in, Optional a, Optional b) {
  check.together(kNames[a], in[a] != nullptr, kNames[b], in[b] != nullptr);
}

void check_groups(const Check& check, int64_t num_experts, int num_topk,
                  const MoeTopkGateOptions& options, MoeTopkGateShape& shape) {
  if (options.num_groups == 0 && options.num_topk_groups == 0) return;
  check.range("num_groups", options.num_groups, 1,
              std::min<int64_t>(num_experts, kMaxExpertGroups));
  check.range("num_topk_groups", options.num_topk_groups, 1, options.num_groups);
  check.multiple("num_experts", num_experts, options.num_groups);
  if (options.num_topk_groups == options.num_groups) return;
  const int64_t group_size = num_experts / options.num_groups;
  check.require(group_size >= 2, "num_experts / num_groups", "must be at least 2", group_size);
  check.range("num_topk", num_topk, 1,
              std::min<int64_t>(options.num_topk_groups * group_size, kWeightSlots));
  shape.num_groups = options.num_groups;
  shape.num_topk_groups = options.num_topk_groups;
}

void check_inputs(const Check& check, const TensorSpec& logits, const Given<TensorSpec>& in,
                  MoeTopkGateShape& shape) {
  const int64_t num_tokens = logits.size(0);
  const int64_t num_experts = logits.size(1);
  check_together(check, in, kImageBias, kImageTokenMask);
  check_together(check, in, kToPhysicalMap, kLogicalCount);
  if (in[kFixRoutingMask] != nullptr && in[kUnmapped] == nullptr) {
    check.fail("fix_routing_mask", "must come with unmapped_topk_idx", "none");
  }
  for (int i = 0; i < kNumOptional; ++i) {
    if (in[i] != nullptr) check.same_device(kNames[i], *in[i], "logits", logits);
  }
  for (Optional i : {kBias, kImageBias}) {
    if (in[i] == nullptr) continue;
    check.dtype(kNames[i], *in[i], {DType::kF32}).shape(kNames[i], *in[i], {num_experts});
    check.contiguous(kNames[i], *in[i]);
  }
  for (Optional i : {kMask, kImageTokenMask, kFixRoutingMask, kForceRandom}) {
    if (in[i] == nullptr) continue;
    check.dtype(kNames[i], *in[i], {DType::kBool});
    if (i == kMask) {
      check.extents(kNames[i], in[i]->shape);
      check.require(in[i]->numel() == num_tokens, "mask",
                    "must have " + std::to_string(num_tokens) + " elements", in[i]->numel());
    } else {
      check.shape(kNames[i], *in[i], {num_tokens});
    }
    check.contiguous(kNames[i], *in[i]);
  }
  if (in[kToPhysicalMap] != nullptr) {
    const TensorSpec& map = *in[kToPhysicalMap];
    const TensorSpec& count = *in[kLogicalCount];
    const int64_t num_logical = num_experts + shape.num_shared;
    check.rank("to_physical_map", map, 2).dtype("to_physical_map", map, {DType::kI32});
    check.range("num_copies", map.size(1), 1, std::numeric_limits<int32>::max() / num_logical);
    check.shape("to_physical_map", map, {num_logical, map.size(1)});
    check.contiguous("to_physical_map", map);
    check.dtype("logical_count", count, {DType::kI32});
    check.shape("logical_count", count, {num_logical}).contiguous("logical_count", count);
    shape.num_copies = static_cast<int32>(map.size(1));
  }
  if (in[kUnmapped] != nullptr) {
    check.dtype("unmapped_topk_idx", *in[kUnmapped], {DType::kI64});
    check.shape("unmapped_topk_idx", *in[kUnmapped], {num_tokens, shape.num_topk});
    check.rows("unmapped_topk_idx", *in[kUnmapped]);
  }
}

// Every rule that both ops share.
MoeTopkGateShape check_call(const Check& check, const TensorSpec& logits, int num_topk,
                            const MoeTopkGateOptions& options, const Given<TensorSpec>& in) {
  check.rank("logits", logits, 2).dtype("logits", logits, {DType::kF32});
  check.contiguous("logits", logits);
  const int64_t num_experts = logits.size(1);
  check.range("num_experts", num_experts, 1, kMaxExperts);
  check.range("num_topk", num_topk, 1, std::min<int64_t>(num_experts, kWeightSlots));
  if (options.use_shared_as_routed) {
    check.range("num_shared_experts", options.num_shared_experts, 1, 2);
  }
  const int num_shared = options.use_shared_as_routed ? options.num_shared_experts : 0;
  check.range("num_topk + num_shared_experts", num_topk + num_shared, 1, kWeightSlots);
  check.range("scoring_func", static_cast<int>(options.scoring_func), 0, kScoringSoftmax);
  check.finite("routed_scaling_factor", options.routed_scaling_factor);
  MoeTopkGateShape shape{
      .scoring = static_cast<int32>(options.scoring_func),
      .norm_topk_prob = options.norm_topk_prob,
      .has_bias = in[kBias] != nullptr,
      .has_image_bias = in[kImageBias] != nullptr,
      .has_mask = in[kMask] != nullptr,
      .has_fixed = in[kFixRoutingMask] != nullptr,
      .has_random = in[kForceRandom] != nullptr,
      .has_map = in[kToPhysicalMap] != nullptr,
      .has_unmapped = in[kUnmapped] != nullptr,
      .has_scores = options.save_scores,
      .has_tp = 0,
      .num_experts = static_cast<int32>(num_experts),
      .num_topk = num_topk,
      .num_shared = num_shared,
      .num_copies = 0,
      .num_groups = 0,
      .num_topk_groups = 0,
  };
  check_groups(check, num_experts, num_topk, options, shape);
  check_inputs(check, logits, in, shape);
  return shape;
}

RoutingSpec routing_of(const TensorSpec& logits, const MoeTopkGateShape& shape) {
  const Dims slots{logits.size(0), shape.num_topk + shape.num_shared};
  RoutingSpec routing{{slots, DType::kI64, logits.device}, {slots, DType::kF32, logits.device}, {}};
  if (shape.has_scores) routing.scores = TensorSpec(logits.shape, DType::kF32, logits.device);
  return routing;
}

RoutingTensor allocate(const RoutingSpec& spec, const Call& call) {
  std::vector<Tensor> tensors =
      spec.scores ? call.allocate({spec.topk_idx, spec.topk_weights, *spec.scores})
                  : call.allocate({spec.topk_idx, spec.topk_weights});
  RoutingTensor routing{std::move(tensors[0]), std::move(tensors[1]), {}};
  if (spec.scores) routing.scores = std::move(tensors[2]);
  return routing;
}

RoutingView view_of(const RoutingTensor& tensors) {
  RoutingView view{tensors.topk_idx, tensors.topk_weights, {}};
  if (tensors.scores) view.scores = tensors.scores->view();
  return view;
}

void check_memory(const Check& check, const RoutingView& out, const TensorView& logits,
                  const MoeTopkGateShape& shape, const Given<TensorView>& in) {
  const RoutingSpec spec = routing_of(logits, shape);
  check.matches("topk_idx", out.topk_idx, spec.topk_idx);
  check.matches("topk_weights", out.topk_weights, spec.topk_weights);
  if (out.scores.has_value() != (shape.has_scores != 0)) {
    check.fail("scores", "must be given with save_scores, and only then",
               out.scores ? "scores" : "none");
  }
  if (out.scores) check.matches("scores", *out.scores, *spec.scores);

  struct Range {
    const char* name;
    ByteRange bytes;
  };
  std::array<Range, 4> written;
  size_t num_written = 0;
  written[num_written++] = {"topk_idx", bytes_written(out.topk_idx)};
  written[num_written++] = {"topk_weights", bytes_written(out.topk_weights)};
  if (out.scores) written[num_written++] = {"scores", bytes_written(*out.scores)};
  if (in[kUnmapped] != nullptr) {
    check.memory("unmapped_topk_idx", *in[kUnmapped]);
    written[num_written++] = {"unmapped_topk_idx", bytes_read(*in[kUnmapped])};
  }
  const auto check_input = [&](const char* name, const TensorView& view) {
    check.memory(name, view);
    const ByteRange read = bytes_read(view);
    for (size_t i = 0; i < num_written; ++i) {
      check.disjoint(written[i].name, written[i].bytes, name, read);
    }
  };
  check_input("logits", logits);
  for (int i = 0; i < kNumOptional; ++i) {
    if (i != kUnmapped && in[i] != nullptr) check_input(kNames[i], *in[i]);
  }
  for (size_t i = 0; i < num_written; ++i) {
    for (size_t k = i + 1; k < num_written; ++k) {
      check.disjoint(written[i].name, written[i].bytes, written[k].name, written[k].bytes);
    }
  }
}

template <class T>
T* data_of(const TensorView* view) {
  return view == nullptr ? nullptr : static_cast<T*>(view->data);
}

MoeTopkGateArgs args_of(const RoutingView& out, const TensorView& logits,
                        const MoeTopkGateOptions& options, const Given<TensorView>& in) {
  return {.logits = static_cast<const float*>(logits.data),
          .bias = data_of<const float>(in[kBias]),
          .image_bias = data_of<const float>(in[kImageBias]),
          .image_token_mask = data_of<const uint8>(in[kImageTokenMask]),
          .mask = data_of<const uint8>(in[kMask]),
          .fix_routing_mask = data_of<const uint8>(in[kFixRoutingMask]),
          .force_random = data_of<const uint8>(in[kForceRandom]),
          .to_physical_map = data_of<const int32>(in[kToPhysicalMap]),
          .logical_count = data_of<const int32>(in[kLogicalCount]),
          .unmapped_topk_idx = data_of<int64>(in[kUnmapped]),
          .unmapped_stride = in[kUnmapped] == nullptr ? 0 : row_stride(*in[kUnmapped]),
          .topk_idx = static_cast<int64*>(out.topk_idx.data),
          .topk_weights = static_cast<float*>(out.topk_weights.data),
          .scores = out.scores ? static_cast<float*>(out.scores->data) : nullptr,
          .num_tokens = logits.size(0),
          .routed_scaling_factor = options.routed_scaling_factor,
          .ep_rank = options.ep_rank,
          .experts_per_rank = 1,
          .tp_rank = 0,
          .num_tp_ranks = 1,
          .op_id = kMoeTopkGateId,
          .fault = nullptr};
}

MoeTopkGateOptions common_options(const Top2SumGateOptions& options) {
  return {.use_shared_as_routed = options.use_shared_as_routed,
          .num_shared_experts = options.num_shared_experts,
          .routed_scaling_factor = options.routed_scaling_factor,
          .ep_rank = options.ep_rank,
          .scoring_func = options.scoring_func,
          .norm_topk_prob = true,
          .num_groups = options.num_groups,
          .num_topk_groups = options.num_topk_groups,
          .save_scores = false};
}

// Experts that one expert-parallel rank holds: each but the first of an expert's copies is one
// more.
int64_t experts_per_rank(const MoeTopkGateShape& shape, const Top2SumGateOptions& options) {
  const int64_t num_copies = shape.has_map ? shape.num_copies : 1;
  return (shape.num_experts + num_copies - 1) / options.num_ep_ranks;
}

MoeTopkGateShape check_top2(const Check& check, const TensorSpec& logits, int num_topk,
                            const Top2SumGateOptions& options, const Given<TensorSpec>& in) {
  constexpr int64_t kMaxInt = std::numeric_limits<int32>::max();
  MoeTopkGateShape shape = check_call(check, logits, num_topk, common_options(options), in);
  check.range("num_ep_ranks", options.num_ep_ranks, 1, kMaxInt);
  const int64_t num_per_rank = experts_per_rank(shape, options);
  check.require(num_per_rank >= 1, "num_ep_ranks", "must be at most the number of experts",
                options.num_ep_ranks);
  check.range("num_tp_ranks", options.num_tp_ranks, 1, kMaxInt / num_per_rank);
  check.range("tp_rank", options.tp_rank, 0, options.num_tp_ranks - 1);
  if (shape.num_shared > 0) {
    check.multiple("num_topk", num_topk, shape.num_shared);
    check.multiple("num_experts", shape.num_experts, num_topk / shape.num_shared);
    if (shape.has_map) {
      check.range("num_shared_experts", shape.num_shared, 0, shape.num_copies - 1);
    }
  }
  shape.has_tp = options.num_tp_ranks > 1;
  return shape;
}

}  // namespace

RoutingSpec moe_topk_gate_forward_spec(const TensorSpec& logits, int num_topk,
                                       const MoeTopkGateOptions& options,
                                       const MoeTopkGateInputSpecs& inputs) {
  const Check check(kMoeTopkGate.op);
  return routing_of(logits, check_call(check, logits, num_topk, options, given(inputs)));
}

void moe_topk_gate_forward_out(const RoutingView& out, const TensorView& logits, int num_topk,
                               const MoeTopkGateOptions& options, const MoeTopkGateInputs& inputs,
                               const Call& call) {
  const Check check(kMoeTopkGate.op);
  const Given<TensorView> in = given(inputs);
  const MoeTopkGateShape shape = check_call(check, logits, num_topk, options, specs_of(in));
  check_memory(check, out, logits, shape, in);
  if (logits.size(0) == 0) return;
  kMoeTopkGate.run(call, logits.device, args_of(out, logits, options, in), shape);
}

RoutingTensor moe_topk_gate_forward(const TensorView& logits, int num_topk,
                                    const MoeTopkGateOptions& options,
                                    const MoeTopkGateInputs& inputs, const Call& call) {
  const Check check(kMoeTopkGate.op);
  const MoeTopkGateShape shape =
      check_call(check, logits, num_topk, options, specs_of(given(inputs)));
  RoutingTensor routing = allocate(routing_of(logits, shape), call);
  moe_topk_gate_forward_out(view_of(routing), logits, num_topk, options, inputs, call);
  return routing;
}

RoutingSpec moe_topk_gate_spec(const TensorSpec& logits, int num_topk,
                               const MoeTopkGateOptions& options,
                               const MoeTopkGateInputSpecs& inputs) {
  return moe_topk_gate_forward_spec(logits, num_topk, options, inputs);
}

void moe_topk_gate_out(const RoutingView& out, const TensorView& logits, int num_topk,
                       const MoeTopkGateOptions& options, const MoeTopkGateInputs& inputs,
                       const Call& call) {
  moe_topk_gate_forward_out(out, logits, num_topk, options, inputs, call);
}

RoutingTensor moe_topk_gate(const TensorView& logits, int num_topk,
                            const MoeTopkGateOptions& options, const MoeTopkGateInputs& inputs,
                            const Call& call) {
  return moe_topk_gate_forward(logits, num_topk, options, inputs, call);
}

RoutingSpec top2_sum_gate_spec(const TensorSpec& logits, const TensorSpec& bias, int num_topk,
                               const Top2SumGateOptions& options,
                               const Top2SumGateInputSpecs& inputs) {
  const Check check(kTop2SumGate.op);
  return routing_of(logits, check_top2(check, logits, num_topk, options, given(bias, inputs)));
}

void top2_sum_gate_out(const RoutingView& out, const TensorView& logits, const TensorView& bias,
                       int num_topk, const Top2SumGateOptions& options,
                       const Top2SumGateInputs& inputs, const Call& call) {
  const Check check(kTop2SumGate.op);
  const Given<TensorView> in = given(bias, inputs);
  const MoeTopkGateShape shape = check_top2(check, logits, num_topk, options, specs_of(in));
  check_memory(check, out, logits, shape, in);
  if (logits.size(0) == 0) return;
  MoeTopkGateArgs args = args_of(out, logits, common_options(options), in);
  args.experts_per_rank = static_cast<int32>(experts_per_rank(shape, options));
  args.tp_rank = options.tp_rank;
  args.num_tp_ranks = options.num_tp_ranks;
  args.op_id = kTop2SumGateId;
  kTop2SumGate.run(call, logits.device, std::move(args), shape);
}

RoutingTensor top2_sum_gate(const TensorView& logits, const TensorView& bias, int num_topk,
                            const Top2SumGateOptions& options, const Top2SumGateInputs& inputs,
                            const Call& call) {
  const Check check(kTop2SumGate.op);
  const MoeTopkGateShape shape =
      check_top2(check, logits, num_topk, options, specs_of(given(bias, inputs)));
  RoutingTensor routing = allocate(routing_of(logits, shape), call);
  top2_sum_gate_out(view_of(routing), logits, bias, num_topk, options, inputs, call);
  return routing;
}

}  // namespace tilekernels
