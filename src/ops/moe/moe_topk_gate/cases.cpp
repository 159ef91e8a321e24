// moe_topk_gate and top2_sum_gate: cases as data.
#include <functional>
#include <limits>
#include <optional>

#include "cases/case.h"
#include "tilekernels/moe.h"

namespace tilekernels::cases {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// What a case has besides logits.
enum Feature : int {
  kMask = 1 << 0,
  kBias = 1 << 1,
  kImage = 1 << 2,
  kFixed = 1 << 3,  // with unmapped_topk_idx
  kMap = 1 << 4,
  kUnmapped = 1 << 5,
  kRandom = 1 << 6,
  kShared1 = 1 << 7,
  kShared2 = 1 << 8,
  kScores = 1 << 9,
  kNoNorm = 1 << 10,
  kStride = 1 << 11,  // unmapped_topk_idx has gaps between its rows
};
constexpr const char* kFeatureNames[] = {"mask",    "bias",     "image",  "fixed",
                                         "map",     "unmapped", "random", "shared1",
                                         "shared2", "scores",   "nonorm", "stride"};

constexpr ScoringFunc kSqrtSoftplus = ScoringFunc::kSqrtSoftplus;
constexpr ScoringFunc kSigmoid = ScoringFunc::kSigmoid;
constexpr ScoringFunc kSoftmax = ScoringFunc::kSoftmax;

struct Row {
  int64_t tokens;
  int64_t experts;
  int topk;
  int features = 0;
  ScoringFunc scoring = kSqrtSoftplus;
  int groups = 0;
  int topk_groups = 0;
  Fill fill = Fill::kNormal;
  const char* fault = "";
  int ep_rank = 0;
  int forbidden = 0;  // experts whose bias is -Inf, spread over all
};

constexpr char kNotFinite[] = "[moe_topk_gate] logits must be finite, got NaN or Inf at row ";

constexpr Row kRows[] = {
    {0, 64, 6},
    {0, 64, 6, kMask | kBias | kFixed | kMap | kRandom | kShared1 | kScores | kImage},
    {1, 1, 1},
    {1, 2, 2, kBias},
    {1, 256, 8, kBias},
    {3, 7, 7, kBias | kScores},
    {5, 31, 4, kScores},
    {5, 33, 1, kBias},
    {9, 72, 6, kBias | kMask},
    {7, 100, 9, kBias | kScores | kMask},
    {33, 128, 6},
    {37, 256, 8, kBias | kScores | kMask | kUnmapped},
    {35, 384, 8, kBias | kImage},
    {4, 385, 8, kBias | kScores},
    {3, 512, 32, kBias},
    {2, 4097, 16, kBias | kScores},
    {2, 6150, 8},
    {2, 33, 32, kScores},
    {2, 32, 32, kBias},
    {300, 16, 6, kBias | kMask},
    {300, 256, 8, kBias},
    {290, 256, 8, kBias | kScores, kSigmoid, 8, 4},
    {270, 384, 8, kBias, kSigmoid, 8, 4},
    {280, 160, 6, 0, kSoftmax},
    {300, 512, 16, kBias | kScores},
    {266, 520, 8, kBias | kScores},
    {268, 512, 12, kBias | kScores, kSigmoid, 8, 4},
    {4300, 48, 6, kBias | kMask},
    {9, 256, 8, kBias, kSqrtSoftplus, 0, 0, Fill::kNormal, "", 0, 200},
    {9, 255, 8, kBias, kSigmoid, 0, 0, Fill::kNormal, "", 0, 249},
    {9, 256, 8, kBias, kSigmoid, 8, 4, Fill::kNormal, "", 0, 251},
    {23, 64, 6, kFixed | kScores},
    {23, 64, 6, kFixed | kBias | kMask | kStride},
    {21, 256, 8, kMap | kShared1 | kMask, kSqrtSoftplus, 0, 0, Fill::kNormal, "", 5},
    {21, 72, 6, kMap | kShared2 | kBias, kSqrtSoftplus, 0, 0, Fill::kNormal, "", -7},
    {19, 64, 6, kRandom | kUnmapped | kScores, kSqrtSoftplus, 0, 0, Fill::kNormal, "", 3},
    {19, 65, 30, kRandom | kMap | kShared2 | kMask, kSqrtSoftplus, 0, 0, Fill::kNormal, "", -2},
    {29, 256, 8, kMask | kBias | kImage | kFixed | kMap | kRandom | kShared1 | kScores | kStride,
     kSqrtSoftplus, 0, 0, Fill::kNormal, "", 1},
    {9, 40, 5, kNoNorm | kBias},
    {5, 64, 8, kImage},  // image tokens have a bias, the others none
    // Ties, zeros, extremes.
    {16, 256, 8, 0, kSqrtSoftplus, 0, 0, Fill::kTies},
    {5, 384, 8, kScores, kSqrtSoftplus, 0, 0, Fill::kZero},
    {32, 96, 6, kScores, kSqrtSoftplus, 0, 0, Fill::kEdge},
    {16, 96, 6, kScores | kBias, kSigmoid, 0, 0, Fill::kEdge},
    {16, 96, 6, kScores | kBias, kSoftmax, 0, 0, Fill::kEdge},
    {40, 96, 8, kScores | kBias, kSqrtSoftplus, 0, 0, Fill::kNonFinite,
     "[moe_topk_gate] logits must be finite, got NaN or Inf at row 0"},
    {9, 256, 8, kScores, kSigmoid, 0, 0, Fill::kBits,
     "[moe_topk_gate] logits must be finite, got NaN or Inf at row 0"},
    {9, 96, 8, kScores, kSoftmax, 0, 0, Fill::kNonFinite,
     "[moe_topk_gate] logits must be finite, got NaN or Inf at row 0"},
    {9, 64, 8, kScores | kBias, kSigmoid, 8, 4, Fill::kNonFinite,
     "[moe_topk_gate] logits must be finite, got NaN or Inf at row 0"},
    // Other scorings, groups.
    {13, 256, 8, kBias | kScores, kSigmoid},
    {13, 128, 8, kScores, kSoftmax},
    {13, 60, 4, kNoNorm, kSoftmax},
    {3, 1500, 8, kScores | kBias, kSoftmax},
    {2, 2048, 10, kScores, kSoftmax},
    {5, 1, 1, kScores, kSoftmax},
    {25, 256, 8, kBias, kSigmoid, 8, 4},
    {25, 256, 8, kBias | kScores | kMask | kUnmapped | kShared1 | kMap, kSigmoid, 8, 4},
    {9, 72, 6, 0, kSqrtSoftplus, 24, 3},
    {9, 96, 6, kBias, kSigmoid, 3, 1},
    {9, 384, 8, kBias, kSqrtSoftplus, 8, 2},
    {5, 1024, 16, kBias, kSigmoid, 32, 1},
    {7, 256, 8, kBias, kSoftmax, 8, 4},
    {17, 64, 8, kBias, kSigmoid, 8, 8},  // all groups: no limit
    {17, 64, 8, kBias, kSigmoid, 8, 3, Fill::kTies},
    {5, 64, 8, 0, kSigmoid, 8, 3, Fill::kZero},
    // Few tokens, for which CUDA takes several warps a row from 161 experts on, two for softmax.
    {3, 160, 6, kBias | kScores},
    {3, 161, 6, kBias | kScores | kMask, kSigmoid},
    {2, 1023, 12, kScores | kImage},
    {1, 1024, 8, kBias, kSoftmax},
    {7, 200, 6, kFixed | kScores | kBias},
    {6, 320, 6, kRandom | kUnmapped | kScores | kMask, kSoftmax},
    {11, 192, 6, kFixed | kScores | kMask, kSoftmax},
    {5, 250, 32, kScores, kSigmoid, 0, 0, Fill::kTies},
    {5, 250, 8, kScores | kBias, kSoftmax, 0, 0, Fill::kTies},
    {9, 288, 8, kScores | kBias | kFixed, kSqrtSoftplus, 0, 0, Fill::kNonFinite,
     "[moe_topk_gate] logits must be finite, got NaN or Inf at row 0"},
    {6, 200, 5, kScores, kSqrtSoftplus, 25, 2, Fill::kEdge},
    {9, 256, 8, kScores | kBias, kSoftmax, 8, 4, Fill::kEdge},
};

// As a model calls it; bias and no bias are the same work.
constexpr Row kBench[] = {
    {0, 0, 8, kBias},           {0, 0, 8, kBias | kScores},
    {0, 0, 8, kBias, kSigmoid}, {0, 0, 8, kBias, kSigmoid, 8, 4},
    {0, 0, 8, 0, kSoftmax},
};

// A call of moe_topk_gate_forward, or of top2_sum_gate.
struct Setup {
  std::string id;
  int topk = 0;
  MoeTopkGateOptions options{};
  std::optional<Top2SumGateOptions> top2{};
  std::vector<Input> inputs{};  // the logits first
  std::string fault{};
  std::vector<std::vector<uint8_t>> expected{};

