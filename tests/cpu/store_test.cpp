// Streaming stores against plain ones, at every alignment and length, between guard bytes.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "runtime/cpu/cache.h"
#include "runtime/cpu/parallel.h"
#include "runtime/cpu/targets.h"
#include "tilekernels/config.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/store_test.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "runtime/cpu/store-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tilekernels::cpu::HWY_NAMESPACE {
namespace {

void copy_by_streaming(void* to, const void* from, int64_t num_bytes) {
  stream_copy(to, from, num_bytes);
}

// Doubles whole vectors of floats; num_bytes is a multiple of a line.
void double_floats(void* to, const void* from, int64_t num_bytes, bool stream) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::CappedTag<float, 16> d;
  const auto* in = static_cast<const float*>(from);
  auto* out = static_cast<float*>(to);
  for (int64_t i = 0; i < num_bytes / 4; i += static_cast<int64_t>(hn::Lanes(d))) {
    const auto x = hn::LoadU(d, in + i);
    if (stream) {
      store<true>(hn::Add(x, x), d, out + i);
    } else {
      store<false>(hn::Add(x, x), d, out + i);
    }
  }
}

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace tilekernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilekernels::cpu {
namespace {

HWY_EXPORT(copy_by_streaming);
HWY_EXPORT(double_floats);

constexpr uint8_t kGuard = 0xA5;
constexpr size_t kMargin = 128;

std::vector<uint8_t> pattern(size_t size) {
  std::vector<uint8_t> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(i * 7 + i / 251);
  return bytes;
}

uint8_t* align_line(uint8_t* bytes) {
  const auto address = reinterpret_cast<uintptr_t>(bytes);
  return bytes + (64 - address % 64) % 64;
}

class StoreTest : public testing::Test {
 protected:
  void TearDown() override { reset_runtime_config(); }
};

TEST_F(StoreTest, CopiesAtAllAlignmentsAndLengths) {
  const std::vector<uint8_t> source = pattern(1024);
  std::vector<uint8_t> room(1024 + 2 * kMargin + 64);
  for (const std::string& name : cpu_targets()) {
    set_cpu_target(name);
    const auto copy = HWY_DYNAMIC_DISPATCH(copy_by_streaming);
    for (size_t to = 0; to < 64; ++to) {
      for (const size_t from : {size_t{0}, size_t{1}, to}) {
        for (size_t size = 0; size < 333; ++size) {
          std::memset(room.data(), kGuard, room.size());
          uint8_t* const out = align_line(room.data()) + kMargin + to;
          copy(out, source.data() + from, static_cast<int64_t>(size));
          ASSERT_EQ(std::memcmp(out, source.data() + from, size), 0)
              << name << ": offset " << to << " from " << from << ", " << size << " bytes";
          for (size_t i = 1; i <= 64; ++i) {
            ASSERT_EQ(out[-static_cast<ptrdiff_t>(i)], kGuard) << name << " " << to << " " << size;
            ASSERT_EQ(out[size + i - 1], kGuard) << name << " " << to << " " << size;
          }
        }
      }
    }
  }
}

TEST_F(StoreTest, VectorsEqualPlainStores) {
  std::vector<float> source(16 * 40);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<float>(i) - 99.5f;
  const size_t size = source.size() * 4;
  std::vector<uint8_t> room(size + 2 * kMargin + 64);
  std::vector<uint8_t> plain(size);
  for (const std::string& name : cpu_targets()) {
    set_cpu_target(name);
    const auto run = HWY_DYNAMIC_DISPATCH(double_floats);
    std::memset(room.data(), kGuard, room.size());
    uint8_t* const out = align_line(room.data()) + kMargin;
    run(out, source.data(), static_cast<int64_t>(size), true);
    run(plain.data(), source.data(), static_cast<int64_t>(size), false);
    EXPECT_EQ(std::memcmp(out, plain.data(), size), 0) << name;
    for (size_t i = 1; i <= 64; ++i) {
      ASSERT_EQ(out[-static_cast<ptrdiff_t>(i)], kGuard);
      ASSERT_EQ(out[size + i - 1], kGuard);
    }
  }
}

TEST_F(StoreTest, ThreadsTogetherFillALargeOutput) {
  set_num_threads(4);
  const std::vector<uint8_t> source = pattern(4 << 20);
  std::vector<uint8_t> out(source.size() + 1, kGuard);
  const auto copy = HWY_DYNAMIC_DISPATCH(copy_by_streaming);
  // Rows that share lines with their neighbours
  constexpr int64_t kRow = 997;
  const auto num_rows = static_cast<int64_t>(source.size()) / kRow;
  parallel_for(num_rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      copy(out.data() + row * kRow, source.data() + row * kRow, kRow);
    }
  });
  const auto size = static_cast<size_t>(num_rows * kRow);
  EXPECT_EQ(std::memcmp(out.data(), source.data(), size), 0);
  EXPECT_EQ(out[size], kGuard);
}

TEST(Streamable, NeedsWholeLines) {
  alignas(64) static uint8_t line[128];
  EXPECT_TRUE(HWY_STATIC_DISPATCH(is_streamable)(line, 128, 64));
  EXPECT_FALSE(HWY_STATIC_DISPATCH(is_streamable)(line + 16, 128, 64));
  EXPECT_FALSE(HWY_STATIC_DISPATCH(is_streamable)(line, 96, 64));
  EXPECT_FALSE(HWY_STATIC_DISPATCH(is_streamable)(line, 128, 48));
}

TEST(Cache, IsOfASensibleSize) {
  EXPECT_GE(last_level_cache_bytes(), 256 << 10);
  EXPECT_LE(last_level_cache_bytes(), int64_t{8} << 30);
  EXPECT_FALSE(should_stream(0));
  EXPECT_FALSE(should_stream(4096));
  EXPECT_TRUE(should_stream(last_level_cache_bytes()));
}

}  // namespace
}  // namespace tilekernels::cpu
#endif
