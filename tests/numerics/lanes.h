// What the tests of the lane conversions say to the code that is compiled once a target.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tilekernels::test {

enum class Conversion {
  kWidenBF16,
  kWidenF16,
  kWidenE4M3,
  kWidenE2M1,
  kNarrowBF16,
  kNarrowF16,
  kNarrowE4M3,
  kNarrowE4M3Numbers,
  kNarrowE2M1,
  kNarrowE2M1Numbers,
  kCanonical,
};

/// Elements of the longest Quad: counts are multiples of it.
inline constexpr size_t kMaxQuad = 64;

}  // namespace tilekernels::test
