// Scale layouts: the index examples, and that every byte of a buffer belongs to one scale.
#include "numerics/sf_layout.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tilekernels::test {
namespace {

using namespace numerics;  // NOLINT: the functions under test

/// The bytes of a 3 x 5 buffer, each naming its (m, k) as two digits, "__" for padding.
std::string picture(const SfStorage& s, int rows, int cols) {
  std::vector<std::string> bytes(static_cast<size_t>(s.size_bytes), "??");
  for (int m = 0; m < s.padded_m; ++m) {
    for (int k = 0; k < s.padded_k; ++k) {
      bytes[static_cast<size_t>(s.map.offset(m, k))] =
          m < rows && k < cols ? std::to_string(m) + std::to_string(k) : "__";
    }
  }
  std::string text;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i != 0) text += i % static_cast<size_t>(s.word_bytes) == 0 ? " | " : " ";
    text += bytes[i];
  }
  return text;
}

TEST(SfLayout, RowPacked) {
  const SfStorage cuda = sf_storage(kSfUE8M0, kSfRowPacked, kSfPitchCuda, 3, 5);
  EXPECT_EQ(picture(cuda, 3, 5),
            "00 01 02 03 | 04 __ __ __ | 10 11 12 13 | 14 __ __ __ | 20 21 22 23 | 24 __ __ __");
  EXPECT_EQ(cuda.rows, 3);
  EXPECT_EQ(cuda.cols, 2);
  EXPECT_EQ(cuda.row_stride, 2);
  EXPECT_EQ(cuda.col_stride, 1);
  const SfStorage ascend = sf_storage(kSfUE8M0, kSfRowPacked, kSfPitchAscend, 3, 5);
  EXPECT_EQ(picture(ascend, 3, 5),
            "00 01 | 02 03 | 04 __ | 10 11 | 12 13 | 14 __ | 20 21 | 22 23 | 24 __");
  EXPECT_EQ(ascend.cols, 3);
}

TEST(SfLayout, ColPacked) {
  const SfStorage cuda = sf_storage(kSfUE8M0, kSfColPacked, kSfPitchCuda, 3, 5);
  EXPECT_EQ(picture(cuda, 3, 5),
            "00 01 02 03 | 10 11 12 13 | 20 21 22 23 | __ __ __ __ | "
            "04 __ __ __ | 14 __ __ __ | 24 __ __ __ | __ __ __ __");
  EXPECT_EQ(cuda.rows, 3);
  EXPECT_EQ(cuda.cols, 2);
  EXPECT_EQ(cuda.row_stride, 1);
  EXPECT_EQ(cuda.col_stride, 4);
  const SfStorage ascend = sf_storage(kSfUE8M0, kSfColPacked, kSfPitchAscend, 3, 5);
  EXPECT_EQ(picture(ascend, 3, 5),
            "00 01 | 10 11 | 20 21 | 02 03 | 12 13 | 22 23 | 04 __ | 14 __ | 24 __");
  EXPECT_EQ(ascend.rows, 3);
  EXPECT_EQ(ascend.cols, 3);
  EXPECT_EQ(ascend.row_stride, 1);
  EXPECT_EQ(ascend.col_stride, 3);
}

TEST(SfLayout, TokenPacked) {
  const SfStorage cuda = sf_storage(kSfUE8M0, kSfTokenPacked, kSfPitchCuda, 3, 2);
  EXPECT_EQ(picture(cuda, 3, 2), "00 10 20 __ | 01 11 21 __");
  EXPECT_EQ(cuda.rows, 1);
  EXPECT_EQ(cuda.cols, 2);
  const SfStorage ascend = sf_storage(kSfUE8M0, kSfTokenPacked, kSfPitchAscend, 3, 2);
  EXPECT_EQ(picture(ascend, 3, 2), "00 10 | 01 11 | 20 __ | 21 __");
  EXPECT_EQ(ascend.rows, 2);
}

TEST(SfLayout, ColumnPitches) {
  const SfStorage f32 = sf_storage(kSfF32, kSfCol, kSfPitchCuda, 3, 5);
  EXPECT_EQ(f32.row_stride, 1);
  EXPECT_EQ(f32.col_stride, 4);
  EXPECT_EQ(f32.size_bytes, 5 * 4 * 4);
  EXPECT_EQ(f32.map.offset(2, 4), (4 * 4 + 2) * 4);
  EXPECT_EQ(sf_storage(kSfF32, kSfCol, kSfPitchAscend, 3, 5).col_stride, 3);
  EXPECT_EQ(sf_storage(kSfE4M3, kSfCol, kSfPitchCuda, 17, 5).col_stride, 32);
  EXPECT_EQ(sf_storage(kSfUE8M0, kSfCol, kSfPitchCuda, 16, 5).col_stride, 16);
  EXPECT_EQ(sf_storage(kSfE4M3, kSfCol, kSfPitchAscend, 17, 5).col_stride, 17);
  EXPECT_EQ(sf_storage(kSfF32, kSfRow, kSfPitchCuda, 3, 5).row_stride, 5);
}

TEST(SfLayout, HostMemoryTakesCudaPitches) {
  for (int32_t layout : {kSfRow, kSfCol, kSfRowPacked, kSfColPacked, kSfTokenPacked}) {
    const SfStorage device = sf_storage(kSfUE8M0, layout, kSfPitchDevice, 5, 7);
    const SfStorage cuda = sf_storage(kSfUE8M0, layout, kSfPitchCuda, 5, 7);
    EXPECT_EQ(picture(device, 5, 7), picture(cuda, 5, 7));
  }
}

