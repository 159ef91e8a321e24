// The yardstick: plain copies of as many bytes as a call moves, on as many threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "tilekernels/tensor.h"

namespace tilekernels::tool {

/// Threads that wait for work, the caller's among them.
class Team {
 public:
  explicit Team(int num_threads);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const { return static_cast<int>(threads_.size()) + 1; }
  /// Calls body(i) for 0 <= i < num_threads <= size(), each in a thread of its own, and waits.
  void run(int num_threads, const std::function<void(int)>& body);

 private:
  void work(int i);

  const std::function<void(int)>* body_ = nullptr;
  int num_running_ = 0;
  std::atomic<int> round_{0};
  std::atomic<int> unfinished_{0};
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

/// A way of copying.
struct CopyMethod {
  bool streaming;  ///< stores that bypass the cache, in a loop of our own; else the C library's
  int num_threads;
};

/// Two blocks of host memory, and copies from one to the other.
class CopyBench {
 public:
  /// A copy reads bytes_moved / 2 and writes as many.
  CopyBench(int64_t bytes_moved, Team& team);

  /// memcpy by one thread and by all; where the processor has them, streaming stores too.
  std::vector<CopyMethod> methods() const;
  void run(const CopyMethod& method);

 private:
  Team& team_;
  int64_t size_bytes_;
  Tensor from_;
  Tensor to_;
};

/// Turns the caches of all threads over by reading memory twice their size.
class CacheFlush {
 public:
  CacheFlush(int64_t cache_bytes, Team& team);
  void run();

 private:
  Team& team_;
  Tensor memory_;
  std::atomic<uint64_t> sum_{0};  // keeps the reads alive
};

}  // namespace tilekernels::tool
