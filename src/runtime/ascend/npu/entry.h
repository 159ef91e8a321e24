// The entry of a kernel on an NPU: what the host launches and the compiler finds at the end of an
// op's text. Shape and Tile arrive as macros, Args by value.
#pragma once

#include "runtime/ascend/vector_core.h"

namespace tilekernels::ascend::entry {

/// The argument types of an op's run(args, shape, tile).
template <class T>
struct Plain {
  using Type = T;
};
template <class T>
struct Plain<const T&> {
  using Type = T;
};
template <class Run>
struct Types;
template <class A, class S, class T>
struct Types<void (*)(A, S, T)> {
  using Args = typename Plain<A>::Type;
  using Shape = typename Plain<S>::Type;
  using Tile = typename Plain<T>::Type;
};

}  // namespace tilekernels::ascend::entry

/// Defines `<op>_kernel`, which calls `run` of the namespace tilekernels::ascend::<op>_kernel.
#define TILEKERNELS_ENTRY(op)                                                             \
  namespace tilekernels::ascend::op##_kernel {                                            \
    using Entry = entry::Types<decltype(&run)>;                                           \
    constexpr Entry::Shape kShape = TILEKERNELS_SHAPE;                                    \
    constexpr Entry::Tile kTile = TILEKERNELS_TILE;                                       \
  }                                                                                       \
  extern "C" __global__ __vector__ void op##_kernel(                                      \
      tilekernels::ascend::op##_kernel::Entry::Args args) {                               \
    tilekernels::ascend::op##_kernel::run(args, tilekernels::ascend::op##_kernel::kShape, \
                                          tilekernels::ascend::op##_kernel::kTile);       \
  }
