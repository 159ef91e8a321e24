// The public conversion: plan, shards, side files, publication.
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <filesystem>
#include <mutex>
#include <set>
#include <stdexcept>

#include "checkpoint/engine.h"
#include "checkpoint/plan.h"
#include "checkpoint/publish.h"
#include "checkpoint/source.h"
#include "checkpoint/values.h"
#include "core/check.h"
#include "core/message.h"
#include "io/json.h"
#include "io/text.h"
#include "runtime/cpu/parallel.h"
#include "tilekernels/config.h"
#include "tilekernels/error.h"
#include "tilekernels/version.h"

namespace tilekernels {
namespace checkpoint {
namespace {

namespace fs = std::filesystem;

// As many as the memory of their tiles allows.
constexpr int64_t kMaxShardsAtOnce = 40;

void check_options(const ConvertOptions& options) {
  const Check check("convert");
  check.require(options.num_ranks >= 1, "num_ranks", "must be at least 1", options.num_ranks);
  check.range("rank", options.rank, 0, options.num_ranks - 1);
}

// What must be equal for two runs to continue each other: input files and whatever decides bytes.
std::string identity(const Source& source, const ConvertOptions& options) {
  io::Json state = io::Json::object();
  state["version"] = version();
  state["to"] = std::string(name(options.to));
  state["ignore"] = options.ignore;
  state["include"] = options.include;
  state["keep_other"] = options.keep_other;
  state["missing_scale_is_one"] = options.missing_scale_is_one;
  state["measure_error"] = options.measure_error ? io::Json(*options.measure_error) : io::Json();
  io::Json files = io::Json::array();
  const auto add_file = [&files](const std::string& path) {
    struct stat status = {};
    if (::stat(path.c_str(), &status) != 0) io::throw_errno(path, "stat");
    files.push_back({fs::canonical(path).string(), status.st_size, status.st_mtim.tv_sec,
                     status.st_mtim.tv_nsec});
  };
  for (const Shard& shard : source.shards) add_file(shard.path);
  // Blocks and the place of tensors are read off these.
  if (source.config) add_file(source.path + "/" + kConfigName);
  if (source.index) add_file(source.path + "/" + kIndexName);
  state["files"] = std::move(files);
  return io::json_line(state);
}

class Conversion {
 public:
  Conversion(const std::string& in, const std::string& out, const ConvertOptions& options,
             Progress* progress)
      : out_(out), options_(options), progress_(progress) {
    check_options(options);
    while (out_.size() > 1 && out_.back() == '/') out_.pop_back();
    source_ = open_source(in);
    check_output_path(source_, out_);
    plan_ = make_plan(source_, options, fs::path(out_).filename());
    if ((options.resume || options.publish_only) && !options.overwrite && is_published()) {
      throw std::invalid_argument(message(
          "convert", options.publish_only ? "publish" : "resume", "must find unfinished work",
          io::quote(out_) + ", where everything is there; --overwrite makes it anew"));
    }
    check_output_is_free(source_, out_, options.overwrite);
    report_.tensors = plan_.reports;
    report_.warnings = plan_.warnings;
    report_.files = plan_.files(source_);
  }

  ConvertReport run() {
    const auto start = std::chrono::steady_clock::now();
    work();
    report_.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return std::move(report_);
  }

 private:
  using Role = PartialOutput::Role;

  Role role() const {
    if (options_.publish_only) return Role::kPublisher;
    return options_.num_ranks > 1 ? Role::kRank : Role::kWhole;
  }

  void work() {
    PartialOutput partial(out_, role(), options_.rank, identity(source_, options_), options_.resume,
                          options_.durable, options_.dry_run);
    try {
      const std::vector<const ShardPlan*> open = open_shards(partial);
      if (options_.dry_run) return foresee(open, partial);
      convert_shards(open, &partial);
      if (role() == Role::kRank) return drop_other_reports();
      write_side_files(partial.out_folder());
      partial.publish(source_.is_folder, options_.overwrite);
    } catch (const Cancelled& error) {
      throw Cancelled(error.what() + kept(partial));
    } catch (const DataError& error) {
      throw DataError(error.what() + kept(partial), error.row());
    } catch (const BackendError& error) {
      throw BackendError(error.what() + kept(partial));
    } catch (const fs::filesystem_error& error) {
      throw BackendError(message("convert", io::file_system_text(error) + kept(partial)));
    }
  }

  std::string kept(const PartialOutput& partial) const {
    if (options_.dry_run || role() == Role::kPublisher || !partial.has_done_shards()) return "";
    return "; finished shards are kept in " + partial.folder() + ", --resume continues";
  }

