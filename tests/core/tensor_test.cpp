// Specs, views, owned tensors and the allocation of outputs.
#include "tilekernels/tensor.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <stdexcept>

#include "core/check.h"
#include "errors.h"
#include "tilekernels/error.h"
#include "tilekernels/stream.h"

namespace tilekernels {
namespace {

TEST(Dims, RefusesMoreThanEightDimensions) {
  const int64_t values[9] = {};
  EXPECT_NO_THROW(Dims(values, 8));
  EXPECT_THROW(Dims(values, 9), std::invalid_argument);
  Dims dims(values, 8);
  EXPECT_THROW(dims.push_back(1), std::invalid_argument);
}

TEST(TensorSpec, RowMajorStrides) {
  const TensorSpec spec({2, 3, 4}, DType::kBF16);
  EXPECT_EQ(spec.strides, Dims({12, 4, 1}));
  EXPECT_EQ(spec.numel(), 24);
  EXPECT_FALSE(spec.is_empty());
  EXPECT_EQ(spec.span_bytes(), 48);
  EXPECT_EQ(spec.storage_bytes(), 48);
  EXPECT_TRUE(spec.is_contiguous());
}

TEST(TensorSpec, EmptyTensorsOccupyNothing) {
  const TensorSpec spec({0, 7}, DType::kF32);
  EXPECT_EQ(spec.numel(), 0);
  EXPECT_TRUE(spec.is_empty());
  EXPECT_EQ(spec.span_bytes(), 0);
  EXPECT_EQ(spec.storage_bytes(), 0);
  EXPECT_TRUE(spec.is_contiguous());
}

TEST(TensorSpec, StorageHoldsThePaddingOfAColumnPitch) {
  // Three rows, two columns, columns four apart: the last column's padding belongs to the output.
  const TensorSpec spec({3, 2}, {1, 4}, DType::kF32);
  EXPECT_EQ(spec.span_bytes(), 7 * 4);
  EXPECT_EQ(spec.storage_bytes(), 8 * 4);
  EXPECT_FALSE(spec.is_contiguous());
}

TEST(Check, SeesMemoryThatOverlapsWhateverTheStridesThatMeanNothing) {
  float memory[8] = {};
  const TensorView input(memory, {{8}, DType::kF32});
  for (const int64_t stride : {int64_t{8}, std::numeric_limits<int64_t>::max(),
                               std::numeric_limits<int64_t>::min(), int64_t{1} << 62}) {
    const TensorView output(memory, {{1, 8}, {stride, 1}, DType::kF32});
    EXPECT_THROW(Check("op").disjoint("out", bytes_written(output), "in", bytes_read(input)),
                 std::invalid_argument)
        << stride;
  }
}

TEST(TensorSpec, MatchesIgnoresStridesThatMeanNothing) {
  const TensorSpec one_row({1, 4}, {4, 1}, DType::kF32);
  EXPECT_TRUE(matches(one_row, {{1, 4}, {99, 1}, DType::kF32}));
  EXPECT_FALSE(matches(one_row, {{1, 4}, {4, 2}, DType::kF32}));
  EXPECT_FALSE(matches(one_row, {{1, 4}, {4, 1}, DType::kI32}));
  EXPECT_FALSE(matches(one_row, {{4}, DType::kF32}));
  EXPECT_FALSE(matches(one_row, {{1, 4}, {4, 1}, DType::kF32, {DeviceType::kCuda, 0}}));
  EXPECT_TRUE(matches({{0, 4}, {1, 0}, DType::kF32}, {{0, 4}, {4, 1}, DType::kF32}));
}

TEST(TensorSpec, HugeShapesSaturateInsteadOfOverflowing) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  const TensorSpec spec({kMax, kMax, 3}, DType::kF32);
  EXPECT_EQ(spec.numel(), kMax);
  EXPECT_EQ(spec.stride(0), kMax);
  EXPECT_THROW(Check("test").rank("x", spec, 3), std::invalid_argument);
  EXPECT_THROW(Check("test").rows("x", {{kMax / 4, 2}, {kMax / 8, 1}, DType::kF32}),
               std::invalid_argument);
  EXPECT_NO_THROW(Check("test").rows("x", {{1, 2}, {kMax, 1}, DType::kF32}));
  EXPECT_EQ(TensorSpec({0, kMax, kMax}, DType::kF32).numel(), 0);
  const TensorSpec empty({kMax, kMax, 0}, {kMax, kMax, kMax}, DType::kF32);
  EXPECT_TRUE(empty.is_empty());
  EXPECT_EQ(empty.span_bytes(), 0);
  EXPECT_EQ(empty.storage_bytes(), 0);
}

TEST(Copy, RefusesWhatItCannotCopy) {
  float x[4] = {1, 2, 3, 4};
  float y[4] = {};
  const TensorSpec spec({4}, DType::kF32);
  EXPECT_NO_THROW(copy({y, spec}, {x, spec}));
  EXPECT_EQ(y[3], 4);
  EXPECT_THROW(copy({y, spec}, {nullptr, spec}), std::invalid_argument);
  EXPECT_THROW(copy({y, spec}, {x, {{3}, DType::kF32}}), std::invalid_argument);
  const TensorSpec reversed({4}, {-1}, DType::kF32);
  EXPECT_THROW(copy({y + 3, reversed}, {x + 3, reversed}), std::invalid_argument);
  const TensorSpec on_npu({4}, DType::kF32, {DeviceType::kAscend, 0});
  const TensorSpec on_gpu({4}, DType::kF32, {DeviceType::kCuda, 0});
  EXPECT_THROW(copy({y, on_npu}, {x, on_gpu}), std::invalid_argument);
}

TEST(TensorSpec, PrintsWhatMatters) {
  EXPECT_EQ(to_string(TensorSpec({2, 3}, DType::kE4M3)), "e4m3 (2, 3) on cpu");
  EXPECT_EQ(to_string(TensorSpec({2, 3}, {1, 4}, DType::kF32, {DeviceType::kCuda, 1})),
            "f32 (2, 3) strides (1, 4) on cuda:1");
}

TEST(Call, SeveralOutputsShareOneAlignedBlock) {
  class Counting : public Allocator {
   public:
    std::shared_ptr<void> allocate(int64_t size_bytes, Device device, Stream stream) override {
      ++count;
      return default_allocator().allocate(size_bytes, device, stream);
    }
    int count = 0;
  };
  Counting allocator;
  const Call call{.allocator = &allocator};
  const auto tensors = call.allocate(
      {TensorSpec({3, 5}, DType::kE4M3), TensorSpec({3}, DType::kF32), {{0, 2}, DType::kI64}});
  EXPECT_EQ(allocator.count, 1);
  ASSERT_EQ(tensors.size(), 3u);
  for (const Tensor& tensor : tensors) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.data()) % 64, 0u);
  }
  EXPECT_GE(static_cast<char*>(tensors[1].data()) - static_cast<char*>(tensors[0].data()), 15);
}

