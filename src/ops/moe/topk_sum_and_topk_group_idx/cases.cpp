// topk_sum_and_topk_group_idx: cases as data.
#include "cases/case.h"
#include "tilekernels/moe.h"

namespace tilekernels::cases {
namespace {

struct Row {
  int64_t tokens;
  int64_t groups;
  int64_t group_size;
  int sum;
  int topk_groups;
  Fill fill = Fill::kNormal;
  const char* fault = "";
  bool bench = false;
};

constexpr char kFirstRowFault[] =
    "[topk_sum_and_topk_group_idx] scores must be finite, got NaN or Inf at row 0";

constexpr Row kRows[] = {
    {0, 8, 32, 2, 4},
    {1, 1, 1, 1, 1},
    {1, 8, 32, 2, 4},
    {3, 4, 18, 1, 2},
    {33, 12, 6, 2, 4},
    {5, 32, 3, 2, 32},
    {67, 8, 32, 2, 4},
    {130, 16, 16, 2, 2},
    {9, 31, 9, 1, 5},
    {6, 7, 33, 2, 3},
    {3, 2, 1500, 2, 1},
    {4, 32, 300, 2, 8},
    {129, 4, 64, 2, 4},
    {64, 8, 32, 2, 4, Fill::kTies},
    {40, 8, 4, 2, 8, Fill::kTies},
    {5, 8, 32, 1, 8, Fill::kZero},
    {5, 8, 32, 2, 8, Fill::kZero},
    {16, 8, 16, 2, 4, Fill::kEdge},
    {40, 8, 12, 2, 4, Fill::kNonFinite, kFirstRowFault},
    {20, 8, 1, 1, 8, Fill::kNonFinite,
     "[topk_sum_and_topk_group_idx] scores must be finite, got NaN or Inf at row 4"},
    // Many rows, a few of them a warp on CUDA
    {1101, 8, 32, 2, 4, Fill::kTies},
    {1101, 8, 32, 1, 3, Fill::kEdge},
    {1102, 4, 64, 2, 4, Fill::kTies},
    {1103, 16, 16, 2, 5, Fill::kTies},
    {1060, 32, 8, 2, 8, Fill::kTies},
    {1059, 32, 4, 1, 4, Fill::kTies},
    {1061, 1, 128, 2, 1},
    {1058, 8, 16, 2, 8, Fill::kNonFinite, kFirstRowFault},
    {128, 8, 32, 2, 4, Fill::kNormal, "", true},
    {4096, 8, 32, 2, 4, Fill::kNormal, "", true},
    {16384, 8, 32, 2, 4, Fill::kNormal, "", true},
};

Case make(const std::string& id, Input scores, int sum, int topk_groups) {
  return {
      .id = "topk_sum_and_topk_group_idx/" + id,
      .inputs = {std::move(scores)},
      .outputs = {"group_idx"},
      .spec =
          [=](const Specs& in) {
            return Specs{topk_sum_and_topk_group_idx_spec(in[0], sum, topk_groups)};
          },
      .out =
          [=](const Views& out, const Views& in, const Call& call) {
            topk_sum_and_topk_group_idx_out(out[0], in[0], sum, topk_groups, call);
          },
      .alloc =
          [=](const Views& in, const Call& call) {
            return std::vector<Tensor>{topk_sum_and_topk_group_idx(in[0], sum, topk_groups, call)};
          },
  };
}

Case make(const Row& row) {
  const std::string id = "tokens=" + std::to_string(row.tokens) +
                         ",groups=" + std::to_string(row.groups) + "x" +
                         std::to_string(row.group_size) + ",sum=" + std::to_string(row.sum) +
                         ",topk_groups=" + std::to_string(row.topk_groups) +
                         (row.fill == Fill::kNormal ? "" : ",data=" + std::string(name(row.fill)));
  Case test =
      make(id, {"scores", {{row.tokens, row.groups, row.group_size}, DType::kF32}, row.fill},
           row.sum, row.topk_groups);
  test.fault = row.fault;
  test.bench = row.bench;
  return test;
}

Case worked(const std::string& id, std::initializer_list<float> scores, int64_t groups, int sum,
            std::initializer_list<int64_t> group_idx, const char* fault = "") {
  const int64_t size = static_cast<int64_t>(scores.size()) / groups;
  Case test = make(id, {"scores", {{1, groups, size}, DType::kF32}, Fill::kGiven, bytes_of(scores)},
                   sum, static_cast<int>(group_idx.size()));
  test.expected = {bytes_of(group_idx)};
  test.fault = fault;
  return test;
}

Case bad(const std::string& id, const TensorSpec& scores, int sum, int topk_groups,
         const std::string& error) {
  Case test = make("bad-" + id, {"scores", scores}, sum, topk_groups);
  test.error = "[topk_sum_and_topk_group_idx] " + error;
  return test;
}

}  // namespace

OpCases topk_sum_and_topk_group_idx() {
  constexpr float kInf = __builtin_inff();
  constexpr float kNan = __builtin_nanf("");
  const TensorSpec scores({4, 8, 4}, DType::kF32);
  OpCases op{"topk_sum_and_topk_group_idx", {}};
  for (const Row& row : kRows) op.cases.push_back(make(row));
  const std::vector<Case> others = {
      worked("best-alone", {5, 0, 4, 4, 3, 9}, 3, 1, {2, 0}),
      worked("best-two", {5, 0, 4, 4, 3, 9}, 3, 2, {2, 1}),
      // Equal sums by ascending group; -0 equals +0.
      worked("ties", {1, 3, 2, 2, 4, 0, 1, 2}, 4, 2, {0, 1, 2, 3}),
      worked("signed-zeros", {-0.0f, -0.0f, 0.0f, -0.0f, 0.0f, 0.0f}, 3, 2, {0, 1, 2}),
      // A sum that overflows is Inf and no fault.
      worked("overflow", {1, 1, 3e38f, 3e38f, 3.2e38f, 0}, 3, 2, {1, 2, 0}),
      worked("nan-ranks-last", {kNan, kNan, -kInf, 0, kNan, 5, 1, 2}, 4, 2, {3, 1, 0, 2},
             kFirstRowFault),
      bad("rank", {{4, 8}, DType::kF32}, 1, 1, "scores must have 3 dimensions, got (4, 8)"),
      bad("dtype", {{4, 8, 4}, DType::kBF16}, 1, 1, "scores must have dtype f32, got bf16"),
      bad("groups-33", {{4, 33, 4}, DType::kF32}, 1, 1, "num_groups must be in 1..32, got 33"),
      bad("no-scores", {{4, 8, 0}, DType::kF32}, 1, 1, "group_size must be in 1..67108863, got 0"),
      bad("sum-3", scores, 3, 1, "num_topk_sum must be in 1..2, got 3"),
      bad("sum-0", scores, 0, 1, "num_topk_sum must be in 1..2, got 0"),
      bad("sum-above-size", {{4, 8, 1}, DType::kF32}, 2, 1, "num_topk_sum must be in 1..1, got 2"),
      bad("topk-groups-9", scores, 1, 9, "num_topk_groups must be in 1..8, got 9"),
      bad("topk-groups-0", scores, 1, 0, "num_topk_groups must be in 1..8, got 0"),
  };
  op.cases.insert(op.cases.end(), others.begin(), others.end());
  return op;
}

}  // namespace tilekernels::cases
