// The error word of a call, lowered by several threads.
#pragma once

#include <atomic>

#include "numerics/fault.h"

namespace tilekernels::cpu {

/// Puts a fault into the error word unless a lower row is there.
inline void note_fault(uint64* fault, int64 row, int32 op, int32 kind) {
  const uint64 word = numerics::fault_word(row, op, kind);
  std::atomic_ref<uint64> least(*fault);
  uint64 seen = least.load(std::memory_order_relaxed);
  while (word < seen && !least.compare_exchange_weak(seen, word, std::memory_order_relaxed)) {
  }
}

}  // namespace tilekernels::cpu
