// inplace_unique_group_indices: cases as data.
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
    {0, 8, 8},    {1, 1, 1},    {1, 8, 8},         {5, 2, 1},          {33, 6, 16},
    {129, 8, 72}, {65, 8, 128}, {70, 9, 65},       {31, 32, 64},       {300, 31, 127},
    {1000, 8, 8}, {400, 3, 2},  {128, 8, 8, true}, {4096, 8, 8, true}, {16384, 8, 8, true},
};

Case make(const std::string& id, Input group_indices, int groups) {
  return {
      .id = "inplace_unique_group_indices/" + id,
      .inputs = {std::move(group_indices)},
      .outputs = {"group_indices"},
      .spec =
          [groups](const Specs& in) {
            return Specs{inplace_unique_group_indices_spec(in[0], groups)};
          },
      .out = [groups](const Views& out, const Views&,
                      const Call& call) { inplace_unique_group_indices_out(out[0], groups, call); },
      .starts_as = {0},
      .alloc = {},
  };
}

Case make(const Row& row) {
  const std::string id = "tokens=" + std::to_string(row.tokens) +
                         ",topk=" + std::to_string(row.topk) +
                         ",groups=" + std::to_string(row.groups);
  Case test = make(id, index_input("group_indices", row.tokens, row.topk, row.groups), row.groups);
  test.bench = row.bench;
  return test;
}

Case worked(const std::string& id, std::initializer_list<int64_t> group_indices, int64_t tokens,
            int groups, std::initializer_list<int64_t> unique, const char* fault = "") {
  const auto topk = static_cast<int64_t>(group_indices.size()) / tokens;
  Case test = make(
      id, {"group_indices", {{tokens, topk}, DType::kI64}, Fill::kGiven, bytes_of(group_indices)},
      groups);
  test.expected = {bytes_of(unique)};
  test.fault = fault;
  return test;
}

Case bad(const std::string& id, const TensorSpec& group_indices, int groups,
         const std::string& error) {
  Case test = make("bad-" + id, {"group_indices", group_indices}, groups);
  test.error = "[inplace_unique_group_indices] " + error;
  return test;
}

}  // namespace

OpCases inplace_unique_group_indices() {
  constexpr int64_t kFar = int64_t{1} << 32;
  constexpr char kRow1[] =
      "[inplace_unique_group_indices] group_indices must name an element, got an index out of "
      "range at row 1";
  OpCases op{"inplace_unique_group_indices", {}};
  for (const Row& row : kRows) op.cases.push_back(make(row));
  Case many = make("many-faults",
                   index_input("group_indices", 3000, 8, 64,
                               {{23000, 64}, {17001, 100000}, {5, -7}, {20000, kFar}}),
                   64);
  many.fault =
      "[inplace_unique_group_indices] group_indices must name an element, got an index out of "
      "range at row 2125";
  op.cases.push_back(std::move(many));
  const std::vector<Case> others = {
      worked("repeats", {3, 3, 1, 3, 1, 0, 0, 1, 2, 3}, 2, 4, {3, -1, 1, -1, -1, 0, -1, 1, 2, 3}),
      // Rows do not see each other, and negative indices stay.
      worked("rows", {1, 0, 0, 1, -1, -1, -5, -5}, 4, 2, {1, 0, 0, 1, -1, -1, -5, -5}),
      worked("last-group", {127, 63, 127, 63, 64, 64}, 1, 128, {127, 63, -1, -1, 64, -1}),
      // Indices out of range stay, repeated ones too, and are no groups.
      worked("too-large", {0, 1, 1, 2, 1, 2, 1, 2, 0, kFar, 0, kFar + 1}, 3, 2,
             {0, 1, -1, 2, 1, 2, -1, 2, 0, kFar, -1, kFar + 1},
             "[inplace_unique_group_indices] group_indices must name an element, got an index out "
             "of range at row 0"),
      worked("fault-in-row-1", {0, 0, 5, 0, -kFar, 0}, 3, 5, {0, -1, 5, 0, -kFar, 0}, kRow1),
      bad("rank", {{8}, DType::kI64}, 8, "group_indices must have 2 dimensions, got (8)"),
      bad("dtype", {{4, 8}, DType::kI32}, 8, "group_indices must have dtype i64, got i32"),
      bad("stride", {{4, 8}, {16, 1}, DType::kI64}, 8,
          "group_indices must be contiguous, got strides (16, 1) for shape (4, 8)"),
      bad("topk-33", {{4, 33}, DType::kI64}, 8, "num_topk must be in 1..32, got 33"),
      bad("groups-0", {{4, 8}, DType::kI64}, 0, "num_groups must be in 1..128, got 0"),
      bad("groups-129", {{4, 8}, DType::kI64}, 129, "num_groups must be in 1..128, got 129"),
  };
  op.cases.insert(op.cases.end(), others.begin(), others.end());
  return op;
}

}  // namespace tilekernels::cases
