// Calls of drawn shapes, pitches, blocks and layouts on the machine model: the reference's bytes,
// and no hazard.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "sanitized.h"
#include "tilekernels/config.h"
#include "tilekernels/moe.h"
#include "tilekernels/quant.h"

namespace tilekernels {
namespace {

constexpr int kCalls = kSanitized ? 60 : 400;
using Bytes = std::vector<uint8_t>;

class Shapes : public testing::Test {
 protected:
  void TearDown() override { reset_runtime_config(); }

  int64_t draw(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  template <class T, size_t kCount>
  T one_of(const T (&values)[kCount]) {
    return values[draw(0, kCount - 1)];
  }
  bool toss() { return draw(0, 1) == 1; }

  // Every bit drawn; or, tame, fp32 and 16-bit exponents of a few values.
  Bytes draw_bytes(int64_t size, DType dtype) {
    Bytes bytes(static_cast<size_t>(size));
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(draw(0, 255));
    const int64_t width = size_bytes(dtype);
    if (width == 1 || toss()) return bytes;
    for (int64_t top = width - 1; top < size; top += width) {
      uint8_t& byte = bytes[static_cast<size_t>(top)];
      byte = static_cast<uint8_t>((byte & 0x81) | 0x3C);
    }
    return bytes;
  }

  void draw_extents() {
    const int kind = static_cast<int>(draw(0, 5));
    hidden_ = kind == 0 ? draw(1, 64) : kind < 5 ? draw(1, 1200) : draw(8000, 12000);
    tokens_ = kind == 5 ? draw(1, 4) : toss() ? draw(1, 40) : draw(100, 140);
  }

  SfFormat draw_format() {
    constexpr SfFormat kFormats[] = {
        {SfKind::kF32, SfLayout::kRow},
        {SfKind::kF32, SfLayout::kCol},
        {SfKind::kRoundedF32, SfLayout::kCol, SfPitch::kAscend},
        {SfKind::kUE8M0, SfLayout::kRow},
        {SfKind::kUE8M0, SfLayout::kCol},
        {SfKind::kUE8M0, SfLayout::kRowPacked},
        {SfKind::kUE8M0, SfLayout::kColPacked},
        {SfKind::kUE8M0, SfLayout::kRowPacked, SfPitch::kAscend},
        {SfKind::kUE8M0, SfLayout::kColPacked, SfPitch::kAscend},
        {SfKind::kE4M3, SfLayout::kRow},
        {SfKind::kE4M3, SfLayout::kCol},
    };
    return one_of(kFormats);
  }

  std::mt19937_64 random_{20261};
  int64_t tokens_ = 0;
  int64_t hidden_ = 0;
};

void append(Bytes& all, const Tensor& tensor) {
  const auto* begin = static_cast<const uint8_t*>(tensor.data());
  all.insert(all.end(), begin, begin + tensor.view().storage_bytes());
}

// The bytes of call(backend) on both backends are equal.
template <class Call>
void expect_same(const std::string& what, const Call& call) {
  Bytes got;
  Bytes want;
  call(Backend::kReference, want);
  try {
    call(Backend::kAscend, got);
  } catch (const std::exception& error) {
    ADD_FAILURE() << what << ": " << error.what();
    return;
  }
  EXPECT_TRUE(got == want) << what;
}

std::string text(const TensorSpec& x, BlockSize block, DType fmt, const SfFormat& sf) {
  return to_string(x) + " block " + std::to_string(block.rows) + "x" + std::to_string(block.cols) +
         " to " + std::string(name(fmt)) + " sf " + std::to_string(static_cast<int>(sf.kind)) +
         "/" + std::to_string(static_cast<int>(sf.layout)) + "/" +
         std::to_string(static_cast<int>(sf.pitch));
}

TEST_F(Shapes, Casts) {
  for (int i = 0; i < kCalls; ++i) {
    draw_extents();
    const bool by_block = toss();
    const DType fmt = toss() ? DType::kE4M3 : DType::kE2M1x2;
    hidden_ = by_block ? (hidden_ + 1) / 2 * 2 : (hidden_ + 15) / 16 * 16;
    const DType dtype = one_of({DType::kF32, DType::kBF16, DType::kF16});
    const int64_t pitch = hidden_ + (toss() ? draw(0, 37) : 0);
    const Bytes x = draw_bytes(tokens_ * pitch * size_bytes(dtype), dtype);
    const TensorView view{const_cast<uint8_t*>(x.data()),
                          TensorSpec({tokens_, hidden_}, {pitch, 1}, dtype)};
    CastOptions options;
    options.sf = draw_format();
    if (by_block && options.sf.kind == SfKind::kE4M3) options.sf = {};
    const BlockSize block = by_block ? BlockSize{one_of({32, 128}), one_of({32, 128})}
                                     : BlockSize{1, one_of({16, 32, 64, 128})};
    expect_same(text(view, block, fmt, options.sf), [&](Backend backend, Bytes& bytes) {
      const Call call{.backend = backend};
      const QuantTensor out = by_block ? per_block_cast(view, fmt, block, options, call)
                                       : per_token_cast(view, fmt, block.cols, options, call);
      append(bytes, out.data);
      append(bytes, out.sf);
    });
  }
}

TEST_F(Shapes, OfQuantizedInputs) {
  for (int i = 0; i < kCalls; ++i) {
    draw_extents();
    hidden_ = (hidden_ + 15) / 16 * 16;
    const bool back = toss();
    const bool by_block = toss();
    const DType dtype = toss() ? DType::kE4M3 : DType::kE2M1x2;
    const DType fmt = toss() ? DType::kE4M3 : DType::kE2M1x2;
    const BlockSize block = by_block ? BlockSize{one_of({32, 128}), one_of({32, 128})}
                                     : BlockSize{1, one_of({16, 32, 64, 128})};
    SfFormat from = draw_format();
    if (from.kind == SfKind::kRoundedF32) from.kind = SfKind::kF32;
    SfSource source{{toss() ? 1 : static_cast<int>(draw(1, 200)),
                     one_of({1, 2, 4, 8, 16, 32, 64, 128, 256, 384, 20480})},
                    from.layout};
    if (draw(0, 5) == 0) {
      from = {SfKind::kUE8M0, SfLayout::kTokenPacked, toss() ? SfPitch::kAscend : SfPitch::kCuda};
      source.layout = from.layout;
      source.block.cols = 1;
    }
    if (back && source.layout != SfLayout::kTokenPacked && toss()) {
      source.block.cols = static_cast<int>(draw(1, 300));
    }
    const int cols = source.block.cols;
    if (!back && cols % block.cols != 0 && block.cols % cols != 0) continue;
    CastOptions options;
    options.sf = draw_format();
    if (by_block && options.sf.kind == SfKind::kE4M3) options.sf = {};

    const int64_t units = dtype == DType::kE2M1x2 ? hidden_ / 2 : hidden_;
    const int64_t pitch = units + (toss() ? draw(0, 21) : 0);
    const Bytes x = draw_bytes(tokens_ * pitch, dtype);
    const TensorSpec sf_of_x = sf_spec(from, (tokens_ + source.block.rows - 1) / source.block.rows,
                                       (hidden_ + cols - 1) / cols);
    const Bytes sf = draw_bytes(sf_of_x.storage_bytes(),
                                sf_of_x.dtype == DType::kF32 ? DType::kF32 : DType::kU8);
    const QuantView view{
        {const_cast<uint8_t*>(x.data()), TensorSpec({tokens_, units}, {pitch, 1}, dtype)},
        {const_cast<uint8_t*>(sf.data()), sf_of_x}};
    const DType out_dtype = one_of({DType::kBF16, DType::kF16, DType::kF32});
    const std::string what = text(view.data, block, back ? out_dtype : fmt, options.sf) + " from " +
                             to_string(sf_of_x) + " of " + std::to_string(source.block.rows) + "x" +
                             std::to_string(cols);
    expect_same(what, [&](Backend backend, Bytes& bytes) {
      const Call call{.backend = backend};
      if (back) {
        append(bytes, cast_back(view, source, out_dtype, call));
        return;
      }
      const QuantTensor out = by_block
                                  ? per_block_cast(view, source, fmt, block, options, call)
                                  : per_token_cast(view, source, fmt, block.cols, options, call);
      append(bytes, out.data);
      append(bytes, out.sf);
    });
  }
}

TEST_F(Shapes, Gates) {
  set_check_data(false);
  for (int i = 0; i < kCalls; ++i) {
    const int64_t experts = draw(0, 2) > 0 ? draw(1, 400) : draw(1, 3000);
    const int64_t tokens = draw(1, 20);
    const int topk = static_cast<int>(draw(1, std::min<int64_t>(experts, 32)));
    const bool ties = toss();
    std::vector<float> scores(static_cast<size_t>(tokens * experts));
    for (float& score : scores) {
      const auto bits = static_cast<uint32_t>(draw(0, 0xFFFFFFFF));
      score = ties ? static_cast<float>(bits % 5) - 2 : __builtin_bit_cast(float, bits);
    }
    const TensorView view{scores.data(), TensorSpec({tokens, experts}, DType::kF32)};
    expect_same(to_string(view) + " top " + std::to_string(topk),
                [&](Backend backend, Bytes& bytes) {
                  append(bytes, topk_gate(view, topk, Call{.backend = backend}));
                });
  }
}

}  // namespace
}  // namespace tilekernels
