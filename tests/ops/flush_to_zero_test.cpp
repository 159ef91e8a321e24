// Results do not depend on the caller's floating-point environment.
#include <gtest/gtest.h>

#include <cstring>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "tilekernels/config.h"
#include "tilekernels/quant.h"

namespace tilekernels {
namespace {

#if defined(__x86_64__)

// Codes of 1 under 2^-127, a subnormal that a flushing host would turn into 0.
void cast_back_subnormals(Backend backend) {
  constexpr int64_t kHidden = 64;
  const Tensor x(TensorSpec({1, kHidden}, DType::kE4M3));
  const Tensor sf(TensorSpec({1, 1}, DType::kE8M0));
  std::memset(x.data(), 0x38, kHidden);
  std::memset(sf.data(), 0, 1);
  const Tensor out =
      cast_back({x, sf}, {{1, kHidden}, SfLayout::kRow}, DType::kF32, Call{.backend = backend});
  for (int64_t i = 0; i < kHidden; ++i) {
    uint32_t bits;
    std::memcpy(&bits, static_cast<const char*>(out.data()) + 4 * i, 4);
    EXPECT_EQ(bits, 0x00400000u) << "element " << i << " on " << name(backend);
  }
}

TEST(FlushToZero, DoesNotReachHostBackends) {
  constexpr unsigned kFlushAndTruncate = 0x1F80 | 0x8040 | 0x6000;
  const unsigned before = _mm_getcsr();
  for (Backend backend : {Backend::kReference, Backend::kCpu}) {
    if (!backends()[static_cast<size_t>(backend)].available) continue;
    _mm_setcsr(kFlushAndTruncate);
    cast_back_subnormals(backend);
    const unsigned after = _mm_getcsr();
    _mm_setcsr(before);
    EXPECT_EQ(after & 0xFFC0u, kFlushAndTruncate) << "the caller's environment has changed";
  }
}

#endif

}  // namespace
}  // namespace tilekernels
