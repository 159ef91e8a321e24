// moe_topk_gate_backward: cases as data.
#include "cases/case.h"
#include "ops/moe/fused_cases.h"
#include "tilekernels/moe.h"

namespace tilekernels::cases {
namespace {

constexpr ScoringFunc kSqrtSoftplus = ScoringFunc::kSqrtSoftplus;
constexpr ScoringFunc kSigmoid = ScoringFunc::kSigmoid;
constexpr int kNoAux = -1;

struct Row {
  int64_t tokens;
  int experts;
  int topk;
  int sequences = kNoAux;
  ScoringFunc scoring = kSqrtSoftplus;
  Fill scores = Fill::kScale;
  Fill grads = Fill::kNormal;  // and of the weights
  Routing routing = Routing::kRandom;
  bool bench = false;
};

constexpr Row kRows[] = {
    // Extents, from nothing to odd
    {0, 64, 6},
    {0, 64, 6, 0},
    {0, 64, 6, 3},
    {1, 1, 1},
    {1, 1, 1, 1},
    {3, 2, 2, 1},
    {5, 7, 3},
    {6, 7, 7, 2},
    {9, 33, 4, 3},
    {33, 64, 6},
    {8, 64, 6, 8, kSigmoid},
    {37, 256, 8},
    {36, 256, 8, 4},
    {21, 257, 8, 7, kSigmoid},
    {12, 384, 8, 2},
    {10, 72, 9, 5},
    {7, 100, 17},
    {4, 32, 32, 1},
    {6, 40, 32, 2, kSigmoid},
    {5, 1000, 16},
    {4, 1020, 8, 1},
    {4, 1024, 8, 2},
    {4, 1027, 8, 2},
    {4, 1500, 8, 4},
    {2, 2052, 8, 1},
    {2, 2053, 8},
    {3, 4097, 16, 1},
    {2, 6150, 8, 2},
    {2, 6160, 8},
    {301, 16, 6},
    {300, 16, 6, 3},
    // Many rows, a few of them a warp on CUDA
    {1031, 16, 6},
    {1030, 33, 3},
    {1027, 20, 20, kNoAux, kSigmoid},
    {1025, 4, 1, kNoAux, kSqrtSoftplus, Fill::kBits, Fill::kBits},
    {1100, 12, 8, kNoAux, kSqrtSoftplus, Fill::kEdge, Fill::kEdge},
    {1026, 8, 4, kNoAux, kSqrtSoftplus, Fill::kScale, Fill::kNormal, Routing::kOneExpert},
    {1029, 16, 6, kNoAux, kSqrtSoftplus, Fill::kScale, Fill::kNormal, Routing::kBad},
    {9, 64, 6, 3, kSigmoid, Fill::kScale, Fill::kNormal, Routing::kNone},
    {9, 64, 6, kNoAux, kSqrtSoftplus, Fill::kScale, Fill::kNormal, Routing::kNone},
    {9, 64, 8, kNoAux, kSqrtSoftplus, Fill::kScale, Fill::kNormal, Routing::kOneExpert},
    {9, 64, 32, 3, kSqrtSoftplus, Fill::kScale, Fill::kNormal, Routing::kOneExpert},
    {1032, 36, 8, 3},
    {1030, 16, 3, 515},
    {1029, 33, 5, 1029, kSigmoid},
    {1025, 24, 12, 1, kSqrtSoftplus, Fill::kScale, Fill::kNormal, Routing::kOneExpert},
    {1028, 20, 6, 4, kSqrtSoftplus, Fill::kEdge, Fill::kEdge},
    {1028, 12, 4, 257, kSqrtSoftplus, Fill::kBits, Fill::kBits},
    // Faults
    {9, 256, 8, kNoAux, kSqrtSoftplus, Fill::kScale, Fill::kNormal, Routing::kBad},
    {40, 64, 6, 2, kSigmoid, Fill::kScale, Fill::kNormal, Routing::kBad},
    // All values
    {16, 64, 6, kNoAux, kSqrtSoftplus, Fill::kZero},
    {16, 64, 6, 2, kSqrtSoftplus, Fill::kZero},
    {32, 96, 6, kNoAux, kSqrtSoftplus, Fill::kEdge, Fill::kEdge},
    {32, 96, 6, 4, kSqrtSoftplus, Fill::kEdge, Fill::kEdge},
    {16, 96, 6, 4, kSigmoid, Fill::kEdge},
    {16, 96, 8, 2, kSqrtSoftplus, Fill::kNormal},
    {40, 32, 8, kNoAux, kSqrtSoftplus, Fill::kNonFinite, Fill::kNonFinite},
    {40, 32, 8, 5, kSqrtSoftplus, Fill::kNonFinite, Fill::kNonFinite},
    {40, 32, 8, 5, kSigmoid, Fill::kScale, Fill::kNonFinite},
    {9, 64, 8, kNoAux, kSqrtSoftplus, Fill::kBits, Fill::kBits},
    {9, 64, 8, 3, kSqrtSoftplus, Fill::kBits, Fill::kBits},
    {9, 64, 8, 3, kSigmoid, Fill::kBits, Fill::kBits},
};

constexpr Row bench(int64_t tokens, int experts, int sequences = kNoAux) {
  return {tokens,        experts,          8,   sequences, kSqrtSoftplus, Fill::kScale,
          Fill::kNormal, Routing::kRandom, true};
}
constexpr Row kBench[] = {
    bench(1, 256),     bench(128, 256),     bench(4096, 256),      bench(16384, 256),
    bench(16384, 384), bench(4096, 256, 4), bench(16384, 256, 16), bench(16384, 384, 16),
};

template <class T, class Inputs>
MoeTopkGateBackwardOptionsOf<T> options_of(ScoringFunc scoring, const Inputs& in) {
  MoeTopkGateBackwardOptionsOf<T> options{.scoring_func = scoring};
  for (size_t i = 4; i < in.size(); ++i) {
    (in[i].dtype == DType::kBool ? options.mask : options.grad_scores_sum) = in[i];
  }
  return options;
}

Case make(const std::string& id, std::vector<Input> inputs, ScoringFunc scoring, float factor) {
  return {
      .id = "moe_topk_gate_backward/" + id,
      .inputs = std::move(inputs),
      .outputs = {"grad_logits"},
      .spec =
          [=](const Specs& in) {
            return Specs{moe_topk_gate_backward_spec(in[0], in[1], in[2], in[3], factor,
                                                     options_of<TensorSpec>(scoring, in))};
          },
      .out =
          [=](const Views& out, const Views& in, const Call& call) {
            moe_topk_gate_backward_out(out[0], in[0], in[1], in[2], in[3], factor,
                                       options_of<TensorView>(scoring, in), call);
          },
      .alloc =
          [=](const Views& in, const Call& call) {
            return std::vector<Tensor>{moe_topk_gate_backward(
                in[0], in[1], in[2], in[3], factor, options_of<TensorView>(scoring, in), call)};
          },
  };
}

// Every third token is masked.
std::vector<uint8_t> mask_bytes(int64_t tokens) {
  std::vector<uint8_t> mask(static_cast<size_t>(tokens));
  for (size_t i = 0; i < mask.size(); ++i) mask[i] = i % 3 != 1;
  return mask;
}

Case make(const Row& row) {
  std::string id = "tokens=" + std::to_string(row.tokens) +
                   ",experts=" + std::to_string(row.experts) + ",topk=" + std::to_string(row.topk);
  if (row.sequences != kNoAux) id += ",sequences=" + std::to_string(row.sequences);
  if (row.scoring == kSigmoid) id += ",sigmoid";
  if (row.scores != Fill::kScale) id += ",data=" + std::string(name(row.scores));
  if (row.grads != Fill::kNormal) id += ",grads=" + std::string(name(row.grads));
  id += routing_text(row.routing);
  const Dims slots{row.tokens, row.topk};
  std::vector<Input> inputs = {{"scores", {{row.tokens, row.experts}, DType::kF32}, row.scores},
                               routed("topk_idx", row.tokens, row.topk, row.experts, row.routing),
                               {"topk_weights", {slots, DType::kF32}, row.grads},
                               {"grad_topk_weights", {slots, DType::kF32}, row.grads}};
  if (row.sequences != kNoAux) {
    inputs.push_back({"mask", {{row.tokens}, DType::kBool}, Fill::kGiven, mask_bytes(row.tokens)});
    inputs.push_back({"grad_scores_sum", {{row.sequences, row.experts}, DType::kF32}});
  }
  Case test = make(id, std::move(inputs), row.scoring, 2.5f);
  if (row.routing == Routing::kBad) {
    test.fault =
        "[moe_topk_gate_backward] topk_idx must name an element, got an index out of "
        "range at row 2";
  }
  test.bench = row.bench;
  return test;
}

// By hand, of rows of four scores whose derivative is exact.
struct Worked {
  std::initializer_list<float> scores;
  std::initializer_list<int64_t> topk_idx;
  std::initializer_list<float> topk_weights;
  std::initializer_list<float> grads;
  float factor;
  std::initializer_list<float> grad_logits;
  std::initializer_list<uint8_t> mask = {};
  std::initializer_list<float> grad_scores_sum = {};
  ScoringFunc scoring = kSigmoid;
};

Case worked(const std::string& id, const Worked& given, const char* fault = "") {
  constexpr int64_t kExperts = 4;
  const auto tokens = static_cast<int64_t>(given.scores.size()) / kExperts;
  const Dims slots{tokens, static_cast<int64_t>(given.topk_idx.size()) / tokens};
  std::vector<Input> inputs = {
      {"scores", {{tokens, kExperts}, DType::kF32}, Fill::kGiven, bytes_of(given.scores)},
      {"topk_idx", {slots, DType::kI64}, Fill::kGiven, bytes_of(given.topk_idx)},
      {"topk_weights", {slots, DType::kF32}, Fill::kGiven, bytes_of(given.topk_weights)},
      {"grad_topk_weights", {slots, DType::kF32}, Fill::kGiven, bytes_of(given.grads)}};
  if (given.mask.size() > 0) {
    const auto sequences = static_cast<int64_t>(given.grad_scores_sum.size()) / kExperts;
    inputs.push_back({"mask", {{tokens}, DType::kBool}, Fill::kGiven, bytes_of(given.mask)});
    inputs.push_back({"grad_scores_sum",
                      {{sequences, kExperts}, DType::kF32},
                      Fill::kGiven,
                      bytes_of(given.grad_scores_sum)});
  }
  Case test = make(id, std::move(inputs), given.scoring, given.factor);
  test.expected = {bytes_of(given.grad_logits)};
  test.fault = fault;
  return test;
}

// A good call but for one thing.
struct Bad {
  TensorSpec scores{{8, 64}, DType::kF32};
  TensorSpec topk_idx{{8, 6}, DType::kI64};
  TensorSpec topk_weights{{8, 6}, DType::kF32};
  TensorSpec grads{{8, 6}, DType::kF32};
  std::vector<Input> others{};
  float factor = 1.0f;
};

Case bad(const std::string& id, const Bad& given, const std::string& error) {
  std::vector<Input> inputs = {{"scores", given.scores},
                               {"topk_idx", given.topk_idx},
                               {"topk_weights", given.topk_weights},
                               {"grad_topk_weights", given.grads}};
  inputs.insert(inputs.end(), given.others.begin(), given.others.end());
  Case test = make("bad-" + id, std::move(inputs), kSqrtSoftplus, given.factor);
  test.error = "[moe_topk_gate_backward] " + error;
  return test;
}

}  // namespace

OpCases moe_topk_gate_backward() {
  constexpr float kInf = __builtin_inff();
  const float nan = __builtin_bit_cast(float, 0x7FFFFFFF);
  constexpr float kBig = 16777216;  // 2^24: one more is lost
  const Input mask{"mask", {{8}, DType::kBool}};
  const Input sums{"grad_scores_sum", {{2, 64}, DType::kF32}};
  OpCases op{"moe_topk_gate_backward", {}};
  for (const Row& row : kRows) op.cases.push_back(make(row));
  for (const Row& row : kBench) op.cases.push_back(make(row));
  const std::vector<Case> others = {
      // D = 1, d = 3, delta = -1 and 3
      worked(
          "worked",
          {{0.5f, 0.25f, 0.5f, 0.75f}, {3, 1}, {1.5f, 0.5f}, {1, 3}, 2, {0, 0.5625f, 0, -0.1875f}}),
      // sum = 2, dot = 10, A = -0.5, 1.5, -2.5, 1.5; a masked token has the other term alone.
      worked("worked-aux", {{0.5f, 0.25f, 0.5f, 0.75f, 0.5f, 0.25f, 0.5f, 0.75f},
                            {3, 1, 3, 1},
                            {1.5f, 0.5f, 1.5f, 0.5f},
                            {1, 3, 1, 3},
                            2,
                            {-0.125f, 0.84375f, -0.625f, 0.09375f, 0, 0.5625f, 0, -0.1875f},
                            {1, 0},
                            {4, 8, 0, 8}}),
      // The sequence of a token: two of two tokens each, without routed experts.
      worked("sequences", {{0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f,
                            0.5f, 0.5f, 0.5f, 0.5f},
                           {-1, -1, -1, -1},
                           {0, 0, 0, 0},
                           {0, 0, 0, 0},
                           1,
                           {0.375f, -0.125f, -0.125f, -0.125f, 0.375f, -0.125f, -0.125f, -0.125f,
                            -0.125f, -0.125f, -0.125f, 0.375f, -0.125f, -0.125f, -0.125f, 0.375f},
                           {1, 1, 1, 1},
                           {4, 0, 0, 0, 0, 0, 0, 4}}),
      // Rising slots from +0: 2^24 + 1 = 2^24, - 2^24, + 1.
      worked("duplicates", {{0.25f, 0.5f, 0.5f, 0.5f},
                            {0, 0, 0, 0},
                            {0, 0, 0, 0},
                            {kBig, 1, -kBig, 1},
                            1,
                            {0.1875f, 0, 0, 0}}),
      // Neither weight nor gradient of an index that is none is looked at, here and in sums.
      worked("invalid-slots", {{0.5f, 0.25f, 0.5f, 0.75f},
                               {3, -1, 1, -1},
                               {1.5f, nan, 0.5f, kInf},
                               {1, 1, 3, nan},
                               2,
                               {0, 0.5625f, 0, -0.1875f}}),
      // Scores of other experts are not looked at either.
      worked(
          "other-scores",
          {{nan, 0.25f, kInf, 0.75f}, {3, 1}, {1.5f, 0.5f}, {1, 3}, 2, {0, 0.5625f, 0, -0.1875f}}),
      worked("out-of-range",
             {{0.5f, 0.25f, 0.5f, 0.75f, 0.5f, 0.25f, 0.5f, 0.75f, 0.5f, 0.25f, 0.5f, 0.75f, 0.5f,
               0.25f, 0.5f, 0.75f},
              {3, 1, 4, 1, -2, 1, INT64_MAX, int64_t{1} << 32},
              {1.5f, 0.5f, nan, 0, kInf, 0.5f, 1, 1},
              {1, 3, nan, 0.25f, kInf, 0.25f, 1, 1},
              2,
              {0, 0.5625f, 0, -0.1875f, 0, 0.375f, 0, 0, 0, 0.28125f, 0, 0, 0, 0, 0, 0}},
             "[moe_topk_gate_backward] topk_idx must name an element, got an index out of range "
             "at row 1"),
      // A row of zeros has no dense term, whatever H is; the epsilon alone divides the other one.
      worked("zero-scores", {{0, 0, 0, 0, 0, 0, 0, 0},
                             {-1, -1, 2, 0},
                             {0, 0, 0.5f, 0.5f},
                             {0, 0, 1, 2},
                             1,
                             {0, 0, 0, 0, 0, 0, -0.0f, 0},
                             {1, 1},
                             {kInf, 1, nan, -1},
                             kSqrtSoftplus}),
      // NaN stays, canonical, where it has a part.
      worked("nan", {{0.5f, 0.25f, 0.5f, 0.75f}, {3, 1}, {nan, 0.5f}, {1, 3}, 2, {0, nan, 0, nan}}),
      bad("rank", {.scores = {{64}, DType::kF32}}, "scores must have 2 dimensions, got (64)"),
      bad("dtype", {.scores = {{8, 64}, DType::kBF16}}, "scores must have dtype f32, got bf16"),
      bad("stride", {.scores = {{8, 64}, {72, 1}, DType::kF32}},
          "scores must be contiguous, got strides (72, 1) for shape (8, 64)"),
      bad("no-experts", {.scores = {{8, 0}, DType::kF32}},
          "num_experts must be in 1..1073741824, got 0"),
      bad("no-topk", {.topk_idx = {{8, 0}, DType::kI64}}, "num_topk must be in 1..32, got 0"),
      bad("topk-above-32", {.topk_idx = {{8, 33}, DType::kI64}},
          "num_topk must be in 1..32, got 33"),
      bad("topk-above-experts", {.scores = {{8, 5}, DType::kF32}},
          "num_topk must be in 1..5, got 6"),
      bad("idx-dtype", {.topk_idx = {{8, 6}, DType::kI32}},
          "topk_idx must have dtype i64, got i32"),
      bad("idx-slice", {.topk_idx = {{8, 6}, {8, 1}, DType::kI64}},
          "topk_idx must be contiguous, got strides (8, 1) for shape (8, 6)"),
      bad("idx-rows", {.topk_idx = {{7, 6}, DType::kI64}},
          "topk_idx must have shape (8, 6), got (7, 6)"),
      bad("weights-shape", {.topk_weights = {{8, 8}, DType::kF32}},
          "topk_weights must have shape (8, 6), got (8, 8)"),
      bad("grads-dtype", {.grads = {{8, 6}, DType::kBF16}},
          "grad_topk_weights must have dtype f32, got bf16"),
      bad("factor", {.factor = kInf}, "routed_scaling_factor must be finite, got Inf"),
      bad("factor-nan", {.factor = nan}, "routed_scaling_factor must be finite, got NaN"),
      bad("mask-alone", {.others = {mask}},
          "mask and grad_scores_sum must be given together, got mask alone"),
      bad("sums-alone", {.others = {sums}},
          "mask and grad_scores_sum must be given together, got grad_scores_sum alone"),
      bad("mask-shape", {.others = {{"mask", {{4}, DType::kBool}}, sums}},
          "mask must have shape (8), got (4)"),
      bad("sums-rank", {.others = {mask, {"grad_scores_sum", {{64}, DType::kF32}}}},
          "grad_scores_sum must have 2 dimensions, got (64)"),
      bad("sums-experts", {.others = {mask, {"grad_scores_sum", {{2, 63}, DType::kF32}}}},
          "grad_scores_sum must have shape (2, 64), got (2, 63)"),
      bad("sequences", {.others = {mask, {"grad_scores_sum", {{3, 64}, DType::kF32}}}},
          "num_tokens must be a multiple of 3, got 8"),
      bad("no-sequences", {.others = {mask, {"grad_scores_sum", {{0, 64}, DType::kF32}}}},
          "num_sequences must be in 1..8, got 0"),
      bad("more-sequences-than-tokens",
          {.others = {mask, {"grad_scores_sum", {{9, 64}, DType::kF32}}}},
          "num_sequences must be in 1..8, got 9"),
  };
  op.cases.insert(op.cases.end(), others.begin(), others.end());
  return op;
}

}  // namespace tilekernels::cases