  // Adds an optional tensor.
  void add(Input input) { inputs.push_back(std::move(input)); }
  int place(std::string_view name) const {
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].name == name) return static_cast<int>(i);
    }
    return -1;
  }
  Input& at(std::string_view name) { return inputs[static_cast<size_t>(place(name))]; }

  template <class T>
  std::optional<T> pick(std::string_view name, const std::vector<T>& tensors) const {
    const int i = place(name);
    return i < 0 ? std::nullopt : std::optional<T>(tensors[static_cast<size_t>(i)]);
  }
  template <class Inputs, class T>
  Inputs gather(const std::vector<T>& in) const {
    return {.mask = pick("mask", in),
            .bias = pick("bias", in),
            .image_bias = pick("image_bias", in),
            .image_token_mask = pick("image_token_mask", in),
            .fix_routing_mask = pick("fix_routing_mask", in),
            .to_physical_map = pick("to_physical_map", in),
            .logical_count = pick("logical_count", in),
            .unmapped_topk_idx = pick("unmapped_topk_idx", in),
            .force_random = pick("force_random", in)};
  }
  template <class Inputs, class T>
  Inputs gather_top2(const std::vector<T>& in) const {
    return {.mask = pick("mask", in),
            .fix_routing_mask = pick("fix_routing_mask", in),
            .to_physical_map = pick("to_physical_map", in),
            .logical_count = pick("logical_count", in),
            .unmapped_topk_idx = pick("unmapped_topk_idx", in)};
  }

  RoutingSpec spec(const Specs& in) const {
    if (top2) {
      return top2_sum_gate_spec(in[0], in[1], topk, *top2, gather_top2<Top2SumGateInputSpecs>(in));
    }
    return moe_topk_gate_forward_spec(in[0], topk, options, gather<MoeTopkGateInputSpecs>(in));
  }
  // `unmapped` takes the place of the input where there is one.
  void out(const RoutingView& to, const Views& in, const TensorView& unmapped,
           const Call& call) const {
    const bool has_unmapped = place("unmapped_topk_idx") >= 0;
    if (top2) {
      auto given = gather_top2<Top2SumGateInputs>(in);
      if (has_unmapped) given.unmapped_topk_idx = unmapped;
      return top2_sum_gate_out(to, in[0], in[1], topk, *top2, given, call);
    }
    auto given = gather<MoeTopkGateInputs>(in);
    if (has_unmapped) given.unmapped_topk_idx = unmapped;
    moe_topk_gate_forward_out(to, in[0], topk, options, given, call);
  }
  RoutingTensor alloc(const Views& in, const TensorView& unmapped, const Call& call) const {
    const bool has_unmapped = place("unmapped_topk_idx") >= 0;
    if (top2) {
      auto given = gather_top2<Top2SumGateInputs>(in);
      if (has_unmapped) given.unmapped_topk_idx = unmapped;
      return top2_sum_gate(in[0], in[1], topk, *top2, given, call);
    }
    auto given = gather<MoeTopkGateInputs>(in);
    if (has_unmapped) given.unmapped_topk_idx = unmapped;
    return moe_topk_gate(in[0], topk, options, given, call);
  }
};

