// What a kernel costs: instructions, bytes, and an estimate of cycles by the nominal figures of
// the vector core.
#pragma once

#include <string>
#include <vector>

#include "runtime/ascend/model/machine.h"

namespace tilekernels::ascend::model {

/// One step of a core's program, in the order in which its scalar unit issues them.
struct Event {
  enum class Kind { kWork, kSet, kWait, kLock, kUnlock };
  Kind kind;
  Pipe pipe;
  Pipe from = Pipe::kS;  // of a flag
  Pipe to = Pipe::kS;
  int32 id = 0;
  int64 required = 0;    // unlocks that a lock waits for
  double cycles = 0;     // of a vector function
  int64 port_bytes = 0;  // of a copy, in whole GM blocks
  const char* name = "";
};

struct Span {
  Pipe pipe;
  double begin;
  double end;
  std::string name;
};

/// The cost of the first core of a launch.
struct Cost {
  std::string kernel;
  int64 num_cores = 0;
  int64 counts[kNumInsts] = {};
  double issue_cycles = 0;  // of all vector functions, and so below
  double unit_cycles = 0;
  int64 bytes_in = 0;
  int64 bytes_out = 0;
  int64 port_bytes = 0;  // in both directions, whole blocks of GM
  int64 ub_bytes = 0;    // allocated
  int32 most_registers = 0;
  int32 most_masks = 0;
  double cycles = 0;         // estimate, start to end
  double vector_cycles = 0;  // busy
  double port_cycles = 0;    // busy: the copies of both directions share one port to GM
  std::vector<Span> spans;
};

const char* name(Inst inst);
const char* name(Pipe pipe);

/// What an instruction takes: of the issue slots (half a cycle where two are issued together) and
/// of the arithmetic unit. A vector function takes the larger of the two sums.
struct Cycles {
  double issue;
  double unit;
};
Cycles cycles_of(Inst inst, Lane lane);
Cycles cycles_of_cast(Lane to, Lane from);

/// Runs the queues in time and fills in `cycles`, busy times and spans.
void estimate(const std::vector<Event>& events, double port_bytes_per_cycle, Cost& cost);

}  // namespace tilekernels::ascend::model