  bool is_mine(size_t shard) const {
    return role() != Role::kRank ||
           static_cast<int>(shard % static_cast<size_t>(options_.num_ranks)) == options_.rank;
  }

  // A rank reports on its own shards.
  void drop_other_reports() {
    std::set<std::string> mine;
    for (size_t s = 0; s < plan_.shards.size(); ++s) {
      if (is_mine(s)) mine.insert(plan_.shards[s].file_name);
    }
    std::erase_if(report_.tensors,
                  [&](const TensorReport& tensor) { return mine.count(tensor.shard) == 0; });
  }

  // Shards of this process that are still to be done.
  std::vector<const ShardPlan*> open_shards(const PartialOutput& partial) {
    if (role() == Role::kPublisher) require_all_shards(partial);
    const bool may_resume = options_.resume || role() == Role::kPublisher;
    std::vector<const ShardPlan*> open;
    for (size_t s = 0; s < plan_.shards.size(); ++s) {
      const ShardPlan& shard = plan_.shards[s];
      if (!is_mine(s)) continue;
      if (may_resume && is_done(partial, shard, /*reads_all=*/!options_.dry_run)) {
        ++report_.num_resumed;
      } else {
        open.push_back(&shard);
      }
    }
    if (role() == Role::kPublisher && !open.empty()) fail_publication(partial, open);
    return open;
  }

  // By notes, sizes and headers, before all bytes are read.
  void require_all_shards(const PartialOutput& partial) {
    std::vector<const ShardPlan*> open;
    for (const ShardPlan& shard : plan_.shards) {
      if (!is_done(partial, shard, /*reads_all=*/false)) open.push_back(&shard);
    }
    if (!open.empty()) fail_publication(partial, open);
  }

  [[noreturn]] void fail_publication(const PartialOutput& partial,
                                     const std::vector<const ShardPlan*>& open) const {
    constexpr size_t kNamed = 3;
    std::string names;
    for (size_t i = 0; i < std::min(kNamed, open.size()); ++i) {
      names += (i == 0 ? "" : ", ") + io::quote(open[i]->file_name);
    }
    if (open.size() > kNamed) names += " and " + std::to_string(open.size() - kNamed) + " more";
    throw DataError(message("convert", "publish",
                            "must find all " + counted(std::ssize(plan_.shards), "shard") +
                                " finished in " + partial.folder(),
                            std::to_string(plan_.shards.size() - open.size()) +
                                " of them; missing or damaged: " + names +
                                "; run their shares again with --shard I/N --resume"),
                    -1);
  }

  void convert_shards(const std::vector<const ShardPlan*>& open, PartialOutput* partial) {
    int64_t bytes_to_read = 0;
    int64_t bytes_to_write = side_bytes();
    for (const ShardPlan* shard : open) {
      partial->forget(shard->file_name);
      bytes_to_read += input_bytes(source_, *shard);
      bytes_to_write += shard->header.file_bytes();
    }
    check_free_space(out_, bytes_to_write);
    if (progress_ != nullptr) progress_->begin("convert", bytes_to_read);
    convert_all(open, partial);
    if (progress_ != nullptr) progress_->end();
    report_.bytes_read += bytes_to_read;
    report_.bytes_written += bytes_to_write - side_bytes();
  }

  // What a run would write, and whether there is room for it.
  void foresee(const std::vector<const ShardPlan*>& open, const PartialOutput& partial) {
    const bool clears_all = role() == Role::kWhole && !options_.resume;
    int64_t bytes_to_write = side_bytes();
    int64_t cleared = clears_all ? partial.allocated_bytes() : 0;
    std::set<std::string> not_written;
    for (const ShardPlan& shard : plan_.shards) not_written.insert(shard.file_name);
    for (const ShardPlan* shard : open) {
      not_written.erase(shard->file_name);
      report_.bytes_read += input_bytes(source_, *shard);
      bytes_to_write += shard->header.file_bytes();
      if (!clears_all) cleared += partial.allocated_bytes(shard->file_name);
    }
    check_free_space(out_, bytes_to_write, cleared);
    if (role() == Role::kRank) {  // what stands beside the shards comes with the publication
      for (const auto& [name, text] : plan_.texts) not_written.insert(name);
      for (const SideFile& file : source_.side_files) not_written.insert(file.name);
      drop_other_reports();
    }
    std::erase_if(report_.files,
                  [&](const OutputFile& file) { return not_written.count(file.name) != 0; });
    for (const OutputFile& file : report_.files) report_.bytes_written += file.bytes;
  }