Case make(const Setup& setup) {
  const int unmapped = setup.place("unmapped_topk_idx");
  const bool has_scores = setup.options.save_scores && !setup.top2;
  Case test{.id = "moe_topk_gate/" + setup.id,
            .inputs = setup.inputs,
            .outputs = {"topk_idx", "topk_weights"},
            .spec = {},
            .out = {},
            .alloc = {}};
  if (has_scores) test.outputs.emplace_back("scores");
  if (unmapped >= 0) {
    test.outputs.emplace_back("unmapped_topk_idx");
    test.starts_as.assign(test.outputs.size(), -1);
    test.starts_as.back() = unmapped;
  }
  test.spec = [=](const Specs& in) {
    const RoutingSpec routing = setup.spec(in);
    Specs out{routing.topk_idx, routing.topk_weights};
    if (routing.scores) out.push_back(*routing.scores);
    if (unmapped >= 0) out.push_back(in[static_cast<size_t>(unmapped)]);
    return out;
  };
  test.out = [=](const Views& out, const Views& in, const Call& call) {
    RoutingView to{out[0], out[1], {}};
    if (has_scores) to.scores = out[2];
    setup.out(to, in, out.back(), call);
  };
  test.alloc = [=](const Views& in, const Call& call) {
    Tensor changed;
    if (unmapped >= 0) {
      setup.spec(Specs(in.begin(), in.end()));  // a bad call throws before its memory is read
      const TensorView& from = in[static_cast<size_t>(unmapped)];
      changed = Tensor(static_cast<const TensorSpec&>(from));
      const TensorSpec bytes({from.storage_bytes()}, DType::kU8, from.device);  // gaps too
      copy({changed.data(), bytes}, {from.data, bytes});
    }
    RoutingTensor routing = setup.alloc(in, changed, call);
    std::vector<Tensor> results{routing.topk_idx, routing.topk_weights};
    if (routing.scores) results.push_back(*routing.scores);
    if (unmapped >= 0) results.push_back(changed);
    return results;
  };
  test.fault = setup.fault;
  test.expected = setup.expected;
  return test;
}

// ------------------------------ inputs

uint64_t hash(uint64_t x) {
  x = (x + 0x9E3779B97F4A7C15u) * 0xBF58476D1CE4E5B9u;
  return x ^ (x >> 29);
}

template <class T, class F>
std::vector<uint8_t> bytes_by(int64_t count, F value) {
  std::vector<uint8_t> bytes(static_cast<size_t>(count) * sizeof(T));
  for (int64_t i = 0; i < count; ++i) {
    const T element = static_cast<T>(value(i));
    const auto* from = reinterpret_cast<const uint8_t*>(&element);
    std::copy(from, from + sizeof(T), bytes.begin() + i * static_cast<int64_t>(sizeof(T)));
  }
  return bytes;
}

template <class T, class F>
Input given(const std::string& name, const TensorSpec& spec, F value) {
  return {name, spec, Fill::kGiven, bytes_by<T>(spec.numel(), value)};
}

// True for one token in `of`, other ones by `seed`.
Input flags(const std::string& name, int64_t tokens, uint64_t seed, uint64_t of) {
  return given<uint8_t>(name, {{tokens}, DType::kBool},
                        [=](int64_t i) { return hash(static_cast<uint64_t>(i) + seed) % of == 0; });
}

Input unmapped_of(int64_t tokens, int64_t experts, int topk, int64_t stride) {
  const TensorSpec spec({tokens, topk}, {stride, 1}, DType::kI64);
  return given<int64_t>("unmapped_topk_idx", spec, [=](int64_t i) {
    return hash(static_cast<uint64_t>(i)) % static_cast<uint64_t>(experts);
  });
}

// Every logical expert has 1..copies physical ones, other places hold -1.
void add_map(Setup& setup, int64_t num_logical, int64_t copies) {
  const auto count_of = [=](int64_t i) {
    return 1 + static_cast<int64_t>(hash(static_cast<uint64_t>(i)) % static_cast<uint64_t>(copies));
  };
  setup.add(given<int32_t>("to_physical_map", {{num_logical, copies}, DType::kI32}, [=](int64_t i) {
    return i % copies < count_of(i / copies) ? i / copies + i % copies * num_logical : -1;
  }));
  setup.add(given<int32_t>("logical_count", {{num_logical}, DType::kI32}, count_of));
}

std::string id_of(const Row& row) {
  std::string id = "tokens=" + std::to_string(row.tokens) +
                   ",experts=" + std::to_string(row.experts) + ",topk=" + std::to_string(row.topk);
  if (row.scoring == kSigmoid) id += ",sigmoid";
  if (row.scoring == kSoftmax) id += ",softmax";
  if (row.groups > 0) {
    id += ",groups=" + std::to_string(row.topk_groups) + "of" + std::to_string(row.groups);
  }
  for (size_t i = 0; i < std::size(kFeatureNames); ++i) {
    if (row.features >> i & 1) id += std::string(",") + kFeatureNames[i];
  }
  if (row.forbidden > 0) id += ",forbidden=" + std::to_string(row.forbidden);
  if (row.fill != Fill::kNormal) id += ",data=" + std::string(name(row.fill));
  return id;
}

