// What the device bench launches and times besides the ops: copies, an empty kernel, host costs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cases/case.h"

namespace tilekernels::cases {

/// One way to spread a copy over the device.
struct CopyTile {
  int32_t threads;
  int32_t words;          ///< of 16 bytes, that a thread has in flight
  bool streaming;         ///< with hints that keep the data out of the caches
  int32_t blocks_per_sm;  ///< of a persistent grid; 0: one block for each piece
};

/// "256 threads, 4 words, streaming, one-shot".
std::string text(const CopyTile& tile);

/// Two blocks of device memory, a third one larger than the L2, and kernels on them. Launches go
/// to the default stream of device 0.
class DeviceBench {
 public:
  /// Errors: BackendError.
  explicit DeviceBench(int64_t max_bytes_moved);

  /// The set among which the fastest is the yardstick.
  static std::vector<CopyTile> tiles();
  /// Reads half of so many bytes and writes as many, rounded up to 16.
  void copy(int64_t bytes_moved, const CopyTile& tile) const;
  /// Overwrites what copies of that size wrote, so that the next one has to write it again.
  void forget_copy(int64_t bytes_moved) const;
  /// Whether the last copy of that size did copy.
  bool has_copied(int64_t bytes_moved) const;
  /// Leaves nothing of what ran before in the L2: reads 512 MiB.
  void flush() const;
  void empty() const;
  void synchronize() const;

 private:
  void copy_from(const Tensor& from, int64_t bytes_moved, const CopyTile& tile) const;

  Tensor from_;
  Tensor to_;
  Tensor flush_;
};

/// Host nanoseconds, medians.
struct HostCost {
  double raw_launch;  ///< cuLaunchKernel of an empty kernel
  double call;        ///< the `_out` form
};
/// Batches of calls of the case's `_out` form and of raw empty launches, in turn; the queue is
/// empty before each batch.
HostCost host_cost(const Case& test, const Views& outputs, const Views& inputs, int batches);

/// Host nanoseconds to find a loaded kernel.
double lookup_ns();

/// Milliseconds of a first call, until its result is there.
struct JitTimes {
  double cold;  ///< compiled: the library of the compiler is loaded, the cache is empty
  double disk;  ///< read from the cache folder
};
/// Forgets what is loaded; the cache folder is one of its own in `folder`, which it makes.
JitTimes jit_times(const Case& test, const Views& outputs, const Views& inputs,
                   const std::string& folder);

}  // namespace tilekernels::cases
