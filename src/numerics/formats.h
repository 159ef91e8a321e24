// Conversions between fp32 and the narrow formats, by integer bits.
//
// Narrowing rounds once, to nearest even, and keeps the sign of zero. e4m3, e5m2 and e2m1 saturate
// (Inf too); bf16 and f16 overflow to Inf. NaN results are canonical and positive: fp32 0x7FFFFFFF,
// bf16 and f16 0x7FFF, e4m3 and e5m2 0x7F; e2m1 has none.
#pragma once

#include "numerics/types.h"

namespace tilekernels::numerics {

constexpr float kE4M3Max = 448.0f;
constexpr float kE2M1Max = 6.0f;

/// value / 2^shift to nearest even; 1 <= shift <= 31, value < 2^31.
constexpr uint32 shift_right_rne(uint32 value, int32 shift) {
  const uint32 odd = (value >> shift) & 1;
  return (value + (1u << (shift - 1)) - 1 + odd) >> shift;
}

/// The magnitude code of an fp32 magnitude in a format of `mantissa_bits` and `bias`, with its
/// exponent field going on without end: callers saturate. `abs` <= 0x7F800000.
constexpr uint32 narrow_magnitude(uint32 abs, int32 mantissa_bits, int32 bias) {
  const int32 drop = 23 - mantissa_bits;
  const int32 rebias = 127 - bias;
  const int32 exponent = max_of(static_cast<int32>(abs >> 23), 1);
  if (exponent > rebias) {  // normal in the narrow format: a carry runs into the exponent field
    return shift_right_rne(abs - (static_cast<uint32>(rebias) << 23), drop);
  }
  const int32 shift = drop + rebias + 1 - exponent;
  if (shift > 24) return 0;  // below half of the smallest subnormal
  const uint32 significand = (abs & 0x7FFFFF) | (abs >= 0x800000 ? 0x800000u : 0u);
  return shift_right_rne(significand, shift);
}

/// The fp32 magnitude of a finite magnitude code; exact.
constexpr float widen_magnitude(uint32 code, int32 mantissa_bits, int32 bias) {
  if (code >> mantissa_bits == 0) {
    return static_cast<float>(code) * pow2(1 - bias - mantissa_bits);
  }
  return bit_cast<float>((code << (23 - mantissa_bits)) + (static_cast<uint32>(127 - bias) << 23));
}

/// `magnitude` with the sign of bit 31 of `sign`.
constexpr float with_sign(float magnitude, uint32 sign) {
  return bit_cast<float>(bit_cast<uint32>(magnitude) | (sign & 0x80000000u));
}

// bf16: s1 e8 m7

/// Widens a loaded bf16; exact, a NaN keeps its sign (e2m1 casts show it).
constexpr float load_bf16(uint16 x) { return bit_cast<float>(static_cast<uint32>(x) << 16); }

/// Converts a bf16 for output: exact, NaN canonical.
constexpr float bf16_to_f32(uint16 x) { return canonical(load_bf16(x)); }

/// To nearest even, overflow to Inf, NaN 0x7FFF.
constexpr uint16 f32_to_bf16(float x) {
  if (is_nan(x)) return 0x7FFF;
  const uint32 sign = (bit_cast<uint32>(x) >> 16) & 0x8000;
  return static_cast<uint16>(sign | shift_right_rne(abs_bits(x), 16));
}

// f16: s1 e5 m10

/// Widens a loaded f16; exact, a NaN keeps its sign and is quiet.
constexpr float load_f16(uint16 x) {
  const uint32 abs = x & 0x7FFFu;
  const uint32 sign = static_cast<uint32>(x) << 16;
  if (abs < 0x7C00) return with_sign(widen_magnitude(abs, 10, 15), sign);
  const uint32 quiet = abs > 0x7C00 ? 0x400000u : 0u;
  return with_sign(bit_cast<float>(kInfBits | quiet | ((abs & 0x3FF) << 13)), sign);
}

/// Converts an f16 for output: exact, NaN canonical.
constexpr float f16_to_f32(uint16 x) { return canonical(load_f16(x)); }

/// To nearest even, overflow to Inf, NaN 0x7FFF.
constexpr uint16 f32_to_f16(float x) {
  if (is_nan(x)) return 0x7FFF;
  const uint32 sign = (bit_cast<uint32>(x) >> 16) & 0x8000;
  return static_cast<uint16>(sign | min_of(narrow_magnitude(abs_bits(x), 10, 15), 0x7C00u));
}

// e4m3: s1 e4 m3, no Inf, one NaN of each sign

/// Exact; 0x7F and 0xFF are NaN, canonical.
constexpr float e4m3_to_f32(uint8 code) {
  const uint32 abs = code & 0x7Fu;
  if (abs == 0x7F) return kCanonicalNan;
  return with_sign(widen_magnitude(abs, 3, 7), static_cast<uint32>(code) << 24);
}

/// To nearest even, saturates to ±448, NaN 0x7F.
constexpr uint8 f32_to_e4m3(float x) {
  if (is_nan(x)) return 0x7F;
  const uint32 sign = (bit_cast<uint32>(x) >> 24) & 0x80;
  return static_cast<uint8>(sign | min_of(narrow_magnitude(abs_bits(x), 3, 7), 0x7Eu));
}

// e5m2: s1 e5 m2, with Inf and NaN as IEEE has them

/// Exact; Inf codes are read as Inf, NaN codes give the canonical NaN.
constexpr float e5m2_to_f32(uint8 code) { return f16_to_f32(static_cast<uint16>(code << 8)); }

/// To nearest even, saturates to ±57344, NaN 0x7F.
constexpr uint8 f32_to_e5m2(float x) {
  if (is_nan(x)) return 0x7F;
  const uint32 sign = (bit_cast<uint32>(x) >> 24) & 0x80;
  return static_cast<uint8>(sign | min_of(narrow_magnitude(abs_bits(x), 2, 15), 0x7Bu));
}

// e2m1: s1 e2 m1 in the low four bits of a code; bytes hold the even element in the low nibble

/// Exact; code 8 is -0. Higher bits are ignored.
constexpr float e2m1_to_f32(uint8 code) {
  return with_sign(widen_magnitude(code & 7u, 1, 1), static_cast<uint32>(code) << 28);
}

/// To nearest even, saturates to ±6. NaN gives 7 with the sign of its bits: see quantize_e2m1.
constexpr uint8 f32_to_e2m1(float x) {
  const uint32 sign = (bit_cast<uint32>(x) >> 28) & 8;
  const uint32 abs = min_of(abs_bits(x), kInfBits);
  return static_cast<uint8>(sign | min_of(narrow_magnitude(abs, 1, 1), 7u));
}

/// The code of the scaled value y of element x. A NaN y gives 7 with the sign bit of x, because
/// machines disagree on the sign of a computed NaN.
constexpr uint8 quantize_e2m1(float x, float y) {
  return f32_to_e2m1(is_nan(y) ? with_sign(kCanonicalNan, bit_cast<uint32>(x)) : y);
}

/// Two codes in a byte.
constexpr uint8 pack_e2m1(uint8 even, uint8 odd) {
  return static_cast<uint8>((even & 15u) | ((odd & 15u) << 4));
}
constexpr uint8 even_e2m1(uint8 pair) { return pair & 15u; }
constexpr uint8 odd_e2m1(uint8 pair) { return static_cast<uint8>(pair >> 4); }

// ue8m0: an exponent byte, by the OCP meaning of 0 and 255

/// 2^(byte - 127); 0 is 2^-127 (a subnormal), 255 the NaN of scales.
constexpr float ue8m0_to_f32(uint8 byte) {
  if (byte == 0) return bit_cast<float>(0x00400000u);
  if (byte == 255) return kScaleNan;
  return bit_cast<float>(static_cast<uint32>(byte) << 23);
}

/// An exponent byte, or `ok` false where the number has none.
struct UE8M0Result {
  uint8 byte;
  bool ok;
};

/// Exact: powers of two from 2^-127 to 2^127, and NaN. Refuses zero, Inf, negative and any other
/// number, so that a packed byte never says something else than the scale it came from.
constexpr UE8M0Result f32_to_ue8m0(float sf) {
  if (is_nan(sf)) return {255, true};
  const uint32 bits = bit_cast<uint32>(sf);
  if (bits == 0x00400000u) return {0, true};
  const bool normal_power = (bits & 0x807FFFFFu) == 0 && bits != 0 && bits < kInfBits;
  return {static_cast<uint8>(normal_power ? bits >> 23 : 0), normal_power};
}

}  // namespace tilekernels::numerics
