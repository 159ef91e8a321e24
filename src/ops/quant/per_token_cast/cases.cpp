// per_token_cast: cases as data.
#include "numerics/formats.h"
#include "ops/quant/cast_cases.h"

namespace tilekernels::cases {
namespace {

// The smallest legal clamp
constexpr float kLeastE2M1 = 6 * 0x1p-126f;

constexpr CastRow row(int64_t tokens, int64_t hidden, DType x, DType fmt, int group,
                      SfFormat sf = kRowF32) {
  return {tokens, hidden, x, fmt, {1, group}, sf};
}

constexpr CastRow kRows[] = {
    // Every group, kind, layout and pitch; every dtype; few and many rows; padding of every length
    row(0, 64, kBF16, kE4M3, 32),
    row(0, 64, kBF16, kE2M1, 32, kColPacked),
    row(3, 0, kBF16, kE4M3, 32),
    row(1, 16, kBF16, kE4M3, 16),
    row(1, 16, kF32, kE2M1, 128, kColPacked),
    row(1, 48, kBF16, kE4M3, 32, kColF32),
    row(1, 7168, kBF16, kE4M3, 128, kColPacked),
    row(3, 64, kBF16, kE4M3, 32, kRowPacked),
    row(3, 64, kBF16, kE4M3, 16, kColE4M3),
    row(3, 192, kBF16, kE4M3, 128),
    row(3, 192, kF32, kE4M3, 128, kColF32),
    row(3, 192, kF16, kE4M3, 128, kColF32Ascend),
    row(5, 192, kBF16, kE2M1, 128, kRowRounded),
    row(5, 160, kBF16, kE4M3, 32, kRowPacked),
    row(5, 160, kBF16, kE4M3, 32, kRowPackedAscend),
    row(5, 160, kF32, kE2M1, 32, kColPacked),
    row(5, 160, kF16, kE2M1, 32, kColPackedAscend),
    row(5, 48, kF32, kE4M3, 16, kColRounded),
    row(5, 48, kF32, kE2M1, 16, kRowE4M3),
    row(5, 1040, kBF16, kE2M1, 16, kColE4M3),
    row(5, 1040, kF16, kE2M1, 16, kColE4M3Ascend),
    row(17, 96, kF32, kE4M3, 64, kRowBytes),
    row(17, 96, kBF16, kE4M3, 64, kColBytes),
    row(17, 96, kF16, kE2M1, 64, kColBytesAscend),
    row(33, 320, kBF16, kE4M3, 64, kColPacked),
    row(33, 320, kF32, kE2M1, 64, kColF32),
    row(33, 2048, kF16, kE4M3, 16, kColPacked),
    row(33, 592, kBF16, kE2M1, 32, kColPackedAscend),
    row(16, 4112, kBF16, kE4M3, 16, kColPacked),
    row(2, 4624, kF32, kE2M1, 128, kColPacked),
    row(2, 9248, kBF16, kE4M3, 32, kRowPacked),
    row(130, 7168, kBF16, kE4M3, 128),
    row(66, 7168, kBF16, kE4M3, 128, kColPacked),
    row(35, 7168, kBF16, kE2M1, 32, kColPacked),
    row(35, 7168, kF32, kE4M3, 128, kColF32),
    row(35, 2048, kF16, kE4M3, 64, kRowRounded),
    // Codes that bypass a cache of 32 MiB, by way of a row buffer
    row(2051, 8208, kBF16, kE4M3, 128, kColPacked),
    // Enough rows that CUDA threads take several, the last ones fewer
    row(303, 7168, kF32, kE4M3, 16, kColPacked),
    row(607, 7168, kBF16, kE2M1, 16, kColE4M3),
    // Gaps between rows
    row(7, 2048, kBF16, kE4M3, 128).with_gap(5120),
    row(7, 112, kF32, kE4M3, 32, kColPacked).with_gap(1),
    row(7, 112, kF16, kE2M1, 32, kColF32).with_gap(3),
    // Data
    row(32, 256, kBF16, kE4M3, 128).with(Fill::kEdge),
    row(32, 256, kF32, kE4M3, 128).with(Fill::kEdge),
    row(32, 256, kF16, kE4M3, 32).with(Fill::kEdge),
    row(32, 256, kF32, kE4M3, 32, kColPacked).with(Fill::kEdge),
    row(32, 256, kBF16, kE2M1, 32).with(Fill::kEdge),
    row(32, 256, kF32, kE2M1, 32).with(Fill::kEdge),
    row(32, 256, kF32, kE2M1, 32, kColPacked).with(Fill::kEdge),
    row(32, 256, kF32, kE2M1, 16, kRowE4M3).with(Fill::kEdge),
    row(32, 256, kF32, kE4M3, 16, kRowE4M3).with(Fill::kEdge),
    row(32, 256, kF32, kE4M3, 128).with(Fill::kEdge).with_clamp(kLeastE4M3),
    row(32, 256, kF32, kE4M3, 32, kColPacked).with(Fill::kEdge).with_clamp(kLeastE4M3),
    row(9, 256, kBF16, kE4M3, 128).with(Fill::kNonFinite),
    row(9, 256, kF32, kE4M3, 32, kColPacked).with(Fill::kNonFinite),
    row(9, 256, kF16, kE4M3, 16, kRowE4M3).with(Fill::kNonFinite),
    row(9, 256, kBF16, kE2M1, 16, kColE4M3).with(Fill::kNonFinite),
    row(9, 256, kF32, kE2M1, 32, kRowRounded).with(Fill::kNonFinite),
    row(9, 272, kF16, kE2M1, 64, kRowPacked).with(Fill::kNonFinite),
    row(9, 7168, kBF16, kE4M3, 32, kColPacked).with(Fill::kNonFinite),
    row(16, 512, kBF16, kE4M3, 16).with(Fill::kBits),
    row(16, 512, kF32, kE4M3, 16, kColPacked).with(Fill::kBits),
    row(16, 512, kF16, kE4M3, 16, kRowRounded).with(Fill::kBits),
    row(16, 512, kBF16, kE2M1, 16, kRowE4M3).with(Fill::kBits),
    row(16, 512, kF32, kE2M1, 16).with(Fill::kBits),
    row(16, 512, kF16, kE2M1, 16, kRowPacked).with(Fill::kBits),
    row(16, 512, kF32, kE4M3, 128).with(Fill::kTies),
    row(16, 512, kBF16, kE4M3, 128, kRowRounded).with(Fill::kTies),
    row(16, 512, kBF16, kE2M1, 128, kRowRounded).with(Fill::kTies),
    row(16, 512, kF16, kE2M1, 16, kRowE4M3).with(Fill::kTies),
    row(4, 256, kBF16, kE4M3, 128).with(Fill::kZero),
    row(4, 256, kF32, kE4M3, 16, kRowE4M3).with(Fill::kZero),
    row(4, 256, kF16, kE2M1, 32, kColPacked).with(Fill::kZero),
    row(4, 256, kBF16, kE2M1, 16, kRowE4M3).with(Fill::kZero),
    // Clamps of a call
    row(4, 256, kBF16, kE4M3, 128).with_clamp(1000),
    row(4, 256, kBF16, kE4M3, 16, kRowE4M3).with_clamp(0.875f),
    row(4, 256, kBF16, kE2M1, 32, kColPacked).with_clamp(3),
    row(4, 256, kBF16, kE2M1, 16, kRowE4M3).with_clamp(6 * 0x1p-9f),

    // A quantized x: every dtype of scaling factors, every layout, blocks smaller and larger
    row(0, 128, kE4M3, kE4M3, 32).from(kF32, by_row(1, 128)),
    row(1, 16, kE4M3, kE2M1, 16).from(kF32, by_row(1, 16)),
    row(5, 256, kE4M3, kE4M3, 32).from(kF32, by_row(1, 128)),
    row(5, 256, kE4M3, kE4M3, 128).from(kF32, by_row(1, 32)),
    row(5, 256, kE4M3, kE2M1, 32, kColPacked).from(kF32, by_col(1, 128)),
    row(5, 272, kE2M1, kE4M3, 128, kColF32).from(kE8M0, by_row(1, 32), Fill::kPow2Scale),
    row(5, 272, kE2M1, kE2M1, 64).from(kE8M0, by_col(1, 32), Fill::kPow2Scale),
    row(5, 272, kE2M1, kE2M1, 128).from(kE4M3, by_row(1, 16)),
    row(5, 272, kE2M1, kE4M3, 16, kRowE4M3).from(kE4M3, by_col(1, 16)),
    row(7, 608, kE4M3, kE4M3, 32, kColPacked).from(kI32, row_packed(1, 32), Fill::kPow2Scale),
    row(7, 608, kE4M3, kE4M3, 64).from(kI32, col_packed(1, 128), Fill::kPow2Scale),
    row(7, 608, kE2M1, kE4M3, 64).from(kI16, row_packed(1, 32), Fill::kPow2Scale),
    row(7, 608, kE2M1, kE2M1, 32).from(kI16, col_packed(1, 64), Fill::kPow2Scale),
    row(37, 608, kE4M3, kE4M3, 128).from(kI32, token_packed(32), Fill::kPow2Scale),
    row(37, 608, kE2M1, kE4M3, 32).from(kI16, token_packed(1), Fill::kPow2Scale),
    row(37, 400, kE4M3, kE4M3, 128).from(kF32, by_row(32, 1)),
    row(37, 400, kE4M3, kE4M3, 32).from(kF32, by_row(3, 2)),
    row(37, 400, kE2M1, kE2M1, 16).from(kF32, by_row(7, 4)),
    row(37, 400, kE4M3, kE2M1, 16, kRowE4M3).from(kF32, by_col(5, 8)),
    row(37, 400, kE4M3, kE4M3, 32).from(kF32, by_row(128, 128)),
    row(37, 400, kE4M3, kE4M3, 32).from(kF32, by_row(1, 96)),
    row(37, 400, kE4M3, kE4M3, 128).from(kF32, by_row(1, 384)),
    row(37, 400, kE2M1, kE4M3, 64).from(kF32, by_col(32, 1024)),
    row(37, 7168, kE4M3, kE4M3, 32, kColPacked).from(kF32, by_row(1, 128)),
    row(37, 7168, kE4M3, kE2M1, 32, kColPacked).from(kI32, col_packed(1, 128), Fill::kPow2Scale),
    row(37, 7168, kE2M1, kE4M3, 128).from(kI32, row_packed(1, 32), Fill::kPow2Scale),
    row(3, 9248, kE4M3, kE4M3, 32, kColPacked).from(kI32, row_packed(1, 32), Fill::kPow2Scale),
    row(3, 9248, kE4M3, kE4M3, 32).from(kI32, col_packed(1, 96), Fill::kPow2Scale),
    row(6, 256, kE4M3, kE4M3, 32).from(kF32, by_row(1, 128)).with_gap(16).with_sf_gap(3),
    row(6, 256, kE2M1, kE4M3, 32).from(kI32, col_packed(1, 32), Fill::kPow2Scale).with_sf_gap(8),
    row(6, 256, kE4M3, kE4M3, 32).from(kF32, by_col(2, 128)).with_sf_gap(5).with_gap(7),
    row(605, 7168, kE4M3, kE4M3, 16).from(kF32, by_row(1, 16)),
    // NaN codes and scaling factors, Inf, zero and huge scaling factors over zero codes
    row(16, 512, kE4M3, kE4M3, 128).from(kF32, by_row(1, 32)).with(Fill::kBits),
    row(16, 512, kE4M3, kE2M1, 32, kColPacked).from(kF32, by_row(1, 128), Fill::kBits),
    row(16, 512, kE4M3, kE4M3, 16).from(kF32, by_row(1, 4), Fill::kBits),
    row(16, 512, kE4M3, kE4M3, 16).from(kF32, by_row(1, 16), Fill::kBits).with(Fill::kZero),
    row(16, 512, kE2M1, kE4M3, 32, kColPacked).from(kE8M0, by_row(1, 16), Fill::kBits),
    row(16, 512, kE2M1, kE4M3, 32).from(kI32, row_packed(1, 16), Fill::kBits).with(Fill::kBits),
    row(16, 512, kE2M1, kE2M1, 32).from(kI16, col_packed(1, 16), Fill::kBits).with(Fill::kZero),
    row(16, 512, kE2M1, kE2M1, 16, kRowE4M3).from(kE4M3, by_row(1, 16), Fill::kBits),
    row(16, 512, kE4M3, kE4M3, 64).from(kF32, by_row(1, 64), Fill::kEdge).with(Fill::kTies),
    row(32, 512, kE4M3, kE4M3, 32, kColPacked).from(kF32, by_row(1, 128)).with(Fill::kEdge),
    row(32, 512, kE4M3, kE4M3, 64).from(kF32, by_row(1, 16)).with(Fill::kEdge),
    row(16, 512, kE2M1, kE2M1, 64).from(kF32, by_row(1, 32), Fill::kEdge).with(Fill::kBits),
    row(16, 512, kE4M3, kE2M1, 64).from(kF32, by_row(2, 32), Fill::kNonFinite),

    // Scaling factors alone
    row(0, 64, kBF16, kE4M3, 32).sf_only(),
    row(5, 192, kBF16, kE4M3, 128, kColF32).sf_only(),
    row(33, 160, kF32, kE4M3, 32, kColPacked).sf_only(),
    row(33, 160, kF16, kE2M1, 32, kRowPackedAscend).sf_only(),
    row(5, 48, kBF16, kE2M1, 16, kRowE4M3).sf_only(),
    row(5, 7168, kBF16, kE4M3, 64, kColBytes).sf_only().with(Fill::kNonFinite),
    row(32, 256, kF32, kE2M1, 32, kRowRounded).sf_only().with(Fill::kEdge).with_clamp(kLeastE2M1),

    // Codes under given scaling factors
    row(0, 64, kBF16, kE4M3, 32).given_sf(kF32),
    row(5, 192, kBF16, kE4M3, 128).given_sf(kF32),
    row(5, 48, kF16, kE2M1, 16).given_sf(kE4M3),
    row(33, 160, kF32, kE4M3, 32).given_sf(kF32, Fill::kPow2Scale).with_sf_gap(3).with_gap(8),
    row(33, 7168, kBF16, kE2M1, 32).given_sf(kF32),
    row(16, 256, kF32, kE4M3, 16).given_sf(kF32, Fill::kBits).with(Fill::kBits),
    row(16, 256, kBF16, kE2M1, 16).given_sf(kF32, Fill::kBits).with(Fill::kBits),
    row(16, 256, kF16, kE4M3, 16).given_sf(kE4M3, Fill::kBits).with(Fill::kNonFinite),
    row(16, 256, kF32, kE2M1, 16).given_sf(kE4M3, Fill::kBits).with(Fill::kNonFinite),
    row(16, 256, kF32, kE2M1, 64).given_sf(kF32, Fill::kEdge).with(Fill::kEdge),
    row(16, 256, kF32, kE4M3, 64).given_sf(kF32, Fill::kEdge).with(Fill::kEdge),
    row(16, 256, kBF16, kE4M3, 64).given_sf(kF32, Fill::kZero).with(Fill::kTies),
    row(9, 256, kF32, kE2M1, 32).given_sf(kF32, Fill::kNonFinite).with(Fill::kTies),

    row(1, 7168, kBF16, kE4M3, 128).timed(),
    row(1, 7168, kBF16, kE4M3, 128, kColPacked).timed(),
    row(1, 7168, kBF16, kE4M3, 32, kColPacked).timed(),
    row(1, 7168, kBF16, kE2M1, 32).timed(),
    row(1, 7168, kBF16, kE2M1, 32, kColPacked).timed(),
    row(1, 7168, kE4M3, kE4M3, 32, kColPacked).from(kF32, by_row(1, 128)).timed(),
    row(128, 7168, kBF16, kE4M3, 128).timed().with_pdl(),
    row(128, 7168, kBF16, kE4M3, 128, kColPacked).timed(),
    row(128, 7168, kBF16, kE4M3, 32, kColPacked).timed(),
    row(128, 7168, kBF16, kE2M1, 32).timed(),
    row(128, 7168, kBF16, kE2M1, 32, kColPacked).timed(),
    row(128, 7168, kF32, kE4M3, 128).timed(),
    row(128, 7168, kE4M3, kE4M3, 32, kColPacked).from(kF32, by_row(1, 128)).timed(),
    row(4096, 2048, kBF16, kE4M3, 128).timed(),
    row(4096, 2048, kBF16, kE4M3, 128, kColPacked).timed(),
    row(4096, 2048, kBF16, kE4M3, 32, kColPacked).timed(),
    row(4096, 2048, kBF16, kE2M1, 32).timed(),
    row(4096, 2048, kBF16, kE2M1, 32, kRowPacked).timed(),
    row(4096, 2048, kBF16, kE2M1, 32, kColPacked).timed(),
    row(4096, 2048, kF32, kE4M3, 128).timed(),
    row(4096, 2048, kE4M3, kE4M3, 32, kColPacked).from(kF32, by_row(1, 128)).timed(),
    row(4096, 7168, kBF16, kE4M3, 128).timed().with_pdl(),
    row(4096, 7168, kBF16, kE4M3, 128, kColF32).timed(),
    row(4096, 7168, kBF16, kE4M3, 128, kRowPacked).timed(),
    row(4096, 7168, kBF16, kE4M3, 32, kRowBytes).timed(),
    row(4096, 7168, kBF16, kE4M3, 128, kColPacked).timed(),
    row(4096, 7168, kBF16, kE4M3, 32, kColPacked).timed(),
    row(4096, 7168, kBF16, kE2M1, 32).timed(),
    row(4096, 7168, kBF16, kE2M1, 32, kColPacked).timed(),
    row(4096, 7168, kBF16, kE2M1, 16, kRowE4M3).timed(),
    row(4096, 7168, kF32, kE4M3, 128).timed(),
    row(4096, 7168, kE4M3, kE4M3, 32, kColPacked).from(kF32, by_row(1, 128)).timed(),
    row(16384, 7168, kBF16, kE4M3, 128).timed(),
    row(16384, 7168, kBF16, kE4M3, 128, kColF32).timed(),
    row(16384, 7168, kBF16, kE4M3, 128, kRowPacked).timed(),
    row(16384, 7168, kBF16, kE4M3, 128, kColPacked).timed(),
    row(16384, 7168, kBF16, kE4M3, 32, kColPacked).timed(),
    row(16384, 7168, kBF16, kE2M1, 32).timed(),
    row(16384, 7168, kBF16, kE2M1, 32, kColPacked).timed(),
    row(16384, 7168, kF32, kE4M3, 128).timed(),
    row(4096, 7168, kBF16, kE4M3, 128, kColPacked).sf_only().timed(),
    row(4096, 7168, kBF16, kE4M3, 128).given_sf(kF32).timed(),
};

const CastApi<int> kApi = {
    "per_token_cast",
    per_token_cast_spec,
    per_token_cast_out,
    per_token_cast,
    per_token_cast_spec,
    per_token_cast_out,
    per_token_cast,
    per_token_cast_with_sf_only_spec,
    per_token_cast_with_sf_only_out,
    per_token_cast_with_sf_only,
    per_token_cast_with_precomputed_sf_spec,
    per_token_cast_with_precomputed_sf_out,
    per_token_cast_with_precomputed_sf,
};

using Bytes = std::vector<uint8_t>;

// `values`, then zeros: a row of at least 16 columns.
Bytes row_of(std::initializer_list<float> values, size_t columns = 16) {
  std::vector<float> all(values);
  all.resize(columns);
  const auto* begin = reinterpret_cast<const uint8_t*>(all.data());
  return {begin, begin + 4 * columns};
}

// The codes of those columns.
Bytes codes(std::initializer_list<uint8_t> first, size_t bytes) {
  Bytes all(first);
  all.resize(bytes);
  return all;
}

// One row of f32 as one group.
Case one_group(const std::string& id, DType fmt, SfFormat sf, const Bytes& x, Bytes out,
               Bytes out_sf, float clamp = 0) {
  const auto columns = static_cast<int64_t>(x.size() / 4);
  const int group = columns <= 16 ? 16 : columns <= 32 ? 32 : 128;
  return worked(kApi, id, row(1, columns, kF32, fmt, group, sf).with_clamp(clamp), group, x, {},
                {std::move(out), std::move(out_sf)});
}

// Rows of f32 under a given scaling factor of 1, one group.
Case unscaled(const std::string& id, DType fmt, const Bytes& x, Bytes out) {
  return worked(kApi, id, row(1, 16, kF32, fmt, 16).given_sf(kF32), 16, x, bytes_of({1.0f}),
                {std::move(out)});
}

void add_worked(std::vector<Case>& all) {
  // One block of each kind of scaling factors
  const Bytes a = row_of({0.3f, -0.7f, 1.1f, 5.0f, -2.2f, 0.01f, -3.3f, 4.4f});
  all.push_back(one_group("worked/e4m3-f32", kE4M3, kRowF32, a,
                          codes({0x5D, 0xE8, 0x6C, 0x7E, 0xF4, 0x36, 0xF9, 0x7C}, 16),
                          bytes_of({0x3C36DB6Eu})));
  all.push_back(one_group("worked/e4m3-rounded", kE4M3, kRowRounded, a,
                          codes({0x5A, 0xE3, 0x69, 0x7A, 0xF1, 0x32, 0xF5, 0x79}, 16),
                          bytes_of({0x3C800000u})));
  all.push_back(one_group("worked/e4m3-rowpacked", kE4M3, kRowPacked, a,
                          codes({0x5A, 0xE3, 0x69, 0x7A, 0xF1, 0x32, 0xF5, 0x79}, 16),
                          {121, 0, 0, 0}));
  all.push_back(one_group("worked/e4m3-colpacked", kE4M3, kColPacked, a,
                          codes({0x5A, 0xE3, 0x69, 0x7A, 0xF1, 0x32, 0xF5, 0x79}, 16),
                          codes({121}, 16)));
  all.push_back(one_group("worked/e4m3-e4m3", kE4M3, kRowE4M3, a,
                          codes({0x5D, 0xE7, 0x6C, 0x7D, 0xF4, 0x36, 0xF9, 0x7C}, 16), {0x06}));
  all.push_back(one_group("worked/e2m1-f32", kE2M1, kRowF32, a, codes({0xA1, 0x73, 0x0D, 0x7E}, 8),
                          bytes_of({0x3F555555u})));
  all.push_back(one_group("worked/e2m1-rowpacked-ascend", kE2M1, kRowPackedAscend, a,
                          codes({0x91, 0x62, 0x0C, 0x6D}, 8), {127, 0}));
  all.push_back(one_group("worked/e2m1-e4m3", kE2M1, kRowE4M3, a,
                          codes({0xA1, 0x73, 0x0D, 0x7E}, 8), {0x35}));
  const Bytes b = row_of({0.10009765625f, -0.25f, 0.5f, 1, -1.5f, 2, 3, -7});
  for (const SfFormat& sf : {kRowF32, kRowRounded}) {
    all.push_back(one_group("worked/row-b-e4m3-" + text(sf), kE4M3, sf, b,
                            codes({0x4D, 0xD8, 0x60, 0x68, 0xEC, 0x70, 0x74, 0xFE}, 16),
                            bytes_of({0x3C800000u})));
  }
  all.push_back(one_group("worked/row-b-e4m3-e4m3", kE4M3, kRowE4M3, b,
                          codes({0x4D, 0xD8, 0x60, 0x68, 0xEC, 0x70, 0x74, 0xFE}, 16), {0x08}));
  all.push_back(one_group("worked/row-b-e2m1-f32", kE2M1, kRowF32, b,
                          codes({0x80, 0x21, 0x3B, 0xF5}, 8), bytes_of({0x3F955555u})));
  all.push_back(one_group("worked/row-b-e2m1-bytes", kE2M1, kRowBytes, b,
                          codes({0x80, 0x10, 0x2A, 0xE3}, 8), {128}));
  all.push_back(one_group("worked/row-b-e2m1-e4m3", kE2M1, kRowE4M3, b,
                          codes({0x80, 0x21, 0x4B, 0xF5}, 8), {0x39}));

  // The edge of an exponent: the next number above 448 takes the next power of two.
  all.push_back(one_group("worked/448", kE4M3, kRowBytes, row_of({448}), codes({0x7E}, 16), {127}));
  all.push_back(one_group("worked/above-448", kE4M3, kRowBytes, row_of({0x1.c00002p+8f}),
                          codes({0x76}, 16), {128}));
  all.push_back(
      one_group("worked/amax-600", kE4M3, kRowBytes, row_of({600}, 32), codes({0x79}, 32), {128}));
  all.push_back(one_group("worked/exponent-exact", kE4M3, kRowBytes, row_of({0x1.cp-16f}),
                          codes({0x7E}, 16), {103}, kLeastE4M3));
  all.push_back(one_group("worked/exponent-above", kE4M3, kRowBytes, row_of({0x1.c00002p-16f}),
                          codes({0x76}, 16), {104}, kLeastE4M3));

  // Zeros keep their sign, and their scaling factor is that of the clamp.
  const Bytes zeros = row_of({0.0f, -0.0f, 0.0f, -0.0f});
  all.push_back(one_group("worked/zeros-e4m3", kE4M3, kRowF32, zeros,
                          codes({0x00, 0x80, 0x00, 0x80}, 16), bytes_of({0x346FACADu})));
  all.push_back(one_group("worked/zeros-e4m3-bytes", kE4M3, kRowBytes, zeros,
                          codes({0x00, 0x80, 0x00, 0x80}, 16), {105}));
  all.push_back(one_group("worked/zeros-e4m3-bytes-least", kE4M3, kRowBytes, zeros,
                          codes({0x00, 0x80, 0x00, 0x80}, 16), {1}, kLeastE4M3));
  all.push_back(one_group("worked/zeros-e4m3-e4m3", kE4M3, kRowE4M3, zeros,
                          codes({0x00, 0x80, 0x00, 0x80}, 16), {1}));
  all.push_back(
      one_group("worked/zeros-e2m1-bytes", kE2M1, kRowBytes, zeros, codes({0x80, 0x80}, 8), {1}));
  all.push_back(
      one_group("worked/zeros-e2m1-e4m3", kE2M1, kRowE4M3, zeros, codes({0x80, 0x80}, 8), {1}));
  {
    std::vector<uint16_t> x(512);
    x[0] = 0x3F80;
    const auto* begin = reinterpret_cast<const uint8_t*>(x.data());
    Bytes out(512);
    out[0] = 0x7E;
    all.push_back(worked(kApi, "worked/one-among-zeros", row(2, 256, kBF16, kE4M3, 128), 128,
                         {begin, begin + 1024}, {},
                         {out, bytes_of({0x3B124925u, 0x346FACADu, 0x346FACADu, 0x346FACADu})}));
  }
  // Small signals under the default clamp and without it
  all.push_back(one_group("worked/below-clamp", kE4M3, kRowF32, row_of({1e-6f}), codes({0x49}, 16),
                          bytes_of({0x346FACADu})));
  all.push_back(one_group("worked/no-clamp", kE4M3, kRowF32, row_of({1e-6f}), codes({0x7E}, 16), {},
                          kLeastE4M3));
  // The inverse of a tiny scaling factor does not overflow.
  all.push_back(one_group("worked/tiny", kE4M3, kRowBytes,
                          row_of({__builtin_bit_cast(float, 0x06980000u)}, 32), codes({0x7A}, 32),
                          {5}, kLeastE4M3));

  // NaN and Inf take their group, wherever they stand, and leave the neighbour alone.
  for (const size_t lane : {0u, 1u, 15u, 31u}) {
    for (const bool is_nan : {true, false}) {
      std::vector<float> x(64);
      Bytes e4m3(32, 0x7F);
      Bytes e2m1(16);
      for (size_t i = 0; i < 64; ++i) x[i] = static_cast<float>(i % 32);
      for (size_t i = 0; i < 32; ++i) e4m3.push_back(numerics::f32_to_e4m3(x[i] * 8));
      for (size_t i = 0; i < 32; i += 2) {
        e2m1.push_back(numerics::pack_e2m1(numerics::f32_to_e2m1(x[i] * (6.0f / 31)),
                                           numerics::f32_to_e2m1(x[i + 1] * (6.0f / 31))));
      }
      x[lane] = is_nan ? __builtin_nanf("") : -__builtin_inff();
      const auto* begin = reinterpret_cast<const uint8_t*>(x.data());
      const Bytes bytes(begin, begin + 256);
      const std::string id =
          "worked/bad-group-" + std::to_string(lane) + (is_nan ? "-nan" : "-inf");
      all.push_back(worked(kApi, id, row(1, 64, kF32, kE4M3, 32, kRowPacked), 32, bytes, {},
                           {e4m3, {255, 124, 0, 0}}));
      all.push_back(worked(kApi, id + "-e2m1", row(1, 64, kF32, kE2M1, 32), 32, bytes, {},
                           {e2m1, bytes_of({0x7FC00000u, 0x40A55555u})}));
    }
  }

  // Under a scaling factor of 1: saturation, ties, the order of nibbles, NaN
  constexpr float kInf = __builtin_inff();
  const float nan = __builtin_nanf("");
  all.push_back(unscaled("worked/saturate-e4m3", kE4M3,
                         row_of({448, 464, 465, 1000, kInf, -kInf, nan, -nan}),
                         codes({0x7E, 0x7E, 0x7E, 0x7E, 0x7E, 0xFE, 0x7F, 0x7F}, 16)));
  all.push_back(unscaled("worked/saturate-e2m1", kE2M1,
                         row_of({6, 7, 1e30f, kInf, -kInf, nan, -nan, -1e-30f}),
                         codes({0x77, 0x77, 0x7F, 0x8F}, 8)));
  all.push_back(unscaled("worked/nibbles", kE2M1, row_of({0.5f, 6.0f}), codes({0x71}, 8)));
  all.push_back(unscaled("worked/ties-e2m1", kE2M1,
                         row_of({0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5, 0, -0.25f, -0.75f,
                                 -1.25f, -1.75f, -2.5f, -3.5f, -5, -0.0f}),
                         {0x20, 0x42, 0x64, 0x06, 0xA8, 0xCA, 0xEC, 0x8E}));
  all.push_back(one_group("worked/ties-e2m1-bytes", kE2M1, kRowBytes,
                          row_of({6, 5, 3.5f, 2.5f, 1.75f, 1.25f, 0.75f, 0.25f}),
                          codes({0x67, 0x46, 0x24, 0x02}, 8), {127}));
  all.push_back(unscaled("worked/ties-e4m3", kE4M3,
                         row_of({17, 19, 21, 23, 25, 27, 29, 31, -17, 0x1p-10f, 0x3p-10f, 0x5p-10f,
                                 -0x1p-10f, 0x1.8p-10f, 432, 416}),
                         {0x58, 0x5A, 0x5A, 0x5C, 0x5C, 0x5E, 0x5E, 0x60, 0xD8, 0x00, 0x02, 0x02,
                          0x80, 0x01, 0x7E, 0x7D}));
  // A NaN scaling factor takes its group; 0 and Inf follow IEEE.
  Bytes half_nan(16, 0x7F);
  half_nan.resize(32);
  all.push_back(worked(kApi, "worked/given-nan-e4m3", row(1, 32, kF32, kE4M3, 16).given_sf(kF32),
                       16, row_of({1, -1}, 32), bytes_of({nan, 1.0f}), {half_nan}));
  all.push_back(worked(kApi, "worked/given-nan-e2m1", row(1, 32, kF32, kE2M1, 16).given_sf(kF32),
                       16, row_of({1, -1}, 32), bytes_of({nan, 1.0f}), {Bytes(16)}));
  all.push_back(worked(kApi, "worked/given-zero", row(1, 16, kF32, kE2M1, 16).given_sf(kF32), 16,
                       row_of({1, -1, 0.0f, -0.0f, nan, -nan}), bytes_of({0.0f}),
                       {{0xF7, 0xF7, 0xF7, 0x77, 0x77, 0x77, 0x77, 0x77}}));
  all.push_back(worked(kApi, "worked/given-inf", row(1, 16, kF32, kE4M3, 16).given_sf(kF32), 16,
                       row_of({1, -1, kInf}), bytes_of({kInf}), {codes({0x00, 0x80, 0x7F}, 16)}));

  // The order of products of a quantized x: sf_in · inverse first. One group of 128 under two
  // scaling factors, the larger over the code 0x7E.
  {
    Bytes x(128), out(128);
    x[0] = 0x7E;
    x[64] = 0x0F;
    out[0] = 0x7E;
    out[64] = 0x08;
    all.push_back(worked(kApi, "worked/fused-order",
                         row(1, 128, kE4M3, kE4M3, 128).from(kF32, by_row(1, 64)), 128, x,
                         bytes_of({0x3F0446ADu, 0x3E8446ADu}), {out, {}}));
    // Zero codes under a scaling factor that makes the product overflow stay zero.
    Bytes huge(32);
    huge[0] = 0x80;
    all.push_back(worked(kApi, "worked/zero-codes-under-huge-sf",
                         row(1, 32, kE4M3, kE2M1, 32).from(kF32, by_row(1, 32)), 32, huge,
                         bytes_of({0x1p126f}), {codes({0x08}, 16), bytes_of({0x1p-126f})}));
    // Packed exponents of an input, lowest byte first: 1, 1, 2, 4 over ones
    Bytes scaled(64, 0x68);
    scaled.resize(96, 0x70);
    scaled.resize(128, 0x78);
    all.push_back(worked(kApi, "worked/packed-input",
                         row(1, 128, kE2M1, kE4M3, 128, kRowRounded).from(kI32, row_packed(1, 32)),
                         128, Bytes(64, 0x22), bytes_of({0x81807F7Fu}),
                         {scaled, bytes_of({0x1p-6f})}));
  }

  // Where the bytes of 3 x 5 exponents lie: 120 to 124 in every row.
  {
    std::vector<float> x(3 * 80);
    for (size_t i = 0; i < x.size(); i += 16) {
      x[i] = 448.0f * static_cast<float>(1 << (i / 16 % 5)) * 0x1p-7f;
    }
    const auto* begin = reinterpret_cast<const uint8_t*>(x.data());
    const Bytes bytes(begin, begin + 4 * x.size());
    const auto layout = [&](const std::string& id, SfFormat sf, Bytes out_sf) {
      all.push_back(worked(kApi, "worked/layout-" + id, row(3, 80, kF32, kE4M3, 16, sf), 16, bytes,
                           {}, {{}, std::move(out_sf)}));
    };
    layout("rowpacked", kRowPacked,
           bytes_of({0x7B7A7978u, 0x7Cu, 0x7B7A7978u, 0x7Cu, 0x7B7A7978u, 0x7Cu}));
    layout("rowpacked-ascend", kRowPackedAscend,
           bytes_of<uint16_t>({0x7978, 0x7B7A, 0x7C, 0x7978, 0x7B7A, 0x7C, 0x7978, 0x7B7A, 0x7C}));
    layout("colpacked", kColPacked,
           bytes_of({0x7B7A7978u, 0x7B7A7978u, 0x7B7A7978u, 0u, 0x7Cu, 0x7Cu, 0x7Cu, 0u}));
    layout("colpacked-ascend", kColPackedAscend,
           bytes_of<uint16_t>({0x7978, 0x7978, 0x7978, 0x7B7A, 0x7B7A, 0x7B7A, 0x7C, 0x7C, 0x7C}));
    layout("col-bytes-ascend", kColBytesAscend,
           {120, 120, 120, 121, 121, 121, 122, 122, 122, 123, 123, 123, 124, 124, 124});
    layout("row-bytes", kRowBytes,
           {120, 121, 122, 123, 124, 120, 121, 122, 123, 124, 120, 121, 122, 123, 124});
    layout("col-f32", kColRounded,
           bytes_of({0x1p-7f, 0x1p-7f, 0x1p-7f, 0.0f,    0x1p-6f, 0x1p-6f, 0x1p-6f,
                     0.0f,    0x1p-5f, 0x1p-5f, 0x1p-5f, 0.0f,    0x1p-4f, 0x1p-4f,
                     0x1p-4f, 0.0f,    0x1p-3f, 0x1p-3f, 0x1p-3f, 0.0f}));
  }
}

void add_bad(std::vector<Case>& all) {
  const CastRow plain = row(4, 64, kBF16, kE4M3, 32);
  const TensorSpec x({4, 64}, kBF16);
  const auto bad = [&](const std::string& id, const CastRow& call, std::vector<TensorSpec> inputs,
                       const std::string& error) {
    all.push_back(bad_call(kApi, id, call, call.block.cols, std::move(inputs), error));
  };
  bad("rank", plain, {{{64}, kBF16}}, "x must have 2 dimensions, got (64)");
  bad("rank-3", plain, {{{2, 4, 64}, kBF16}}, "x must have 2 dimensions, got (2, 4, 64)");
  bad("dtype", plain, {{{4, 64}, kE4M3}}, "x must have dtype f32, bf16 or f16, got e4m3");
  bad("fmt", row(4, 64, kBF16, DType::kE5M2, 32), {x},
      "fmt must have dtype e4m3 or e2m1, got e5m2");
  bad("transposed", plain, {{{4, 64}, {1, 4}, kBF16}},
      "x must have column stride 1, got strides (1, 4)");
  bad("expanded", plain, {{{4, 64}, {0, 1}, kBF16}},
      "x must have a row stride of at least 64, got strides (0, 1)");
  bad("overlapping-rows", plain, {{{4, 64}, {63, 1}, kBF16}},
      "x must have a row stride of at least 64, got strides (63, 1)");
  bad("span", plain, {{{4, 64}, {int64_t{1} << 61, 1}, kBF16}},
      "x must span fewer than 2^63 bytes, got strides (2305843009213693952, 1) for shape (4, 64)");
  bad("size", plain, {{{int64_t{1} << 60, 64}, {64, 1}, kBF16}},
      "x must have fewer than 2^63 bytes, got (1152921504606846976, 64)");
  bad("hidden", row(4, 40, kBF16, kE4M3, 32), {{{4, 40}, kBF16}},
      "hidden must be a multiple of 16, got 40");
  bad("hidden-large", plain, {{{0, int64_t{1} << 31}, kBF16}},
      "hidden must be in 0..2147483647, got 2147483648");
  bad("group", row(4, 64, kBF16, kE4M3, 48), {x},
      "num_per_channels must be 16, 32, 64 or 128, got 48");
  bad("group-0", row(4, 64, kBF16, kE4M3, 0), {x},
      "num_per_channels must be 16, 32, 64 or 128, got 0");
  bad("packed-f32", row(4, 64, kBF16, kE4M3, 32, {SfKind::kF32, SfLayout::kColPacked}), {x},
      "sf.layout must be kRow or kCol for scaling factors of kind kF32, got kColPacked");
  bad("packed-rounded", row(4, 64, kBF16, kE4M3, 32, {SfKind::kRoundedF32, SfLayout::kRowPacked}),
      {x},
      "sf.layout must be kRow or kCol for scaling factors of kind kRoundedF32, got kRowPacked");
  bad("packed-e4m3", row(4, 64, kBF16, kE2M1, 16, {SfKind::kE4M3, SfLayout::kColPacked}), {x},
      "sf.layout must be kRow or kCol for scaling factors of kind kE4M3, got kColPacked");
  bad("token-packed", row(4, 64, kBF16, kE4M3, 32, {SfKind::kUE8M0, SfLayout::kTokenPacked}), {x},
      "sf.layout must be kRow, kCol, kRowPacked or kColPacked, got kTokenPacked");
  bad("clamp-0", row(4, 64, kBF16, kE4M3, 32).with_clamp(-1), {x},
      "amax_clamp must be finite and at least 5.2662147e-36, got -1");
  bad("clamp-small", row(4, 64, kBF16, kE2M1, 16, kRowE4M3).with_clamp(0.01f), {x},
      "amax_clamp must be finite and at least 0.01171875, got 0.01");
  bad("clamp-inf", row(4, 64, kBF16, kE4M3, 32).with_clamp(__builtin_inff()), {x},
      "amax_clamp must be finite and at least 5.2662147e-36, got inf");
  bad("clamp-nan", row(4, 64, kBF16, kE4M3, 32).with_clamp(__builtin_nanf("")), {x},
      "amax_clamp must be finite and at least 5.2662147e-36, got nan");

  const CastRow requant = row(4, 64, kE4M3, kE4M3, 32).from(kF32, by_row(1, 32));
  const TensorSpec codes({4, 64}, kE4M3);
  const TensorSpec sf({4, 2}, kF32);
  bad("input-dtype", requant, {x, sf}, "x must have dtype e4m3 or e2m1, got bf16");
  bad("input-sf-dtype", requant, {codes, {{4, 2}, kBF16}},
      "x.sf must have dtype f32, e4m3 or e8m0, got bf16");
  bad("input-sf-words", requant, {codes, {{4, 1}, kI32}},
      "x.sf must have dtype f32, e4m3 or e8m0, got i32");
  bad("input-sf-not-words", row(4, 64, kE4M3, kE4M3, 32).from(kI32, row_packed(1, 32)), {codes, sf},
      "x.sf must have dtype i32 or i16, got f32");
  bad("input-sf-shape", requant, {codes, {{4, 3}, kF32}},
      "x.sf must have shape (4, 2), got (4, 3)");
  bad("input-sf-rank", requant, {codes, {{8}, kF32}}, "x.sf must have shape (4, 2), got (8)");
  bad("input-sf-transposed", requant, {codes, {{4, 2}, {1, 4}, kF32}},
      "x.sf must have column stride 1, got strides (1, 4)");
  bad("input-sf-by-row", row(4, 64, kE4M3, kE4M3, 32).from(kF32, by_col(1, 32)), {codes, sf},
      "x.sf must have row stride 1 and a column stride of at least 4, being kCol, got strides "
      "(2, 1)");
  bad("input-sf-device", requant, {codes, {{4, 2}, kF32, Device{DeviceType::kCuda, 0}}},
      "x.sf must be on cpu, where x is, got cuda:0");
  bad("input-block", row(4, 64, kE4M3, kE4M3, 32).from(kF32, by_row(1, 48)), {codes, sf},
      "x_sf.block.cols must divide 32 or be a multiple of it, got 48");
  bad("input-block-0", row(4, 64, kE4M3, kE4M3, 32).from(kF32, by_row(1, 0)), {codes, sf},
      "x_sf.block.cols must be in 1..2147483647, got 0");
  bad("input-token-packed",
      row(4, 64, kE4M3, kE4M3, 32).from(kI32, {{1, 32}, SfLayout::kTokenPacked}), {codes, sf},
      "x_sf.block.cols must be 1 for layout kTokenPacked, got 32");

  const CastRow given = plain.given_sf(kF32);
  bad("given-rank", given, {x, {{8}, kF32}}, "sf must have 2 dimensions, got (8)");
  bad("given-dtype", given, {x, {{4, 2}, kI32}}, "sf must have dtype f32 or e4m3, got i32");
  bad("given-shape", given, {x, {{4, 1}, kF32}}, "sf must have shape (4, 2), got (4, 1)");
  bad("given-by-col", given, {x, {{4, 2}, {1, 4}, kF32}},
      "sf must have column stride 1, got strides (1, 4)");
  bad("sf-only-group", row(4, 64, kBF16, kE4M3, 8).sf_only(), {x},
      "num_per_channels must be 16, 32, 64 or 128, got 8");
}

}  // namespace

OpCases per_token_cast() {
  OpCases op{"per_token_cast", {}};
  for (const CastRow& r : kRows) op.cases.push_back(make_case(kApi, r, r.block.cols));
  add_worked(op.cases);
  add_bad(op.cases);
  return op;
}

}  // namespace tilekernels::cases
