// Carries a shard's jobs out: blocks are read, converted and written by several threads.
#pragma once

#include <atomic>
#include <vector>

#include "checkpoint/plan.h"
#include "io/writer.h"

namespace tilekernels::checkpoint {

/// Another shard's work failed, and that is the error to be told.
struct StoppedElsewhere {};

/// Converts every job of `plan` into `writer`, adds the figures to `reports` and returns the
/// digest of the bytes written. Memory: a fixed amount a worker, at most 160 MiB in all.
/// Any failure sets `stop`; where somebody else set it, the call ends with StoppedElsewhere.
/// Errors: the first failure of any worker, or Cancelled; the others have stopped.
uint64_t convert_shard(const Source& source, const ShardPlan& plan,
                       const io::SafetensorsWriter& writer, std::vector<TensorReport>* reports,
                       Progress* progress, std::atomic<bool>& stop);

/// The digest that `convert_shard` would return if it had written what `file` holds.
uint64_t digest_shard(const Source& source, const ShardPlan& plan, const io::File& file,
                      Progress* progress);

/// Bytes of input that the shard's jobs read.
int64_t input_bytes(const Source& source, const ShardPlan& plan);

}  // namespace tilekernels::checkpoint
