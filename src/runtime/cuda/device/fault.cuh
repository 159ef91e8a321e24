// Reporting a fault in the data.
#pragma once

#include "numerics/fault.h"

namespace tilekernels::device {

/// Puts a fault into the device's error word unless a lower row is there.
inline void note_fault(uint64* fault, int64 row, int32 op, int32 kind) {
  atomicMin(reinterpret_cast<unsigned long long*>(fault), numerics::fault_word(row, op, kind));
}

}  // namespace tilekernels::device