  // Where there are shards enough, each thread works on one of its own: the system lets only one
  // thread at a time write to a file. Else all threads share each shard.
  void convert_all(const std::vector<const ShardPlan*>& shards, PartialOutput* partial) {
    const int64_t num_shards = static_cast<int64_t>(shards.size());
    const int64_t num_threads = std::min<int64_t>(get_num_threads(), kMaxShardsAtOnce);
    const int64_t num_workers = num_shards >= 2 * num_threads ? num_threads : 1;
    std::atomic<int64_t> next{0};
    std::atomic<bool> stop{false};
    std::mutex mutex;
    std::exception_ptr failure;
    const auto work = [&](int64_t, int64_t) {
      try {
        for (int64_t i; !stop && (i = next++) < num_shards;) {
          convert_one(*shards[static_cast<size_t>(i)], partial, stop);
        }
      } catch (const StoppedElsewhere&) {
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
        stop = true;
      }
    };
    if (num_workers > 1) {
      cpu::parallel_for(num_workers, 1, work);
    } else {
      work(0, 1);
    }
    if (failure) std::rethrow_exception(failure);
  }

  void convert_one(const ShardPlan& shard, PartialOutput* partial, std::atomic<bool>& stop) {
    io::SafetensorsWriter writer(partial->out_folder(), shard.file_name, shard.header);
    const uint64_t digest =
        convert_shard(source_, shard, writer, &report_.tensors, progress_, stop);
    writer.publish(options_.durable);
    // A single shard has nothing to resume.
    if (plan_.shards.size() > 1 || role() != Role::kWhole) {
      if (options_.durable) io::sync_folder(partial->out_folder());
      partial->mark_done(shard.file_name, {shard.header.file_bytes(), digest}, shard,
                         report_.tensors);
    }
  }

  // Whether a shard of an earlier run is whole: its note, size and header; with `reads_all` its
  // digest too.
  bool is_done(const PartialOutput& partial, const ShardPlan& shard, bool reads_all) {
    const std::string path = partial.out_folder() + "/" + shard.file_name;
    const auto done = partial.done(shard.file_name, shard, &report_.tensors);
    if (!done || done->bytes != shard.header.file_bytes() || !fs::exists(path)) return false;
    const io::File file = io::File::open_read(path);
    if (!has_header(file, shard)) return false;
    return !reads_all || digest_shard(source_, shard, file, progress_) == done->digest;
  }

  // Whether a file has the size and header of a shard.
  static bool has_header(const io::File& file, const ShardPlan& shard) {
    if (file.size() != shard.header.file_bytes()) return false;
    io::Header header = shard.header;
    const std::string expected = io::build_header(&header);
    std::string head(expected.size(), '\0');
    file.read_at(0, head.data(), static_cast<int64_t>(head.size()));
    return head == expected;
  }

  // Whether the output stands complete at its place, as far as sizes and headers tell.
  bool is_published() const {
    const auto path = [&](const std::string& name) {
      return source_.is_folder ? out_ + "/" + name : out_;
    };
    std::error_code error;
    for (const OutputFile& file : plan_.files(source_)) {
      if (!fs::is_regular_file(path(file.name), error)) return false;
      if (fs::file_size(path(file.name), error) != static_cast<uintmax_t>(file.bytes)) return false;
    }
    return std::all_of(plan_.shards.begin(), plan_.shards.end(), [&](const ShardPlan& shard) {
      return has_header(io::File::open_read(path(shard.file_name)), shard);
    });
  }

  int64_t side_bytes() const {
    int64_t bytes = 0;
    for (const auto& [name, text] : plan_.texts) bytes += static_cast<int64_t>(text.size());
    for (const SideFile& file : source_.side_files) bytes += file.bytes;
    return bytes;
  }

  void write_side_files(const std::string& folder) {
    for (const auto& [name, text] : plan_.texts) {
      fs::remove(folder + "/" + name);
      io::write_small_file(folder + "/" + name, text, options_.durable);
    }
    for (const SideFile& file : source_.side_files) {
      copy_side_file(file, folder, options_.durable, progress_);
    }
    report_.bytes_written += side_bytes();
  }

  std::string out_;
  const ConvertOptions& options_;
  Progress* progress_;
  Source source_;
  Plan plan_;
  ConvertReport report_;
};

}  // namespace
}  // namespace checkpoint

ConvertReport convert(const std::string& in, const std::string& out, const ConvertOptions& options,
                      Progress* progress) {
  try {
    return checkpoint::Conversion(in, out, options, progress).run();
  } catch (const std::filesystem::filesystem_error& error) {
    throw BackendError(message("convert", io::file_system_text(error)));
  }
}

}  // namespace tilekernels