Setup setup_of(const Row& row) {
  const auto has = [&](Feature feature) { return (row.features & feature) != 0; };
  Setup setup;
  setup.id = id_of(row);
  setup.topk = row.topk;
  setup.fault = row.fault;
  const int num_shared = has(kShared2) ? 2 : has(kShared1) ? 1 : 0;
  setup.options = {.use_shared_as_routed = num_shared > 0,
                   .num_shared_experts = num_shared,
                   .routed_scaling_factor = 2.5f,
                   .ep_rank = row.ep_rank,
                   .scoring_func = row.scoring,
                   .norm_topk_prob = !has(kNoNorm),
                   .num_groups = row.groups,
                   .num_topk_groups = row.topk_groups,
                   .save_scores = has(kScores)};
  setup.add({"logits", {{row.tokens, row.experts}, DType::kF32}, row.fill});
  if (has(kBias)) setup.add({"bias", {{row.experts}, DType::kF32}});
  if (row.forbidden > 0) {
    setup.at("bias") = given<float>("bias", {{row.experts}, DType::kF32}, [=](int64_t i) {
      return i * 7 % row.experts < row.forbidden ? -kInf : static_cast<float>(i % 5);
    });
  }
  if (has(kImage)) {
    setup.add({"image_bias", {{row.experts}, DType::kF32}});
    setup.add(flags("image_token_mask", row.tokens, 11, 2));
  }
  if (has(kMask)) {
    setup.add(given<uint8_t>("mask", {{row.tokens}, DType::kBool}, [](int64_t i) {
      return hash(static_cast<uint64_t>(i) + 5) % 4 != 0;
    }));
  }
  if (has(kFixed) || has(kUnmapped) || has(kStride)) {
    const int64_t stride = has(kStride) ? row.topk + 3 : row.topk;
    setup.add(unmapped_of(row.tokens, row.experts, row.topk, stride));
  }
  if (has(kFixed)) setup.add(flags("fix_routing_mask", row.tokens, 23, 2));
  if (has(kRandom)) setup.add(flags("force_random", row.tokens, 31, 3));
  if (has(kMap)) add_map(setup, row.experts + num_shared, 3);
  return setup;
}

// ------------------------------ hand-worked

Setup worked(const std::string& id, int64_t tokens, std::initializer_list<float> logits, int topk,
             std::initializer_list<int64_t> ids, std::initializer_list<float> weights) {
  Setup setup;
  setup.id = id;
  setup.topk = topk;
  const auto experts = static_cast<int64_t>(logits.size()) / tokens;
  setup.add({"logits", {{tokens, experts}, DType::kF32}, Fill::kGiven, bytes_of(logits)});
  setup.expected = {bytes_of(ids), bytes_of(weights)};
  return setup;
}

Setup with_bias(Setup setup, std::initializer_list<float> bias) {
  setup.add(
      {"bias", {{static_cast<int64_t>(bias.size())}, DType::kF32}, Fill::kGiven, bytes_of(bias)});
  return setup;
}

// Only the last of `tokens` is there, and takes random experts.
Setup random_token(int64_t tokens, int64_t experts, int topk, int ep_rank,
                   const std::vector<int64_t>& ids) {
  Setup setup;
  setup.id = "random-token-" + std::to_string(tokens - 1);
  setup.topk = topk;
  setup.options.ep_rank = ep_rank;
  setup.add({"logits", {{tokens, experts}, DType::kF32}, Fill::kNonFinite});  // not looked at
  setup.add(
      given<uint8_t>("mask", {{tokens}, DType::kBool}, [=](int64_t i) { return i == tokens - 1; }));
  setup.add(given<uint8_t>("force_random", {{tokens}, DType::kBool}, [](int64_t) { return 1; }));
  setup.expected = {bytes_by<int64_t>(tokens * topk, [=](int64_t i) {
    const int64_t slot = i - (tokens - 1) * topk;
    return slot < 0 ? -1 : ids[static_cast<size_t>(slot)];
  })};
  return setup;
}

// Only the last 50 of so many tokens that 32 bits do not hold token * 23333, on 3 copies.
Setup far_tokens(int ep_rank) {
  constexpr int64_t kTokens = 92100;
  Setup setup;
  setup.id = "copies-of-far-tokens,ep=" + std::to_string(ep_rank);
  setup.topk = 1;
  setup.options.ep_rank = ep_rank;
  setup.add({"logits", {{kTokens, 1}, DType::kF32}, Fill::kZero});
  setup.add(given<uint8_t>("mask", {{kTokens}, DType::kBool},
                           [](int64_t i) { return i >= kTokens - 50; }));
  setup.add({"to_physical_map", {{1, 3}, DType::kI32}, Fill::kGiven, bytes_of<int32_t>({7, 8, 9})});
  setup.add({"logical_count", {{1}, DType::kI32}, Fill::kGiven, bytes_of<int32_t>({3})});
  setup.expected = {bytes_by<int64_t>(kTokens, [=](int64_t i) {
    return i < kTokens - 50 ? -1 : 7 + ((ep_rank + i * 23333) % 3 + 3) % 3;
  })};
  return setup;
}

// Logits that differ by little, by another step in each row: their order is that of the last bits.
Setup close(ScoringFunc scoring) {
  Setup setup = setup_of({272, 256, 8, 0, scoring});
  setup.id += ",close";
  setup.at("logits") = given<float>("logits", {{272, 256}, DType::kF32}, [](int64_t i) {
    const auto step = static_cast<float>(1 + i / 256 % 16);
    return static_cast<float>(i * 77 % 256) * step * 3e-5f;
  });
  return setup;
}

// Zero logits over 4 experts with a map of 2 copies, whose tensors a case spoils.
Setup mapped(const std::string& id, std::initializer_list<int32_t> map,
             std::initializer_list<int32_t> count, std::initializer_list<int64_t> ids) {
  Setup setup = worked(id, 2, {0, 0, 0, 0, 0, 0, 0, 0}, 2, ids, {0.5f, 0.5f, 0.5f, 0.5f});
  setup.add({"to_physical_map", {{4, 2}, DType::kI32}, Fill::kGiven, bytes_of(map)});
  setup.add({"logical_count", {{4}, DType::kI32}, Fill::kGiven, bytes_of(count)});
  return setup;
}

