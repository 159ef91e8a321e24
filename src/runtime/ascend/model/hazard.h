// What the machine model says when a kernel does what the hardware would not forgive.
#pragma once

#include <string>

#include "tilekernels/error.h"

namespace tilekernels::ascend::model {

/// The kinds, numbered as docs/ascend.md lists them.
enum class HazardKind {
  kMissingFlag = 1,
  kEarlyReuse = 2,
  kFlagMisuse = 3,
  kMutexMisuse = 4,
  kCopyOverlap = 5,
  kScalarAccess = 6,
  kMissingMemBar = 7,
  kOutOfBounds = 8,
  kMisaligned = 9,
  kUndefined = 10,
  kWrongMask = 11,
  kIgnoredMask = 12,
  kIllegalCast = 13,
  kBadIndex = 14,
  kControlState = 15,
  kRegisterPressure = 16,
  kBadLoop = 17,
  kStreamMisuse = 18,
  kCrossCore = 19,
  kFastBits = 20,
};

/// "[kernel] ascend hazard 2, core 0, UB \"scores\" + 64: sentence".
class Hazard : public BackendError {
 public:
  Hazard(HazardKind kind, const std::string& kernel, int64_t core, const std::string& buffer,
         int64_t offset, const std::string& sentence);
  HazardKind kind() const { return kind_; }
  /// The name of a UB allocation; empty where the hazard is about none.
  const std::string& buffer() const { return buffer_; }
  /// Bytes from that buffer's start; -1 where there is none.
  int64_t offset() const { return offset_; }
  const std::string& sentence() const { return sentence_; }

 private:
  HazardKind kind_;
  std::string buffer_;
  int64_t offset_;
  std::string sentence_;
};

}  // namespace tilekernels::ascend::model
