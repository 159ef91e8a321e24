// Where an unfinished output lies, who may write there, and how it gets its final name.
#pragma once

#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "checkpoint/plan.h"

namespace tilekernels::checkpoint {

/// What is known of a finished shard.
struct DoneShard {
  int64_t bytes = 0;
  uint64_t digest = 0;
};

/// The folder ".NAME.tilekernels-partial" beside an output NAME:
///   lock, rank-N   held by the processes that write here
///   run.json       the input and the options of the run
///   done/SHARD     size, digest and figures of a finished shard
///   out/           the output so far
class PartialOutput {
 public:
  enum class Role { kWhole, kRank, kPublisher };

  /// Takes the folder for the output `out`, held until destruction. `kWhole` and `kPublisher`
  /// exclude every other process, a rank only another process of its number.
  /// `identity` describes input and options. With `resume`, or as a rank or publisher, what lies
  /// there already is kept and must be of the same identity; else it is removed first.
  /// A dry run makes, holds and removes nothing; it only finds out whether all this would succeed.
  /// Errors: BackendError when another process works there or writing is not allowed;
  /// std::invalid_argument for another identity.
  PartialOutput(const std::string& out, Role role, int rank, const std::string& identity,
                bool resume, bool durable, bool dry_run);
  /// Removes the folder unless a finished shard in it can be resumed, or ranks share it.
  ~PartialOutput();
  PartialOutput(const PartialOutput&) = delete;
  PartialOutput& operator=(const PartialOutput&) = delete;

  const std::string& folder() const { return folder_; }
  std::string out_folder() const { return folder_ + "/out"; }
  bool has_done_shards() const;
  /// What lies on the disk of a shard, or of everything.
  int64_t allocated_bytes(const std::string& shard) const;
  int64_t allocated_bytes() const;

  std::optional<DoneShard> done(const std::string& shard, const ShardPlan& plan,
                                std::vector<TensorReport>* reports) const;
  void mark_done(const std::string& shard, const DoneShard& done, const ShardPlan& plan,
                 const std::vector<TensorReport>& reports);
  void forget(const std::string& shard);

  /// Gives the output its name: the file out/NAME, or the folder out as a whole. What stood there
  /// before is replaced in one step under `overwrite`.
  void publish(bool is_folder, bool overwrite);

 private:
  void take_locks(Role role, int rank);
  /// All but the lock.
  void remove_contents(std::error_code& error) const;
  void begin(const std::string& identity, Role role, bool resume);
  void look(const std::string& identity, Role role, int rank, bool resume) const;
  void check_identity(const std::string& identity) const;
  std::string done_path(const std::string& shard) const { return folder_ + "/done/" + shard; }

  std::string out_;
  std::string folder_;
  bool durable_;
  bool dry_run_;
  bool shared_ = false;
  bool published_ = false;
  int lock_ = -1;
  int rank_lock_ = -1;
};

/// Checks the output's place before any work: its name and kind, and that it is not the input.
/// Errors: std::invalid_argument.
void check_output_path(const Source& source, const std::string& out);

/// Checks that nothing stands at the output's place but an empty folder, or what may be replaced.
/// Errors: std::invalid_argument.
void check_output_is_free(const Source& source, const std::string& out, bool overwrite);

/// Errors: BackendError when the file system of `out` has less than `bytes` free, the `cleared`
/// bytes included that are yet to be freed.
void check_free_space(const std::string& out, int64_t bytes, int64_t cleared = 0);

/// Copies a side file of the source into `folder`.
void copy_side_file(const SideFile& file, const std::string& folder, bool durable,
                    Progress* progress);

}  // namespace tilekernels::checkpoint