void add_worked(std::vector<Case>& cases) {
  cases.push_back(make(close(kSqrtSoftplus)));
  cases.push_back(make(close(kSigmoid)));
  // Equal scores by index; 0.8325546 / (2 * 0.8325546) is 1/2.
  cases.push_back(make(worked("ties", 1, {0, 0, 0, 0}, 2, {0, 1}, {0.5f, 0.5f})));
  cases.push_back(make(worked("signed-zeros", 1, {-0.0f, 0.0f, -0.0f}, 2, {0, 1}, {0.5f, 0.5f})));
  // The bias chooses, the weights are without it.
  cases.push_back(make(
      with_bias(worked("bias", 1, {0, 0, 0, 0}, 2, {3, 1}, {0.5f, 0.5f}), {0, 0.5f, 0.25f, 1})));
  // Forbidden experts come when no other is left, by index.
  cases.push_back(make(with_bias(
      worked("forbidden", 1, {0, 0, 0, 0}, 3, {2, 0, 1}, {0.33333331f, 0.33333331f, 0.33333331f}),
      {-kInf, -kInf, 0, -kInf})));
  {
    // In the tail the scores differ still: e^(x / 2).
    Setup tail = worked("tail", 1, {-150, -120, -160, -110}, 2, {3, 1}, {});
    tail.expected.pop_back();
    cases.push_back(make(tail));
    tail.id = "tail-sigmoid";
    tail.at("logits").given = bytes_of<float>({-95, -92, -96, -90});
    tail.options.scoring_func = kSigmoid;
    cases.push_back(make(tail));
  }
  {
    Setup wanted = worked("softmax", 1, {0, 0, 0, 0}, 2, {0, 1}, {0.25f, 0.25f});
    wanted.options.scoring_func = kSoftmax;
    wanted.options.norm_topk_prob = false;
    cases.push_back(make(wanted));
    // Selection is by logit + bias, not by probability + bias: 3 beats 2 + 0.5.
    wanted = with_bias(worked("softmax-bias", 1, {2, 3, 0, 0}, 1, {1}, {1.0f}), {0.5f, 0, 0, 0});
    wanted.options.scoring_func = kSoftmax;
    cases.push_back(make(wanted));
  }
  {
    // Groups (0 1) (2 3) (4 5): sums 3, 4, 4. The lower one of the equal groups, and within it.
    Setup groups = with_bias(worked("groups", 1, {0, 0, 0, 0, 0, 0}, 2, {2, 3}, {0.5f, 0.5f}),
                             {3, 0, 2, 2, 2, 2});
    groups.options.num_groups = 3;
    groups.options.num_topk_groups = 1;
    cases.push_back(make(groups));
    // All sums negative: an expert outside the groups is no candidate, though 0 would beat it.
    groups = with_bias(worked("groups-negative", 1, {0, 0, 0, 0}, 2, {2, 3}, {0.5f, 0.5f}),
                       {-9, -9, -5, -6});
    groups.options.num_groups = 2;
    groups.options.num_topk_groups = 1;
    cases.push_back(make(groups));
  }
  cases.push_back(make(random_token(1, 256, 8, 0, {141, 152, 241, 114, 67, 238, 211, 8})));
  cases.push_back(make(random_token(1235, 8, 6, 3, {5, 0, 2, 4, 6, 7})));
  cases.push_back(make(random_token(8, 8, 8, 1, {3, 4, 2, 7, 0, 5, 6, 1})));
  cases.push_back(make(far_tokens(0)));
  cases.push_back(make(far_tokens(-5)));
  // (0 + 23333) mod 2 = 1: the second token takes the other copy.
  cases.push_back(
      make(mapped("map", {10, 11, 20, 21, 30, 31, 40, 41}, {2, 2, 1, 1}, {10, 20, 11, 21})));
}

