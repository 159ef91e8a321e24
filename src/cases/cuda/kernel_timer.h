// Device time of kernels: by CUPTI where it is found, else by events.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace tilekernels::cases {

using KernelCall = std::function<void()>;

class KernelTimer {
 public:
  virtual ~KernelTimer() = default;

  /// "CUPTI", or what stands in for it.
  virtual std::string method() const = 0;

  /// Runs the calls in turn `reps` times on the default stream, `flush` before each, and returns
  /// the microseconds of each: result[call][rep]. `flush` launches one bench_flush kernel, a call
  /// at least one kernel.
  /// Errors: BackendError.
  virtual std::vector<std::vector<double>> sample(const std::vector<KernelCall>& calls,
                                                  const KernelCall& flush, int reps) = 0;
};

/// A timer by CUPTI: the library at `path`, else where the loader and a toolkit have it; null when
/// there is none, with the reason in `problem`.
std::unique_ptr<KernelTimer> cupti_timer(const std::string& path, std::string& problem);

/// A timer by pairs of events, from which those around an empty kernel are taken off: what an
/// event costs goes, but the result is that much less exact. `empty` launches the empty kernel.
std::unique_ptr<KernelTimer> event_timer(const KernelCall& empty);

/// One kernel, or one fill of memory without a name, as CUPTI reports it, in nanoseconds.
struct KernelRecord {
  std::string name;
  uint64_t start;
  uint64_t end;
};

/// Splits the records of a run at its flushes: the microseconds from the first start to the last
/// end of what follows each of them, in the order of time.
/// Errors: BackendError unless there are `count` flushes and a kernel behind each.
std::vector<double> split_at_flushes(std::vector<KernelRecord> records, size_t count);

}  // namespace tilekernels::cases
