// topk_gate: cases as data.
#include "cases/case.h"
#include "tilekernels/moe.h"

namespace tilekernels::cases {
namespace {

struct Row {
  int64_t tokens;
  int64_t experts;
  int topk;
  Fill fill = Fill::kNormal;
  const char* fault = "";
  bool bench = false;
  bool bench_pdl = false;
};

constexpr char kFirstRowFault[] = "[topk_gate] scores must be finite, got NaN or Inf at row 0";

constexpr Row kRows[] = {
    {0, 64, 6},
    {1, 1, 1},
    {1, 2, 2},
    {1, 256, 8},
    {3, 7, 7},
    {5, 31, 4},
    {5, 33, 1},
    {17, 64, 6},
    {9, 72, 6},
    {5, 100, 9},
    {33, 128, 6},
    {7, 160, 8},
    {129, 256, 8},
    {65, 384, 8},
    {4, 385, 8},
    {3, 512, 32},
    {2, 1000, 10},
    {3, 1152, 8},
    {2, 6150, 16},
    {3, 4096, 32},
    {2, 4097, 8},
    {2, 32, 32},
    {2, 33, 32},
    {700, 16, 6},
    {300, 256, 16},
    {270, 1100, 12},
    {265, 160, 8, Fill::kTies},
    {4300, 24, 5},
    {11, 65, 8},
    {64, 256, 8, Fill::kTies},
    {5, 384, 8, Fill::kZero},
    {31, 72, 32, Fill::kTies},
    {16, 128, 8, Fill::kEdge},
    {40, 96, 8, Fill::kNonFinite, kFirstRowFault},
    {9, 256, 8, Fill::kBits, "[topk_gate] scores must be finite, got NaN or Inf at row 2"},
    {1, 256, 8, Fill::kNormal, "", true},
    {128, 256, 8, Fill::kNormal, "", true, true},
    {4096, 256, 8, Fill::kNormal, "", true, true},
    {16384, 256, 8, Fill::kNormal, "", true},
    {1, 384, 8, Fill::kNormal, "", true},
    {128, 384, 8, Fill::kNormal, "", true},
    {4096, 384, 8, Fill::kNormal, "", true},
    {16384, 384, 8, Fill::kNormal, "", true},
};

std::string data_text(Fill fill) {
  return fill == Fill::kNormal ? "" : ",data=" + std::string(name(fill));
}

Case make(const std::string& id, Input scores, int topk) {
  return {
      .id = "topk_gate/" + id,
      .inputs = {std::move(scores)},
      .outputs = {"topk_idx"},
      .spec = [topk](const Specs& in) { return Specs{topk_gate_spec(in[0], topk)}; },
      .out = [topk](const Views& out, const Views& in,
                    const Call& call) { topk_gate_out(out[0], in[0], topk, call); },
      .alloc = [topk](
                   const Views& in,
                   const Call& call) { return std::vector<Tensor>{topk_gate(in[0], topk, call)}; },
  };
}

Case make(const Row& row) {
  const std::string id = "tokens=" + std::to_string(row.tokens) +
                         ",experts=" + std::to_string(row.experts) +
                         ",topk=" + std::to_string(row.topk) + data_text(row.fill);
  Case test = make(id, {"scores", {{row.tokens, row.experts}, DType::kF32}, row.fill}, row.topk);
  test.fault = row.fault;
  test.bench = row.bench;
  test.bench_pdl = row.bench_pdl;
  return test;
}

Case worked(const std::string& id, std::initializer_list<float> scores, int64_t tokens,
            std::initializer_list<int64_t> ids, const char* fault = "") {
  const auto experts = static_cast<int64_t>(scores.size()) / tokens;
  const int topk = static_cast<int>(static_cast<int64_t>(ids.size()) / tokens);
  Case test =
      make(id, {"scores", {{tokens, experts}, DType::kF32}, Fill::kGiven, bytes_of(scores)}, topk);
  test.expected = {bytes_of(ids)};
  test.fault = fault;
  return test;
}

// Row r has r equal largest scores. They follow each other or, in every second row, lie where the
// same lane of a warp loads them: four of every 128.
Case crowded(int64_t tokens, int64_t experts, int topk) {
  std::vector<float> scores;
  for (int64_t row = 0; row < tokens; ++row) {
    for (int64_t i = 0; i < experts; ++i) scores.push_back(-static_cast<float>(i * 7 % experts));
    float* first = scores.data() + row * experts;
    for (int64_t k = 0; k < row; ++k) {
      const int64_t same_lane = k / 4 * 128 + row % 32 * 4 + k % 4;
      first[(row % 2 == 0 ? row + k : same_lane) % experts] = 1;
    }
  }
  const std::string id =
      "crowded,experts=" + std::to_string(experts) + ",topk=" + std::to_string(topk);
  Input input{"scores", {{tokens, experts}, DType::kF32}, Fill::kGiven};
  input.given = bytes_of(std::span<const float>(scores));
  return make(id, std::move(input), topk);
}

Case bad(const std::string& id, const TensorSpec& scores, int topk, const std::string& error) {
  Case test = make("bad-" + id, {"scores", scores}, topk);
  test.error = "[topk_gate] " + error;
  return test;
}

}  // namespace

OpCases topk_gate() {
  constexpr float kInf = __builtin_inff();
  constexpr float kNan = __builtin_nanf("");
  OpCases op{"topk_gate", {}};
  for (const Row& row : kRows) op.cases.push_back(make(row));
  const std::vector<Case> others = {
      // Ties go to the lower index, and -0 equals +0.
      worked("ties", {5, 1, 5, 5}, 1, {0, 2}),
      worked("signed-zeros", {-0.0f, 0.0f, -1}, 1, {0, 1}),
      crowded(80, 256, 8),
      crowded(70, 1024, 8),
      crowded(40, 384, 20),
      // Faulty rows keep distinct ids in range, the row beside them is right.
      worked("nan-ranks-last", {kNan, 1, -kInf, 2, 3, 2, 1, 0}, 2, {3, 1, 2, 0, 1, 2},
             "[topk_gate] scores must be finite, got NaN or Inf at row 0"),
      worked("all-nan", {0, 1, 2, kNan, kNan, kNan}, 2, {2, 1, 0, 1},
             "[topk_gate] scores must be finite, got NaN or Inf at row 1"),
      worked("all-minus-inf", {-kInf, -kInf, -kInf}, 1, {0, 1, 2},
             "[topk_gate] scores must be finite, got NaN or Inf at row 0"),
      bad("rank", {{256}, DType::kF32}, 8, "scores must have 2 dimensions, got (256)"),
      bad("dtype", {{4, 256}, DType::kBF16}, 8, "scores must have dtype f32, got bf16"),
      bad("stride", {{4, 256}, {512, 1}, DType::kF32}, 8,
          "scores must be contiguous, got strides (512, 1) for shape (4, 256)"),
      bad("transposed", {{4, 256}, {1, 4}, DType::kF32}, 8,
          "scores must be contiguous, got strides (1, 4) for shape (4, 256)"),
      bad("no-experts", {{4, 0}, DType::kF32}, 1, "num_experts must be in 1..2147483647, got 0"),
      bad("topk-0", {{4, 16}, DType::kF32}, 0, "num_topk must be in 1..16, got 0"),
      bad("topk-negative", {{4, 16}, DType::kF32}, -1, "num_topk must be in 1..16, got -1"),
      bad("topk-above-experts", {{4, 16}, DType::kF32}, 17, "num_topk must be in 1..16, got 17"),
      bad("topk-above-32", {{4, 256}, DType::kF32}, 33, "num_topk must be in 1..32, got 33"),
      bad("topk-empty", {{0, 16}, DType::kF32}, 17, "num_topk must be in 1..16, got 17"),
  };
  op.cases.insert(op.cases.end(), others.begin(), others.end());
  return op;
}

}  // namespace tilekernels::cases
