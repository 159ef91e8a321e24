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

/// The larger magnitudes of two pairs of f16; NaN as soon as one is.
inline uint32 larger_magnitudes_f16x2(uint32 a, uint32 b) {
  uint32 larger;
  asm("abs.f16x2 %0, %0;" : "+r"(a));
  asm("abs.f16x2 %0, %0;" : "+r"(b));
  asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
  return larger;
}

/// The same of bf16, but with signs that mean nothing.
inline uint32 larger_magnitudes_bf16x2(uint32 a, uint32 b) {
  uint32 larger;
  asm("max.NaN.xorsign.abs.bf16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
  return larger;
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

/// The bits of `a` where the mask has ones, those of `b` elsewhere; one instruction.
inline uint32 select_bits(uint32 mask, uint32 a, uint32 b) {
  uint32 bits;
  asm("lop3.b32 %0, %1, %2, %3, 0xE4;" : "=r"(bits) : "r"(a), "r"(b), "r"(mask));
  return bits;
}

/// Eight e2m1 codes in order, the first in the lowest bits, from bytes s....ccc of the codes at
/// even and at odd places.
inline uint32 join_e2m1x8(uint32 even, uint32 odd) {
  return select_bits(0x0F0F0F0F, select_bits(0x07070707, even, even >> 4),
                     select_bits(0x70707070, odd << 4, odd));
}

/// Eight e2m1 codes in order of magnitudes <= 6 (or NaN: unspecified) with the signs of `signs`.
inline uint32 narrow_e2m1x8(const float* magnitudes, const float* signs) {
  uint32 codes[8];  // s....ccc in the uppermost byte
#pragma unroll
  for (int32 i = 0; i < 8; ++i) {
    const uint32 power =  // 2^e, e >= 0
        numerics::max_of(numerics::bit_cast<uint32>(magnitudes[i]) & 0x7F800000, 0x3F800000u);
    // With 2^(e + 22) the sum has one bit of mantissa left, in its lowest bits n.
    const float sum = numerics::fma_rn(numerics::bit_cast<float>(power), 0x1p22f, magnitudes[i]);
    // Of e << 23 | n, times 2^24 + 4: the code n + 2e, shifted by 24
    codes[i] = select_bits(0x7FFFFFFF, (numerics::bit_cast<uint32>(sum) - 0x4A800000) * 0x01000004,
                           numerics::bit_cast<uint32>(signs[i]));
  }
  uint32 halves[4];  // even, odd, even, odd
#pragma unroll
  for (int32 i = 0; i < 4; ++i) {
    const int32 at = i / 2 * 4 + i % 2;
    halves[i] = __byte_perm(codes[at], codes[at + 2], 0x0073);
  }
  return join_e2m1x8(__byte_perm(halves[0], halves[2], 0x5410),
                     __byte_perm(halves[1], halves[3], 0x5410));
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
  return join_e2m1x8(__byte_perm(front, back, 0x5410), __byte_perm(front, back, 0x7632));
}

}  // namespace tilekernels::device
