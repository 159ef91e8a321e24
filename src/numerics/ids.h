// The numbers of the public enums as device-safe constants, for Shape fields and device text.
// core/ asserts that they equal DType, SfKind, SfLayout and SfPitch.
#pragma once

#include "numerics/types.h"

namespace tilekernels::numerics {

// DType
constexpr int32 kDTypeF32 = 0;
constexpr int32 kDTypeF16 = 1;
constexpr int32 kDTypeBF16 = 2;
constexpr int32 kDTypeE4M3 = 3;
constexpr int32 kDTypeE5M2 = 4;
constexpr int32 kDTypeE8M0 = 5;
constexpr int32 kDTypeE2M1x2 = 6;
constexpr int32 kDTypeI8 = 7;
constexpr int32 kDTypeI16 = 8;
constexpr int32 kDTypeI32 = 9;
constexpr int32 kDTypeI64 = 10;
constexpr int32 kDTypeU8 = 11;
constexpr int32 kDTypeU32 = 12;
constexpr int32 kDTypeBool = 13;

// SfKind
constexpr int32 kSfF32 = 0;
constexpr int32 kSfRoundedF32 = 1;
constexpr int32 kSfUE8M0 = 2;
constexpr int32 kSfE4M3 = 3;

// SfLayout
constexpr int32 kSfRow = 0;
constexpr int32 kSfCol = 1;
constexpr int32 kSfRowPacked = 2;
constexpr int32 kSfColPacked = 3;
constexpr int32 kSfTokenPacked = 4;

// SfPitch
constexpr int32 kSfPitchDevice = 0;
constexpr int32 kSfPitchCuda = 1;
constexpr int32 kSfPitchAscend = 2;

}  // namespace tilekernels::numerics
