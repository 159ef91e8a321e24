// aux_fi: cases as data.
#include "cases/case.h"
#include "ops/moe/index_cases.h"
#include "tilekernels/moe.h"

namespace tilekernels::cases {
namespace {

struct Row {
  int64_t tokens;
  int64_t topk;
  int experts;
  int aux_topk;
  bool bench = false;
};

constexpr Row kRows[] = {
    {0, 8, 7, 8},
    {1, 1, 1, 1},
    {1, 8, 8, 8},
    {3, 5, 2, 1},
    {33, 6, 72, 6},
    {65, 8, 256, 8},
    {66, 7, 257, 3},
    {300, 8, 4096, 8},
    {1000, 9, 384, 9},
    {5, 3, 9001, 1},
    {1025, 8, 256, 8},
    {2100, 8, 288, 1},
    {2100, 8, 3000, 8},
    {20000, 7, 60, 7},
    {64, 2, 2147, 2147483647},  // the number of choices needs 64 bits
    {128, 8, 256, 8, true},
    {4096, 8, 256, 8, true},
    {16384, 8, 256, 8, true},
};

Case make(const std::string& id, Input topk_idx, int experts, int aux_topk) {
  return {
      .id = "aux_fi/" + id,
      .inputs = {std::move(topk_idx)},
      .outputs = {"fi"},
      .spec = [=](const Specs& in) { return Specs{aux_fi_spec(in[0], experts, aux_topk)}; },
      .out = [=](const Views& out, const Views& in,
                 const Call& call) { aux_fi_out(out[0], in[0], experts, aux_topk, call); },
      .alloc =
          [=](const Views& in, const Call& call) {
            return std::vector<Tensor>{aux_fi(in[0], experts, aux_topk, call)};
          },
  };
}

Case make(const Row& row) {
  const std::string id =
      "tokens=" + std::to_string(row.tokens) + ",topk=" + std::to_string(row.topk) +
      ",experts=" + std::to_string(row.experts) + ",aux_topk=" + std::to_string(row.aux_topk);
  Case test = make(id, index_input("topk_idx", row.tokens, row.topk, row.experts), row.experts,
                   row.aux_topk);
  test.bench = row.bench;
  return test;
}

Case worked(const std::string& id, std::initializer_list<int64_t> topk_idx, int64_t tokens,
            int aux_topk, std::initializer_list<float> fi, const char* fault = "") {
  const auto topk = static_cast<int64_t>(topk_idx.size()) / tokens;
  Case test =
      make(id, {"topk_idx", {{tokens, topk}, DType::kI64}, Fill::kGiven, bytes_of(topk_idx)},
           static_cast<int>(fi.size()), aux_topk);
  test.expected = {bytes_of(fi)};
  test.fault = fault;
  return test;
}

Case bad(const std::string& id, const TensorSpec& topk_idx, int experts, int aux_topk,
         const std::string& error) {
  Case test = make("bad-" + id, {"topk_idx", topk_idx}, experts, aux_topk);
  test.error = "[aux_fi] " + error;
  return test;
}

}  // namespace

OpCases aux_fi() {
  OpCases op{"aux_fi", {}};
  for (const Row& row : kRows) op.cases.push_back(make(row));
  const std::vector<Case> others = {
      // 4 experts, 3 tokens, 2 routes each: count · 4 / 6.
      worked("shares", {0, 1, 1, -1, 2, 1}, 3, 2, {4.0f / 6, 12.0f / 6, 4.0f / 6, 0}),
      worked("balanced", {0, 1, 1, 0}, 2, 2, {1, 1}),
      worked("fault", {0, 1, 1, 5}, 2, 2, {0.5f, 1},
             "[aux_fi] topk_idx must name an element, got an index out of range at row 1"),
      bad("rank", {{8}, DType::kI64}, 8, 8, "topk_idx must have 2 dimensions, got (8)"),
      bad("dtype", {{4, 8}, DType::kF32}, 8, 8, "topk_idx must have dtype i64, got f32"),
      bad("stride", {{4, 8}, {1, 4}, DType::kI64}, 8, 8,
          "topk_idx must be contiguous, got strides (1, 4) for shape (4, 8)"),
      bad("experts-0", {{4, 8}, DType::kI64}, 0, 8, "num_experts must be in 1..2147483647, got 0"),
      bad("aux-topk-0", {{4, 8}, DType::kI64}, 8, 0,
          "num_aux_topk must be in 1..2147483647, got 0"),
  };
  op.cases.insert(op.cases.end(), others.begin(), others.end());
  return op;
}

}  // namespace tilekernels::cases
