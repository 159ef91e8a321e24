// The converter's own loops over plain numbers, against the scalar definitions.
#include "checkpoint/values.h"

#include <gtest/gtest.h>

#include <cmath>

#include "checkpoint_files.h"
#include "numerics/formats.h"

namespace tilekernels::checkpoint {
namespace {

using io::StDType;

std::vector<uint16_t> every_16_bits() {
  std::vector<uint16_t> all(65536 + 5);  // and a tail that fills no vector
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  return all;
}

// Every 4001st f32 and the neighbourhood of every f16 and bf16 number and tie.
std::vector<uint32_t> many_32_bits() {
  std::vector<uint32_t> all;
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 4001) {
    all.push_back(static_cast<uint32_t>(bits));
  }
  for (uint32_t high = 0; high < 65536; ++high) {
    for (const uint32_t low : {0u, 1u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu, 0x1000u, 0xF000u}) {
      all.push_back(high << 16 | low);
    }
  }
  return all;
}

template <class From, class To>
void expect_conversion(StDType from, const std::vector<From>& in, StDType to, To (*scalar)(From)) {
  std::vector<To> out(in.size());
  convert_plain(from, in.data(), to, out.data(), static_cast<int64_t>(in.size()));
  int64_t num_wrong = 0;
  for (size_t i = 0; i < in.size(); ++i) num_wrong += out[i] != scalar(in[i]);
  EXPECT_EQ(num_wrong, 0) << name(from) << " to " << name(to);
}

uint32_t bits_of(float value) { return numerics::bit_cast<uint32_t>(value); }
float float_of(uint32_t bits) { return numerics::bit_cast<float>(bits); }

TEST(Values, ConversionsEqualTheScalarOnes) {
  const auto narrow = every_16_bits();
  const auto wide = many_32_bits();
  expect_conversion<uint16_t, uint32_t>(StDType::kBF16, narrow, StDType::kF32, [](uint16_t x) {
    return bits_of(numerics::bf16_to_f32(x));
  });
  expect_conversion<uint16_t, uint32_t>(StDType::kF16, narrow, StDType::kF32, [](uint16_t x) {
    return bits_of(numerics::f16_to_f32(x));
  });
  expect_conversion<uint16_t, uint16_t>(
      StDType::kF16, narrow, StDType::kBF16,
      [](uint16_t x) -> uint16_t { return numerics::f32_to_bf16(numerics::f16_to_f32(x)); });
  expect_conversion<uint16_t, uint16_t>(
      StDType::kBF16, narrow, StDType::kF16,
      [](uint16_t x) -> uint16_t { return numerics::f32_to_f16(numerics::bf16_to_f32(x)); });
  expect_conversion<uint32_t, uint16_t>(
      StDType::kF32, wide, StDType::kBF16,
      [](uint32_t x) -> uint16_t { return numerics::f32_to_bf16(float_of(x)); });
  expect_conversion<uint32_t, uint16_t>(
      StDType::kF32, wide, StDType::kF16,
      [](uint32_t x) -> uint16_t { return numerics::f32_to_f16(float_of(x)); });
}

TEST(Values, CountsEqualAPlainLoop) {
  const auto narrow = every_16_bits();
  for (const StDType dtype : {StDType::kBF16, StDType::kF16}) {
    ValueCounts expected;
    for (const uint16_t bits : narrow) {
      const float x =
          dtype == StDType::kBF16 ? numerics::load_bf16(bits) : numerics::load_f16(bits);
      expected.num_nan += std::isnan(x);
      expected.num_inf += std::isinf(x);
      expected.num_zero += x == 0;
      if (std::isfinite(x)) {
        expected.max_abs = std::max(expected.max_abs, static_cast<double>(std::fabs(x)));
      }
    }
    ValueCounts counts;
    count_values(dtype, narrow.data(), static_cast<int64_t>(narrow.size()), &counts);
    EXPECT_EQ(counts.num_nan, expected.num_nan);
    EXPECT_EQ(counts.num_inf, expected.num_inf);
    EXPECT_EQ(counts.num_zero, expected.num_zero);
    EXPECT_EQ(counts.max_abs, expected.max_abs);
    // One Inf at every place of a word and in the tail is noticed.
    for (size_t place = 0; place < 11; ++place) {
      std::vector<uint16_t> row(11, 0x3C00);
      row[place] = dtype == StDType::kBF16 ? 0xFF80 : 0xFC00;
      EXPECT_EQ(count_non_finite(dtype, row.data(), 11).num_inf, 1) << place;
    }
  }
}

TEST(Values, ErrorsLeaveOutWhatIsNotFinite) {
  const float nan = std::nanf("");
  std::vector<float> before(1003, 1.0f);
  std::vector<float> after(1003, 1.25f);
  before[3] = INFINITY;
  after[3] = INFINITY;
  before[500] = nan;
  after[700] = -INFINITY;
  after[1002] = nan;
  after[900] = 3.0f;
  BlockFigures figures;
  measure_error(StDType::kF32, before.data(), after.data(), 1003, &figures);
  EXPECT_EQ(figures.max_abs, 2);
  EXPECT_DOUBLE_EQ(figures.sum_squares, 999);
  EXPECT_DOUBLE_EQ(figures.sum_error_squares, 998 * 0.0625 + 4);
}

TEST(Values, DigestsTellDamage) {
  const std::string bytes(1000, 'x');
  const uint64_t digest = digest_bytes(bytes.data(), 1000, 0);
  EXPECT_EQ(digest_bytes(bytes.data(), 1000, 0), digest);
  EXPECT_NE(digest_bytes(bytes.data(), 999, 0), digest);
  EXPECT_NE(digest_bytes(bytes.data(), 1000, 1), digest);
  for (size_t bit = 0; bit < 8000; ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    EXPECT_NE(digest_bytes(damaged.data(), 1000, 0), digest) << bit;
  }
  std::string swapped = std::string(64, 'a') + std::string(64, 'b');
  const uint64_t first = digest_bytes(swapped.data(), 128, 0);
  std::rotate(swapped.begin(), swapped.begin() + 64, swapped.end());
  EXPECT_NE(digest_bytes(swapped.data(), 128, 0), first);
}

}  // namespace
}  // namespace tilekernels::checkpoint
