// Reporting a fault that the scalar unit has found.
#pragma once

#include "numerics/fault.h"
#include "runtime/ascend/vector_core.h"

namespace tilekernels::ascend {

/// Writes this core's error word, unless it is kNoFault, to `faults`, the array that a launch gives
/// its kernel. Once a kernel, at its end; takes flag kFlag from the scalar unit to copies out.
template <int32 kFlag>
TILEKERNELS_CORE void report_fault(uint64* faults, uint64 fault) {
  if (fault == numerics::kNoFault) return;
  const Ub<int32> word = ub_alloc<int32>("fault word", kBlockBytes / 4);
  set_value(word, 0, static_cast<int32>(fault & 0xFFFFFFFF));
  set_value(word, 1, static_cast<int32>(fault >> 32));
  set_flag<Pipe::kS, Pipe::kMte3>(kFlag);
  wait_flag<Pipe::kS, Pipe::kMte3>(kFlag);
  copy_out(gm(faults + block_idx() * (kBlockBytes / 8)), word, {1, 8});
}

}  // namespace tilekernels::ascend
