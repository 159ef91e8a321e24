// What the ops of the quantization family share: how their kernels see scaling factors, and the
// arguments of the casts. Device-safe.
#pragma once

#include "numerics/formats.h"
#include "numerics/scaling.h"
#include "numerics/sf_layout.h"

namespace tilekernels {

/// Scaling factors in memory: where E(m, k) lies, and by their kind (a Shape field) what it means.
struct SfRead {
  const uint8* base;
  numerics::SfMap map;

  const uint8* at(int64 m, int64 k) const { return base + map.offset(m, k); }
};
static_assert(sizeof(SfRead) == 32);

/// Scaling factors to be written, over the whole grid that their buffer has room for: what lies
/// outside of the R x C real ones is written as 0.
struct SfWrite {
  uint8* base;
  numerics::SfMap map;
  int64 padded_m;
  int64 padded_k;

  uint8* at(int64 m, int64 k) const { return base + map.offset(m, k); }
};
static_assert(sizeof(SfWrite) == 48);

/// Whether scaling factors of that kind take 4 bytes, not one.
constexpr bool is_wide_sf(int32 sf_kind) { return numerics::sf_bytes(sf_kind) == 4; }

/// The stored scaling factor as a number: f32 as it is, ue8m0 and e4m3 widened.
inline float load_scale(int32 sf_kind, const uint8* from) {
  if (is_wide_sf(sf_kind)) return *reinterpret_cast<const float*>(from);
  if (sf_kind == numerics::kSfE4M3) return numerics::e4m3_to_f32(*from);
  return numerics::ue8m0_to_f32(*from);
}

inline void store_scale(int32 sf_kind, const numerics::Scale& scale, uint8* to) {
  if (is_wide_sf(sf_kind)) {
    *reinterpret_cast<float*>(to) = scale.sf;
  } else {
    *to = scale.byte;
  }
}

inline void store_zero_scale(int32 sf_kind, uint8* to) {
  if (is_wide_sf(sf_kind)) {
    *reinterpret_cast<float*>(to) = 0.0f;
  } else {
    *to = 0;
  }
}

constexpr bool is_quantized(int32 dtype) {
  return dtype == numerics::kDTypeE4M3 || dtype == numerics::kDTypeE2M1x2;
}

/// Elements in one element of a tensor: two codes in a byte of e2m1.
constexpr int32 elements_per_unit(int32 dtype) { return dtype == numerics::kDTypeE2M1x2 ? 2 : 1; }

/// Bytes of one element of a tensor of values or codes.
constexpr int32 bytes_per_unit(int32 dtype) {
  return dtype == numerics::kDTypeF32 ? 4 : is_quantized(dtype) ? 1 : 2;
}

}  // namespace tilekernels
