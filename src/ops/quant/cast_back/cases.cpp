// cast_back: cases as data.
#include <cstring>

#include "cases/case.h"
#include "tilekernels/quant.h"

namespace tilekernels::cases {
namespace {

constexpr DType kE4M3 = DType::kE4M3;
constexpr DType kE2M1 = DType::kE2M1x2;
constexpr DType kBF16 = DType::kBF16;
constexpr DType kF16 = DType::kF16;
constexpr DType kF32 = DType::kF32;

struct Format {
  const char* name;
  SfFormat sf;
};
constexpr Format kSfF32{"f32", {SfKind::kF32, SfLayout::kRow}};
constexpr Format kSfF32Col{"f32col", {SfKind::kF32, SfLayout::kCol}};
constexpr Format kSfF32ColAscend{"f32col-ascend", {SfKind::kF32, SfLayout::kCol, SfPitch::kAscend}};
constexpr Format kSfE4M3{"e4m3", {SfKind::kE4M3, SfLayout::kRow}};
constexpr Format kSfE4M3Col{"e4m3col", {SfKind::kE4M3, SfLayout::kCol}};
constexpr Format kSfE4M3ColAscend{"e4m3col-ascend",
                                  {SfKind::kE4M3, SfLayout::kCol, SfPitch::kAscend}};
constexpr Format kSfE8M0{"e8m0", {SfKind::kUE8M0, SfLayout::kRow}};
constexpr Format kSfE8M0Col{"e8m0col", {SfKind::kUE8M0, SfLayout::kCol}};
constexpr Format kSfRowPacked{"rowpacked", {SfKind::kUE8M0, SfLayout::kRowPacked}};
constexpr Format kSfRowPackedAscend{"rowpacked-ascend",
                                    {SfKind::kUE8M0, SfLayout::kRowPacked, SfPitch::kAscend}};
constexpr Format kSfColPacked{"colpacked", {SfKind::kUE8M0, SfLayout::kColPacked}};
constexpr Format kSfColPackedAscend{"colpacked-ascend",
                                    {SfKind::kUE8M0, SfLayout::kColPacked, SfPitch::kAscend}};
constexpr Format kSfTokenPacked{"tokenpacked", {SfKind::kUE8M0, SfLayout::kTokenPacked}};
constexpr Format kSfTokenPackedAscend{"tokenpacked-ascend",
                                      {SfKind::kUE8M0, SfLayout::kTokenPacked, SfPitch::kAscend}};

constexpr Format kFormats[] = {
    kSfF32,       kSfF32Col,          kSfF32ColAscend, kSfE4M3,
    kSfE4M3Col,   kSfE4M3ColAscend,   kSfE8M0,         kSfE8M0Col,
    kSfRowPacked, kSfRowPackedAscend, kSfColPacked,    kSfColPackedAscend};

struct Row {
  int64_t tokens;
  int64_t hidden;
  DType x;
  BlockSize block;
  Format sf;
  DType out;
  Fill x_fill = Fill::kBits;
  Fill sf_fill = Fill::kScale;
  int64_t x_gap = 0;   // bytes between rows
  int64_t sf_gap = 0;  // words between rows, or columns where these are contiguous
  bool bench = false;
};

constexpr Row kRows[] = {
    // Extents, from nothing to odd
    {0, 256, kE4M3, {1, 128}, kSfF32, kBF16},
    {0, 256, kE2M1, {32, 32}, kSfColPacked, kF32},
    {5, 0, kE4M3, {1, 128}, kSfF32, kBF16},
    {1, 1, kE4M3, {1, 1}, kSfF32, kBF16},
    {1, 2, kE2M1, {1, 2}, kSfE4M3, kF16},
    {1, 7168, kE4M3, {1, 128}, kSfF32, kBF16},
    {3, 15, kE4M3, {1, 128}, kSfF32, kF32},
    {3, 31, kE4M3, {128, 128}, kSfF32, kF16},
    {3, 33, kE4M3, {1, 16}, kSfE4M3, kBF16},
    {3, 63, kE4M3, {2, 32}, kSfRowPacked, kF32},
    {5, 66, kE2M1, {1, 32}, kSfE8M0, kBF16},
    {5, 94, kE2M1, {1, 16}, kSfE4M3, kF16},
    {2, 1000, kE2M1, {1, 32}, kSfColPacked, kBF16},
    {37, 1001, kE4M3, {32, 32}, kSfF32Col, kBF16},
    {129, 257, kE4M3, {128, 128}, kSfF32, kBF16},
    {130, 200, kE4M3, {128, 128}, kSfE8M0, kF32},
    // Blocks of every shape, the edge ones partial
    {5, 300, kE4M3, {1, 300}, kSfF32, kBF16},
    {5, 300, kE4M3, {1, 7168}, kSfColPacked, kBF16},
    {5, 300, kE2M1, {7, 2147483647}, kSfF32, kF32},
    {5, 300, kE4M3, {2147483647, 100}, kSfF32Col, kF16},
    {5, 40, kE4M3, {1, 1}, kSfF32, kBF16},
    {5, 40, kE2M1, {1, 1}, kSfE4M3Col, kF32},
    {131, 90, kE4M3, {128, 1}, kSfF32, kBF16},
    {131, 90, kE2M1, {128, 1}, kSfF32, kF16},
    {131, 91, kE4M3, {32, 1}, kSfTokenPacked, kBF16},
    {131, 91, kE4M3, {32, 1}, kSfTokenPackedAscend, kF32},
    {131, 90, kE2M1, {16, 1}, kSfTokenPacked, kBF16},
    {11, 90, kE2M1, {1, 1}, kSfTokenPackedAscend, kBF16},
    {9, 91, kE4M3, {1, 1}, kSfTokenPacked, kF16},
    {131, 91, kE4M3, {32, 1}, kSfF32Col, kBF16},
    {131, 91, kE4M3, {32, 1}, kSfE8M0, kBF16},
    {131, 91, kE4M3, {32, 1}, kSfE4M3, kBF16},
    {131, 90, kE2M1, {32, 1}, kSfRowPacked, kBF16},
    {50, 144, kE4M3, {16, 48}, kSfF32, kBF16},
    {50, 150, kE2M1, {16, 48}, kSfColPackedAscend, kF16},
    {50, 150, kE4M3, {3, 5}, kSfRowPackedAscend, kBF16},
    {50, 150, kE2M1, {3, 5}, kSfF32Col, kBF16},
    {7, 150, kE4M3, {2, 2}, kSfF32, kF32},
    {7, 150, kE2M1, {2, 8}, kSfE8M0Col, kBF16},
    {7, 150, kE4M3, {1, 17}, kSfColPacked, kF32},
    {65, 192, kE2M1, {32, 32}, kSfRowPacked, kBF16},
    {65, 192, kE4M3, {32, 128}, kSfF32, kF32},
    {65, 192, kE4M3, {64, 16}, kSfE4M3, kBF16},
    // Enough rows that CUDA threads take several, the last ones fewer
    {607, 7168, kE2M1, {1, 16}, kSfF32, kF16},
    // Pitches
    {9, 256, kE4M3, {1, 128}, kSfF32, kBF16, Fill::kBits, Fill::kScale, 64},
    {9, 256, kE4M3, {1, 128}, kSfColPacked, kF32, Fill::kNormal, Fill::kPow2Scale, 3, 4},
    {9, 256, kE2M1, {1, 32}, kSfF32, kBF16, Fill::kBits, Fill::kScale, 1, 5},
    {9, 256, kE2M1, {1, 32}, kSfRowPacked, kF16, Fill::kBits, Fill::kScale, 128, 1},
    {9, 100, kE2M1, {2, 16}, kSfE4M3Col, kBF16, Fill::kBits, Fill::kScale, 2, 7},
    {40, 100, kE4M3, {4, 1}, kSfTokenPacked, kBF16, Fill::kBits, Fill::kScale, 11, 3},
    {1, 100, kE4M3, {1, 32}, kSfF32Col, kBF16, Fill::kBits, Fill::kScale, 11, 3},
    // Values
    {17, 256, kE4M3, {1, 128}, kSfF32, kBF16, Fill::kEdge, Fill::kBits},
    {17, 256, kE4M3, {1, 32}, kSfF32, kF32, Fill::kBits, Fill::kBits},
    {17, 256, kE4M3, {1, 16}, kSfF32, kF16, Fill::kTies, Fill::kEdge},
    {17, 256, kE2M1, {1, 16}, kSfF32, kBF16, Fill::kBits, Fill::kNonFinite},
    {17, 256, kE2M1, {1, 8}, kSfF32, kF32, Fill::kBits, Fill::kBits},
    {17, 256, kE2M1, {1, 4}, kSfF32, kF16, Fill::kZero, Fill::kNonFinite},
    {17, 256, kE4M3, {1, 16}, kSfE4M3, kF32, Fill::kZero, Fill::kBits},
    {17, 256, kE4M3, {1, 16}, kSfF32, kBF16, Fill::kNonFinite, Fill::kZero},
    {64, 512, kE4M3, {1, 128}, kSfF32, kF16, Fill::kNormal, Fill::kPow2Scale},
    // Results too large for a cache of 32 MiB, rows of whole lines and not
    {576, 7168, kE4M3, {128, 128}, kSfF32, kF32},
    {577, 7271, kE4M3, {1, 128}, kSfColPacked, kF32},
    // Timed
    {1, 7168, kE4M3, {1, 128}, kSfF32, kBF16, Fill::kNormal, Fill::kScale, 0, 0, true},
    {128, 7168, kE4M3, {1, 128}, kSfF32, kBF16, Fill::kNormal, Fill::kScale, 0, 0, true},
    {1, 7168, kE2M1, {1, 32}, kSfF32, kBF16, Fill::kBits, Fill::kScale, 0, 0, true},
    {128, 7168, kE2M1, {1, 32}, kSfF32, kBF16, Fill::kBits, Fill::kScale, 0, 0, true},
    {128, 7168, kE4M3, {128, 128}, kSfF32, kBF16, Fill::kNormal, Fill::kScale, 0, 0, true},
    {4096, 7168, kE4M3, {1, 128}, kSfF32, kBF16, Fill::kNormal, Fill::kScale, 0, 0, true},
    {4096, 7168, kE4M3, {128, 128}, kSfF32, kBF16, Fill::kNormal, Fill::kScale, 0, 0, true},
    {4096, 7168, kE2M1, {1, 32}, kSfF32, kBF16, Fill::kBits, Fill::kScale, 0, 0, true},
    {4096, 7168, kE2M1, {1, 32}, kSfColPacked, kBF16, Fill::kBits, Fill::kScale, 0, 0, true},
    {4096, 7168, kE2M1, {1, 16}, kSfE4M3, kBF16, Fill::kBits, Fill::kScale, 0, 0, true},
    {4096, 7168, kE4M3, {128, 1}, kSfF32, kBF16, Fill::kNormal, Fill::kScale, 0, 0, true},
    {16384, 7168, kE4M3, {1, 128}, kSfF32, kBF16, Fill::kNormal, Fill::kScale, 0, 0, true},
    {4096, 2048, kE4M3, {1, 128}, kSfF32, kBF16, Fill::kNormal, Fill::kScale, 0, 0, true},
    {4096, 2048, kE2M1, {1, 32}, kSfF32, kBF16, Fill::kBits, Fill::kScale, 0, 0, true},
    {4096, 2048, kE4M3, {128, 128}, kSfF32, kBF16, Fill::kNormal, Fill::kScale, 0, 0, true},
};

std::string number(const char* name, int64_t value) { return name + std::to_string(value); }

TensorSpec codes_spec(DType x, int64_t tokens, int64_t hidden, int64_t gap = 0) {
  const int64_t cols = x == kE2M1 ? hidden / 2 : hidden;
  return {{tokens, cols}, {cols + gap, 1}, x};
}

TensorSpec scales_spec(const SfFormat& format, int64_t tokens, int64_t hidden, BlockSize block,
                       int64_t gap = 0) {
  TensorSpec spec = sf_spec(format, (tokens + block.rows - 1) / block.rows,
                            (hidden + block.cols - 1) / block.cols);
  const bool by_col = format.layout == SfLayout::kCol || format.layout == SfLayout::kColPacked;
  spec.strides[by_col ? 1 : 0] += gap;
  return spec;
}

Case make(const std::string& id, Input x, Input x_sf, const SfSource& source, DType out) {
  return {
      .id = "cast_back/" + id,
      .inputs = {std::move(x), std::move(x_sf)},
      .outputs = {"out"},
      .spec =
          [source, out](const Specs& in) {
            return Specs{cast_back_spec({in[0], in[1]}, source, out)};
          },
      .out =
          [source](const Views& results, const Views& in, const Call& call) {
            cast_back_out(results[0], {in[0], in[1]}, source, call);
          },
      .alloc =
          [source, out](const Views& in, const Call& call) {
            return std::vector<Tensor>{cast_back({in[0], in[1]}, source, out, call)};
          },
  };
}

Case make(const Row& row) {
  std::string id = number("tokens=", row.tokens) + number(",hidden=", row.hidden) +
                   ",x=" + std::string(name(row.x)) + number(",block=", row.block.rows) +
                   number("x", row.block.cols) + ",sf=" + row.sf.name +
                   ",out=" + std::string(name(row.out));
  if (row.x_gap != 0) id += number(",x_gap=", row.x_gap);
  if (row.sf_gap != 0) id += number(",sf_gap=", row.sf_gap);
  id += ",data=" + std::string(name(row.x_fill)) + "*" + std::string(name(row.sf_fill));
  Case test = make(
      id, {"x", codes_spec(row.x, row.tokens, row.hidden, row.x_gap), row.x_fill},
      {"x_sf", scales_spec(row.sf.sf, row.tokens, row.hidden, row.block, row.sf_gap), row.sf_fill},
      {row.block, row.sf.sf.layout}, row.out);
  test.bench = row.bench;
  return test;
}

// Every byte as codes, in every row, under one scaling factor a row.
Case all_codes(const char* id, DType x, const Format& sf, const std::vector<uint8_t>& scales,
               DType out) {
  const TensorSpec one_row({1, 1}, sf.sf.kind == SfKind::kF32 ? kF32 : DType::kU8);
  const int64_t rows = static_cast<int64_t>(scales.size()) / size_bytes(one_row.dtype);
  const int64_t hidden = x == kE2M1 ? 512 : 256;
  std::vector<uint8_t> codes;
  for (int64_t i = 0; i < rows * 256; ++i) codes.push_back(static_cast<uint8_t>(i));
  const BlockSize block{1, static_cast<int>(hidden)};
  return make(std::string("all-codes,x=") + std::string(name(x)) + ",sf=" + sf.name + "-" + id +
                  ",out=" + std::string(name(out)),
              {"x", codes_spec(x, rows, hidden), Fill::kGiven, codes},
              {"x_sf", scales_spec(sf.sf, rows, hidden, block), Fill::kGiven, scales},
              {block, sf.sf.layout}, out);
}

std::vector<uint8_t> all_bytes() {
  std::vector<uint8_t> bytes;
  for (int i = 0; i < 256; ++i) bytes.push_back(static_cast<uint8_t>(i));
  return bytes;
}

// Zeros, subnormals, the edges of the exponent range, Inf and NaN of both signs.
std::vector<uint8_t> special_scales() {
  return bytes_of<uint32_t>({
      0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x00000003, 0x00012345, 0x00400000,
      0x007FFFFF, 0x00800000, 0x80800000, 0x00FFFFFF, 0x04000000, 0x04FFFFFF, 0x05000000,
      0x05012345, 0x7A7FFFFF, 0x7A800000, 0x0C123456, 0x33800000, 0x346FACAD, 0x38D1B717,
      0x3B124925, 0x3C36DB6E, 0x3F0446AD, 0x3F800000, 0xBF800000, 0x3F808000, 0x3F818000,
      0x3F807FFF, 0x3F801000, 0x477FE000, 0x47C35000, 0x7B000000, 0x7B800000, 0x7EFFFFFF,
      0x7F000000, 0x7F7F7FFF, 0x7F7F8000, 0x7F7FC99E, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F800000,
      0xFF800000, 0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF,
  });
}

template <class T>
Case worked(const std::string& id, DType x, std::initializer_list<uint8_t> codes, int64_t tokens,
            BlockSize block, const SfFormat& sf, std::vector<uint8_t> scales, DType out,
            std::initializer_list<T> results) {
  const int64_t hidden = static_cast<int64_t>(codes.size()) / tokens * (x == kE2M1 ? 2 : 1);
  Case test = make(id, {"x", codes_spec(x, tokens, hidden), Fill::kGiven, codes},
                   {"x_sf", scales_spec(sf, tokens, hidden, block), Fill::kGiven, scales},
                   {block, sf.layout}, out);
  test.expected = {bytes_of(results)};
  return test;
}

// Codes of 1 in blocks of 128 x 128 with partial edges, as in weights of odd extents.
Case worked_edge_blocks(int64_t tokens, int64_t hidden) {
  const BlockSize block{128, 128};
  std::vector<uint8_t> scales;
  std::vector<uint8_t> expected;
  for (int64_t m = 0; m < (tokens + 127) / 128; ++m) {
    for (int64_t k = 0; k < (hidden + 127) / 128; ++k) {
      const std::vector<uint8_t> scale = bytes_of({static_cast<float>(1 << (2 * m + k))});
      scales.insert(scales.end(), scale.begin(), scale.end());
    }
  }
  for (int64_t m = 0; m < tokens; ++m) {
    for (int64_t k = 0; k < hidden; ++k) {
      const std::vector<uint8_t> one = bytes_of({static_cast<float>(1 << (m / 128 * 2 + k / 128))});
      expected.insert(expected.end(), one.begin(), one.end());
    }
  }
  const std::vector<uint8_t> codes(static_cast<size_t>(tokens * hidden), 0x38);
  Case test = make("edge-blocks" + number(",tokens=", tokens) + number(",hidden=", hidden),
                   {"x", codes_spec(kE4M3, tokens, hidden), Fill::kGiven, codes},
                   {"x_sf", scales_spec({}, tokens, hidden, block), Fill::kGiven, scales},
                   {block, SfLayout::kRow}, kF32);
  test.expected = {expected};
  return test;
}

// Three tokens, five groups of two columns, exponent bytes 120..124: row-major or column-major
// words, four or two bytes each, say the same.
template <class Word>
Case worked_packing(const std::string& id, const SfFormat& sf, std::initializer_list<Word> words) {
  return worked<float>(
      "packing-" + id, kE4M3,
      {0x38, 0x38, 0x38, 0x38, 0x38, 0x38, 0x38, 0x38, 0x38, 0x38, 0x40, 0x40, 0x40, 0x40, 0x40,
       0x40, 0x40, 0x40, 0x40, 0x40, 0xB8, 0xB8, 0xB8, 0xB8, 0xB8, 0xB8, 0xB8, 0xB8, 0xB8, 0xB8},
      3, {1, 2}, sf, bytes_of(words), kF32,
      {0x1p-7f,  0x1p-7f,  0x1p-6f,  0x1p-6f,  0x1p-5f,  0x1p-5f,  0x1p-4f,  0x1p-4f,
       0x1p-3f,  0x1p-3f,  0x1p-6f,  0x1p-6f,  0x1p-5f,  0x1p-5f,  0x1p-4f,  0x1p-4f,
       0x1p-3f,  0x1p-3f,  0x1p-2f,  0x1p-2f,  -0x1p-7f, -0x1p-7f, -0x1p-6f, -0x1p-6f,
       -0x1p-5f, -0x1p-5f, -0x1p-4f, -0x1p-4f, -0x1p-3f, -0x1p-3f});
}

Case bad(const std::string& id, const TensorSpec& x, const TensorSpec& x_sf, const SfSource& source,
         DType out, const std::string& error) {
  Case test = make("bad-" + id, {"x", x}, {"x_sf", x_sf}, source, out);
  test.error = "[cast_back] " + error;
  // `_out` reads the wanted dtype off the output.
  test.out = [source, out](const Views&, const Views& in, const Call& call) {
    cast_back_out({nullptr, TensorSpec({}, out)}, {in[0], in[1]}, source, call);
  };
  return test;
}

std::vector<Case> worked_cases() {
  const SfFormat kF32Row;
  const SfFormat kF32Col{SfKind::kF32, SfLayout::kCol};
  const SfFormat kE4M3Row{SfKind::kE4M3, SfLayout::kRow};
  const SfFormat kE8M0Row{SfKind::kUE8M0, SfLayout::kRow};
  const SfFormat kToken{SfKind::kUE8M0, SfLayout::kTokenPacked};
  const SfFormat kTokenAscend{SfKind::kUE8M0, SfLayout::kTokenPacked, SfPitch::kAscend};
  return {
      // One e4m3 block of eight, its scale 5 / 448
      worked<uint32_t>("row-a-f32", kE4M3, {0x5D, 0xE8, 0x6C, 0x7E, 0xF4, 0x36, 0xF9, 0x7C}, 1,
                       {1, 8}, kF32Row, bytes_of<uint32_t>({0x3C36DB6E}), kF32,
                       {0x3E949249, 0xBF36DB6E, 0x3F892492, 0x40A00000, 0xC0092492, 0x3C200000,
                        0xC04DB6DC, 0x40892492}),
      worked<uint16_t>("row-a-bf16", kE4M3, {0x5D, 0xE8, 0x6C, 0x7E, 0xF4, 0x36, 0xF9, 0x7C}, 1,
                       {1, 8}, kF32Row, bytes_of<uint32_t>({0x3C36DB6E}), kBF16,
                       {0x3E95, 0xBF37, 0x3F89, 0x40A0, 0xC009, 0x3C20, 0xC04E, 0x4089}),
      worked<uint16_t>("row-a-f16", kE4M3, {0x5D, 0xE8, 0x6C, 0x7E, 0xF4, 0x36, 0xF9, 0x7C}, 1,
                       {1, 8}, kF32Row, bytes_of<uint32_t>({0x3C36DB6E}), kF16,
                       {0x34A5, 0xB9B7, 0x3C49, 0x4500, 0xC049, 0x2100, 0xC26E, 0x4449}),
      // The product is fp32's: 448 · 2.2321e-7 under a scale no 16-bit format holds
      worked<uint32_t>("small-scale-f32", kE4M3, {0x7E, 0x01, 0x08, 0xFE}, 1, {1, 4}, kF32Row,
                       bytes_of<uint32_t>({0x346FACAD}), kF32,
                       {0x38D1B717, 0x2FEFACAD, 0x316FACAD, 0xB8D1B717}),
      worked<uint16_t>("small-scale-bf16", kE4M3, {0x7E, 0x01, 0x08, 0xFE}, 1, {1, 4}, kF32Row,
                       bytes_of<uint32_t>({0x346FACAD}), kBF16, {0x38D2, 0x2FF0, 0x3170, 0xB8D2}),
      worked<uint16_t>("small-scale-f16", kE4M3, {0x7E, 0x01, 0x08, 0xFE}, 1, {1, 4}, kF32Row,
                       bytes_of<uint32_t>({0x346FACAD}), kF16, {0x068E, 0x0000, 0x0000, 0x868E}),
      // Subnormal e4m3 scales under FP4: 2^-9, 7 · 2^-9, NaN
      worked<uint16_t>("e4m3-scale-bytes", kE2M1, {0x27, 0xA2, 0x7A}, 1, {1, 2}, kE4M3Row,
                       {0x01, 0x07, 0x7F}, kBF16, {0x3C40, 0x3B00, 0x3C60, 0xBC60, 0x7FFF, 0x7FFF}),
      // Low nibble first
      worked<uint16_t>("nibbles", kE2M1, {0x71}, 1, {1, 2}, kF32Row, bytes_of({1.0f}), kBF16,
                       {0x3F00, 0x40C0}),
      worked<float>("ramp", kE2M1, {0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE}, 1, {1, 16},
                    kE8M0Row, {128}, kF32,
                    {0, 1, 2, 3, 4, 6, 8, 12, -0.0f, -1, -2, -3, -4, -6, -8, -12}),
      // Exponent bytes 0 and 255 are 2^-127 and NaN; neighbours are untouched
      worked<uint32_t>("e8m0-ends-f32", kE4M3, {0x38, 0xB8, 0x38, 0x00, 0x38, 0xB8, 0x78, 0x80}, 1,
                       {1, 2}, kE8M0Row, {127, 255, 0, 254}, kF32,
                       {0x3F800000, 0xBF800000, 0x7FFFFFFF, 0x7FFFFFFF, 0x00400000, 0x80400000,
                        0x7F800000, 0x80000000}),
      worked<uint16_t>("e8m0-ends-bf16", kE4M3, {0x38, 0xB8, 0x38, 0x00, 0x38, 0xB8, 0x78, 0x80}, 1,
                       {1, 2}, kE8M0Row, {127, 255, 0, 254}, kBF16,
                       {0x3F80, 0xBF80, 0x7FFF, 0x7FFF, 0x0040, 0x8040, 0x7F80, 0x8000}),
      // NaN codes of both signs, NaN from 0 · Inf, overflow of each result format
      worked<uint32_t>("nan-f32", kE4M3, {0x7F, 0xFF, 0x00, 0x80, 0x38, 0xB8}, 1, {1, 2}, kF32Row,
                       bytes_of<uint32_t>({0x3F800000, 0x7F800000, 0xFF800000}), kF32,
                       {0x7FFFFFFF, 0x7FFFFFFF, 0x7FFFFFFF, 0x7FFFFFFF, 0xFF800000, 0x7F800000}),
      worked<uint16_t>("overflow-bf16", kE4M3, {0x38, 0xB8, 0x38, 0xB8}, 1, {1, 2}, kF32Row,
                       bytes_of<uint32_t>({0x7F7F7FFF, 0x7F7F8000}), kBF16,
                       {0x7F7F, 0xFF7F, 0x7F80, 0xFF80}),
      worked<uint16_t>("overflow-f16", kE4M3, {0x38, 0xB8, 0x38, 0xB8}, 1, {1, 2}, kF32Row,
                       bytes_of<uint32_t>({0x477FEFFF, 0x477FF000}), kF16,
                       {0x7BFF, 0xFBFF, 0x7C00, 0xFC00}),
      // One scale a column, four or two rows of blocks to a word
      worked<float>("token-packed", kE4M3, {0x38, 0x38, 0x40, 0x40, 0x38, 0x38}, 3, {1, 1}, kToken,
                    bytes_of<uint32_t>({0x00817F7D, 0x0082807E}), kF32, {0.25f, 0.5f, 2, 4, 4, 8}),
      worked<float>("token-packed-ascend", kE4M3, {0x38, 0x38, 0x40, 0x40, 0x38, 0x38}, 3, {1, 1},
                    kTokenAscend, bytes_of<uint16_t>({0x7F7D, 0x807E, 0x0081, 0x0082}), kF32,
                    {0.25f, 0.5f, 2, 4, 4, 8}),
      worked<float>("column-major", kE4M3, {0x38, 0x40, 0x38, 0x40, 0x38, 0x40}, 3, {2, 1}, kF32Col,
                    bytes_of({1.0f, 2.0f, 4.0f, 8.0f}), kF32, {1, 4, 1, 4, 4, 16}),
      worked_packing<uint32_t>(
          "row", {SfKind::kUE8M0, SfLayout::kRowPacked},
          {0x7B7A7978, 0x0000007C, 0x7B7A7978, 0x0000007C, 0x7B7A7978, 0x0000007C}),
      worked_packing<uint32_t>(
          "col", {SfKind::kUE8M0, SfLayout::kColPacked},
          {0x7B7A7978, 0x0000007C, 0x7B7A7978, 0x0000007C, 0x7B7A7978, 0x0000007C}),
      worked_packing<uint16_t>(
          "row-ascend", {SfKind::kUE8M0, SfLayout::kRowPacked, SfPitch::kAscend},
          {0x7978, 0x7B7A, 0x007C, 0x7978, 0x7B7A, 0x007C, 0x7978, 0x7B7A, 0x007C}),
      worked_packing<uint16_t>(
          "col-ascend", {SfKind::kUE8M0, SfLayout::kColPacked, SfPitch::kAscend},
          {0x7978, 0x7B7A, 0x007C, 0x7978, 0x7B7A, 0x007C, 0x7978, 0x7B7A, 0x007C}),
      worked_edge_blocks(130, 200),
      worked_edge_blocks(1, 1),
  };
}

std::vector<Case> bad_cases() {
  const TensorSpec x = codes_spec(kE4M3, 4, 256);
  const TensorSpec sf({4, 2}, kF32);
  const SfSource source{{1, 128}, SfLayout::kRow};
  const SfSource by_col{{1, 128}, SfLayout::kCol};
  const SfSource row_packed{{1, 128}, SfLayout::kRowPacked};
  const SfSource col_packed{{1, 128}, SfLayout::kColPacked};
  const SfSource token_packed{{2, 1}, SfLayout::kTokenPacked};
  return {
      bad("out-dtype", x, sf, source, kE4M3, "out must have dtype bf16, f16 or f32, got e4m3"),
      bad("rank", {{256}, kE4M3}, sf, source, kBF16, "x must have 2 dimensions, got (256)"),
      bad("dtype", {{4, 256}, DType::kI8}, sf, source, kBF16,
          "x must have dtype e4m3 or e2m1, got i8"),
      bad("column-stride", {{4, 256}, {512, 2}, kE4M3}, sf, source, kBF16,
          "x must have column stride 1, got strides (512, 2)"),
      bad("row-stride", {{4, 256}, {255, 1}, kE4M3}, sf, source, kBF16,
          "x must have a row stride of at least 256, got strides (255, 1)"),
      bad("expanded", {{4, 256}, {0, 1}, kE4M3}, sf, source, kBF16,
          "x must have a row stride of at least 256, got strides (0, 1)"),
      bad("block-rows", x, sf, {{0, 128}, SfLayout::kRow}, kBF16,
          "x_sf.block.rows must be in 1..2147483647, got 0"),
      bad("block-cols", x, sf, {{1, -1}, SfLayout::kRow}, kBF16,
          "x_sf.block.cols must be in 1..2147483647, got -1"),
      bad("layout", x, sf, {{1, 128}, static_cast<SfLayout>(5)}, kBF16,
          "x_sf.layout must be in 0..4, got 5"),
      bad("token-packed-block", x, {{1, 2}, DType::kI32}, {{1, 128}, SfLayout::kTokenPacked}, kBF16,
          "x_sf.block.cols must be 1 for layout kTokenPacked, got 128"),
      bad("token-packed-row-of-words", x, {{2, 256}, DType::kI32}, token_packed, kBF16,
          "x.sf must have shape (1, 256), got (2, 256)"),
      bad("sf-dtype", x, {{4, 2}, DType::kI32}, source, kBF16,
          "x.sf must have dtype f32, e4m3 or e8m0, got i32"),
      bad("sf-dtype-f16", x, {{4, 2}, kF16}, source, kBF16,
          "x.sf must have dtype f32, e4m3 or e8m0, got f16"),
      bad("sf-dtype-packed", x, sf, row_packed, kBF16, "x.sf must have dtype i32 or i16, got f32"),
      bad("sf-shape", x, {{4, 3}, kF32}, source, kBF16, "x.sf must have shape (4, 2), got (4, 3)"),
      bad("sf-shape-edge", codes_spec(kE4M3, 130, 200), {{1, 1}, kF32},
          {{128, 128}, SfLayout::kRow}, kBF16, "x.sf must have shape (2, 2), got (1, 1)"),
      bad("sf-shape-packed", x, {{4, 2}, DType::kI32}, row_packed, kBF16,
          "x.sf must have shape (4, 1), got (4, 2)"),
      bad("sf-column-major-as-row", x, {{4, 2}, {1, 4}, kF32}, source, kBF16,
          "x.sf must have column stride 1, got strides (1, 4)"),
      bad("sf-row-major-as-column", x, sf, by_col, kBF16,
          "x.sf must have row stride 1 and a column stride of at least 4, being kCol, got strides "
          "(2, 1)"),
      bad("sf-packed-row-major-as-column", codes_spec(kE4M3, 4, 640), {{4, 2}, DType::kI32},
          col_packed, kBF16,
          "x.sf must have row stride 1 and a column stride of at least 4, being kColPacked, got "
          "strides (2, 1)"),
      bad("sf-device", x, {{4, 2}, kF32, {DeviceType::kCuda, 1}}, source, kBF16,
          "x.sf must be on cpu, where x is, got cuda:1"),
  };
}

}  // namespace

OpCases cast_back() {
  OpCases op{"cast_back", {}};
  const auto add = [&](std::vector<Case> cases) {
    op.cases.insert(op.cases.end(), cases.begin(), cases.end());
  };
  for (const Row& row : kRows) op.cases.push_back(make(row));
  // Every format of codes, scales and results
  for (DType x : {kE4M3, kE2M1}) {
    for (DType out : {kBF16, kF16, kF32}) {
      for (const Format& format : kFormats) {
        op.cases.push_back(make(Row{7, 178, x, {2, 16}, format, out}));
        op.cases.push_back(make(Row{7, 178, x, {3, 12}, format, out, Fill::kBits, Fill::kBits}));
      }
      for (const Format& format : {kSfTokenPacked, kSfTokenPackedAscend}) {
        op.cases.push_back(make(Row{7, 178, x, {1, 1}, format, out}));
      }
      op.cases.push_back(all_codes("special", x, kSfF32, special_scales(), out));
      op.cases.push_back(all_codes("all", x, kSfE8M0, all_bytes(), out));
      op.cases.push_back(all_codes("all", x, kSfE4M3, all_bytes(), out));
    }
  }
  add(worked_cases());
  add(bad_cases());
  return op;
}

}  // namespace tilekernels::cases
