// Ascend: the machine model's estimate of what a call costs, and questions to a real NPU.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace tilekernels {

/// A stretch of time in which a queue of the core was busy.
struct AscendSpan {
  std::string queue;  ///< "MTE2" (copies in), "V" (vector functions), "MTE3" (copies out)
  std::string name;
  double begin_cycle;
  double end_cycle;
};

/// The cost of one core of a kernel: counted, but for the cycles, which are estimated from nominal
/// figures (docs/ascend.md says which) and were never measured on an NPU.
struct AscendCost {
  std::string kernel;
  int64_t num_cores = 0;
  double cycles = 0;         ///< from the start to the end
  double vector_cycles = 0;  ///< in which the vector unit is busy
  double port_cycles = 0;    ///< in which copies in or out are: both share one port to memory
  int64_t bytes_in = 0;
  int64_t bytes_out = 0;
  int64_t ub_bytes = 0;  ///< on-core buffer, of 253952 bytes
  int registers = 0;     ///< vector registers live at most, of 32
  int masks = 0;         ///< mask registers live at most, of 8
  std::vector<std::pair<std::string, int64_t>> instructions;  ///< by name, those that were run
  std::vector<AscendSpan> spans;

  /// "memory port" or "vector unit": what is busy longest, and its share of all cycles.
  std::string binding() const {
    return port_cycles >= vector_cycles ? "memory port" : "vector unit";
  }
  double binding_share() const {
    return (port_cycles >= vector_cycles ? port_cycles : vector_cycles) / (cycles > 0 ? cycles : 1);
  }
};

/// Runs `call`, one call of an op with `Backend::kAscend`, on the first of `num_cores` cores only
/// and tells its cost. What the other cores would write is left as it was.
///
/// Args:
///   port_bytes_per_cycle: of one core to and from memory. No figure is published: 32 is an
///     assumption.
/// Errors: std::invalid_argument unless both numbers are positive; what `call` throws.
AscendCost ascend_cost(const std::function<void()>& call, double port_bytes_per_cycle = 32,
                       int64_t num_cores = 64);

/// What an NPU says to one question that the vendor's pages leave open.
struct AscendAnswer {
  std::string question;
  std::string answer;
  std::string relied_on;  ///< the answer that kernels rely on; empty: on none
  bool agrees = true;     ///< whether that is the answer
};

/// Asks the NPU of that number by small kernels of its own. Never run on an NPU so far.
/// Errors: BackendError that says what is missing; std::invalid_argument when there is no such
///   device; Unsupported for another processor than an Ascend 950.
std::vector<AscendAnswer> ascend_selftest(int device = 0);

/// The first `max_cycles` cycles of a cost as a picture of its queues, SVG.
std::string ascend_timeline(const AscendCost& cost, double max_cycles);

}  // namespace tilekernels
