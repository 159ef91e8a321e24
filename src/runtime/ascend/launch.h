// Launching an op's kernel on vector cores: what its launch.cpp calls.
//
//   extern const Text topk_gate_text;  // embedded from ascend.h
//
//   void topk_gate(const TopkGateArgs& args, const TopkGateShape& shape, const Launch& where) {
//     using namespace topk_gate_kernel;
//     constexpr Tile kTile{.stages = 6};
//     static_assert(ub_bytes(kTile) <= kUbBytes);
//     launch<run>(topk_gate_text, args.num_tokens, args, shape, kTile, where);
//   }
#pragma once

#include <memory>
#include <type_traits>

#include "core/launch.h"
#include "numerics/fault.h"
#include "runtime/ascend/lanes.h"
#include "runtime/ascend/npu/launch.h"
#include "runtime/ascend/text.h"

namespace tilekernels::ascend {

/// Cores of the machine model that a launch takes at most.
int64 num_vec_cores();

namespace detail {
/// Calls body(state, faults) once on every core of the machine model. `faults` is an array of a
/// block a core, each starting with its error word; the lowest word is returned.
uint64 launch(const char* kernel, int64 num_cores, void (*body)(const void* state, uint64* faults),
              const void* state);
}  // namespace detail

/// Runs `core(args)` on the machine model, on as many cores as there are items, at most
/// num_vec_cores(). A kernel that reports faults finds in args.fault the words of all cores,
/// `kFaultPitch` apart.
/// Errors: BackendError (a hazard) where the model objects.
template <class Args, class Core>
void launch_on_model(const char* kernel, int64 num_items, const Args& args, const Core& core) {
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

/// Cores that a launch takes at most: the machine model's, or the NPU's.
int64 num_cores(const Text& text, const Launch& where);

/// Memory for what the launches of one call hand on to each other, free again behind them when the
/// last owner lets go.
std::shared_ptr<void> scratch(int64 size_bytes, const Launch& where);

/// For a kernel without tile constants.
struct NoTile {};

/// Runs `kRun(args, shape, tile)`, without a tile `kRun(args, shape)`, on every core, on as many as
/// there are items: on host memory on those of the machine model; on an NPU's memory on the NPU's,
/// where the op's text is compiled for this Shape and Tile, structs of int32, unless it is loaded.
/// Errors: BackendError.
template <auto kRun, class Args, class Shape, class Tile>
void launch(const Text& text, int64 num_items, Args args, const Shape& shape, const Tile& tile,
            const Launch& where) {
  if (where.device.type != DeviceType::kAscend) {
    return launch_on_model(text.op, num_items, args, [&](const Args& mine) {
      if constexpr (std::is_empty_v<Tile>) {
        kRun(mine, shape);
      } else {
        kRun(mine, shape, tile);
      }
    });
  }
  jit::KernelId id;
  jit::set_constants(id, shape, tile);
  uint64** fault = nullptr;
  if constexpr (requires { args.fault; }) fault = &args.fault;
  npu::launch_raw(text, num_items, id, &args, sizeof(args), fault, where);
}

template <auto kRun, class Args, class Shape>
void launch(const Text& text, int64 num_items, const Args& args, const Shape& shape,
            const Launch& where) {
  launch<kRun>(text, num_items, args, shape, NoTile{}, where);
}

}  // namespace tilekernels::ascend
