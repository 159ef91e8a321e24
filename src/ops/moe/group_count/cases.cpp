// group_count: cases as data.
#include "cases/case.h"
#include "ops/moe/index_cases.h"
#include "tilekernels/moe.h"

namespace tilekernels::cases {
namespace {

struct Row {
  int64_t tokens;
  int64_t topk;
  int groups;
  bool bench = false;
};

constexpr Row kRows[] = {
    {0, 8, 7},
    {1, 1, 1},
    {1, 8, 8},
    {3, 5, 2},
    {33, 6, 16},
    {129, 8, 72},
    {64, 8, 255},
    {65, 8, 256},
    {66, 7, 257},
    {300, 8, 4096},
    {1000, 9, 384},
    {2, 3, 8193},
    {40, 8, 20000},
    {1025, 8, 256},
    {2100, 8, 288},
    {2100, 8, 1500},
    {70000, 8, 33},
    {66000, 8, 4096},
    {128, 8, 256, true},
    {4096, 8, 256, true},
    {16384, 8, 256, true},
    {131072, 8, 256, true},
};

Case make(const std::string& id, Input group_idx, int groups) {
  return {
      .id = "group_count/" + id,
      .inputs = {std::move(group_idx)},
      .outputs = {"count"},
      .spec = [groups](const Specs& in) { return Specs{group_count_spec(in[0], groups)}; },
      .out = [groups](const Views& out, const Views& in,
                      const Call& call) { group_count_out(out[0], in[0], groups, call); },
      .alloc =
          [groups](const Views& in, const Call& call) {
            return std::vector<Tensor>{group_count(in[0], groups, call)};
          },
  };
}

Case make(const Row& row) {
  const std::string id = "tokens=" + std::to_string(row.tokens) +
                         ",topk=" + std::to_string(row.topk) +
                         ",groups=" + std::to_string(row.groups);
  Case test = make(id, index_input("group_idx", row.tokens, row.topk, row.groups), row.groups);
  test.bench = row.bench;
  return test;
}

Case worked(const std::string& id, std::initializer_list<int64_t> group_idx, int64_t tokens,
            std::initializer_list<int32_t> count, const char* fault = "") {
  const auto topk = static_cast<int64_t>(group_idx.size()) / tokens;
  Case test =
      make(id, {"group_idx", {{tokens, topk}, DType::kI64}, Fill::kGiven, bytes_of(group_idx)},
           static_cast<int>(count.size()));
  test.expected = {bytes_of(count)};
  test.fault = fault;
  return test;
}

Case bad(const std::string& id, const TensorSpec& group_idx, int groups, const std::string& error) {
  Case test = make("bad-" + id, {"group_idx", group_idx}, groups);
  test.error = "[group_count] " + error;
  return test;
}

}  // namespace

OpCases group_count() {
  constexpr int64_t kFar = int64_t{1} << 32;
  OpCases op{"group_count", {}};
  for (const Row& row : kRows) op.cases.push_back(make(row));
  // Faults in rows that lie in several ranges, tiles and blocks
  Case many = make(
      "many-faults",
      index_input("group_idx", 3000, 8, 256, {{23000, 256}, {17001, -2}, {20000, kFar + 3}}), 256);
  many.fault =
      "[group_count] group_idx must name an element, got an index out of range at row 2125";
  op.cases.push_back(std::move(many));
  const std::vector<Case> others = {
      worked("counts", {0, 1, 1, -1, 2, 1}, 3, {1, 3, 1, 0}),
      worked("none", {-1, -1}, 1, {0, 0}),
      // Indices out of range are not counted, and the lowest row is reported.
      worked("too-large", {0, 1, 2, 0, 1, 0}, 3, {3, 2},
             "[group_count] group_idx must name an element, got an index out of range at row 1"),
      worked("below-minus-one", {1, 1, -2, 1}, 2, {0, 3},
             "[group_count] group_idx must name an element, got an index out of range at row 1"),
      worked("wide-indices", {kFar, kFar + 1, -kFar, 1, 0x80000000, -kFar + 1, 0, 1}, 2, {1, 2},
             "[group_count] group_idx must name an element, got an index out of range at row 0"),
      bad("rank", {{8}, DType::kI64}, 8, "group_idx must have 2 dimensions, got (8)"),
      bad("dtype", {{4, 8}, DType::kI32}, 8, "group_idx must have dtype i64, got i32"),
      bad("stride", {{4, 8}, {16, 1}, DType::kI64}, 8,
          "group_idx must be contiguous, got strides (16, 1) for shape (4, 8)"),
      bad("no-topk", {{4, 0}, DType::kI64}, 8, "num_topk must be in 1..2147483647, got 0"),
      bad("too-many", {{int64_t{1} << 28, 8}, DType::kI64}, 8,
          "num_tokens must be in 0..268435455, got 268435456"),
      bad("groups-0", {{4, 8}, DType::kI64}, 0, "num_groups must be in 1..2147483647, got 0"),
      bad("groups-negative", {{4, 8}, DType::kI64}, -1,
          "num_groups must be in 1..2147483647, got -1"),
  };
  op.cases.insert(op.cases.end(), others.begin(), others.end());
  return op;
}

}  // namespace tilekernels::cases
