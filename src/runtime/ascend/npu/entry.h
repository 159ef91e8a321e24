// The entry of a kernel on an NPU: what the host launches and the compiler finds at the end of an
// op's text. Shape and Tile arrive as macros, Args by value.
#pragma once

#include "runtime/ascend/vector_core.h"

#ifndef TILEKERNELS_TILE
#define TILEKERNELS_TILE \
  {}
#endif

namespace tilekernels::ascend::entry {

struct NoTile {};

template <class T>
struct Plain {
  using Type = T;
};
template <class T>
struct Plain<const T&> {
  using Type = T;
};

/// The types of an op's run(args, shape, tile) or run(args, shape).
template <class Run>
struct Types;
template <class A, class S, class T>
struct Types<void (*)(A, S, T)> {
  using Args = typename Plain<A>::Type;
  using Shape = typename Plain<S>::Type;
  using Tile = typename Plain<T>::Type;
};
template <class A, class S>
struct Types<void (*)(A, S)> {
  using Args = typename Plain<A>::Type;
  using Shape = typename Plain<S>::Type;
  using Tile = NoTile;
};

template <auto kRun, class Args, class Shape, class Tile>
TILEKERNELS_CORE void call(const Args& args, const Shape& shape, const Tile& tile) {
  kRun(args, shape, tile);
}
template <auto kRun, class Args, class Shape>
TILEKERNELS_CORE void call(const Args& args, const Shape& shape, const NoTile&) {
  kRun(args, shape);
}

}  // namespace tilekernels::ascend::entry

/// Defines `<op>_kernel`, which calls `run` of the namespace tilekernels::ascend::<op>_kernel.
#define TILEKERNELS_ENTRY(op)                                                           \
  namespace tilekernels::ascend::op##_kernel {                                          \
    using Entry = entry::Types<decltype(&run)>;                                         \
    constexpr Entry::Shape kShape = TILEKERNELS_SHAPE;                                  \
    constexpr Entry::Tile kTile = TILEKERNELS_TILE;                                     \
  }                                                                                     \
  extern "C" __global__ __vector__ void op##_kernel(                                    \
      tilekernels::ascend::op##_kernel::Entry::Args args) {                             \
    namespace kernel = tilekernels::ascend::op##_kernel;                                \
    tilekernels::ascend::entry::call<kernel::run>(args, kernel::kShape, kernel::kTile); \
  }
