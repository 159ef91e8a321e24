// Starts a kernel on the vector cores: on a host, on those of the machine model.
#pragma once

#include "numerics/fault.h"
#include "runtime/ascend/lanes.h"

namespace tilekernels::ascend {

/// Cores that a launch takes at most.
int64 num_vec_cores();

namespace detail {
/// Calls body(state, faults) once on every core. `faults` is an array of a block a core, each
/// starting with its error word; the lowest word is returned.
uint64 launch(const char* kernel, int64 num_cores, void (*body)(const void* state, uint64* faults),
              const void* state);
}  // namespace detail

/// Uint64s from one core's error word to the next: cores never share a block of GM.
constexpr int64 kFaultPitch = kBlockBytes / 8;

/// Runs `core(args)` on as many cores as there are items, at most num_vec_cores(). A kernel that
/// reports faults finds in args.fault the words of all cores, `kFaultPitch` apart.
/// Errors: BackendError (a hazard) where the machine model objects.
template <class Args, class Core>
void launch(const char* kernel, int64 num_items, const Args& args, const Core& core) {
  struct State {
    const Args& args;
    const Core& core;
  };
  const State state{args, core};
  const int64 num_cores = numerics::max_of(int64{1}, numerics::min_of(num_items, num_vec_cores()));
  const uint64 word = detail::launch(
      kernel, num_cores,
      [](const void* opaque, uint64* faults) {
        const State& of = *static_cast<const State*>(opaque);
        Args mine = of.args;
        if constexpr (requires { mine.fault; }) {
          mine.fault = faults;
        } else {
          static_cast<void>(faults);
        }
        of.core(mine);
      },
      &state);
  if constexpr (requires { args.fault; }) *args.fault = numerics::min_of(*args.fault, word);
}

}  // namespace tilekernels::ascend
