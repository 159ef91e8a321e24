// Asserts that the device-safe ids are the numbers of the public enums.
#include "numerics/ids.h"

#include "tilekernels/quant.h"
#include "tilekernels/tensor.h"

namespace tilekernels {

template <class Enum>
constexpr bool is(Enum value, int32 id) {
  return static_cast<int32>(value) == id;
}

static_assert(is(DType::kF32, numerics::kDTypeF32) && is(DType::kF16, numerics::kDTypeF16) &&
              is(DType::kBF16, numerics::kDTypeBF16) && is(DType::kE4M3, numerics::kDTypeE4M3) &&
              is(DType::kE5M2, numerics::kDTypeE5M2) && is(DType::kE8M0, numerics::kDTypeE8M0) &&
              is(DType::kE2M1x2, numerics::kDTypeE2M1x2) && is(DType::kI8, numerics::kDTypeI8) &&
              is(DType::kI16, numerics::kDTypeI16) && is(DType::kI32, numerics::kDTypeI32) &&
              is(DType::kI64, numerics::kDTypeI64) && is(DType::kU8, numerics::kDTypeU8) &&
              is(DType::kU32, numerics::kDTypeU32) && is(DType::kBool, numerics::kDTypeBool));
static_assert(is(SfKind::kF32, numerics::kSfF32) &&
              is(SfKind::kRoundedF32, numerics::kSfRoundedF32) &&
              is(SfKind::kUE8M0, numerics::kSfUE8M0) && is(SfKind::kE4M3, numerics::kSfE4M3));
static_assert(is(SfLayout::kRow, numerics::kSfRow) && is(SfLayout::kCol, numerics::kSfCol) &&
              is(SfLayout::kRowPacked, numerics::kSfRowPacked) &&
              is(SfLayout::kColPacked, numerics::kSfColPacked) &&
              is(SfLayout::kTokenPacked, numerics::kSfTokenPacked));
static_assert(is(SfPitch::kDevice, numerics::kSfPitchDevice) &&
              is(SfPitch::kCuda, numerics::kSfPitchCuda) &&
              is(SfPitch::kAscend, numerics::kSfPitchAscend));

}  // namespace tilekernels