TEST(SfLayout, OnlyExponentsArePacked) {
  for (int32_t kind : {kSfF32, kSfRoundedF32, kSfUE8M0, kSfE4M3}) {
    EXPECT_TRUE(sf_layout_takes(kSfRow, kind));
    EXPECT_TRUE(sf_layout_takes(kSfCol, kind));
    for (int32_t layout : {kSfRowPacked, kSfColPacked, kSfTokenPacked}) {
      EXPECT_EQ(sf_layout_takes(layout, kind), kind == kSfUE8M0);
    }
  }
}

// The words that go from four exponents an int32 to two an int16 and back.
TEST(SfLayout, FiveGroupsOfThreeTokens) {
  const auto words = [](int32_t pitch, size_t word_bytes) {
    const SfStorage s = sf_storage(kSfUE8M0, kSfRowPacked, pitch, 1, 5);
    std::vector<uint8_t> bytes(static_cast<size_t>(s.size_bytes), 0);
    for (int k = 0; k < 5; ++k) {
      bytes[static_cast<size_t>(s.map.offset(0, k))] = static_cast<uint8_t>(120 + k);
    }
    std::vector<uint32_t> values;
    for (size_t i = 0; i < bytes.size(); i += word_bytes) {
      uint32_t word = 0;
      for (size_t b = word_bytes; b-- > 0;) word = word << 8 | bytes[i + b];
      values.push_back(word);
    }
    return values;
  };
  EXPECT_EQ(words(kSfPitchCuda, 4), (std::vector<uint32_t>{0x7B7A7978, 0x0000007C}));
  EXPECT_EQ(words(kSfPitchAscend, 2), (std::vector<uint32_t>{0x7978, 0x7B7A, 0x007C}));
}

void check_storage(int32_t kind, int32_t layout, int32_t pitch, int rows, int cols) {
  const SfStorage s = sf_storage(kind, layout, pitch, rows, cols);
  ASSERT_GE(s.padded_m, rows);
  ASSERT_GE(s.padded_k, cols);
  // The padded grid covers the buffer, each byte once.
  std::vector<int> owners(static_cast<size_t>(s.size_bytes), 0);
  for (int m = 0; m < s.padded_m; ++m) {
    for (int k = 0; k < s.padded_k; ++k) {
      const int64_t at = s.map.offset(m, k);
      ASSERT_GE(at, 0);
      ASSERT_LE(at + s.sf_bytes, s.size_bytes);
      for (int b = 0; b < s.sf_bytes; ++b) ++owners[static_cast<size_t>(at + b)];
    }
  }
  for (int count : owners) ASSERT_EQ(count, 1);
  // The tensor of words lies inside it, and is all of it where rows are not padded.
  ASSERT_EQ(s.size_bytes % s.word_bytes, 0);
  for (int64_t i = 0; i < s.rows; ++i) {
    for (int64_t j = 0; j < s.cols; ++j) {
      const int64_t at = (i * s.row_stride + j * s.col_stride) * s.word_bytes;
      ASSERT_LE(at + s.word_bytes, s.size_bytes);
      const bool by_token = layout == kSfTokenPacked;
      const int64_t pack = is_packed(layout) ? s.word_bytes : 1;
      ASSERT_EQ(at, s.map.offset(by_token ? i * pack : i, by_token ? j : j * pack));
    }
  }
  // A column starts on 16 bytes with CUDA's pitches.
  if ((layout == kSfCol || layout == kSfColPacked) && pitch == kSfPitchCuda) {
    ASSERT_EQ(s.col_stride * s.word_bytes % 16, 0);
    ASSERT_LT(s.col_stride - s.rows, 16 / s.word_bytes);
  }
}

TEST(SfLayout, EveryByteBelongsToOneScale) {
  int checked = 0;
  for (int32_t kind : {kSfF32, kSfRoundedF32, kSfUE8M0, kSfE4M3}) {
    for (int32_t layout : {kSfRow, kSfCol, kSfRowPacked, kSfColPacked, kSfTokenPacked}) {
      if (!sf_layout_takes(layout, kind)) continue;
      for (int32_t pitch : {kSfPitchCuda, kSfPitchAscend}) {
        for (int rows = 0; rows <= 18; ++rows) {
          for (int cols = 0; cols <= 9; ++cols) {
            SCOPED_TRACE(testing::Message() << "kind " << kind << " layout " << layout << " pitch "
                                            << pitch << " " << rows << "x" << cols);
            check_storage(kind, layout, pitch, rows, cols);
            if (HasFatalFailure()) return;
            ++checked;
          }
        }
      }
    }
  }
  EXPECT_EQ(checked, (4 * 2 + 3) * 2 * 19 * 10);
}

TEST(SfLayout, MapTakesAnyPitch) {
  // A slice of columns of a column-major packed tensor whose pitch is 100 words.
  const SfMap map = sf_map(kSfColPacked, 4, 1, 100);
  EXPECT_EQ(map.offset(7, 0), 28);
  EXPECT_EQ(map.offset(7, 9), (2 * 100 + 7) * 4 + 1);
  const SfMap rows = sf_map(kSfRow, 4, 50, 1);
  EXPECT_EQ(rows.offset(3, 2), (3 * 50 + 2) * 4);
  const SfMap tokens = sf_map(kSfTokenPacked, 2, 30, 1);
  EXPECT_EQ(tokens.offset(5, 4), (2 * 30 + 4) * 2 + 1);
}

TEST(SfLayout, OffsetsPass32Bits) {
  const SfStorage s = sf_storage(kSfF32, kSfRow, kSfPitchCuda, 1 << 20, 1 << 14);
  EXPECT_EQ(s.size_bytes, int64_t{1} << 36);
  EXPECT_EQ(s.map.offset((1 << 20) - 1, (1 << 14) - 1), (int64_t{1} << 36) - 4);
}

}  // namespace
}  // namespace tilekernels::test
