// Loads and stores of a few bytes a thread, each as wide as it can be.
#pragma once

#include "numerics/types.h"

// Under dependent launch the predecessor may write what is read here while this grid already waits,
// which the non-coherent path does not allow.
#if TILEKERNELS_PDL
#define TILEKERNELS_LOAD "ld.global"
#else
#define TILEKERNELS_LOAD "ld.global.nc"
#endif

namespace tilekernels::device {

/// kBytes (2 or a multiple of 4) in 32-bit words, lowest first.
template <int32 kBytes>
struct Words {
  static constexpr int32 kCount = (kBytes + 3) / 4;
  uint32 words[kCount];
};

/// Reads what this kernel does not write. `from` is aligned to kBytes (2, 4, 8 or 16). Without a
/// hint: L1::no_allocate made streaming casts a tenth slower.
template <int32 kBytes>
inline Words<kBytes> load(const void* from) {
  Words<kBytes> to;
  if constexpr (kBytes == 16) {
    asm volatile(TILEKERNELS_LOAD ".v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to.words[0]), "=r"(to.words[1]), "=r"(to.words[2]), "=r"(to.words[3])
                 : "l"(from));
  } else if constexpr (kBytes == 8) {
    asm volatile(TILEKERNELS_LOAD ".v2.u32 {%0, %1}, [%2];"
                 : "=r"(to.words[0]), "=r"(to.words[1])
                 : "l"(from));
  } else if constexpr (kBytes == 4) {
    asm volatile(TILEKERNELS_LOAD ".u32 %0, [%1];" : "=r"(to.words[0]) : "l"(from));
  } else {
    static_assert(kBytes == 2);
    to.words[0] = *static_cast<const uint16*>(from);
  }
  return to;
}

/// Writes kBytes (2, 4, 8 or 16), to which `to` is aligned.
template <int32 kBytes>
inline void store(void* to, const Words<kBytes>& from) {
  if constexpr (kBytes == 16) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(from.words[0]),
                 "r"(from.words[1]), "r"(from.words[2]), "r"(from.words[3])
                 : "memory");
  } else if constexpr (kBytes == 8) {
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(from.words[0]),
                 "r"(from.words[1])
                 : "memory");
  } else if constexpr (kBytes == 4) {
    *static_cast<uint32*>(to) = from.words[0];
  } else {
    static_assert(kBytes == 2);
    *static_cast<uint16*>(to) = static_cast<uint16>(from.words[0]);
  }
}

/// The first `count` units of kUnit bytes (1, 2 or 4) at any address that a unit may have; the
/// others read as 0.
template <int32 kBytes, int32 kUnit>
inline Words<kBytes> load_units(const void* from, int32 count) {
  Words<kBytes> to{};
  for (int32 i = 0; i < kBytes / kUnit; ++i) {
    uint32 unit = 0;
    if (i < count) {
      if constexpr (kUnit == 1) unit = static_cast<const uint8*>(from)[i];
      if constexpr (kUnit == 2) unit = static_cast<const uint16*>(from)[i];
      if constexpr (kUnit == 4) unit = static_cast<const uint32*>(from)[i];
    }
    to.words[i * kUnit / 4] |= unit << (i * kUnit % 4 * 8);
  }
  return to;
}

/// Writes the first `count` units of kUnit bytes (1, 2 or 4), at most all, to any address that a
/// unit may have.
template <int32 kBytes, int32 kUnit>
inline void store_units(void* to, const Words<kBytes>& from, int32 count) {
  for (int32 i = 0; i < kBytes / kUnit; ++i) {
    const uint32 unit = from.words[i * kUnit / 4] >> (i * kUnit % 4 * 8);
    if (i >= count) return;
    if constexpr (kUnit == 1) static_cast<uint8*>(to)[i] = static_cast<uint8>(unit);
    if constexpr (kUnit == 2) static_cast<uint16*>(to)[i] = static_cast<uint16>(unit);
    if constexpr (kUnit == 4) static_cast<uint32*>(to)[i] = unit;
  }
}

}  // namespace tilekernels::device