TEST(Copy, TakesTheWholeStorageOfATensorOfTheSameSpec) {
  const TensorSpec spec({2, 2}, {3, 1}, DType::kU8);
  uint8_t from[5] = {1, 2, 3, 4, 5};
  uint8_t to[6] = {0, 0, 0, 0, 0, 9};
  copy({to, spec}, {from, spec});
  EXPECT_EQ(to[2], 3);  // the gap
  EXPECT_EQ(to[4], 5);
  EXPECT_EQ(to[5], 9);
  EXPECT_EQ(error_of<std::invalid_argument>([&] {
              copy({to, TensorSpec({4}, DType::kU8)}, {from, spec});
            }),
            "[copy] to must be u8 (2, 2) strides (3, 1) on cpu, got u8 (4) on cpu");
}

TEST(Backend, NamesReadBack) {
  for (int i = 0; i < kNumBackends; ++i) {
    const auto backend = static_cast<Backend>(i);
    EXPECT_EQ(backend_from_name(name(backend)), backend);
  }
  EXPECT_THROW(backend_from_name("gpu"), std::invalid_argument);
  EXPECT_THROW(name(static_cast<Backend>(kNumBackends)), std::invalid_argument);
  EXPECT_TRUE(Call{}.allocate(std::initializer_list<TensorSpec>{}).empty());
  EXPECT_EQ(backends().size(), static_cast<size_t>(kNumBackends));
}

}  // namespace
}  // namespace tilekernels
