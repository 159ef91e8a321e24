// How a call runs: its stream, its backend, where its outputs are allocated.
#pragma once

#include <initializer_list>
#include <optional>
#include <vector>

#include "tilekernels/device.h"
#include "tilekernels/tensor.h"

namespace tilekernels {

/// A queue of work of the caller's framework (`cudaStream_t`, `aclrtStream`); null is the default
/// stream. Host backends run in the calling thread and ignore it.
struct Stream {
  void* handle = nullptr;
};

/// The options that every op takes last.
struct Call {
  Stream stream{};
  /// Unset: the backend of the tensors' device, or the one that `set_backend` or
  /// `TILEKERNELS_BACKEND` forces. A backend forced here that cannot run is an error.
  std::optional<Backend> backend{};
  /// If not null, set to the backend that ran.
  Backend* ran = nullptr;
  /// Null: `default_allocator()`.
  Allocator* allocator = nullptr;

  /// Memory for one output, or for several in one block. Their bytes are not initialised.
  Tensor allocate(const TensorSpec& spec) const;
  std::vector<Tensor> allocate(std::initializer_list<TensorSpec> specs) const;
};

/// Reports the data-dependent faults of the work queued on `stream` so far. Synchronises.
/// Host backends report at the end of the call instead, so this returns at once for them.
/// Errors: DataError with the lowest faulty row.
void check_errors(Stream stream = {});

}  // namespace tilekernels
