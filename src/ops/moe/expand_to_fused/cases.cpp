// expand_to_fused: cases as data.
#include "cases/case.h"
#include "ops/moe/fused_cases.h"
#include "tilekernels/moe.h"

namespace tilekernels::cases {
namespace {

constexpr DType kBF16 = DType::kBF16;
constexpr DType kE4M3 = DType::kE4M3;
constexpr DType kE2M1 = DType::kE2M1x2;
constexpr DType kF32 = DType::kF32;
constexpr DType kNoSf = DType::kBool;

struct Row {
  int64_t tokens;
  int topk;
  int experts;
  int alignment;
  int64_t hidden;  // elements of x's dtype
  DType x = kBF16;
  DType sf = kNoSf;
  int num_per_channels = 0;
  bool x_sf_by_col = false;
  SfExpansion out_sf{};
  int64_t tail = 0;  // positions behind the last segment
  int64_t gap = 0;   // elements between rows
  bool bench = false;
};

constexpr SfExpansion kRow{};
constexpr SfExpansion kCol{true, SfPitch::kDevice};
constexpr SfExpansion kColAscend{true, SfPitch::kAscend};

constexpr Row kRows[] = {
    // Extents, from nothing to odd
    {0, 6, 8, 16, 64},
    {0, 6, 8, 16, 64, kBF16, kNoSf, 0, false, kRow, 40},
    {0, 2, 8, 16, 256, kE4M3, kF32, 128, false, kCol, 37},
    {5, 2, 4, 8, 0},
    {1, 1, 1, 1, 1, DType::kU8},
    {3, 2, 4, 4, 7, DType::kU8},
    {5, 3, 8, 4, 33, DType::kI16},
    {6, 2, 3, 2, 5, kF32},
    {4, 8, 16, 16, 13, DType::kI64},
    {9, 32, 64, 2, 24, DType::kF16},
    {33, 6, 72, 16, 576},
    {7, 4, 16, 128, 3000, kBF16, kNoSf, 0, false, kRow, 100, 3},
    {40, 3, 6, 8, 4100, kBF16, kNoSf, 0, false, kRow, 5, 4},
    {2, 1, 2, 4, 40000, kF32},
    // More than a block looks at
    {400, 4, 16, 16, 72},
    {400, 4, 16, 16, 65, DType::kU8, kNoSf, 0, false, kRow, 3000, 2},
    {3000, 2, 40, 3, 6, DType::kI8},
    {270, 4, 16, 8, 4100},
    // Scaling factors
    {5, 2, 4, 8, 256, kE4M3, kF32, 128, false, kRow, 3},
    {5, 2, 4, 8, 256, kE4M3, kF32, 128, false, kCol, 3},
    {5, 2, 4, 1, 384, kE4M3, kF32, 32, true, kColAscend, 2},
    {33, 6, 72, 16, 576, kE4M3, DType::kI32, 32, true, kCol},
    {9, 3, 5, 1, 640, kE4M3, DType::kI32, 128, true, kRow},
    {9, 3, 5, 3, 640, kE4M3, DType::kI32, 128, false, kCol, 1, 16},
    {9, 3, 5, 3, 160, kE2M1, DType::kI16, 16, true, kColAscend},
    {11, 2, 5, 3, 96, kE2M1, DType::kI16, 64, false, kRow},
    {12, 2, 5, 3, 128, kE2M1, kE4M3, 16, false, kCol, 2},
    {12, 2, 5, 7, 128, kE2M1, kE4M3, 16, true, kRow},
    {10, 3, 4, 5, 100, kE4M3, DType::kE8M0, 32, false, kColAscend},
    {300, 8, 16, 16, 128, kE4M3, kF32, 32, true, kCol, 200},
    {300, 4, 16, 3, 320, kE4M3, kF32, 32, false, kRow, 7},
    {1, 8, 256, 128, 7168, kBF16, kNoSf, 0, false, kRow, 0, 0, true},
    {128, 8, 256, 128, 7168, kBF16, kNoSf, 0, false, kRow, 0, 0, true},
    {4096, 8, 256, 128, 7168, kBF16, kNoSf, 0, false, kRow, 0, 0, true},
    {128, 8, 256, 128, 7168, kE4M3, kF32, 128, false, kCol, 0, 0, true},
    {4096, 8, 256, 128, 7168, kE4M3, kF32, 128, false, kCol, 0, 0, true},
    {4096, 8, 256, 128, 7168, kE4M3, DType::kI32, 32, true, kCol, 0, 0, true},
};

Case make(const std::string& id, std::vector<Input> inputs, int num_per_channels,
          const SfExpansion& sf) {
  Case test;
  test.inputs = std::move(inputs);
  if (num_per_channels == 0) {
    test.id = "expand_to_fused/" + id;
    test.outputs = {"out"};
    test.spec = [](const Specs& in) { return Specs{expand_to_fused_spec(in[0], in[1], in[2])}; };
    test.out = [](const Views& out, const Views& in, const Call& call) {
      expand_to_fused_out(out[0], in[0], in[1], in[2], call);
    };
    test.alloc = [](const Views& in, const Call& call) {
      return std::vector<Tensor>{expand_to_fused(in[0], in[1], in[2], call)};
    };
    return test;
  }
  test.id = "expand_to_fused/with_sf/" + id;
  test.outputs = {"out", "out_sf"};
  test.spec = [=](const Specs& in) {
    const QuantSpec out =
        expand_to_fused_with_sf_spec({in[0], in[3]}, num_per_channels, in[1], in[2], sf);
    return Specs{out.data, out.sf};
  };
  test.out = [=](const Views& out, const Views& in, const Call& call) {
    expand_to_fused_with_sf_out({out[0], out[1]}, {in[0], in[3]}, num_per_channels, in[1], in[2],
                                sf, call);
  };
  test.alloc = [=](const Views& in, const Call& call) {
    QuantTensor out =
        expand_to_fused_with_sf({in[0], in[3]}, num_per_channels, in[1], in[2], sf, call);
    return std::vector<Tensor>{std::move(out.data), std::move(out.sf)};
  };
  return test;
}

TensorSpec x_sf_spec(const Row& row) {
  const int64_t per_unit = row.x == kE2M1 ? 2 : 1;
  const int64_t scales = (row.hidden * per_unit + row.num_per_channels - 1) / row.num_per_channels;
  const int64_t pack = row.sf == DType::kI32 ? 4 : row.sf == DType::kI16 ? 2 : 1;
  const int64_t words = (scales + pack - 1) / pack;
  if (!row.x_sf_by_col) return {{row.tokens, words}, {words + 1, 1}, row.sf};
  return {{row.tokens, words}, {1, row.tokens + 3}, row.sf};
}

Case make(const Row& row) {
  std::string id = "tokens=" + std::to_string(row.tokens) + ",topk=" + std::to_string(row.topk) +
                   ",experts=" + std::to_string(row.experts) +
                   ",alignment=" + std::to_string(row.alignment) +
                   ",hidden=" + std::to_string(row.hidden) + ",x=" + std::string(name(row.x));
  if (row.num_per_channels > 0) {
    id += ",sf=" + std::string(name(row.sf)) + (row.x_sf_by_col ? "-col" : "-row") + "-1x" +
          std::to_string(row.num_per_channels) + ",out_sf=" +
          (row.out_sf.pitch == SfPitch::kAscend ? "col-ascend"
           : row.out_sf.col_major               ? "col"
                                                : "row");
  }
  if (row.tail > 0) id += ",tail=" + std::to_string(row.tail);
  if (row.gap > 0) id += ",gap=" + std::to_string(row.gap);
  const Positions positions =
      routing_positions(row.tokens, row.topk, row.experts, row.alignment, row.tail);
  std::vector<Input> inputs = {
      {"x", {{row.tokens, row.hidden}, {row.hidden + row.gap, 1}, row.x}, Fill::kBits},
      {"token_topk_to_pos",
       {{row.tokens, row.topk}, DType::kI32},
       Fill::kGiven,
       given_bytes(positions.token_topk_to_pos)},
      {"pos_to_expert",
       {{static_cast<int64_t>(positions.pos_to_expert.size())}, DType::kI32},
       Fill::kGiven,
       given_bytes(positions.pos_to_expert)}};
  if (row.num_per_channels > 0) inputs.push_back({"x_sf", x_sf_spec(row), Fill::kBits});
  Case test = make(id, std::move(inputs), row.num_per_channels, row.out_sf);
  test.bench = row.bench;
  return test;
}

// Positions that no mapping gives, one byte a row.
Case worked(const std::string& id, std::initializer_list<uint8_t> x, int64_t topk,
            std::initializer_list<int32_t> positions, std::initializer_list<int32_t> experts,
            std::initializer_list<uint8_t> out, const char* fault = "") {
  const auto tokens = static_cast<int64_t>(x.size());
  Case test =
      make(id,
           {{"x", {{tokens, 1}, DType::kU8}, Fill::kGiven, bytes_of(x)},
            {"token_topk_to_pos", {{tokens, topk}, DType::kI32}, Fill::kGiven, bytes_of(positions)},
            {"pos_to_expert",
             {{static_cast<int64_t>(experts.size())}, DType::kI32},
             Fill::kGiven,
             bytes_of(experts)}},
           0, {});
  test.expected = {bytes_of(out)};
  test.fault = fault;
  return test;
}

// The same with many entries: several of a position, positions without one, and from row 7 on some
// that are out of range.
Case scattered() {
  constexpr int64_t kTokens = 700;
  constexpr int64_t kTopk = 2;
  constexpr int64_t kExpanded = 900;
  std::vector<int32_t> positions;
  for (int64_t i = 0; i < kTokens * kTopk; ++i) {
    const int64_t pos = i * i * 7919 % 997 - 3;
    positions.push_back(static_cast<int32_t>(i < 7 * kTopk ? i % 5 : pos));
  }
  positions[7 * kTopk] = kExpanded;
  std::vector<int32_t> experts;
  for (int64_t pos = 0; pos < kExpanded; ++pos) {
    experts.push_back(static_cast<int32_t>(pos % 6) - 1);
  }
  Case test = make(
      "scattered",
      {{"x", {{kTokens, 40}, kE4M3}, Fill::kBits},
       {"token_topk_to_pos", {{kTokens, kTopk}, DType::kI32}, Fill::kGiven, given_bytes(positions)},
       {"pos_to_expert", {{kExpanded}, DType::kI32}, Fill::kGiven, given_bytes(experts)},
       {"x_sf", {{kTokens, 2}, {3, 1}, kF32}, Fill::kBits}},
      32, kCol);
  test.fault =
      "[expand_to_fused_with_sf] token_topk_to_pos must lie in its table, got a position out of "
      "range at row 7";
  return test;
}

Case bad(const std::string& id, const TensorSpec& x, const TensorSpec& token_topk_to_pos,
         const TensorSpec& pos_to_expert, const std::string& error) {
  Case test =
      make("bad-" + id,
           {{"x", x}, {"token_topk_to_pos", token_topk_to_pos}, {"pos_to_expert", pos_to_expert}},
           0, {});
  test.error = "[expand_to_fused] " + error;
  return test;
}

Case bad_sf(const std::string& id, const TensorSpec& x, const TensorSpec& x_sf,
            int num_per_channels, const SfExpansion& sf, const std::string& error) {
  const int64_t tokens = x.size(0);
  Case test = make("bad-" + id,
                   {{"x", x},
                    {"token_topk_to_pos", {{tokens, 2}, DType::kI32}},
                    {"pos_to_expert", {{8}, DType::kI32}},
                    {"x_sf", x_sf}},
                   num_per_channels, sf);
  test.error = "[expand_to_fused_with_sf] " + error;
  return test;
}

}  // namespace

OpCases expand_to_fused() {
  OpCases op{"expand_to_fused", {}};
  for (const Row& row : kRows) op.cases.push_back(make(row));
  const TensorSpec x({4, 64}, kBF16);
  const TensorSpec places({4, 2}, DType::kI32);
  const TensorSpec experts({8}, DType::kI32);
  const std::vector<Case> others = {
      worked("worked", {1, 2, 3}, 2, {3, 0, -1, 1, 4, -7}, {0, 0, -1, 1, 1, -1},
             {1, 2, 0, 1, 3, 0}),
      // The last entry of a position wins, padding wins over all, and nothing is left unwritten.
      worked("shared-positions", {1, 2, 3}, 2, {0, 1, 1, 0, 1, 3}, {0, 0, 0, -1, 2},
             {2, 3, 0, 0, 0}),
      worked("out-of-range", {1, 2, 3}, 2, {0, -1, 1, 5, 2147483647, 3}, {0, 0, 0, 0, 2},
             {1, 2, 0, 3, 0},
             "[expand_to_fused] token_topk_to_pos must lie in its table, got a position out of "
             "range at row 1"),
      scattered(),
      bad("rank", {{64}, kBF16}, places, experts, "x must have 2 dimensions, got (64)"),
      bad("hidden", {{4, 1 << 30}, kBF16}, places, experts,
          "hidden bytes must be in 0..1073741824, got 2147483648"),
      bad("columns", {{4, 64}, {1, 4}, kBF16}, places, experts,
          "x must have column stride 1, got strides (1, 4)"),
      bad("overlap", {{4, 64}, {32, 1}, kBF16}, places, experts,
          "x must have a row stride of at least 64, got strides (32, 1)"),
      bad("positions-dtype", x, {{4, 2}, DType::kI64}, experts,
          "token_topk_to_pos must have dtype i32, got i64"),
      bad("positions-shape", x, {{5, 2}, DType::kI32}, experts,
          "token_topk_to_pos must have shape (4, 2), got (5, 2)"),
      bad("positions-stride", x, {{4, 2}, {3, 1}, DType::kI32}, experts,
          "token_topk_to_pos must be contiguous, got strides (3, 1) for shape (4, 2)"),
      bad("topk", x, {{4, 33}, DType::kI32}, experts, "num_topk must be in 1..32, got 33"),
      bad("no-topk", x, {{4, 0}, DType::kI32}, experts, "num_topk must be in 1..32, got 0"),
      bad("experts-rank", x, places, {{4, 2}, DType::kI32},
          "pos_to_expert must have 1 dimension, got (4, 2)"),
      bad_sf("per-channels", {{4, 64}, kE4M3}, {{4, 2}, kF32}, 48, kRow,
             "num_per_channels must be 16, 32, 64 or 128, got 48"),
      bad_sf("sf-dtype", {{4, 64}, kE4M3}, {{4, 2}, kBF16}, 32, kRow,
             "x.sf must have dtype f32, e4m3, e8m0, i32 or i16, got bf16"),
      bad_sf("sf-shape", {{4, 64}, kE4M3}, {{4, 3}, kF32}, 32, kRow,
             "x.sf must have shape (4, 2), got (4, 3)"),
      bad_sf("sf-strides", {{4, 64}, kE4M3}, {{4, 2}, {1, 1}, kF32}, 32, kRow,
             "x.sf must have rows or columns that are contiguous and do not overlap, got strides "
             "(1, 1)"),
      bad_sf("sf-pitch", {{4, 64}, kE4M3}, {{4, 1}, DType::kI32}, 32, kColAscend,
             "sf.pitch must be kCuda for x.sf of i32, got kAscend"),
  };
  op.cases.insert(op.cases.end(), others.begin(), others.end());
  return op;
}

}  // namespace tilekernels::cases
