// normalize_weight: cases as data.
#include "cases/case.h"
#include "tilekernels/moe.h"

namespace tilekernels::cases {
namespace {

struct Row {
  int64_t tokens;
  int64_t topk;
  Fill fill = Fill::kScale;
  bool bench = false;
};

constexpr Row kRows[] = {
    {0, 8},
    {1, 1},
    {1, 8},
    {7, 1},
    {9, 2},
    {5, 3},
    {6, 4},
    {33, 6},
    {129, 8},
    {3, 9},
    {65, 16},
    {5, 17},
    {130, 32},
    {31, 31},
    {700, 8},
    {257, 6},
    {67, 24},
    {16, 8, Fill::kEdge},
    {16, 32, Fill::kEdge},
    {32, 6, Fill::kEdge},
    {5, 8, Fill::kZero},
    {6, 3, Fill::kZero},
    {40, 8, Fill::kNonFinite},
    {20, 13, Fill::kNonFinite},
    {64, 8, Fill::kBits},
    {31, 7, Fill::kBits},
    {17, 32, Fill::kBits},
    {128, 8, Fill::kScale, true},
    {4096, 8, Fill::kScale, true},
    {16384, 8, Fill::kScale, true},
    {16384, 6, Fill::kScale, true},
    {1048576, 8, Fill::kScale, true},
};

Case make(const std::string& id, Input topk_weights) {
  return {
      .id = "normalize_weight/" + id,
      .inputs = {std::move(topk_weights)},
      .outputs = {"denominator", "normalized_weights"},
      .spec =
          [](const Specs& in) {
            const NormalizedWeightsSpec spec = normalize_weight_spec(in[0]);
            return Specs{spec.denominator, spec.normalized_weights};
          },
      .out = [](const Views& out, const Views& in,
                const Call& call) { normalize_weight_out(out[0], out[1], in[0], call); },
      .alloc =
          [](const Views& in, const Call& call) {
            const NormalizedWeights normalized = normalize_weight(in[0], call);
            return std::vector<Tensor>{normalized.denominator, normalized.normalized_weights};
          },
  };
}

Case make(const Row& row) {
  const std::string id = "tokens=" + std::to_string(row.tokens) +
                         ",topk=" + std::to_string(row.topk) +
                         (row.fill == Fill::kScale ? "" : ",data=" + std::string(name(row.fill)));
  Case test = make(id, {"topk_weights", {{row.tokens, row.topk}, DType::kF32}, row.fill});
  test.bench = row.bench;
  return test;
}

Case worked(const std::string& id, std::initializer_list<float> weights, int64_t tokens,
            std::initializer_list<float> denominator, std::initializer_list<float> normalized) {
  const int64_t topk = static_cast<int64_t>(weights.size()) / tokens;
  Case test =
      make(id, {"topk_weights", {{tokens, topk}, DType::kF32}, Fill::kGiven, bytes_of(weights)});
  test.expected = {bytes_of(denominator), bytes_of(normalized)};
  return test;
}

Case bad(const std::string& id, const TensorSpec& topk_weights, const std::string& error) {
  Case test = make("bad-" + id, {"topk_weights", topk_weights});
  test.error = "[normalize_weight] " + error;
  return test;
}

}  // namespace

OpCases normalize_weight() {
  constexpr float kInf = __builtin_inff();
  const float nan = __builtin_bit_cast(float, 0x7FFFFFFF);
  constexpr float kBig = 16777216;  // 2^24: one more is lost
  OpCases op{"normalize_weight", {}};
  for (const Row& row : kRows) op.cases.push_back(make(row));
  const std::vector<Case> others = {
      worked("halves", {1, 3, 2, 6}, 2, {4, 8}, {0.25f, 0.75f, 0.25f, 0.75f}),
      // A row of zeros is divided by the epsilon alone, and the sign of zero is kept.
      worked("zeros", {0.0f, -0.0f}, 1, {1e-20f}, {0.0f, -0.0f}),
      // The tree adds slots 0 and 4, 1 and 5, … first: both ones are lost.
      worked("tree", {kBig, 0, 0, 0, 1, 1, 0, 0}, 1, {kBig},
             {1, 0, 0, 0, 1 / kBig, 1 / kBig, 0, 0}),
      // Here both ones meet before they meet the large weight.
      worked("tree-other-places", {kBig, 1, 0, 0, 0, 1, 0, 0}, 1, {kBig + 2},
             {kBig / (kBig + 2), 1 / (kBig + 2), 0, 0, 0, 1 / (kBig + 2), 0, 0}),
      worked("inf", {1, kInf, 0, 1}, 2, {kInf, 1}, {0, nan, 0, 1}),
      worked("cancelled", {1, -1, 2, -1}, 2, {1e-20f, 1}, {1e20f, -1e20f, 2, -1}),
      bad("rank", {{8}, DType::kF32}, "topk_weights must have 2 dimensions, got (8)"),
      bad("dtype", {{4, 8}, DType::kBF16}, "topk_weights must have dtype f32, got bf16"),
      bad("stride", {{4, 8}, {16, 1}, DType::kF32},
          "topk_weights must be contiguous, got strides (16, 1) for shape (4, 8)"),
      bad("no-topk", {{4, 0}, DType::kF32}, "num_topk must be in 1..32, got 0"),
      bad("topk-above-32", {{4, 33}, DType::kF32}, "num_topk must be in 1..32, got 33"),
  };
  op.cases.insert(op.cases.end(), others.begin(), others.end());
  return op;
}

}  // namespace tilekernels::cases
