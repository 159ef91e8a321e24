// What `ascend_selftest` asks an NPU: arguments and numbers that its host and its kernel share.
// Device-safe.
#pragma once

#include "numerics/types.h"

namespace tilekernels::ascend::selftest_kernel {

constexpr int64 kWords = 64;             // of a row: one register
constexpr int64 kPieceWords = 8 * 1024;  // of the copy that is timed
constexpr uint32 kUntouched = 0xA5A5A5A5;

struct Args {
  const uint32* a;  // rows of kWords
  const uint32* b;
  uint32* out;
  int64 rows;
};

struct Shape {
  int32 question;
};

constexpr int32 kNanToE4m3 = 0;
constexpr int32 kNegativeZeroToE2m1 = 1;
constexpr int32 kNibbleOrder = 2;
constexpr int32 kDivision = 3;
constexpr int32 kSquareRoot = 4;
constexpr int32 kPackedStoreHoles = 5;
constexpr int32 kBlockMaximumRest = 6;
constexpr int32 kGatherInactive = 7;
constexpr int32 kPackOtherHalf = 8;
constexpr int32 kEmptyMaximum = 9;
constexpr int32 kHalfOverflow = 10;
constexpr int32 kExpSubInfinity = 11;
constexpr int32 kUpperBinsAccumulate = 12;
constexpr int32 kE8m0Overflow = 13;
constexpr int32 kCopy = 14;
constexpr int32 kNumQuestions = 15;

}  // namespace tilekernels::ascend::selftest_kernel
