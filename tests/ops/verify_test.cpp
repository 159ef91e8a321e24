// The judge on tensors that a call changes in place: a made-up op on the reference backend.
#include "cases/verify.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <stdexcept>

namespace tilekernels::cases {
namespace {

constexpr int64_t kRows = 3;
constexpr int64_t kCols = 4;
constexpr int64_t kPitch = 6;

uint8_t& at(const TensorView& x, int64_t row, int64_t col) {
  return static_cast<uint8_t*>(x.data)[row * x.stride(0) + col];
}

// Counts up the even columns of a matrix whose rows have gaps, and then does `more`.
Case count_up(const std::function<void(const Views& out, const Views& in)>& more = {}) {
  const auto calls = std::make_shared<int>(0);
  const TensorSpec spec({kRows, kCols}, {kPitch, 1}, DType::kU8);
  return {
      .id = "count_up/in-place",
      .inputs = {{"x", spec, Fill::kBits}, {"y", {{5}, DType::kU8}, Fill::kBits}},
      .outputs = {"row_sums", "x"},
      .spec =
          [](const Specs& in) {
            return Specs{{{in[0].size(0)}, DType::kU8}, in[0]};
          },
      .out =
          [more, calls](const Views& out, const Views& in, const Call& call) {
            for (int64_t row = 0; row < kRows; ++row) {
              at(out[0], row, 0) = 0;
              for (int64_t col = 0; col < kCols; ++col) {
                if (col % 2 == 0) ++at(out[1], row, col);
                at(out[0], row, 0) =
                    static_cast<uint8_t>(at(out[0], row, 0) + at(out[1], row, col));
              }
            }
            *call.ran = *call.backend;
            // The first call is the reference's own, which judges.
            if ((*calls)++ > 0 && more) more(out, in);
          },
      .starts_as = {-1, 0},
      .alloc = {},
  };
}

std::string failure(const Case& test) { return verify(test, Backend::kReference).failure; }

TEST(InPlace, AnOutputStartsWithItsInputsBytes) {
  const Case test = count_up();
  EXPECT_EQ(failure(test), "");
  const std::vector<uint8_t> x = make_bytes(test.inputs[0]);
  const Buffers buffers(test, 0x11);
  EXPECT_EQ(buffers.output_bytes(0), std::vector<uint8_t>(kRows, 0x11));
  EXPECT_EQ(buffers.output_bytes(1), x);
}

TEST(InPlace, RefillRestoresTheStart) {
  const Case test = count_up();
  const Buffers buffers(test, 0x11);
  at(buffers.outputs()[0], 1, 0) = 0;
  at(buffers.outputs()[1], 2, 1) ^= 0xFF;
  buffers.refill(0x22);
  EXPECT_EQ(buffers.output_bytes(0), std::vector<uint8_t>(kRows, 0x22));
  EXPECT_EQ(buffers.output_bytes(1), make_bytes(test.inputs[0]));
  EXPECT_EQ(buffers.damaged(), "");
}

TEST(InPlace, ChangedGapsAndInputsAreFound) {
  const auto gap = [](const Views& out, const Views&) { at(out[1], 1, kCols) = 0; };
  EXPECT_NE(failure(count_up(gap))
                .find("x u8 (3, 4) strides (6, 1) on cpu: 1 of 18 elements "
                      "differ, the first at storage element 10"),
            std::string::npos)
      << failure(count_up(gap));
  const auto outside = [](const Views& out, const Views&) { at(out[1], 0, -1) = 0; };
  EXPECT_NE(failure(count_up(outside)).find("x was written outside its bytes"), std::string::npos);
  const auto source = [](const Views&, const Views& in) { at(in[0], 0, 0) ^= 1; };
  EXPECT_NE(failure(count_up(source)).find("x was written outside its bytes"), std::string::npos);
}

TEST(InPlace, TheSpecsMustAgree) {
  Case test = count_up();
  test.starts_as = {-1, 1};
  EXPECT_NE(failure(test).find("x starts as an input of another size"), std::string::npos);
}

TEST(InPlace, BadCallsGetTheTensorItself) {
  Case test = count_up();
  const auto check = [](const TensorSpec& x) {
    if (x.dtype == DType::kU8) throw std::invalid_argument("[count_up] no");
  };
  test.spec = [check](const Specs& in) -> Specs {
    check(in[0]);
    return {};
  };
  test.out = [check](const Views& out, const Views&, const Call&) { check(out[1]); };
  test.error = "[count_up] no";
  EXPECT_EQ(failure(test), "");
}

}  // namespace
}  // namespace tilekernels::cases