void add_faults(std::vector<Case>& cases) {
  const auto add = [&](Setup setup, const std::string& fault) {
    setup.fault = "[moe_topk_gate] " + fault;
    cases.push_back(make(setup));
  };
  const std::string count =
      "logical_count must be at least 1 and at most the copies in its table, got a count out of "
      "range at row ";
  add(mapped("map-negative", {-3, 11, 20, 21, 30, 31, 40, 41}, {2, 2, 1, 1}, {-1, 20, 11, 21}),
      "to_physical_map must lie in its table, got a position out of range at row 0");
  add(mapped("count-0", {10, 11, 20, 21, 30, 31, 40, 41}, {2, 0, 1, 1}, {10, -1, 11, -1}),
      count + "0");
  add(mapped("count-negative", {10, 11, 20, 21, 30, 31, 40, 41}, {-5, 1, 1, 1}, {-1, 20, -1, 20}),
      count + "0");
  add(mapped("count-3-of-2", {10, 11, 20, 21, 30, 31, 40, 41}, {2, 3, 1, 1}, {10, -1, 11, -1}),
      count + "0");
  {
    // Two physical experts for three slots.
    Setup few = worked("random-too-few", 2, {0, 0, 0, 0, 0, 0}, 3, {0, 1, 2}, {});
    few.expected.clear();
    few.add({"force_random", {{2}, DType::kBool}, Fill::kGiven, bytes_of<uint8_t>({0, 1})});
    few.add({"to_physical_map", {{3, 1}, DType::kI32}, Fill::kGiven, bytes_of<int32_t>({0, 1, 2})});
    few.add({"logical_count", {{3}, DType::kI32}, Fill::kGiven, bytes_of<int32_t>({1, 1, -4})});
    add(few, count + "0");
  }
  const auto fixed = [&](const std::string& id, std::initializer_list<int64_t> ids,
                         std::initializer_list<int64_t> topk_idx,
                         std::initializer_list<float> weights) {
    Setup setup = worked(id, 2, {0, 0, 0, 0, 0, 0}, 2, topk_idx, weights);
    setup.add({"unmapped_topk_idx", {{2, 2}, DType::kI64}, Fill::kGiven, bytes_of(ids)});
    setup.add({"fix_routing_mask", {{2}, DType::kBool}, Fill::kGiven, bytes_of<uint8_t>({0, 1})});
    // Rows that select overwrite theirs, fixed ones keep it, right or wrong.
    const int64_t* own = ids.begin();
    setup.expected.push_back(bytes_of<int64_t>({0, 1, own[2], own[3]}));
    return setup;
  };
  const std::string index =
      "unmapped_topk_idx must name an element, got an index out of range at row 1";
  add(fixed("fixed-minus-1", {77, 77, -1, 2}, {0, 1, -1, 2}, {0.5f, 0.5f, 0, 1}), index);
  add(fixed("fixed-above", {77, 77, 1, 3}, {0, 1, 1, -1}, {0.5f, 0.5f, 1, 0}), index);
  add(fixed("fixed-far", {77, 77, int64_t{1} << 32, -(int64_t{1} << 40)}, {0, 1, -1, -1},
            {0.5f, 0.5f, 0, 0}),
      index);
  // Repeats are the caller's business.
  cases.push_back(
      make(fixed("fixed-twice", {77, 77, 2, 2}, {0, 1, 2, 2}, {0.5f, 0.5f, 0.5f, 0.5f})));
  // A NaN in the bias ranks last.
  add(with_bias(
          worked("bias-nan", 1, {0, 0, 0}, 3, {0, 2, 1}, {0.33333331f, 0.33333331f, 0.33333331f}),
          {0, kNan, -kInf}),
      "bias or image_bias must not be NaN, got NaN at row 0");
  for (const ScoringFunc scoring : {kSqrtSoftplus, kSoftmax}) {  // of a row of several warps
    Setup setup = setup_of({4, 256, 8, kBias | kScores, scoring});
    setup.id += ",bias-nan";
    setup.at("bias") =
        given<float>("bias", {{256}, DType::kF32}, [](int64_t i) { return i == 77 ? kNan : 0.0f; });
    add(setup, "bias or image_bias must not be NaN, got NaN at row 0");
  }
  {
    // What is masked or random is not looked at.
    Setup unseen;
    unseen.id = "masked-nan";
    unseen.topk = 4;
    unseen.options.save_scores = true;
    unseen.add({"logits", {{6, 48}, DType::kF32}, Fill::kBits});
    unseen.add({"bias", {{48}, DType::kF32}, Fill::kBits});
    unseen.add(given<uint8_t>("mask", {{6}, DType::kBool}, [](int64_t i) { return i % 2; }));
    unseen.add(given<uint8_t>("force_random", {{6}, DType::kBool}, [](int64_t) { return 1; }));
    cases.push_back(make(unseen));
  }
  {
    // Non-finite logits of a fixed row are a fault still.
    Setup setup = setup_of({7, 48, 5, kFixed | kScores, kSqrtSoftplus, 0, 0, Fill::kNonFinite});
    setup.at("fix_routing_mask") =
        given<uint8_t>("fix_routing_mask", {{7}, DType::kBool}, [](int64_t) { return 1; });
    setup.id = "fixed-not-finite";
    setup.fault = std::string(kNotFinite) + "0";
    cases.push_back(make(setup));
  }
}

// ------------------------------ top2_sum_gate

struct Top2Row {
  int64_t tokens;
  int64_t experts;
  int topk;
  int topk_groups;
  int groups;
  int features;
  ScoringFunc scoring;
  int copies;  // 0: no map
  int ep_ranks;
  int tp_rank;
  int tp_ranks;
};

constexpr Top2Row kTop2[] = {
    {0, 72, 6, 0, 0, 0, kSigmoid, 0, 4, 0, 2},
    {17, 72, 6, 0, 0, kMask, kSigmoid, 0, 4, 0, 2},
    {17, 72, 6, 0, 0, kMask | kShared1 | kFixed, kSqrtSoftplus, 33, 4, 1, 2},
    {19, 66, 6, 0, 0, kShared2 | kUnmapped, kSoftmax, 33, 4, 0, 2},
    {9, 36, 6, 0, 0, kShared2, kSigmoid, 3, 1, 0, 1},
    {13, 256, 8, 8, 8, kMask, kSigmoid, 33, 4, 1, 2},
    {13, 256, 8, 4, 8, kMask | kShared2 | kFixed, kSigmoid, 33, 4, 0, 2},
    {13, 256, 8, 4, 8, 0, kSoftmax, 0, 16, 3, 4},
    {13, 256, 8, 4, 8, kStride, kSqrtSoftplus, 0, 3, 7, 8},
};

Setup setup_of(const Top2Row& row) {
  Setup setup = setup_of(Row{row.tokens, row.experts, row.topk, row.features | kBias, row.scoring,
                             row.groups, row.topk_groups});
  setup.id = "top2_sum_gate/" + setup.id;
  setup.id += ",ep=" + std::to_string(row.ep_ranks) + ",tp=" + std::to_string(row.tp_rank) + "of" +
              std::to_string(row.tp_ranks);
  const MoeTopkGateOptions& from = setup.options;
  if (row.copies > 0) {
    setup.id += ",copies=" + std::to_string(row.copies);
    add_map(setup, row.experts + from.num_shared_experts, row.copies);
  }
  setup.top2 = {.num_topk_groups = row.topk_groups,
                .num_groups = row.groups,
                .use_shared_as_routed = from.use_shared_as_routed,
                .num_shared_experts = from.num_shared_experts,
                .routed_scaling_factor = 1.5f,
                .ep_rank = 1,
                .num_ep_ranks = row.ep_ranks,
                .tp_rank = row.tp_rank,
                .num_tp_ranks = row.tp_ranks,
                .scoring_func = row.scoring};
  return setup;
}

