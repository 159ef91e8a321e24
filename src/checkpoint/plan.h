// What a conversion will do to every tensor, decided from headers alone.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/formats.h"
#include "checkpoint/source.h"

namespace tilekernels::checkpoint {

/// One piece of work: a source tensor (with its scale) that becomes one or two output tensors.
struct Job {
  TensorAction action = TensorAction::kCopied;
  TensorRef in;
  /// kCastBack: the scale, or none where a missing one counts as 1.
  TensorRef scale;
  /// Places in the output shard's header; `out_sf` for kQuantized only.
  size_t out = 0;
  size_t out_sf = 0;
  BlockSize block;
  /// The row of `Plan::reports`.
  size_t report = 0;
  bool measure_error = false;
};

struct ShardPlan {
  std::string file_name;
  /// Complete: `data_start` and all offsets are those of the file.
  io::Header header;
  std::vector<Job> jobs;
  /// The format of kQuantized jobs.
  const QuantScheme* scheme = nullptr;
};

struct Plan {
  const TargetFormat* target = nullptr;
  std::vector<ShardPlan> shards;
  std::vector<TensorReport> reports;
  /// Files written beside the shards: the index and config.json, complete.
  std::vector<std::pair<std::string, std::string>> texts;
  std::vector<std::string> warnings;

  std::vector<OutputFile> files(const Source& source) const;
};

/// Errors: as `convert`.
Plan make_plan(const Source& source, const ConvertOptions& options,
               const std::string& out_file_name);

}  // namespace tilekernels::checkpoint
