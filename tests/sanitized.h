// Whether this build runs under a sanitizer, and how much less its longest tests then do.
#pragma once

#include <cstdint>

namespace tilekernels {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// The step of a sweep over bit patterns. Under a sanitizer some 60 times wider, and odd, so that
/// every bit still varies.
constexpr uint32_t sweep_step(uint32_t step) { return kSanitized ? step * 61 | 1 : step; }

}  // namespace tilekernels
