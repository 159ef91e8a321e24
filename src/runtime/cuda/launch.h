// Launching an op's kernel: what its launch.cpp calls.
//
//   extern const Text topk_gate_text;  // embedded from cuda.cuh
//
//   void topk_gate(const TopkGateArgs& args, const TopkGateShape& shape, const Launch& where) {
//     const auto [most, rows] = rows_of_block(args.num_tokens, 32, topk_gate_text, where);
//     const TopkGateTile tile{.rows = most, .wide = is_aligned(args.scores, 0, 16)};
//     const int64 blocks = numerics::ceil_div(args.num_tokens, rows);
//     launch(topk_gate_text, {.grid = {blocks}, .block = {32 * rows}}, args, shape, tile, where);
//   }
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>

#include "core/launch.h"
#include "runtime/cuda/module_cache.h"
#include "runtime/cuda/text.h"

namespace tilekernels::cuda {

struct Extent {
  int64_t x = 1;
  int64_t y = 1;
  int64_t z = 1;
};

/// Device memory, and what every byte of it is set to.
struct Fill {
  void* to = nullptr;
  int64_t size_bytes = 0;
  uint8_t value = 0;
};

/// How one call is spread over the device. May depend on anything; what the device text must know
/// of it belongs into the Tile.
struct Plan {
  Extent grid{};
  Extent block{};
  int64_t shared_bytes = 0;  ///< dynamic
  Fill before{};             ///< done on the stream before the kernel starts
};

/// Multiprocessors of the device: how much work keeps it busy. Under a `CompileOnly` an H200's.
int num_sms(const Text& text, const Launch& where);

/// Threads that keep a multiprocessor busy: with more than these, each may take more of the work.
constexpr int64_t kBusyThreads = 1024;

/// Of a kernel in which a warp takes a row: `rows` of every block, and what its Tile says, the most
/// of them that a block may have.
struct RowsOfBlock {
  int32_t most;
  int64_t rows;
};

/// A row a block while each may have a multiprocessor for itself; fat blocks, of `most` rows or
/// less, while all rows run at once; and slim ones, which make room for the next sooner, when there
/// are more.
RowsOfBlock rows_of_block(int64_t num_rows, int32_t most, const Text& text, const Launch& where);

/// Whether rows from `base` on, `pitch_bytes` apart, begin at multiples of `bytes`, a power of two.
inline bool is_aligned(const void* base, int64_t pitch_bytes, int64_t bytes) {
  const auto any = reinterpret_cast<uint64_t>(base) | static_cast<uint64_t>(pitch_bytes);
  return (any & static_cast<uint64_t>(bytes - 1)) == 0;
}

/// Memory for what the launches of one call hand on to each other, free again on the stream behind
/// them when the last owner lets go. Null under a `CompileOnly`.
std::shared_ptr<void> scratch(int64_t size_bytes, const Launch& where);

/// For a kernel without tile constants.
struct NoTile {};

/// `fault`: the pointer in `args` that takes the address of the device's error word, or null.
void launch_raw(const Text& text, const Plan& plan, KernelId& id, void* args, uint64_t** fault,
                const Launch& where);

/// Compiles the kernel for this Shape and Tile unless it is loaded, and launches it on the caller's
/// stream. Both are structs of int32, in the device text `constexpr TopkGateShape kShape =
/// TILEKERNELS_SHAPE;` and `TILEKERNELS_TILE`.
/// Errors: BackendError; Unsupported for a grid beyond the device's limits.
template <class Args, class Shape, class Tile>
void launch(const Text& text, const Plan& plan, Args args, const Shape& shape, const Tile& tile,
            const Launch& where) {
  KernelId id;
  jit::set_constants(id, shape, tile);
  uint64_t** fault = nullptr;
  if constexpr (requires { args.fault; }) fault = &args.fault;
  launch_raw(text, plan, id, &args, fault, where);
}

template <class Args, class Shape>
void launch(const Text& text, const Plan& plan, const Args& args, const Shape& shape,
            const Launch& where) {
  launch(text, plan, args, shape, NoTile{}, where);
}

}  // namespace tilekernels::cuda
