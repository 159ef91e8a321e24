// What the cases of the casts cannot say: relations between calls, settings, and the checks of the
// `_out` forms.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "cases/case.h"
#include "errors.h"
#include "tilekernels/config.h"
#include "tilekernels/quant.h"

namespace tilekernels {
namespace {

constexpr Backend kBackends[] = {Backend::kReference, Backend::kCpu};

Tensor filled(const TensorSpec& spec, cases::Fill fill) {
  const std::vector<uint8_t> bytes = cases::make_bytes({"x", spec, fill});
  Tensor tensor(spec);
  if (!bytes.empty()) std::memcpy(tensor.data(), bytes.data(), bytes.size());
  return tensor;
}

std::vector<uint8_t> bytes_of(const Tensor& tensor) {
  const auto* begin = static_cast<const uint8_t*>(tensor.data());
  return {begin, begin + tensor.view().storage_bytes()};
}

class Cast : public testing::Test {
 protected:
  ~Cast() override { reset_runtime_config(); }
};

TEST_F(Cast, PartsMakeTheWhole) {
  for (const Backend backend : kBackends) {
    for (const cases::Fill fill : {cases::Fill::kNormal, cases::Fill::kNonFinite}) {
      for (const DType fmt : {DType::kE4M3, DType::kE2M1x2}) {
        for (const SfKind kind : {SfKind::kRoundedF32, SfKind::kE4M3}) {
          const Call call{.backend = backend};
          const CastOptions options{{kind, SfLayout::kRow}, {}};
          const Tensor x = filled({{19, 208}, DType::kBF16}, fill);
          const QuantTensor whole = per_token_cast(x, fmt, 32, options, call);
          const Tensor sf = per_token_cast_with_sf_only(x, fmt, 32, options, call);
          EXPECT_EQ(bytes_of(sf), bytes_of(whole.sf));
          const Tensor codes = per_token_cast_with_precomputed_sf(x, fmt, 32, sf, call);
          EXPECT_EQ(bytes_of(codes), bytes_of(whole.data));
        }
      }
    }
    const Call call{.backend = backend};
    const CastOptions options{{SfKind::kRoundedF32, SfLayout::kRow}, {}};
    const Tensor x = filled({{200, 300}, DType::kF32}, cases::Fill::kEdge);
    const QuantTensor whole = per_block_cast(x, DType::kE4M3, {32, 128}, options, call);
    const Tensor sf = per_block_cast_with_sf_only(x, DType::kE4M3, {32, 128}, options, call);
    EXPECT_EQ(bytes_of(sf), bytes_of(whole.sf));
    const Tensor codes = per_block_cast_with_precomputed_sf(x, DType::kE4M3, {32, 128}, sf, call);
    EXPECT_EQ(bytes_of(codes), bytes_of(whole.data));
  }
}

TEST_F(Cast, RowsDoNotDependOnTheBatch) {
  for (const Backend backend : kBackends) {
    const Call call{.backend = backend};
    const Tensor x = filled({{37, 7168}, DType::kBF16}, cases::Fill::kNormal);
    const QuantTensor batch = per_token_cast(x, DType::kE4M3, 128, {}, call);
    for (const int64_t row : {0, 5, 36}) {
      const TensorView one(static_cast<char*>(x.data()) + row * 7168 * 2,
                           TensorSpec({1, 7168}, DType::kBF16));
      const QuantTensor alone = per_token_cast(one, DType::kE4M3, 128, {}, call);
      EXPECT_EQ(
          std::memcmp(alone.data.data(), static_cast<char*>(batch.data.data()) + row * 7168, 7168),
          0);
      EXPECT_EQ(
          std::memcmp(alone.sf.data(), static_cast<char*>(batch.sf.data()) + row * 56 * 4, 56 * 4),
          0);
    }
  }
}

TEST_F(Cast, ClampOfTheProcessIsThatOfACall) {
  const Tensor x = filled({{3, 64}, DType::kBF16}, cases::Fill::kNormal);
  for (const DType fmt : {DType::kE4M3, DType::kE2M1x2}) {
    for (const SfKind kind : {SfKind::kF32, SfKind::kE4M3}) {
      CastOptions options{{kind, SfLayout::kRow}, {}};
      const QuantTensor before = per_token_cast(x, fmt, 32, options);
      set_amax_clamp_for_quant(fmt, kind == SfKind::kE4M3, 50.0f);
      const QuantTensor by_setting = per_token_cast(x, fmt, 32, options);
      reset_runtime_config();
      options.amax_clamp = 50.0f;
      const QuantTensor by_call = per_token_cast(x, fmt, 32, options);
      EXPECT_EQ(bytes_of(by_setting.sf), bytes_of(by_call.sf));
      EXPECT_EQ(bytes_of(by_setting.data), bytes_of(by_call.data));
      EXPECT_NE(bytes_of(by_setting.sf), bytes_of(before.sf));
    }
  }
}

TEST_F(Cast, OutputsAreChecked) {
  const Tensor x = filled({{4, 64}, DType::kBF16}, cases::Fill::kNormal);
  const QuantSpec spec = per_token_cast_spec(x.spec(), DType::kE4M3, 32);
  const Tensor data(spec.data);
  const Tensor sf(spec.sf);
  const auto cast_to = [&](const TensorView& to_data, const TensorView& to_sf) {
    return error_of<std::invalid_argument>([&] {
      per_token_cast_out({to_data, to_sf}, x, DType::kE4M3, 32);
    });
  };
  EXPECT_EQ(cast_to(data, sf), "nothing thrown");
  const std::string op = "[per_token_cast] ";
  EXPECT_EQ(cast_to({data.data(), TensorSpec({4, 32}, DType::kE4M3)}, sf),
            op + "out.data must be e4m3 (4, 64) on cpu, got e4m3 (4, 32) on cpu");
  EXPECT_EQ(cast_to({data.data(), TensorSpec({4, 64}, {128, 1}, DType::kE4M3)}, sf),
            op + "out.data must be e4m3 (4, 64) on cpu, got e4m3 (4, 64) strides (128, 1) on cpu");
  EXPECT_EQ(cast_to(data, {sf.data(), TensorSpec({4, 2}, {1, 4}, DType::kF32)}),
            op + "out.sf must be f32 (4, 2) on cpu, got f32 (4, 2) strides (1, 4) on cpu");
  EXPECT_EQ(cast_to({nullptr, spec.data}, sf),
            op + "out.data must have memory, got a null pointer");
  EXPECT_EQ(cast_to(data, {static_cast<char*>(sf.data()) + 2, spec.sf}),
            op + "out.sf must be aligned to 4 bytes, got an address with remainder 2");
  EXPECT_EQ(cast_to({x.data(), spec.data}, sf),
            op + "out.data must not overlap x, got shared memory");
  EXPECT_EQ(cast_to(data, {x.data(), spec.sf}),
            op + "out.sf must not overlap x, got shared memory");
  EXPECT_EQ(cast_to(data, {data.data(), spec.sf}),
            op + "out.sf must not overlap out.data, got shared memory");

  const TensorView nowhere(nullptr, x.spec());
  EXPECT_EQ(error_of<std::invalid_argument>([&] {
              per_token_cast_out({data, sf}, nowhere, DType::kE4M3, 32);
            }),
            op + "x must have memory, got a null pointer");
  const Tensor given = filled(spec.sf, cases::Fill::kScale);
  EXPECT_EQ(error_of<std::invalid_argument>([&] {
              per_token_cast_with_precomputed_sf_out({given.data(), spec.data}, x, DType::kE4M3, 32,
                                                     given);
            }),
            op + "out must not overlap sf, got shared memory");
  EXPECT_EQ(error_of<std::invalid_argument>([&] {
              per_token_cast_with_sf_only_out({x.data(), spec.sf}, x, DType::kE4M3, 32);
            }),
            op + "out_sf must not overlap x, got shared memory");
  EXPECT_EQ(
      error_of<std::invalid_argument>([&] {
        per_token_cast_out({{x.data(), spec.data}, sf}, {data, sf}, {{1, 32}}, DType::kE4M3, 32);
      }),
      op + "out.sf must not overlap x.sf, got shared memory");
}

// A single column's stride means nothing, but its padding is written all the same.
TEST_F(Cast, ThePaddingOfASingleColumnMayNotOverlap) {
  std::vector<float> memory(5 + 5 * 32);
  const TensorView x(memory.data() + 5, TensorSpec({5, 32}, DType::kF32));
  const TensorView sf(memory.data(), TensorSpec({5, 1}, DType::kF32));
  const Tensor data(TensorSpec({5, 32}, DType::kE4M3));
  const CastOptions options{.sf = {SfKind::kF32, SfLayout::kCol}, .amax_clamp = {}};
  EXPECT_EQ(error_of<std::invalid_argument>([&] {
              per_token_cast_out({data, sf}, x, DType::kE4M3, 32, options);
            }),
            "[per_token_cast] out.sf must not overlap x, got shared memory");
}

TEST_F(Cast, SfSpec) {
  const TensorSpec packed = sf_spec({SfKind::kUE8M0, SfLayout::kColPacked}, 3, 5);
  EXPECT_EQ(packed.dtype, DType::kI32);
  EXPECT_EQ(packed.shape, Dims({3, 2}));
  EXPECT_EQ(packed.strides, Dims({1, 4}));
  EXPECT_EQ(packed.storage_bytes(), 32);
  const TensorSpec ascend =
      sf_spec({SfKind::kUE8M0, SfLayout::kColPacked}, 3, 5, {DeviceType::kAscend, 0});
  EXPECT_EQ(ascend.dtype, DType::kI16);
  EXPECT_EQ(ascend.shape, Dims({3, 3}));
  EXPECT_EQ(ascend.strides, Dims({1, 3}));
  const TensorSpec tokens = sf_spec({SfKind::kUE8M0, SfLayout::kTokenPacked}, 5, 7);
  EXPECT_EQ(tokens.shape, Dims({2, 7}));
  EXPECT_TRUE(tokens.is_contiguous());
  EXPECT_EQ(sf_spec({SfKind::kE4M3, SfLayout::kCol}, 3, 5).strides, Dims({1, 16}));
  EXPECT_EQ(sf_spec({SfKind::kF32, SfLayout::kCol}, 0, 5).strides, Dims({1, 0}));
  EXPECT_EQ(sf_spec({SfKind::kUE8M0, SfLayout::kRow}, 3, 5).dtype, DType::kE8M0);
  EXPECT_EQ(error_of<std::invalid_argument>([] {
              sf_spec({SfKind::kF32, SfLayout::kTokenPacked}, 3, 5);
            }),
            "[sf_spec] sf.layout must be kRow or kCol for scaling factors of kind kF32, got "
            "kTokenPacked");
  EXPECT_EQ(error_of<std::invalid_argument>([] { sf_spec({}, -1, 5); }),
            "[sf_spec] sf must have no negative extent, got (-1, 5)");
  EXPECT_EQ(
      error_of<std::invalid_argument>([] { sf_spec({}, std::numeric_limits<int64_t>::max(), 5); }),
      "[sf_spec] sf must have fewer than 2^63 bytes, got (9223372036854775807, 5)");
  EXPECT_EQ(error_of<std::invalid_argument>([] {
              sf_spec({static_cast<SfKind>(9), SfLayout::kRow}, 3, 5);
            }),
            "[sf_spec] sf.kind must be in 0..3, got 9");
}

}  // namespace
}  // namespace tilekernels
