// The vector core's casts against the scalar definition, over all 16-bit patterns and a sweep of
// the fp32 ones, so that no value of a conversion or composite goes unseen.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "sanitized.h"
#include "tilekernels/quant.h"

namespace tilekernels {
namespace {

constexpr int64_t kCols = 2048;

// The codes of every element under a scaling factor of 1, on a backend.
std::vector<uint8_t> codes_of(const std::vector<uint8_t>& bytes, DType x, DType fmt,
                              Backend backend) {
  const int64_t rows = static_cast<int64_t>(bytes.size()) / size_bytes(x) / kCols;
  std::vector<float> ones(static_cast<size_t>(rows * (kCols / 128)), 1.0f);
  const TensorView view{const_cast<uint8_t*>(bytes.data()), TensorSpec({rows, kCols}, x)};
  const TensorView sf{ones.data(), TensorSpec({rows, kCols / 128}, DType::kF32)};
  const Tensor out =
      per_token_cast_with_precomputed_sf(view, fmt, 128, sf, Call{.backend = backend});
  const auto* begin = static_cast<const uint8_t*>(out.data());
  return {begin, begin + out.view().storage_bytes()};
}

void expect_same_codes(const std::vector<uint8_t>& bytes, DType x) {
  for (DType fmt : {DType::kE4M3, DType::kE2M1x2}) {
    EXPECT_EQ(codes_of(bytes, x, fmt, Backend::kAscend),
              codes_of(bytes, x, fmt, Backend::kReference))
        << name(x) << " to " << name(fmt);
  }
}

TEST(AscendValues, EveryBF16AndF16) {
  std::vector<uint16_t> x(1 << 16);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint16_t>(i);
  std::vector<uint8_t> bytes(2 * x.size());
  std::memcpy(bytes.data(), x.data(), bytes.size());
  expect_same_codes(bytes, DType::kBF16);
  expect_same_codes(bytes, DType::kF16);
}

TEST(AscendValues, FloatsRoundEveryMidpoint) {
  // Every 4096th pattern, and those beside each: codes end within the upper 13 bits.
  std::vector<uint32_t> x;
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += sweep_step(4096)) {
    x.push_back(static_cast<uint32_t>(bits));
    x.push_back(static_cast<uint32_t>(bits - 1));
    x.push_back(static_cast<uint32_t>(bits + 1));
  }
  x.resize(x.size() / kCols * kCols);
  std::vector<uint8_t> bytes(4 * x.size());
  std::memcpy(bytes.data(), x.data(), bytes.size());
  expect_same_codes(bytes, DType::kF32);
}

TEST(AscendValues, EveryBF16UnderComputedPowersOfTwo) {
  // Groups of values far apart, so that most products are tiny.
  std::vector<uint16_t> x(1 << 16);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint16_t>(i * 40503u);
  const TensorView view{x.data(), TensorSpec({32, kCols}, DType::kBF16)};
  for (DType fmt : {DType::kE4M3, DType::kE2M1x2}) {
    CastOptions options;
    options.sf = {SfKind::kUE8M0, SfLayout::kRow};
    const auto bytes_of = [&](Backend backend) {
      const QuantTensor out = per_token_cast(view, fmt, 32, options, Call{.backend = backend});
      const auto* data = static_cast<const uint8_t*>(out.data.data());
      const auto* sf = static_cast<const uint8_t*>(out.sf.data());
      std::vector<uint8_t> bytes(data, data + out.data.view().storage_bytes());
      bytes.insert(bytes.end(), sf, sf + out.sf.view().storage_bytes());
      return bytes;
    };
    EXPECT_EQ(bytes_of(Backend::kAscend), bytes_of(Backend::kReference)) << name(fmt);
  }
}

TEST(AscendValues, EveryBF16MaximumUnderE4M3Scales) {
  // Groups of 16 whose largest element takes every finite value, negative ones too, and then some.
  constexpr int64_t kGroup = 16;
  std::vector<uint16_t> x((1 << 16) * kGroup);
  for (size_t i = 0; i < x.size(); ++i) {
    const auto pattern = static_cast<uint16_t>(i / kGroup);
    const auto smaller = static_cast<uint16_t>(pattern - static_cast<uint16_t>(i % kGroup) * 23);
    x[i] = i % kGroup == 0 || (smaller & 0x7FFF) > (pattern & 0x7FFF) ? pattern : smaller;
  }
  const auto rows = static_cast<int64_t>(x.size()) / kCols;
  const TensorView view{x.data(), TensorSpec({rows, kCols}, DType::kBF16)};
  for (const SfLayout layout : {SfLayout::kRow, SfLayout::kCol}) {
    for (const float clamp : {6.0f / 512, 0.0731f, 3000.0f}) {
      CastOptions options;
      options.sf = {SfKind::kE4M3, layout};
      options.amax_clamp = clamp;
      const auto bytes_of = [&](Backend backend) {
        const QuantTensor out = per_token_cast(view, DType::kE2M1x2, static_cast<int>(kGroup),
                                               options, Call{.backend = backend});
        const auto* data = static_cast<const uint8_t*>(out.data.data());
        const auto* sf = static_cast<const uint8_t*>(out.sf.data());
        std::vector<uint8_t> bytes(data, data + out.data.view().storage_bytes());
        bytes.insert(bytes.end(), sf, sf + out.sf.view().storage_bytes());
        return bytes;
      };
      EXPECT_EQ(bytes_of(Backend::kAscend), bytes_of(Backend::kReference)) << clamp;
    }
  }
}

}  // namespace
}  // namespace tilekernels
