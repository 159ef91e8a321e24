// From the largest magnitude of a group to its scaling factor and the inverse that its elements
// are multiplied by.
#pragma once

#include "numerics/formats.h"
#include "numerics/ids.h"

namespace tilekernels::numerics {

/// The largest number of the data format, Q: 448 (e4m3) or 6 (e2m1).
constexpr float max_magnitude(bool is_e2m1) { return is_e2m1 ? kE2M1Max : kE4M3Max; }

/// The smallest legal amax clamp: below it the scale, or its inverse, is no positive normal number.
constexpr float min_amax_clamp(bool is_e2m1, bool use_e4m3_sf) {
  return max_magnitude(is_e2m1) * pow2(use_e4m3_sf ? -9 : -126);
}

/// The amax clamp in force until a caller sets another: 1e-4 for e4m3 with fp32 or power-of-two
/// scales, else the smallest legal one.
constexpr float default_amax_clamp(bool is_e2m1, bool use_e4m3_sf) {
  return is_e2m1 || use_e4m3_sf ? min_amax_clamp(is_e2m1, use_e4m3_sf) : 1e-4f;
}

/// Finite and not below min_amax_clamp (so neither negative nor NaN).
constexpr bool is_legal_amax_clamp(bool is_e2m1, bool use_e4m3_sf, float clamp) {
  return clamp >= min_amax_clamp(is_e2m1, use_e4m3_sf) && is_finite(clamp);
}

/// Carries a group's running maximum, as bits of a magnitude: starts at 0, NaN and Inf win.
constexpr uint32 amax_update(uint32 amax_bits, float x) { return max_of(amax_bits, abs_bits(x)); }

/// A scaling factor: its value, what elements are multiplied by before the narrowing cast, and
/// the stored byte of kSfUE8M0 and kSfE4M3 (for kSfRoundedF32 the exponent, for kSfF32 0).
struct Scale {
  float sf;
  float inv;
  uint8 byte;
};

/// The biased exponent E of the smallest power of two >= amax / Q, for Q·2^-126 <= amax finite:
/// adding what lacks to the next power of two carries into the exponent field exactly when the
/// mantissa exceeds Q's (448 = 1.75·2^8, 6 = 1.5·2^2). 1 <= E <= 253.
constexpr uint32 power_of_two_exponent(bool is_e2m1, uint32 amax_bits) {
  return is_e2m1 ? ((amax_bits + 0x3FFFFF) >> 23) - 2 : ((amax_bits + 0x1FFFFF) >> 23) - 8;
}

/// The scale of a group with NaN or Inf in it: NaN, and so are all its products.
constexpr Scale bad_scale(int32 sf_kind) {
  const uint32 byte = sf_kind == kSfE4M3 ? 0x7F : sf_kind == kSfF32 ? 0 : 0xFF;
  return {kScaleNan, kScaleNan, static_cast<uint8>(byte)};
}

/// The scale of a group whose largest magnitude has the bits `amax_bits`.
/// `amax_clamp` must be legal. a = max(amax, clamp):
///   kSfF32         sf = a / Q, inv = Q / a (not 1 / sf)
///   kSfRoundedF32  sf = 2^(E - 127), inv = 2^(127 - E), both exact
///   kSfUE8M0       the same, byte = E
///   kSfE4M3        byte = e4m3(a / Q), sf its value, inv = 1 / sf
constexpr Scale compute_scale(int32 sf_kind, bool is_e2m1, uint32 amax_bits, float amax_clamp) {
  const uint32 a_bits = max_of(amax_bits, bit_cast<uint32>(amax_clamp));
  if (a_bits >= kInfBits) return bad_scale(sf_kind);
  const float a = bit_cast<float>(a_bits);
  const float q = max_magnitude(is_e2m1);
  if (sf_kind == kSfF32) return {a / q, q / a, 0};
  if (sf_kind == kSfE4M3) {
    const uint8 byte = f32_to_e4m3(a / q);
    const float sf = e4m3_to_f32(byte);
    return {sf, 1.0f / sf, byte};
  }
  const uint32 exponent = power_of_two_exponent(is_e2m1, a_bits);
  return {bit_cast<float>(exponent << 23), bit_cast<float>((254 - exponent) << 23),
          static_cast<uint8>(exponent)};
}

/// The inverse of a given scale; plain IEEE, so 0 and Inf are taken as they are.
constexpr float inverse_of_scale(float sf) { return 1.0f / sf; }

/// What codes under `sf_in` are multiplied by when they are quantized again: the product, kept
/// finite so that a zero code under an overflowing product stays zero. NaN is kept.
constexpr float fused_factor(float sf_in, float inv) {
  const float f = sf_in * inv;
  return f > kFloatMax ? kFloatMax : f;
}

/// The e4m3 code of an element x = code or value times its factor.
constexpr uint8 quantize_e4m3(float x, float factor) { return f32_to_e4m3(x * factor); }

}  // namespace tilekernels::numerics
