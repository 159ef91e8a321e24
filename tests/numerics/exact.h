// Exact arithmetic for the numerics tests: formats by the definition of their codes, nearest codes
// by comparison with midpoints in double. Nothing here shares code or method with src/numerics.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

namespace tilekernels::test {

inline float from_bits(uint32_t bits) { return std::bit_cast<float>(bits); }
inline uint32_t to_bits(float x) { return std::bit_cast<uint32_t>(x); }

/// A sign-magnitude format: code = sign, exponent field, mantissa; subnormals; finite codes
/// 0..max_code.
struct Format {
  int mantissa_bits;
  int bias;
  uint32_t max_code;
  bool saturates;     // else max_code + 1 is Inf
  uint32_t nan_code;  // 0: the format has no NaN
  uint32_t sign_code;

  double value(uint32_t code) const {
    const uint32_t exponent = code >> mantissa_bits;
    const double fraction = std::ldexp(code & ((1u << mantissa_bits) - 1), -mantissa_bits);
    return exponent == 0 ? std::ldexp(fraction, 1 - bias)
                         : std::ldexp(1.0 + fraction, static_cast<int>(exponent) - bias);
  }
};

inline constexpr Format kBF16{7, 127, 0x7F7F, false, 0x7FFF, 0x8000};
inline constexpr Format kF16{10, 15, 0x7BFF, false, 0x7FFF, 0x8000};
inline constexpr Format kE4M3{3, 7, 0x7E, true, 0x7F, 0x80};
inline constexpr Format kE5M2{2, 15, 0x7B, true, 0x7F, 0x80};
inline constexpr Format kE2M1{1, 1, 7, true, 0, 8};

/// Nearest magnitude codes, ties to the even code.
class Nearest {
 public:
  explicit Nearest(const Format& format) : format_(format) {
    // One past max_code: the next step of an endless exponent field. Sums of neighbours are exact.
    for (uint32_t code = 0; code <= format.max_code; ++code) {
      twice_midpoints_.push_back(format.value(code) + format.value(code + 1));
    }
  }

  /// For arguments that never descend: goes on from the last one's code.
  uint32_t ascending(double magnitude) {
    while (code_ <= format_.max_code && passes(code_, magnitude)) ++code_;
    return saturate(code_);
  }

  /// For any argument, NaN included.
  uint32_t code(float x) const {
    if (std::isnan(x)) return format_.nan_code;
    const double magnitude = std::isinf(x) ? 1e300 : std::fabs(static_cast<double>(x));
    uint32_t low = 0;
    uint32_t high = format_.max_code + 1;
    while (low < high) {
      const uint32_t middle = (low + high) / 2;
      if (passes(middle, magnitude)) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return saturate(low) | (std::signbit(x) ? format_.sign_code : 0);
  }

 private:
  bool passes(uint32_t code, double magnitude) const {
    const double twice = 2 * magnitude;
    return twice > twice_midpoints_[code] || (twice == twice_midpoints_[code] && code % 2 == 1);
  }
  uint32_t saturate(uint32_t code) const {
    return format_.saturates && code > format_.max_code ? format_.max_code : code;
  }

  Format format_;
  std::vector<double> twice_midpoints_;
  uint32_t code_ = 0;
};

}  // namespace tilekernels::test
