// Loaded kernels: from an op's text, constants and device to a function, without a lock when hot.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "runtime/jit/compile.h"

namespace tilekernels::jit {

/// Shape and Tile of one kernel together.
constexpr int kMaxConstants = 64;

/// What one loaded kernel is for. The constants are the Shape's, then the Tile's.
struct KernelId {
  struct Kind {
    int16_t device;
    int16_t pdl;
    int16_t num_shape;
    int16_t num_constants;
  };
  const Text* text;
  Kind kind;
  int32_t constants[kMaxConstants];
};

/// Whether T is made of int32 and of nothing else, so that "{1,2,3}" makes one in device text.
template <class T>
concept IsInts = std::is_trivially_copyable_v<T> && sizeof(T) % sizeof(int32_t) ==
                 0 &&[]<size_t... kI>(std::index_sequence<kI...>) {
  return requires { T{(static_cast<void>(kI), int32_t{0})...}; };
}
(std::make_index_sequence<sizeof(T) / sizeof(int32_t)>());

/// Puts a Shape and a Tile, an empty struct for none, into the id.
template <class Shape, class Tile>
void set_constants(KernelId& id, const Shape& shape, const Tile& tile) {
  static_assert(IsInts<Shape>, "a Shape is a struct of int32");
  static_assert(std::is_empty_v<Tile> || IsInts<Tile>, "a Tile is a struct of int32");
  constexpr size_t kTileBytes = std::is_empty_v<Tile> ? 0 : sizeof(Tile);
  static_assert(sizeof(Shape) + kTileBytes <= sizeof(KernelId::constants));
  id.kind.num_shape = sizeof(Shape) / sizeof(int32_t);
  id.kind.num_constants = (sizeof(Shape) + kTileBytes) / sizeof(int32_t);
  std::memcpy(id.constants, &shape, sizeof(Shape));
  if constexpr (kTileBytes > 0) std::memcpy(id.constants + id.kind.num_shape, &tile, kTileBytes);
}

struct LoadedKernel {
  void* function;
  /// Dynamic shared memory that a launch may ask for so far; cuda only.
  std::atomic<int64_t> shared_bytes{0};
};

/// Null when no call has loaded it.
LoadedKernel* find_kernel(const KernelId& id);

/// How a machine comes by a kernel.
struct KernelSource {
  std::string key;                             ///< of its binary
  std::function<Compiled()> compile;           ///< when no cache has it
  std::function<void*(const Compiled&)> load;  ///< the function on the id's device
};

/// Compiles or reads the kernel, and loads it: once, however many threads and processes ask.
/// Errors: what the source throws.
LoadedKernel& load_kernel(const KernelId& id, const KernelSource& source);

/// The job behind an id.
CompileJob job_of(const KernelId& id, std::string_view arch);

/// For tests: forgets every kernel.
void forget_kernels();

}  // namespace tilekernels::jit
