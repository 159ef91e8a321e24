// mask_indices_by_tp: cases as data.
#include "cases/case.h"
#include "ops/moe/index_cases.h"
#include "tilekernels/moe.h"

namespace tilekernels::cases {
namespace {

// The arguments that are no tensors.
struct Ranks {
  int n;
  int num_ep_ranks;
  int tp_rank;
  int num_tp_ranks;
};

struct Row {
  int64_t tokens;
  int64_t topk;
  Ranks ranks;
  DType dtype = DType::kI64;
  bool bench = false;
};

constexpr int kMax = 2147483647;
constexpr Row kRows[] = {
    {0, 8, {256, 8, 0, 2}},
    {1, 1, {1, 1, 0, 1}},
    {3, 5, {7, 2, 1, 3}},
    {33, 6, {72, 8, 1, 2}},
    {33, 6, {72, 8, 1, 2}, DType::kI32},
    {65, 8, {256, 8, 3, 4}},
    {65, 7, {256, 64, 7, 8}, DType::kI32},
    {300, 8, {384, 1, 0, 8}},
    {700, 8, {4096, 72, 1, 4}},
    {1031, 9, {288, 8, 0, 1}, DType::kI32},
    {64, 8, {kMax, 1, 0, 1}},
    {64, 8, {kMax, kMax, 2, 3}, DType::kI32},
    {64, 8, {kMax, 70001, 65536, 65537}},
    {64, 8, {kMax, 3, 1, kMax}},
    {128, 8, {256, 8, 1, 4}, DType::kI64, true},
    {4096, 8, {256, 8, 1, 4}, DType::kI64, true},
    {16384, 8, {256, 8, 1, 4}, DType::kI64, true},
    {16384, 8, {256, 8, 1, 4}, DType::kI32, true},
    {524288, 8, {256, 8, 1, 4}, DType::kI64, true},
};

Case make(const std::string& id, Input indices, const Ranks& r) {
  return {
      .id = "mask_indices_by_tp/" + id,
      .inputs = {std::move(indices)},
      .outputs = {"masked"},
      .spec =
          [r](const Specs& in) {
            return Specs{
                mask_indices_by_tp_spec(in[0], r.n, r.num_ep_ranks, r.tp_rank, r.num_tp_ranks)};
          },
      .out =
          [r](const Views& out, const Views& in, const Call& call) {
            mask_indices_by_tp_out(out[0], in[0], r.n, r.num_ep_ranks, r.tp_rank, r.num_tp_ranks,
                                   call);
          },
      .alloc =
          [r](const Views& in, const Call& call) {
            return std::vector<Tensor>{
                mask_indices_by_tp(in[0], r.n, r.num_ep_ranks, r.tp_rank, r.num_tp_ranks, call)};
          },
  };
}

Case make(const Row& row) {
  const std::string id =
      "tokens=" + std::to_string(row.tokens) + ",topk=" + std::to_string(row.topk) +
      ",n=" + std::to_string(row.ranks.n) + ",ep=" + std::to_string(row.ranks.num_ep_ranks) +
      ",tp=" + std::to_string(row.ranks.tp_rank) + "of" + std::to_string(row.ranks.num_tp_ranks) +
      "," + std::string(name(row.dtype));
  Case test =
      make(id, index_input("indices", row.tokens, row.topk, row.ranks.n, {}, row.dtype), row.ranks);
  test.bench = row.bench;
  return test;
}

template <class T>
Case worked(const std::string& id, std::initializer_list<T> indices, int64_t tokens,
            const Ranks& ranks, std::initializer_list<T> masked, const char* fault = "") {
  const auto topk = static_cast<int64_t>(indices.size()) / tokens;
  const DType dtype = sizeof(T) == 8 ? DType::kI64 : DType::kI32;
  Case test =
      make(id, {"indices", {{tokens, topk}, dtype}, Fill::kGiven, bytes_of(indices)}, ranks);
  test.expected = {bytes_of(masked)};
  test.fault = fault;
  return test;
}

Case bad(const std::string& id, const TensorSpec& indices, const Ranks& ranks,
         const std::string& error) {
  Case test = make("bad-" + id, {"indices", indices}, ranks);
  test.error = "[mask_indices_by_tp] " + error;
  return test;
}

}  // namespace

OpCases mask_indices_by_tp() {
  constexpr int64_t kFar = int64_t{1} << 32;
  constexpr char kRow1[] =
      "[mask_indices_by_tp] indices must name an element, got an index out of range at row 1";
  const TensorSpec indices({4, 8}, DType::kI64);
  OpCases op{"mask_indices_by_tp", {}};
  for (const Row& row : kRows) op.cases.push_back(make(row));
  for (const DType dtype : {DType::kI64, DType::kI32}) {
    Case many = make("many-faults," + std::string(name(dtype)),
                     index_input("indices", 3000, 8, 256,
                                 {{23000, 256}, {17001, 100000}, {5, -7}, {20000, 300}}, dtype),
                     {256, 8, 1, 2});
    many.fault =
        "[mask_indices_by_tp] indices must name an element, got an index out of range at row 2125";
    op.cases.push_back(std::move(many));
  }
  const std::vector<Case> others = {
      // 12 experts on 6 ranks of 2, in turn to columns 0 and 1: column 1 has 2 3, 6 7, 10 11.
      worked<int64_t>("column-1", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, 2, {12, 6, 1, 2},
                      {-1, -1, 0, 1, -1, -1, 2, 3, -1, -1, 4, 5}),
      worked<int32_t>("column-0", {0, 1, 2, 3, 4, 5, -1, 7, 8, 9, 10, 11}, 2, {12, 6, 0, 2},
                      {0, 1, -1, -1, 2, 3, -1, -1, 4, 5, -1, -1}),
      // 7 experts on 3 ranks: two each, the last expert is the first of a fourth rank.
      worked<int64_t>("rest", {0, 1, 2, 3, 4, 5, 6}, 1, {7, 3, 1, 2}, {-1, -1, 0, 1, -1, -1, 2}),
      worked<int64_t>("negative", {-5, -kFar, -kFar + 2, 2}, 1, {4, 2, 1, 2}, {-1, -1, -1, 0}),
      worked<int64_t>("too-large", {2, 3, 4, 0, 2, kFar + 2, 3, int64_t{1} << 31}, 4, {4, 2, 1, 2},
                      {0, 1, -1, -1, 0, -1, 1, -1}, kRow1),
      worked<int32_t>("too-large-i32", {2, 3, 2147483647, 4}, 2, {4, 2, 1, 2}, {0, 1, -1, -1},
                      kRow1),
      bad("rank", {{8}, DType::kI64}, {8, 1, 0, 1}, "indices must have 2 dimensions, got (8)"),
      bad("dtype", {{4, 8}, DType::kI16}, {8, 1, 0, 1},
          "indices must have dtype i64 or i32, got i16"),
      bad("stride", {{4, 8}, {16, 1}, DType::kI64}, {8, 1, 0, 1},
          "indices must be contiguous, got strides (16, 1) for shape (4, 8)"),
      bad("n-0", indices, {0, 1, 0, 1}, "n must be in 1..2147483647, got 0"),
      // Ranks without an expert
      bad("ep-ranks-above-n", indices, {8, 9, 0, 1}, "num_ep_ranks must be in 1..8, got 9"),
      bad("ep-ranks-0", indices, {8, 0, 0, 1}, "num_ep_ranks must be in 1..8, got 0"),
      bad("tp-ranks-0", indices, {8, 1, 0, 0}, "num_tp_ranks must be in 1..2147483647, got 0"),
      bad("tp-rank", indices, {8, 1, 2, 2}, "tp_rank must be in 0..1, got 2"),
      bad("tp-rank-negative", indices, {8, 1, -1, 2}, "tp_rank must be in 0..1, got -1"),
  };
  op.cases.insert(op.cases.end(), others.begin(), others.end());
  return op;
}

}  // namespace tilekernels::cases
