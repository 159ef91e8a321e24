// The error word in which kernels report a fault in the data: the smallest word wins, so that
// every backend reports the same, lowest row.
#pragma once

#include "numerics/types.h"

namespace tilekernels::numerics {

/// What an error word holds while nothing is wrong.
constexpr uint64 kNoFault = ~static_cast<uint64>(0);

// Kinds of fault
constexpr int32 kFaultNotFinite = 1;           ///< a gate score is NaN or Inf
constexpr int32 kFaultIndexOutOfRange = 2;     ///< an index does not name an element
constexpr int32 kFaultPositionOutOfRange = 3;  ///< a position lies past its table

/// row < 2^48; op and kind < 256.
constexpr uint64 fault_word(int64 row, int32 op, int32 kind) {
  return static_cast<uint64>(row) << 16 | static_cast<uint64>(op) << 8 | static_cast<uint64>(kind);
}
constexpr int64 fault_row(uint64 word) { return static_cast<int64>(word >> 16); }
constexpr int32 fault_op(uint64 word) { return static_cast<int32>(word >> 8 & 0xFF); }
constexpr int32 fault_kind(uint64 word) { return static_cast<int32>(word & 0xFF); }

}  // namespace tilekernels::numerics
