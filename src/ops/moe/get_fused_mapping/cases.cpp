// get_fused_mapping: cases as data.
#include <cstring>

#include "cases/case.h"
#include "ops/moe/fused_cases.h"
#include "tilekernels/moe.h"

namespace tilekernels::cases {
namespace {

struct Row {
  int64_t tokens;
  int topk;
  int experts;
  int alignment;
  int64_t expanded = 0;  // 0: enough for any routing
  Routing routing = Routing::kRandom;
  const char* fault = "";
  bool bench = false;
};

constexpr char kNoRoom0[] =
    "[get_fused_mapping] token_topk_to_pos must lie in its table, got a position out of range at "
    "row 0";
constexpr char kNoRoom3[] =
    "[get_fused_mapping] token_topk_to_pos must lie in its table, got a position out of range at "
    "row 3";

constexpr Row kRows[] = {
    {0, 6, 8, 16},
    {0, 2, 1, 1, 7},
    {1, 1, 1, 1},
    {1, 8, 256, 128},
    {5, 2, 3, 4},
    {17, 6, 72, 64},
    {33, 9, 7, 5},
    {129, 8, 256, 16},
    {64, 8, 32, 128, 8000},
    {100, 3, 5, 8, 0, Routing::kOneExpert},
    {40, 6, 16, 8, 0, Routing::kNone},
    {1000, 8, 256, 128},
    {700, 7, 4096, 2},
    {300, 4, 300, 3},
    {300, 4, 8192, 3},
    {1200, 8, 33, 1},
    {1025, 8, 513, 4},
    {3000, 3, 512, 2},
    {700, 5, 500, 128},
    {33000, 8, 16, 16},
    {2000, 8, 12, 16, 0, Routing::kOneExpert},
    {2100, 2, 1000, 1, 4200},
    // Indices that name no expert, and too few positions
    {20, 4, 6, 4, 0, Routing::kBad,
     "[get_fused_mapping] topk_idx must name an element, got an index out of range at row 2"},
    {1500, 4, 6, 4, 0, Routing::kBad,
     "[get_fused_mapping] topk_idx must name an element, got an index out of range at row 2"},
    {24, 2, 4, 8, 30, Routing::kRandom, kNoRoom3},
    {1300, 4, 16, 64, 900, Routing::kRandom, kNoRoom0},
    {3, 2, 2, 1, 1, Routing::kOneExpert, kNoRoom0},
    {8, 1, 1, 16, 15, Routing::kOneExpert, kNoRoom0},
    {1, 8, 256, 128, 0, Routing::kRandom, "", true},
    {128, 8, 256, 128, 0, Routing::kRandom, "", true},
    {4096, 8, 256, 128, 0, Routing::kRandom, "", true},
    {16384, 8, 256, 128, 0, Routing::kRandom, "", true},
};

const char* const kOutputs[] = {
    "pos_to_expert", "pos_to_token", "pos_to_token_topk",     "token_topk_to_pos",
    "expert_start",  "expert_end",   "num_tokens_per_expert", "psum_num_tokens_per_expert"};

Case make(const std::string& id, Input topk_idx, int experts, int64_t expanded, int alignment) {
  return {
      .id = "get_fused_mapping/" + id,
      .inputs = {std::move(topk_idx)},
      .outputs = {std::begin(kOutputs), std::end(kOutputs)},
      .spec =
          [=](const Specs& in) {
            const FusedMappingSpec s = get_fused_mapping_spec(in[0], experts, expanded, alignment);
            return Specs{s.pos_to_expert,         s.pos_to_token,
                         s.pos_to_token_topk,     s.token_topk_to_pos,
                         s.expert_start,          s.expert_end,
                         s.num_tokens_per_expert, s.psum_num_tokens_per_expert};
          },
      .out =
          [=](const Views& out, const Views& in, const Call& call) {
            get_fused_mapping_out({out[0], out[1], out[2], out[3], out[4], out[5], out[6], out[7]},
                                  in[0], experts, alignment, call);
          },
      .alloc =
          [=](const Views& in, const Call& call) {
            const FusedMapping m =
                get_fused_mapping(in[0], experts, expanded, alignment, true, call);
            return std::vector<Tensor>{m.pos_to_expert,         m.pos_to_token,
                                       m.pos_to_token_topk,     m.token_topk_to_pos,
                                       m.expert_start,          m.expert_end,
                                       m.num_tokens_per_expert, m.psum_num_tokens_per_expert};
          },
  };
}

Case make(const Row& row) {
  const std::string expanded =
      row.expanded > 0 ? ",expanded=" + std::to_string(row.expanded) : std::string();
  const std::string id =
      "tokens=" + std::to_string(row.tokens) + ",topk=" + std::to_string(row.topk) +
      ",experts=" + std::to_string(row.experts) + ",alignment=" + std::to_string(row.alignment) +
      expanded + routing_text(row.routing);
  Case test = make(id, routed("topk_idx", row.tokens, row.topk, row.experts, row.routing),
                   row.experts, row.expanded, row.alignment);
  test.fault = row.fault;
  test.bench = row.bench;
  return test;
}

Case bad(const std::string& id, const TensorSpec& topk_idx, int experts, int64_t expanded,
         int alignment, const std::string& error) {
  Case test = make("bad-" + id, {"topk_idx", topk_idx}, experts, expanded, alignment);
  test.error = "[get_fused_mapping] " + error;
  // The number of positions is that of the outputs, which a bad call has none of.
  if (expanded != 4)
    test.out = [=](const Views&, const Views& in, const Call&) {
      get_fused_mapping_spec(in[0], experts, expanded, alignment);
    };
  return test;
}

// Four tokens of three experts, aligned to 4: by hand.
Case worked() {
  Case test = make("worked",
                   {"topk_idx",
                    {{4, 2}, DType::kI64},
                    Fill::kGiven,
                    bytes_of<int64_t>({2, 0, -1, 2, 0, 2, 2, -1})},
                   3, 12, 4);
  test.expected = {bytes_of<int32_t>({0, 0, -1, -1, 2, 2, 2, 2, -1, -1, -1, -1}),
                   bytes_of<int32_t>({0, 2, -1, -1, 0, 1, 2, 3, -1, -1, -1, -1}),
                   bytes_of<int32_t>({1, 4, -1, -1, 0, 3, 5, 6, -1, -1, -1, -1}),
                   bytes_of<int32_t>({4, 0, -1, 5, 1, 6, 7, -1}),
                   bytes_of<int32_t>({0, 4, 4}),
                   bytes_of<int32_t>({4, 4, 8}),
                   bytes_of<int32_t>({4, 0, 4}),
                   bytes_of<int32_t>({2, 4, 8})};
  return test;
}

}  // namespace

OpCases get_fused_mapping() {
  OpCases op{"get_fused_mapping", {}};
  for (const Row& row : kRows) op.cases.push_back(make(row));
  const std::vector<Case> others = {
      worked(),
      bad("rank", {{16}, DType::kI64}, 8, 4, 1, "topk_idx must have 2 dimensions, got (16)"),
      bad("dtype", {{4, 2}, DType::kI32}, 8, 4, 1, "topk_idx must have dtype i64, got i32"),
      bad("stride", {{4, 2}, {4, 1}, DType::kI64}, 8, 4, 1,
          "topk_idx must be contiguous, got strides (4, 1) for shape (4, 2)"),
      bad("no-topk", {{4, 0}, DType::kI64}, 8, 4, 1, "num_topk must be in 1..2147483647, got 0"),
      bad("no-experts", {{4, 2}, DType::kI64}, 0, 4, 1, "num_experts must be in 1..8192, got 0"),
      bad("experts", {{4, 2}, DType::kI64}, 8193, 4, 1, "num_experts must be in 1..8192, got 8193"),
      bad("alignment-0", {{4, 2}, DType::kI64}, 8, 4, 0,
          "alignment must be in 1..1073741824, got 0"),
      bad("entries", {{int64_t{1} << 30, 2}, DType::kI64}, 8, 4, 128,
          "num_tokens * num_topk must be in 0..2147483520, got 2147483648"),
      bad("expanded-negative", {{4, 2}, DType::kI64}, 8, -1, 1,
          "num_expanded_tokens must be in 0..2147483647, got -1"),
      bad("expanded-too-many", {{4, 2}, DType::kI64}, 8192, 0, 1 << 20,
          "num_expanded_tokens must be in 0..2147483647, got 8588886016"),
  };
  op.cases.insert(op.cases.end(), others.begin(), others.end());
  return op;
}

}  // namespace tilekernels::cases
