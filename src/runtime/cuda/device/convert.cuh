// The conversions of numerics/formats.h by the instructions of the machine, a few numbers at once;
// they give the same bits.
#pragma once

#include "numerics/formats.h"
#include "runtime/cuda/device/warp.cuh"

namespace tilekernels::device {

/// Neighbours; the even one is the lower half of their word.
struct Pair {
  float even;
  float odd;
};

/// Two f16; a NaN loses its sign.
inline Pair widen_f16x2(uint32 x) {
  Pair pair;
  asm("{.reg .f16 even, odd; mov.b32 {even, odd}, %2; cvt.f32.f16 %0, even; cvt.f32.f16 %1, odd;}"
      : "=f"(pair.even), "=f"(pair.odd)
      : "r"(x));
  return pair;
}

/// Two bf16.
inline Pair widen_bf16x2(uint32 x) {
  return {numerics::bit_cast<float>(x << 16), numerics::bit_cast<float>(x & 0xFFFF0000)};
}

/// The low two bytes, e4m3, as f16; exact.
inline uint32 e4m3x2_to_f16x2(uint32 x) {
  uint32 pair;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(static_cast<uint16>(x)));
  return pair;
}

/// The e2m1 codes k and k + 4 of the eight in `x` as f16, 0 <= k < 4; exact. A code's three bits
/// are exponent and mantissa of an f16 but for the bias.
inline uint32 e2m1_pair_to_f16x2(uint32 x, int32 k) {
  const uint32 codes = x >> (4 * k);
  const uint32 scaled = (codes << 9 & 0x0E000E00) | (codes << 12 & 0x80008000);
  uint32 pair;
  asm("mul.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(scaled), "r"(0x74007400));  // 2^14
  return pair;
}

/// Two e4m3 codes, the even one in the low byte.
inline uint32 narrow_e4m3x2(float even, float odd) {
  uint16 pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(odd), "f"(even));
  return pair;
}

/// Four e4m3 codes, the first in the lowest byte.
inline uint32 narrow_e4m3x4(const float* x) {
  return narrow_e4m3x2(x[0], x[1]) | narrow_e4m3x2(x[2], x[3]) << 16;
}

/// Two bf16, the even one in the lower half.
inline uint32 narrow_bf16x2(float even, float odd) {
  uint32 pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(odd), "f"(even));
  return pair;
}

/// Two f16, the even one in the lower half.
inline uint32 narrow_f16x2(float even, float odd) {
  uint32 pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(odd), "f"(even));
  return pair;
}

/// `magnitude` <= 6 rounded to a number of e2m1, times 2^-6, where e4m3 has the same numbers: its
/// subnormals end there as those of e2m1 do at 1. Adding 2^(e + 22) leaves one bit of mantissa.
inline float round_e2m1(float magnitude) {
  const uint32 exponent = numerics::bit_cast<uint32>(magnitude) & 0x7F800000;
  const float power =  // 2^(e + 16), e >= 0
      numerics::bit_cast<float>(numerics::max_of(exponent + (16u << 23), 143u << 23));
  return numerics::fma_rn(numerics::fma_rn(power, 64.0f, magnitude), 0x1p-6f, -power);
}

/// Eight e2m1 codes in order, the first in the lowest bits, of magnitudes <= 6 (or NaN:
/// unspecified) with the signs of `signs`.
inline uint32 narrow_e2m1x8(const float* magnitudes, const float* signs) {
  float x[8];
  for (int32 i = 0; i < 8; ++i) {
    x[i] = numerics::with_sign(round_e2m1(magnitudes[i]), numerics::bit_cast<uint32>(signs[i]));
  }
  // Bytes s00ccc00 of the even and of the odd codes
  const uint32 even = narrow_e4m3x2(x[0], x[2]) | narrow_e4m3x2(x[4], x[6]) << 16;
  const uint32 odd = narrow_e4m3x2(x[1], x[3]) | narrow_e4m3x2(x[5], x[7]) << 16;
  return (even >> 2 & 0x07070707) | (even >> 4 & 0x08080808) | (odd << 2 & 0x70707070) |
         (odd & 0x80808080);
}

/// Eight e2m1 codes of eight bf16 times a power of two, whose products are <= 6. The products are
/// exact in bf16, but for those that are too small for any code but 0; rounding as above, two at
/// once.
inline uint32 narrow_bf16_to_e2m1x8(const uint32* x, float power) {
  const uint32 factor = __byte_perm(numerics::bit_cast<uint32>(power), 0, 0x3232);
  uint32 bytes[4];  // two codes each
#pragma unroll
  for (int32 i = 0; i < 4; ++i) {
    uint32 y;
    asm("mul.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(x[i]), "r"(factor));
    // 2^(e + 6), e >= 0: the sum has one bit of mantissa left, in its lowest bits n
    const uint32 unit = max_u16x2((y & 0x7F807F80) + 0x03000300, 0x42804280);
    uint32 sum;
    asm("add.bf16x2 %0, %1, %2;" : "=r"(sum) : "r"(y & 0x7FFF7FFF), "r"(unit));
    // Of each half e << 7 | n, times 65: the code n + 2e, shifted by 6
    const uint32 codes = (sum * 65 - 0x42804280u * 65) >> 6 & 0x00070007;
    bytes[i] = codes | codes >> 12;
  }
  const uint32 magnitudes = __byte_perm(__byte_perm(bytes[0], bytes[1], 0x0040),
                                        __byte_perm(bytes[2], bytes[3], 0x0040), 0x5410);
  const uint32 even =
      __byte_perm(__byte_perm(x[0], x[1], 0x0051), __byte_perm(x[2], x[3], 0x0051), 0x5410);
  const uint32 odd =
      __byte_perm(__byte_perm(x[0], x[1], 0x0073), __byte_perm(x[2], x[3], 0x0073), 0x5410);
  return magnitudes | (even >> 4 & 0x08080808) | (odd & 0x80808080);
}

}  // namespace tilekernels::device
