// per_block_cast: cases as data.
#include "ops/quant/cast_cases.h"

namespace tilekernels::cases {
namespace {

constexpr BlockSize k32x32{32, 32};
constexpr BlockSize k32x128{32, 128};
constexpr BlockSize k128x32{128, 32};
constexpr BlockSize k128x128{128, 128};

constexpr CastRow row(int64_t tokens, int64_t hidden, DType x, DType fmt, BlockSize block,
                      SfFormat sf = kRowF32) {
  return {tokens, hidden, x, fmt, block, sf};
}

constexpr CastRow kRows[] = {
    // Every block, kind, layout and pitch; blocks cut at the edges; any hidden
    row(0, 128, kBF16, kE4M3, k128x128),
    row(0, 128, kBF16, kE2M1, k32x32, kColPacked),
    row(3, 0, kBF16, kE4M3, k128x128),
    row(1, 1, kF32, kE4M3, k128x128),
    row(1, 2, kF32, kE2M1, k32x32, kColPacked),
    row(2, 17, kF16, kE4M3, k32x32),
    row(31, 33, kBF16, kE4M3, k32x32, kColF32),
    row(33, 35, kBF16, kE4M3, k128x32, kRowPacked),
    row(33, 34, kF32, kE2M1, k32x128, kRowRounded),
    row(130, 200, kBF16, kE4M3, k128x128),
    row(130, 200, kF32, kE4M3, k128x128, kColPacked),
    row(130, 200, kF16, kE2M1, k128x128, kColF32Ascend),
    row(130, 200, kBF16, kE2M1, k32x32, kColPackedAscend),
    row(257, 321, kF32, kE4M3, k32x32, kRowBytes),
    row(257, 321, kBF16, kE4M3, k32x128, kColBytes),
    row(257, 322, kF16, kE2M1, k128x32, kColBytesAscend),
    row(161, 609, kBF16, kE4M3, k32x32, kRowPackedAscend),
    row(161, 610, kF32, kE2M1, k32x32, kColRounded),
    row(129, 1023, kBF16, kE4M3, k128x128, kColPacked),
    row(129, 1026, kBF16, kE2M1, k128x32, kRowPacked),
    row(300, 2049, kF32, kE4M3, k128x128, kColF32),
    row(300, 4130, kBF16, kE4M3, k32x32, kColPacked),
    row(256, 7168, kBF16, kE4M3, k128x128),
    row(96, 7168, kBF16, kE2M1, k32x32, kColPacked),
    // Codes that bypass a cache of 32 MiB
    row(2051, 8192, kBF16, kE4M3, k128x128),
    // Gaps between rows
    row(70, 200, kBF16, kE4M3, k32x128).with_gap(312),
    row(70, 202, kF32, kE2M1, k128x32).with_gap(1),
    // Data
    row(40, 256, kF32, kE4M3, k32x32).with(Fill::kEdge),
    row(40, 256, kBF16, kE4M3, k32x32, kColPacked).with(Fill::kEdge),
    row(40, 256, kF16, kE2M1, k32x32).with(Fill::kEdge),
    row(40, 256, kF32, kE2M1, k32x32, kRowRounded).with(Fill::kEdge).with_clamp(kLeastE4M3),
    row(40, 512, kBF16, kE4M3, k32x32).with(Fill::kNonFinite),
    row(40, 512, kF32, kE2M1, k32x32, kColPacked).with(Fill::kNonFinite),
    row(300, 512, kF16, kE4M3, k128x128, kRowPacked).with(Fill::kNonFinite),
    row(40, 128, kBF16, kE4M3, k32x32).with(Fill::kBits),
    row(40, 128, kF32, kE2M1, k32x32).with(Fill::kBits),
    row(40, 256, kF32, kE4M3, k32x128, kRowRounded).with(Fill::kTies),
    row(40, 256, kBF16, kE2M1, k32x128, kRowRounded).with(Fill::kTies),
    row(40, 256, kBF16, kE4M3, k128x128).with(Fill::kZero),
    row(40, 256, kF16, kE2M1, k128x128, kColPacked).with(Fill::kZero),
    row(40, 256, kBF16, kE4M3, k128x128).with_clamp(1000),

    // A quantized x
    row(0, 128, kE4M3, kE4M3, k128x128).from(kF32, by_row(1, 128)),
    row(40, 200, kE4M3, kE4M3, k128x128).from(kF32, by_row(1, 128)),
    row(130, 200, kE4M3, kE2M1, k32x32).from(kF32, by_row(128, 128)),
    row(130, 200, kE4M3, kE4M3, k32x32, kColPacked).from(kF32, by_col(1, 32)),
    row(130, 202, kE2M1, kE4M3, k128x128).from(kE8M0, by_row(1, 32), Fill::kPow2Scale),
    row(130, 202, kE2M1, kE4M3, k128x32, kColF32).from(kE4M3, by_row(1, 16)),
    row(130, 1201, kE4M3, kE4M3, k128x128).from(kI32, row_packed(1, 32), Fill::kPow2Scale),
    row(130, 1202, kE2M1, kE4M3, k32x128).from(kI32, col_packed(1, 32), Fill::kPow2Scale),
    row(130, 1201, kE4M3, kE4M3, k32x128).from(kI16, col_packed(3, 64), Fill::kPow2Scale),
    row(130, 1202, kE2M1, kE2M1, k128x128).from(kI16, row_packed(5, 32), Fill::kPow2Scale),
    row(130, 321, kE4M3, kE4M3, k128x128).from(kI32, token_packed(32), Fill::kPow2Scale),
    row(130, 321, kE4M3, kE4M3, k32x32).from(kF32, by_row(50, 2)),
    row(70, 321, kE4M3, kE4M3, k32x128).from(kF32, by_row(7, 384)).with_gap(3).with_sf_gap(2),
    row(40, 256, kE4M3, kE4M3, k32x32).from(kF32, by_row(1, 16), Fill::kBits),
    row(40, 256, kE2M1, kE2M1, k32x32).from(kE8M0, by_row(4, 16), Fill::kBits).with(Fill::kZero),
    row(40, 256, kE4M3, kE2M1, k32x32).from(kF32, by_row(1, 32)).with(Fill::kBits),

    // Scaling factors alone
    row(0, 64, kBF16, kE4M3, k32x32).sf_only(),
    row(130, 200, kBF16, kE4M3, k128x128, kColF32).sf_only(),
    row(300, 322, kF32, kE2M1, k32x32, kColPacked).sf_only(),
    row(40, 512, kF16, kE4M3, k32x32, kRowPackedAscend).sf_only().with(Fill::kNonFinite),

    // Codes under given scaling factors
    row(0, 64, kBF16, kE4M3, k32x32).given_sf(kF32),
    row(130, 200, kBF16, kE4M3, k128x128).given_sf(kF32),
    row(130, 202, kF32, kE2M1, k32x32).given_sf(kF32, Fill::kPow2Scale).with_sf_gap(3),
    row(40, 256, kF16, kE4M3, k32x32).given_sf(kF32, Fill::kBits).with(Fill::kBits),
    row(40, 256, kF32, kE2M1, k32x32).given_sf(kF32, Fill::kBits).with(Fill::kNonFinite),
    row(200, 256, kBF16, kE4M3, k32x32).given_sf(kF32, Fill::kZero).with(Fill::kTies),

    row(1, 7168, kBF16, kE4M3, k128x128).timed(),
    row(128, 7168, kBF16, kE4M3, k128x128).timed(),
    row(128, 7168, kBF16, kE4M3, k128x128, kColPacked).timed(),
    row(4096, 2048, kBF16, kE4M3, k128x128).timed(),
    row(4096, 7168, kBF16, kE4M3, k128x128).timed(),
    row(4096, 7168, kBF16, kE4M3, k128x128, kColPacked).timed(),
    row(4096, 7168, kBF16, kE4M3, k32x32, kColPacked).timed(),
    row(4096, 7168, kBF16, kE2M1, k32x32).timed(),
    row(4096, 7168, kF32, kE4M3, k128x128).timed(),
    row(16384, 7168, kBF16, kE4M3, k128x128).timed(),
    row(16384, 7168, kBF16, kE4M3, k128x128, kColPacked).timed(),
};

const CastApi<BlockSize> kApi = {
    "per_block_cast",
    per_block_cast_spec,
    per_block_cast_out,
    per_block_cast,
    per_block_cast_spec,
    per_block_cast_out,
    per_block_cast,
    per_block_cast_with_sf_only_spec,
    per_block_cast_with_sf_only_out,
    per_block_cast_with_sf_only,
    per_block_cast_with_precomputed_sf_spec,
    per_block_cast_with_precomputed_sf_out,
    per_block_cast_with_precomputed_sf,
};

using Bytes = std::vector<uint8_t>;

template <class T>
Bytes bytes(const std::vector<T>& values) {
  const auto* begin = reinterpret_cast<const uint8_t*>(values.data());
  return {begin, begin + values.size() * sizeof(T)};
}

void add_worked(std::vector<Case>& all) {
  // One block of 8 columns
  const Bytes a = bytes_of({0.3f, -0.7f, 1.1f, 5.0f, -2.2f, 0.01f, -3.3f, 4.4f});
  const auto one = [&](const std::string& id, DType fmt, SfFormat sf, Bytes out, Bytes out_sf) {
    all.push_back(worked(kApi, "worked/" + id, row(1, 8, kF32, fmt, k32x32, sf), k32x32, a, {},
                         {std::move(out), std::move(out_sf)}));
  };
  one("e4m3-f32", kE4M3, kRowF32, {0x5D, 0xE8, 0x6C, 0x7E, 0xF4, 0x36, 0xF9, 0x7C},
      bytes_of({0x3C36DB6Eu}));
  one("e4m3-rounded", kE4M3, kRowRounded, {0x5A, 0xE3, 0x69, 0x7A, 0xF1, 0x32, 0xF5, 0x79},
      bytes_of({0x3C800000u}));
  one("e2m1-f32", kE2M1, kRowF32, {0xA1, 0x73, 0x0D, 0x7E}, bytes_of({0x3F555555u}));
  one("e2m1-rowpacked", kE2M1, kRowPacked, {0x91, 0x62, 0x0C, 0x6D}, {127, 0, 0, 0});

  // 130 x 200 in blocks of 128: each corner has its own scaling factor, 448 times its power.
  std::vector<float> x(130 * 200);
  for (size_t i = 0; i < x.size(); ++i) {
    const bool lower = i / 200 >= 128;
    const bool right = i % 200 >= 128;
    x[i] = 448.0f * static_cast<float>((lower ? 4 : 1) * (right ? 2 : 1));
  }
  const Bytes all_448(130 * 200, 0x7E);
  const auto edge = [&](const std::string& id, SfFormat sf, Bytes out_sf) {
    all.push_back(worked(kApi, "worked/edge-blocks-" + id, row(130, 200, kF32, kE4M3, k128x128, sf),
                         k128x128, bytes(x), {}, {all_448, std::move(out_sf)}));
  };
  edge("row", kRowF32, bytes_of({1.0f, 2.0f, 4.0f, 8.0f}));
  edge("col", kColF32, bytes_of({1.0f, 4.0f, 0.0f, 0.0f, 2.0f, 8.0f, 0.0f, 0.0f}));
  edge("rowpacked", kRowPacked, bytes_of({0x807Fu, 0x8281u}));
  edge("colpacked", kColPacked, bytes_of({0x807Fu, 0x8281u, 0u, 0u}));
  edge("colpacked-ascend", kColPackedAscend, bytes_of<uint16_t>({0x807F, 0x8281}));

  // A NaN takes its block and no other.
  x[129 * 200 + 3] = __builtin_nanf("");
  Bytes out = all_448;
  for (size_t i = 128; i < 130; ++i)
    std::fill_n(out.begin() + static_cast<long>(i) * 200, 128, uint8_t{0x7F});
  all.push_back(worked(kApi, "worked/bad-block", row(130, 200, kF32, kE4M3, k128x128, kRowBytes),
                       k128x128, bytes(x), {}, {out, {127, 128, 255, 130}}));

  // Zeros under the default clamp
  all.push_back(worked(kApi, "worked/zeros", row(2, 2, kF32, kE4M3, k128x128), k128x128,
                       bytes_of({0.0f, -0.0f, -0.0f, 0.0f}), {},
                       {{0x00, 0x80, 0x80, 0x00}, bytes_of({0x346FACADu})}));
  // A given scaling factor that is NaN, and one that is 1
  const float nan = __builtin_nanf("");
  std::vector<float> wide(40);
  wide[0] = 1;
  wide[39] = -6;
  Bytes codes(20);
  codes[19] = 0xF0;
  all.push_back(worked(kApi, "worked/given-nan", row(1, 40, kF32, kE2M1, k32x32).given_sf(kF32),
                       k32x32, bytes(wide), bytes_of({nan, 1.0f}), {codes}));
}

void add_bad(std::vector<Case>& all) {
  const CastRow plain = row(4, 64, kBF16, kE4M3, k128x128);
  const TensorSpec x({4, 64}, kBF16);
  const auto bad = [&](const std::string& id, const CastRow& call, std::vector<TensorSpec> inputs,
                       const std::string& error) {
    all.push_back(bad_call(kApi, id, call, call.block, std::move(inputs), error));
  };
  bad("rank", plain, {{{2, 130, 128}, kBF16}}, "x must have 2 dimensions, got (2, 130, 128)");
  bad("dtype", plain, {{{4, 64}, kI32}}, "x must have dtype f32, bf16 or f16, got i32");
  bad("fmt", row(4, 64, kBF16, kBF16, k128x128), {x}, "fmt must have dtype e4m3 or e2m1, got bf16");
  bad("transposed", plain, {{{4, 64}, {1, 4}, kBF16}},
      "x must have column stride 1, got strides (1, 4)");
  bad("block-rows", row(4, 64, kBF16, kE4M3, {64, 128}), {x},
      "block_size.rows must be 32 or 128, got 64");
  bad("block-cols", row(4, 64, kBF16, kE4M3, {128, 1}), {x},
      "block_size.cols must be 32 or 128, got 1");
  bad("odd-hidden", row(4, 63, kBF16, kE2M1, k128x128), {{{4, 63}, kBF16}},
      "hidden must be a multiple of 2, got 63");
  bad("e4m3-sf", row(4, 64, kBF16, kE4M3, k128x128, kRowE4M3), {x},
      "sf.kind must be kF32, kRoundedF32 or kUE8M0, got kE4M3");
  bad("packed-f32", row(4, 64, kBF16, kE4M3, k128x128, {SfKind::kF32, SfLayout::kRowPacked}), {x},
      "sf.layout must be kRow or kCol for scaling factors of kind kF32, got kRowPacked");
  bad("token-packed", row(4, 64, kBF16, kE4M3, k128x128, {SfKind::kUE8M0, SfLayout::kTokenPacked}),
      {x}, "sf.layout must be kRow, kCol, kRowPacked or kColPacked, got kTokenPacked");
  bad("input-block", row(4, 64, kE4M3, kE4M3, k32x32).from(kF32, by_row(1, 48)),
      {{{4, 64}, kE4M3}, {{4, 2}, kF32}},
      "x_sf.block.cols must divide 32 or be a multiple of it, got 48");
  bad("given-e4m3", plain.given_sf(kE4M3), {x, {{1, 1}, kE4M3}},
      "sf must have dtype f32, got e4m3");
  bad("given-shape", plain.given_sf(kF32), {x, {{4, 1}, kF32}},
      "sf must have shape (1, 1), got (4, 1)");
}

}  // namespace

OpCases per_block_cast() {
  OpCases op{"per_block_cast", {}};
  for (const CastRow& r : kRows) op.cases.push_back(make_case(kApi, r, r.block));
  add_worked(op.cases);
  add_bad(op.cases);
  return op;
}

}  // namespace tilekernels::cases
