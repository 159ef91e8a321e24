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

/// The bits of `a` where the mask has ones, those of `b` elsewhere; one instruction.
inline uint32 select_bits(uint32 mask, uint32 a, uint32 b) {
  uint32 bits;
  asm("lop3.b32 %0, %1, %2, %3, 0xE4;" : "=r"(bits) : "r"(a), "r"(b), "r"(mask));
  return bits;
}

/// Eight e2m1 codes of eight bf16 times a power of two, whose products are <= 6; two at once, and
/// rounded as above.
inline uint32 narrow_bf16_to_e2m1x8(const uint32* x, float power) {
  const uint32 factor = numerics::bit_cast<uint32>(power) >> 16;
  const uint32 factors = __byte_perm(factor, 0, 0x1010);
  const uint32 steps = __byte_perm(factor - 0x3C80, 0, 0x1010);  // from x to 2^6 times the product
  uint32 codes[4];  // s....ccc in the upper byte of each half
#pragma unroll
  for (int32 i = 0; i < 4; ++i) {
    // With 2^(e + 6), e >= 0, the sum has one bit of mantissa left, in its lowest bits n.
    uint32 units;
    asm("{.reg .b32 powers; add.s16x2 powers, %1, %2; max.s16x2 %0, powers, %3;}"
        : "=r"(units)
        : "r"(x[i] & 0x7F807F80), "r"(steps), "r"(0x42804280));
    uint32 sums;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;"
        : "=r"(sums)
        : "r"(x[i] & 0x7FFF7FFF), "r"(factors), "r"(units));
    // Of each half e << 7 | n, times 260: the code n + 2e, shifted by 8
    codes[i] = select_bits(0x7FFF7FFF, (sums - 0x42804280u) * 260, x[i]);
  }
  const uint32 front = __byte_perm(codes[0], codes[1], 0x7351);
  const uint32 back = __byte_perm(codes[2], codes[3], 0x7351);
  const uint32 even = __byte_perm(front, back, 0x5410);
  const uint32 odd = __byte_perm(front, back, 0x7632);
  return select_bits(0x0F0F0F0F, select_bits(0x07070707, even, even >> 4),
                     select_bits(0x70707070, odd << 4, odd));
}

}  // namespace tilekernels::device
