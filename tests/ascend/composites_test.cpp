// The vector core's sums over rows and elementary functions against their scalar definition.
#include <cstring>
#include <limits>
#include <vector>

#include "numerics/formats.h"
#include "planted.h"
#include "runtime/ascend/elementary.h"
#include "runtime/ascend/row_sum.h"
#include "sanitized.h"

namespace tilekernels::ascend {
namespace {

using numerics::bit_cast;
using numerics::kDTypeBF16;
using numerics::kDTypeF16;
using numerics::kDTypeF32;

constexpr float kInf = std::numeric_limits<float>::infinity();

// NaN alone has open bits.
uint32 bits(float x) { return bit_cast<uint32>(numerics::canonical(x)); }

// ------------------------------ sums over rows

template <int32 kDType, int32 kTerm, int32 kRegs>
void store_sum(Ub<float> out, Ub<uint8> row, uint32 cols) {
  Reg<float> sum;
  sum_row<kDType, kTerm, kRegs>(sum, row, cols);
  vst_first(out, sum);
}

template <int32 kDType, int32 kTerm, int32 kRegs>
float sum_on_the_core(const uint8* row, int64 cols) {
  float sum = 0;
  run([&] {
    prologue();
    const auto x =
        ub_alloc<uint8>("x", numerics::align_up(bytes_of(kDType, cols), kBlockBytes), kRowSumTail);
    const auto out = ub_alloc<float>("out", 1);
    copy_in(x, gm(row), {1, bytes_of(kDType, cols)});
    wait_for<Pipe::kMte2, Pipe::kV>();
    vf_call<store_sum<kDType, kTerm, kRegs>>("sum_row", out, x, static_cast<uint32>(cols));
    wait_for<Pipe::kV, Pipe::kMte3>();
    copy_out(gm(&sum), out, {1, 4});
    barrier_all();
  });
  return sum;
}

float load(int32 dtype, const uint8* row, int64 i) {
  if (dtype == kDTypeF32) {
    float x;
    std::memcpy(&x, row + 4 * i, 4);
    return x;
  }
  uint16 x;
  std::memcpy(&x, row + 2 * i, 2);
  return dtype == kDTypeBF16 ? numerics::load_bf16(x) : numerics::load_f16(x);
}

float sum_by_definition(int32 dtype, int32 term, const uint8* row, int64 cols) {
  std::vector<float> partials(numerics::kRowPartials, 0.0f);
  for (int64 i = 0; i < cols; ++i) {
    float& p = partials[static_cast<size_t>(i % numerics::kRowPartials)];
    const float x = load(dtype, row, i);
    p = term == kSumSquares ? numerics::fma_rn(x, x, p) : p + x;
  }
  return numerics::sum_partials(partials.data());
}

template <int32 kDType, int32 kRegs>
void expect_sums(const std::vector<uint8>& row, int64 cols, const char* what) {
  const auto check = [&](float got, int32 term) {
    EXPECT_EQ(bits(got), bits(sum_by_definition(kDType, term, row.data(), cols)))
        << what << ", dtype " << kDType << ", cols " << cols << ", term " << term << ", registers "
        << kRegs;
  };
  check(sum_on_the_core<kDType, kSumValues, kRegs>(row.data(), cols), kSumValues);
  check(sum_on_the_core<kDType, kSumSquares, kRegs>(row.data(), cols), kSumSquares);
}

template <int32 kDType>
std::vector<uint8> row_of(const std::vector<float>& values) {
  std::vector<uint8> row;
  for (float value : values) {
    uint8 bytes[4];
    if (kDType == kDTypeF32) {
      std::memcpy(bytes, &value, 4);
    } else {
      const uint16 half =
          kDType == kDTypeBF16 ? numerics::f32_to_bf16(value) : numerics::f32_to_f16(value);
      std::memcpy(bytes, &half, 2);
    }
    row.insert(row.end(), bytes, bytes + bytes_of(kDType, 1));
  }
  return row;
}

template <int32 kDType>
void sweep_sums() {
  uint32 state = 1;
  const auto random = [&] {
    // Magnitudes apart enough that every order of adding has its own result
    state = state * 1664525u + 1013904223u;
    const float mantissa = 1.0f + static_cast<float>(state >> 9 & 0x7FFF) / 32768.0f;
    const float value = mantissa * numerics::pow2(static_cast<int32>(state >> 24 & 15) - 8);
    return (state >> 28 & 1) != 0 ? -value : value;
  };
  for (int64 cols : {1, 7, 8, 63, 64, 65, 100, 128, 200, 513, 999, 1023, 1024, 1025, 1500, 2049,
                     4096, 7168, 7169}) {
    std::vector<float> values(static_cast<size_t>(cols));
    for (float& value : values) value = random();
    const auto planted = [&](float value) {
      std::vector<float> copy = values;
      copy[static_cast<size_t>(cols * 2 / 3)] = value;
      return row_of<kDType>(copy);
    };
    expect_sums<kDType, kRowSumRegs>(row_of<kDType>(values), cols, "drawn");
    expect_sums<kDType, kRowSumRegs>(planted(kInf), cols, "Inf");
    expect_sums<kDType, kRowSumRegs>(planted(-kInf), cols, "-Inf");
    expect_sums<kDType, kRowSumRegs>(planted(std::numeric_limits<float>::quiet_NaN()), cols, "NaN");
    const std::vector<float> zeros(static_cast<size_t>(cols), -0.0f);
    expect_sums<kDType, kRowSumRegs>(row_of<kDType>(zeros), cols, "-0");
    if (cols <= 256) expect_sums<kDType, 4>(row_of<kDType>(values), cols, "drawn");
    if (cols <= 128) expect_sums<kDType, 2>(row_of<kDType>(values), cols, "drawn");
  }
}

TEST(RowSum, OfF32IsTheDefinition) { sweep_sums<kDTypeF32>(); }
TEST(RowSum, OfF16IsTheDefinition) { sweep_sums<kDTypeF16>(); }
TEST(RowSum, OfBF16IsTheDefinition) { sweep_sums<kDTypeBF16>(); }

// ------------------------------ elementary functions

using Function = void (*)(Reg<float>& d, const Reg<float>& x, const Mask& m);

template <Function kFunction>
void apply(Ub<float> out, Ub<float> x, uint16 turns) {
  const Mask all = pset<float>();
  Reg<float> value;
  Reg<float> result;
  for (uint16 i = 0; i < turns; ++i) {
    vlds(value, x + i * kF32Lanes);
    kFunction(result, value, all);
    vsts(out + i * kF32Lanes, result, all);
  }
}

template <Function kFunction>
void expect_function(float (*definition)(float)) {
  constexpr int64 kCount = 1 << 14;
  std::vector<float> x(kCount);
  std::vector<float> y(kCount);
  for (const uint32 low : {0u, 0x8001u, 0xFFFFu}) {
    for (uint32 first = 0; first < 1 << 16; first += kCount) {
      for (uint32 i = 0; i < kCount; ++i) {
        x[i] = bit_cast<float>((first + i) << 16 | low);
      }
      run([&] {
        prologue();
        const auto from = ub_alloc<float>("x", kCount);
        const auto to = ub_alloc<float>("y", kCount);
        copy_in(from, gm(x.data()), {1, 4 * kCount});
        wait_for<Pipe::kMte2, Pipe::kV>();
        vf_call<apply<kFunction>>("apply", to, from, trips(kCount / kF32Lanes));
        wait_for<Pipe::kV, Pipe::kMte3>();
        copy_out(gm(y.data()), to, {1, 4 * kCount});
        barrier_all();
      });
      for (size_t i = 0; i < x.size(); i += sweep_step(1)) {
        ASSERT_EQ(bits(y[i]), bits(definition(x[i]))) << "x = " << x[i];
      }
    }
  }
}

TEST(Elementary, ExpIsTheDefinition) { expect_function<exp_f32>(numerics::exp_f32); }
TEST(Elementary, SigmoidIsTheDefinition) { expect_function<sigmoid>(numerics::sigmoid); }
TEST(Elementary, SqrtSoftplusIsTheDefinition) {
  expect_function<sqrt_softplus>(numerics::sqrt_softplus);
}

}  // namespace
}  // namespace tilekernels::ascend