void add_top2(std::vector<Case>& cases) {
  for (const Top2Row& row : kTop2) cases.push_back(make(setup_of(row)));
  // 8 experts on 2 ranks of experts, 4 each, and 2 of tensors: ids 0..3 are rank 0's, 4..7 rank
  // 1's.
  Setup setup = with_bias(worked("top2_sum_gate/tp", 1, {0, 0, 0, 0, 0, 0, 0, 0}, 4, {-1, 2, -1, 0},
                                 {0.25f, 0.25f, 0.25f, 0.25f}),
                          {0, 4, 0, 0, 1, 0, 3, 2});
  setup.expected[0] = bytes_of<int64_t>({-1, 2, 3, 0});
  setup.top2 = {.num_ep_ranks = 2, .tp_rank = 1, .num_tp_ranks = 2};
  cases.push_back(make(setup));
}

// ------------------------------ bad calls

void add_bad(std::vector<Case>& cases) {
  const auto bad = [&](const std::string& id, const Row& row, const std::string& error,
                       const std::function<void(Setup&)>& spoil) {
    Setup setup = setup_of(row);
    setup.id = "bad-" + id;
    spoil(setup);
    Case test = make(setup);
    test.error = (setup.top2 ? "[top2_sum_gate] " : "[moe_topk_gate] ") + error;
    cases.push_back(test);
  };
  const auto as_it_is = [](Setup&) {};
  const Row plain{4, 16, 4};
  const Row full{4, 16, 4, kMask | kBias | kImage | kFixed | kMap | kRandom | kShared1};
  bad("rank", plain, "logits must have 2 dimensions, got (16)", [](Setup& s) {
    s.at("logits").spec = {{16}, DType::kF32};
  });
  bad("dtype", plain, "logits must have dtype f32, got bf16", [](Setup& s) {
    s.at("logits").spec = {{4, 16}, DType::kBF16};
  });
  bad("stride", plain, "logits must be contiguous, got strides (32, 1) for shape (4, 16)",
      [](Setup& s) {
        s.at("logits").spec = {{4, 16}, {32, 1}, DType::kF32};
      });
  bad("no-experts", plain, "num_experts must be in 1..1073741824, got 0", [](Setup& s) {
    s.at("logits").spec = {{4, 0}, DType::kF32};
  });
  bad("topk-0", {4, 16, 0}, "num_topk must be in 1..16, got 0", as_it_is);
  bad("topk-negative", plain, "num_topk must be in 1..16, got -1", [](Setup& s) { s.topk = -1; });
  bad("topk-above-experts", {4, 16, 17}, "num_topk must be in 1..16, got 17", as_it_is);
  bad("topk-above-32", {4, 64, 33}, "num_topk must be in 1..32, got 33", as_it_is);
  bad("topk-empty", {0, 16, 17}, "num_topk must be in 1..16, got 17", as_it_is);
  bad("slots", {4, 64, 32, kShared1}, "num_topk + num_shared_experts must be in 1..32, got 33",
      as_it_is);
  bad("shared-0", plain, "num_shared_experts must be in 1..2, got 0",
      [](Setup& s) { s.options.use_shared_as_routed = true; });
  bad("shared-3", plain, "num_shared_experts must be in 1..2, got 3", [](Setup& s) {
    s.options.use_shared_as_routed = true;
    s.options.num_shared_experts = 3;
  });
  bad("scoring", plain, "scoring_func must be in 0..2, got 3",
      [](Setup& s) { s.options.scoring_func = static_cast<ScoringFunc>(3); });
  bad("scale-nan", plain, "routed_scaling_factor must be finite, got NaN",
      [](Setup& s) { s.options.routed_scaling_factor = kNan; });
  bad("scale-inf", plain, "routed_scaling_factor must be finite, got Inf",
      [](Setup& s) { s.options.routed_scaling_factor = -kInf; });
  bad("groups-33", {4, 66, 4, 0, kSigmoid, 33, 2}, "num_groups must be in 1..32, got 33", as_it_is);
  bad("groups-0", {4, 64, 4, 0, kSigmoid, 0, 2}, "num_groups must be in 1..32, got 0", as_it_is);
  bad("groups-negative", {4, 64, 4, 0, kSigmoid, -8, 2}, "num_groups must be in 1..32, got -8",
      as_it_is);
  bad("topk-groups-0", {4, 64, 4, 0, kSigmoid, 8, 0}, "num_topk_groups must be in 1..8, got 0",
      as_it_is);
  bad("topk-groups-9", {4, 64, 4, 0, kSigmoid, 8, 9}, "num_topk_groups must be in 1..8, got 9",
      as_it_is);
  bad("groups-uneven", {4, 65, 4, 0, kSigmoid, 8, 2}, "num_experts must be a multiple of 8, got 65",
      as_it_is);
  bad("groups-of-1", {4, 16, 1, 0, kSigmoid, 16, 2},
      "num_experts / num_groups must be at least 2, got 1", as_it_is);
  bad("groups-too-small", {4, 64, 9, 0, kSigmoid, 16, 2}, "num_topk must be in 1..8, got 9",
      as_it_is);
  bad("image-bias-alone", full,
      "image_bias and image_token_mask must be given together, got image_bias alone",
      [](Setup& s) { s.at("image_token_mask").name = "?"; });
  bad("image-mask-alone", full,
      "image_bias and image_token_mask must be given together, got image_token_mask alone",
      [](Setup& s) { s.at("image_bias").name = "?"; });
  bad("map-alone", full,
      "to_physical_map and logical_count must be given together, got to_physical_map alone",
      [](Setup& s) { s.at("logical_count").name = "?"; });
  bad("fixed-alone", full, "fix_routing_mask must come with unmapped_topk_idx, got none",
      [](Setup& s) { s.at("unmapped_topk_idx").name = "?"; });
  bad("bias-shape", full, "bias must have shape (16), got (1, 16)", [](Setup& s) {
    s.at("bias").spec = {{1, 16}, DType::kF32};
  });
  bad("bias-dtype", full, "bias must have dtype f32, got bf16", [](Setup& s) {
    s.at("bias").spec = {{16}, DType::kBF16};
  });
  bad("bias-stride", full, "bias must be contiguous, got strides (2) for shape (16)", [](Setup& s) {
    s.at("bias").spec = {{16}, {2}, DType::kF32};
  });
  bad("image-bias-shape", full, "image_bias must have shape (16), got (17)", [](Setup& s) {
    s.at("image_bias").spec = {{17}, DType::kF32};
  });
  bad("image-mask-shape", full, "image_token_mask must have shape (4), got (5)", [](Setup& s) {
    s.at("image_token_mask").spec = {{5}, DType::kBool};
  });
  bad("mask-dtype", full, "mask must have dtype bool, got i32", [](Setup& s) {
    s.at("mask").spec = {{4}, DType::kI32};
  });
  bad("mask-numel", full, "mask must have 4 elements, got 6", [](Setup& s) {
    s.at("mask").spec = {{2, 3}, DType::kBool};
  });
  bad("mask-stride", full, "mask must be contiguous, got strides (3) for shape (4)", [](Setup& s) {
    s.at("mask").spec = {{4}, {3}, DType::kBool};
  });
  bad("fixed-shape", full, "fix_routing_mask must have shape (4), got (3)", [](Setup& s) {
    s.at("fix_routing_mask").spec = {{3}, DType::kBool};
  });
  bad("random-dtype", full, "force_random must have dtype bool, got u8", [](Setup& s) {
    s.at("force_random").spec = {{4}, DType::kU8};
  });
  bad("map-rank", full, "to_physical_map must have 2 dimensions, got (17)", [](Setup& s) {
    s.at("to_physical_map").spec = {{17}, DType::kI32};
  });
  bad("map-shape", full, "to_physical_map must have shape (17, 3), got (16, 3)", [](Setup& s) {
    s.at("to_physical_map").spec = {{16, 3}, DType::kI32};
  });
  bad("map-empty", full, "num_copies must be in 1..126322567, got 0", [](Setup& s) {
    s.at("to_physical_map").spec = {{17, 0}, DType::kI32};
  });
  bad("map-dtype", full, "to_physical_map must have dtype i32, got i64", [](Setup& s) {
    s.at("to_physical_map").spec = {{17, 3}, DType::kI64};
  });
  bad("count-shape", full, "logical_count must have shape (17), got (16)", [](Setup& s) {
    s.at("logical_count").spec = {{16}, DType::kI32};
  });
  bad("unmapped-shape", full, "unmapped_topk_idx must have shape (4, 4), got (4, 5)", [](Setup& s) {
    s.at("unmapped_topk_idx").spec = {{4, 5}, DType::kI64};
  });
  bad("unmapped-dtype", full, "unmapped_topk_idx must have dtype i64, got i32", [](Setup& s) {
    s.at("unmapped_topk_idx").spec = {{4, 4}, DType::kI32};
  });
  bad("unmapped-columns", full, "unmapped_topk_idx must have column stride 1, got strides (8, 2)",
      [](Setup& s) {
        s.at("unmapped_topk_idx").spec = {{4, 4}, {8, 2}, DType::kI64};
      });
  bad("unmapped-rows", full,
      "unmapped_topk_idx must have a row stride of at least 4, got strides (3, 1)", [](Setup& s) {
        s.at("unmapped_topk_idx").spec = {{4, 4}, {3, 1}, DType::kI64};
      });

  const auto top2 = [](int ep_ranks, int tp_rank, int tp_ranks) {
    return [=](Setup& s) {
      s.top2 = Top2SumGateOptions{.use_shared_as_routed = s.options.use_shared_as_routed,
                                  .num_shared_experts = s.options.num_shared_experts,
                                  .num_ep_ranks = ep_ranks,
                                  .tp_rank = tp_rank,
                                  .num_tp_ranks = tp_ranks};
      s.id = "top2_sum_gate/" + s.id;
    };
  };
  bad("ep-0", {4, 16, 4, kBias}, "num_ep_ranks must be in 1..2147483647, got 0", top2(0, 0, 1));
  bad("ep-17", {4, 16, 4, kBias}, "num_ep_ranks must be at most the number of experts, got 17",
      top2(17, 0, 1));
  bad("tp-0", {4, 16, 4, kBias}, "num_tp_ranks must be in 1..134217727, got 0", top2(1, 0, 0));
  bad("tp-rank", {4, 16, 4, kBias}, "tp_rank must be in 0..1, got 2", top2(1, 2, 2));
  bad("shared-topk", {4, 16, 5, kBias | kShared2}, "num_topk must be a multiple of 2, got 5",
      top2(1, 0, 1));
  bad("shared-experts", {4, 16, 6, kBias | kShared2}, "num_experts must be a multiple of 3, got 16",
      top2(1, 0, 1));
  bad("shared-copies", {4, 16, 4, kBias | kShared1 | kMap},
      "num_shared_experts must be in 0..0, got 1", [&](Setup& s) {
        top2(1, 0, 1)(s);
        s.at("to_physical_map").spec = {{17, 1}, DType::kI32};
      });
}

}  // namespace

OpCases moe_topk_gate() {
  OpCases op{"moe_topk_gate", {}};
  for (const Row& row : kRows) op.cases.push_back(make(setup_of(row)));
  add_worked(op.cases);
  add_faults(op.cases);
  add_top2(op.cases);
  add_bad(op.cases);
  for (const Row& kind : kBench) {
    for (const int64_t experts : {256, 384}) {
      for (const int64_t tokens : {1, 128, 4096, 16384}) {
        Row row = kind;
        row.tokens = tokens;
        row.experts = experts;
        Case test = make(setup_of(row));
        test.bench = true;
        op.cases.push_back(test);
      }
    }
  }
  return op;
}

}  // namespace tilekernels::cases
