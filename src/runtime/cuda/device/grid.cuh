// When a kernel may touch memory, and how its threads find their part of the work.
#pragma once

#include "numerics/types.h"

namespace tilekernels::device {

constexpr uint32 kMaxStaticShared = 48 << 10;  // bytes of a block

/// Stands before every access to memory: under programmatic dependent launch the predecessor may
/// still be running until here. The next kernel may start at once, since it waits in the same way.
/// A thread that touches no memory may return without.
inline void wait_for_predecessor() {
#if TILEKERNELS_PDL
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/// A place in a grid of some columns.
struct GridPlace {
  int64 row;
  int32 column;
};

/// The place of this thread when blocks of kThreads run through rows of kColumns, one after the
/// other. One division of 64 bits a block, by a constant.
template <int32 kColumns, int32 kThreads>
inline GridPlace thread_place() {
  const uint64 first = static_cast<uint64>(blockIdx.x) * kThreads;
  const uint32 column = static_cast<uint32>(first % kColumns) + threadIdx.x;
  return {static_cast<int64>(first / kColumns + column / kColumns),
          static_cast<int32>(column % kColumns)};
}

}  // namespace tilekernels::device
