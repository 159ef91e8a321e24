// reduce_fused: cases as data.
#include "cases/case.h"
#include "ops/moe/fused_cases.h"
#include "tilekernels/moe.h"

namespace tilekernels::cases {
namespace {

constexpr DType kBF16 = DType::kBF16;
constexpr DType kF16 = DType::kF16;
constexpr DType kF32 = DType::kF32;
constexpr DType kE4M3 = DType::kE4M3;

/// Which of the optional inputs there are.
struct With {
  bool weights = false;
  bool x_sf = false;
  bool sf = false;
  bool to_e4m3 = false;
};

struct Row {
  int64_t tokens;
  int topk;
  int experts;
  int64_t hidden;
  DType x = kBF16;
  With with{};
  Fill fill = Fill::kNormal;
  int64_t gap = 0;  // elements between rows
  bool bench = false;
};

constexpr With kPlain{};
constexpr With kWeights{true};
constexpr With kAll{true, true, true, true};
constexpr With kToE4M3{false, false, false, true};

constexpr Row kRows[] = {
    // Extents, from nothing to odd
    {0, 6, 8, 256, kBF16, kWeights},
    {4, 2, 8, 0},
    {1, 1, 1, 1, kF32},
    {3, 2, 4, 7, kBF16, kWeights},
    {5, 3, 8, 33, kF32, kWeights},
    {4, 8, 16, 13, kF16, {true, true}},
    {9, 32, 64, 24, kBF16, kWeights},
    {33, 6, 72, 576, kBF16, kWeights},
    {7, 9, 16, 1000, kBF16, {true, true}, Fill::kNormal, 3},
    {6, 3, 6, 4100, kF32, {false, true}, Fill::kNormal, 4},
    {3, 2, 4, 5000, kBF16, kWeights},
    {70, 4, 8, 256, kF16, kPlain},
    {70, 1, 4, 8, kF16, kPlain},
    // e4m3
    {6, 4, 8, 256, kBF16, kToE4M3},
    {6, 4, 8, 264, kBF16, kAll, Fill::kTies},
    {6, 4, 8, 100, kF32, kAll},
    {5, 3, 8, 77, kF16, {true, false, true, true}},
    {6, 4, 8, 272, kE4M3, {true, true, true}, Fill::kBits},
    {5, 3, 8, 63, kE4M3, {false, true, false, true}, Fill::kBits},
    // All values
    {16, 3, 8, 96, kBF16, kWeights, Fill::kEdge},
    {16, 3, 8, 96, kF32, {true, true}, Fill::kEdge},
    {9, 3, 8, 96, kF32, kPlain, Fill::kBits},
    {9, 3, 8, 96, kBF16, kPlain, Fill::kBits},
    {9, 3, 8, 96, kF16, kWeights, Fill::kBits},
    {9, 3, 8, 96, kF32, kToE4M3, Fill::kEdge},
    {9, 3, 8, 96, kF32, kToE4M3, Fill::kBits},
    {9, 3, 8, 96, kBF16, kWeights, Fill::kNonFinite},
    {1, 8, 256, 7168, kBF16, kWeights, Fill::kNormal, 0, true},
    {128, 8, 256, 7168, kBF16, kWeights, Fill::kNormal, 0, true},
    {4096, 8, 256, 7168, kBF16, kWeights, Fill::kNormal, 0, true},
    {4096, 8, 256, 7168, kBF16, kAll, Fill::kNormal, 0, true},
    {4096, 6, 256, 7168, kF32, kWeights, Fill::kNormal, 0, true},
};

template <class T, class Inputs>
ReduceFusedOptionsOf<T> options_of(const With& with, const Inputs& inputs) {
  ReduceFusedOptionsOf<T> options;
  size_t next = 2;
  if (with.weights) options.topk_weights = inputs[next++];
  if (with.x_sf) options.x_sf = inputs[next++];
  if (with.sf) options.sf = inputs[next++];
  if (with.to_e4m3) options.fmt = kE4M3;
  return options;
}

Case make(const std::string& id, std::vector<Input> inputs, const With& with) {
  return {
      .id = "reduce_fused/" + id,
      .inputs = std::move(inputs),
      .outputs = {"out"},
      .spec =
          [=](const Specs& in) {
            return Specs{reduce_fused_spec(in[0], in[1], options_of<TensorSpec>(with, in))};
          },
      .out =
          [=](const Views& out, const Views& in, const Call& call) {
            reduce_fused_out(out[0], in[0], in[1], options_of<TensorView>(with, in), call);
          },
      .alloc =
          [=](const Views& in, const Call& call) {
            return std::vector<Tensor>{
                reduce_fused(in[0], in[1], options_of<TensorView>(with, in), call)};
          },
  };
}

Case make(const Row& row) {
  const With& with = row.with;
  std::string id = "tokens=" + std::to_string(row.tokens) + ",topk=" + std::to_string(row.topk) +
                   ",experts=" + std::to_string(row.experts) +
                   ",hidden=" + std::to_string(row.hidden) + ",x=" + std::string(name(row.x));
  if (with.weights) id += ",weights";
  if (with.x_sf) id += ",x_sf";
  if (with.sf) id += ",sf";
  if (with.to_e4m3) id += ",out=e4m3";
  if (row.fill != Fill::kNormal) id += ",data=" + std::string(name(row.fill));
  if (row.gap > 0) id += ",gap=" + std::to_string(row.gap);
  const Positions positions = routing_positions(row.tokens, row.topk, row.experts, 1, 2);
  const auto expanded = static_cast<int64_t>(positions.pos_to_expert.size());
  std::vector<Input> inputs = {
      {"x", {{expanded, row.hidden}, {row.hidden + row.gap, 1}, row.x}, row.fill},
      {"token_topk_to_pos",
       {{row.tokens, row.topk}, DType::kI32},
       Fill::kGiven,
       given_bytes(positions.token_topk_to_pos)}};
  if (with.weights) inputs.push_back({"topk_weights", {{row.tokens, row.topk}, kF32}});
  if (with.x_sf) inputs.push_back({"x_sf", {{expanded}, kF32}, Fill::kScale});
  if (with.sf) inputs.push_back({"sf", {{1}, kF32}, Fill::kScale});
  Case test = make(id, std::move(inputs), with);
  test.bench = row.bench;
  return test;
}

// Rows of two columns; positions of two entries a token.
Case worked(const std::string& id, std::initializer_list<float> x,
            std::initializer_list<int32_t> positions, std::initializer_list<float> weights,
            std::vector<uint8_t> out, bool to_e4m3 = false, const char* fault = "") {
  const auto rows = static_cast<int64_t>(x.size()) / 2;
  const auto tokens = static_cast<int64_t>(positions.size()) / 2;
  Case test =
      make(id,
           {{"x", {{rows, 2}, kF32}, Fill::kGiven, bytes_of(x)},
            {"token_topk_to_pos", {{tokens, 2}, DType::kI32}, Fill::kGiven, bytes_of(positions)},
            {"topk_weights", {{tokens, 2}, kF32}, Fill::kGiven, bytes_of(weights)}},
           {true, false, false, to_e4m3});
  test.expected = {std::move(out)};
  test.fault = fault;
  return test;
}

Case bad(const std::string& id, const TensorSpec& x, const TensorSpec& token_topk_to_pos,
         std::vector<Input> others, const With& with, const std::string& error) {
  std::vector<Input> inputs = {{"x", x}, {"token_topk_to_pos", token_topk_to_pos}};
  inputs.insert(inputs.end(), others.begin(), others.end());
  Case test = make("bad-" + id, std::move(inputs), with);
  test.error = "[reduce_fused] " + error;
  return test;
}

}  // namespace

OpCases reduce_fused() {
  OpCases op{"reduce_fused", {}};
  for (const Row& row : kRows) op.cases.push_back(make(row));
  const TensorSpec x({8, 64}, kBF16);
  const TensorSpec places({4, 2}, DType::kI32);
  const Input weights{"topk_weights", {{4, 2}, kF32}};
  const std::vector<Case> others = {
      worked("worked", {1, 2, 10, -20, 0.5f, 0}, {2, 0, -1, 1, -1, -1}, {2, 3, 9, 0.5f, 7, 7},
             bytes_of<float>({4, 6, 5, -10, 0, 0})),
      // The product is not rounded: (1 + 2^-12)^2 - 1 - 2^-11 = 2^-24.
      worked("fused", {0x1.002p0f, 1, 1, 1}, {1, 0}, {-0x1.002p0f, 0x1.001p0f},
             bytes_of<float>(
                 {__builtin_fmaf(0x1.002p0f, 0x1.001p0f, -0x1.002p0f), 0x1.001p0f - 0x1.002p0f})),
      worked("saturates", {448, -464, 465, 1e30f, -3e38f, __builtin_inff()}, {0, -1, 1, -1, 2, -1},
             {1, 0, 1, 0, 10, 0}, {0x7E, 0xFE, 0x7E, 0x7E, 0xFE, 0x7E}, true),
      worked("out-of-range", {1, 2, 3, 4}, {0, 1, 2, 0, -5, 2147483647}, {1, 1, 1, 1, 1, 1},
             bytes_of<float>({4, 6, 1, 2, 0, 0}), false,
             "[reduce_fused] token_topk_to_pos must lie in its table, got a position out of range "
             "at row 1"),
      bad("rank", {{64}, kBF16}, places, {}, kPlain, "x must have 2 dimensions, got (64)"),
      bad("dtype", {{8, 64}, DType::kI8}, places, {}, kPlain,
          "x must have dtype f32, bf16, f16 or e4m3, got i8"),
      bad("hidden", {{8, (1 << 30) + 1}, DType::kE4M3}, places, {}, kPlain,
          "hidden must be in 0..1073741824, got 1073741825"),
      bad("columns", {{8, 64}, {1, 8}, kBF16}, places, {}, kPlain,
          "x must have column stride 1, got strides (1, 8)"),
      bad("positions-dtype", x, {{4, 2}, DType::kI64}, {}, kPlain,
          "token_topk_to_pos must have dtype i32, got i64"),
      bad("topk", x, {{4, 33}, DType::kI32}, {}, kPlain, "num_topk must be in 1..32, got 33"),
      bad("weights-dtype", x, places, {{"topk_weights", {{4, 2}, kBF16}}}, kWeights,
          "topk_weights must have dtype f32, got bf16"),
      bad("weights-shape", x, places, {{"topk_weights", {{4, 3}, kF32}}}, kWeights,
          "topk_weights must have shape (4, 2), got (4, 3)"),
      bad("x-sf-shape", x, places, {weights, {"x_sf", {{4}, kF32}}}, {true, true},
          "x_sf must have shape (8), got (4)"),
      bad("sf-alone", x, places, {weights, {"sf", {{1}, kF32}}}, {true, false, true},
          "sf must come with an output of e4m3, got bf16"),
      bad("sf-shape", x, places, {weights, {"sf", {{2}, kF32}}}, {true, false, true, true},
          "sf must have shape (1), got (2)"),
  };
  op.cases.insert(op.cases.end(), others.begin(), others.end());
  return op;
}

}  // namespace tilekernels::cases
