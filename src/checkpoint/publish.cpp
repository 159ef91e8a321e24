// Where an unfinished output lies, who may write there, and how it gets its final name.
#include "checkpoint/publish.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <filesystem>
#include <stdexcept>

#include "core/message.h"
#include "io/json.h"
#include "io/text.h"
#include "tilekernels/error.h"

namespace tilekernels::checkpoint {
namespace {

namespace fs = std::filesystem;
using io::Json;

constexpr int64_t kMaxStateBytes = int64_t{64} << 20;
constexpr int64_t kCopyBytes = int64_t{1} << 20;
constexpr char kPartialEnd[] = ".tilekernels-partial";
constexpr char kOldEnd[] = "-old";
// What names of files may have on Linux, less what unfinished work adds to them.
constexpr size_t kMaxOutNameBytes = NAME_MAX - (sizeof kPartialEnd + sizeof kOldEnd - 1);
constexpr size_t kMaxShardNameBytes = NAME_MAX - (sizeof "..writing" - 1);

std::string parent_of(const std::string& path) {
  const std::string parent = fs::path(path).parent_path();
  return parent.empty() ? "." : parent;
}

[[noreturn]] void fail_out(const std::string& out, const std::string& rule,
                           const std::string& got) {
  throw std::invalid_argument(message("convert", "out", rule, io::quote(out) + got));
}

void make_folder(const std::string& path) {
  if (::mkdir(path.c_str(), 0777) != 0 && errno != EEXIST) io::throw_errno(path, "mkdir");
}

[[noreturn]] void fail_locked(const std::string& path) {
  throw BackendError(message("convert", path + ":", "must be free",
                             "another run into the same output, which holds it"));
}

// Opens and locks `path`; the lock is gone with the process, however it ends.
int lock_file(const std::string& path, int operation) {
  for (int num_tries = 0;;) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) {
      // A run that just ended may have removed the folder since it was made.
      if (errno != ENOENT || ++num_tries > 100) io::throw_errno(path, "open");
      make_folder(parent_of(path));
      continue;
    }
    if (::flock(fd, operation | LOCK_NB) != 0) {
      const int reason = errno;
      ::close(fd);
      if (reason == EINTR) continue;
      if (reason == EWOULDBLOCK) fail_locked(path);
      errno = reason;
      io::throw_errno(path, "flock");
    }
    // A run that just ended may have removed the file between open and flock.
    struct stat held;
    struct stat named;
    if (::fstat(fd, &held) == 0 && ::stat(path.c_str(), &named) == 0 &&
        held.st_ino == named.st_ino && held.st_dev == named.st_dev) {
      return fd;
    }
    ::close(fd);
  }
}

// Fails if somebody holds `path` so that `lock_file` would fail. Makes nothing.
void check_lock(const std::string& path, int operation) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return;  // nobody was here
  const bool is_held = ::flock(fd, operation | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  ::close(fd);
  if (is_held) fail_locked(path);
}

void check_writable(const std::string& folder) {
  if (::faccessat(AT_FDCWD, folder.c_str(), W_OK | X_OK, AT_EACCESS) != 0) {
    io::throw_errno(folder, "a test for writing");
  }
}

// Of a file, or of all files in a folder; 0 for what is not there.
int64_t allocated(const std::string& path) {
  struct stat status;
  if (::lstat(path.c_str(), &status) != 0) return 0;
  if (!S_ISDIR(status.st_mode)) return int64_t{status.st_blocks} * 512;
  int64_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    bytes += allocated(at->path());
  }
  return bytes;
}

std::string hex(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

// Renames without replacing anything, even if it appeared a moment ago.
void rename_new(const std::string& from, const std::string& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return;
  if (errno != EINVAL && errno != ENOSYS) io::throw_errno(to, "rename");
  if (fs::exists(fs::symlink_status(to))) {
    errno = EEXIST;
    io::throw_errno(to, "rename");
  }
  io::rename_path(from, to);
}

}  // namespace

PartialOutput::PartialOutput(const std::string& out, Role role, int rank,
                             const std::string& identity, bool resume, bool durable, bool dry_run)
    : out_(out), durable_(durable), dry_run_(dry_run), shared_(role != Role::kWhole) {
  const std::string name = fs::path(out).filename();
  folder_ = parent_of(out) + "/." + name + kPartialEnd;
  const fs::file_status status = fs::symlink_status(folder_);
  if (fs::exists(status) && !fs::is_directory(status)) {
    throw BackendError(message("convert", folder_ + ":",
                               "must be a folder or free, for unfinished work", "something else"));
  }
  if (role == Role::kPublisher && !fs::exists(status)) {
    throw std::invalid_argument(
        message("convert", "publish", "must find the work of ranks in " + folder_, "none"));
  }
  if (dry_run) {
    look(identity, role, rank, resume);
    return;
  }
  make_folder(folder_);
  try {
    take_locks(role, rank);
    begin(identity, role, resume);
  } catch (...) {
    if (rank_lock_ >= 0) ::close(rank_lock_);
    if (lock_ >= 0) ::close(lock_);
    throw;
  }
}

PartialOutput::~PartialOutput() {
  if (dry_run_) return;
  if (published_ || (!shared_ && !has_done_shards())) {
    std::error_code ignored;
    remove_contents(ignored);
    // The lock goes last, and the folder only if no other run has begun in it since.
    ::unlink((folder_ + "/lock").c_str());
    ::rmdir(folder_.c_str());
  }
  if (rank_lock_ >= 0) ::close(rank_lock_);
  ::close(lock_);
}

void PartialOutput::take_locks(Role role, int rank) {
  lock_ = lock_file(folder_ + "/lock", role == Role::kRank ? LOCK_SH : LOCK_EX);
  if (role == Role::kRank) {
    rank_lock_ = lock_file(folder_ + "/rank-" + std::to_string(rank), LOCK_EX);
  }
}

void PartialOutput::remove_contents(std::error_code& error) const {
  // Not a range-for: its increment throws, and the destructor calls this.
  for (fs::directory_iterator at(folder_, error), end; !error && at != end; at.increment(error)) {
    if (at->path().filename() == "lock") continue;
    fs::remove_all(at->path(), error);
    if (error) return;
  }
}

void PartialOutput::begin(const std::string& identity, Role role, bool resume) {
  const std::string path = folder_ + "/run.json";
  if (role == Role::kWhole && !resume) {
    std::error_code error;
    remove_contents(error);
    if (error) {
      throw BackendError(message("convert", folder_ + ": cannot be cleared: " + error.message()));
    }
  }
  make_folder(out_folder());
  make_folder(folder_ + "/done");
  if (!fs::exists(path)) {
    // Under another name first: ranks that start together see all of it or nothing.
    const std::string mine = path + "." + std::to_string(::getpid());
    io::write_small_file(mine, identity, false);
    if (::link(mine.c_str(), path.c_str()) != 0 && errno != EEXIST) {
      io::rename_path(mine, path);
    } else {
      ::unlink(mine.c_str());
    }
  }
  check_identity(identity);
}

void PartialOutput::check_identity(const std::string& identity) const {
  if (io::read_small_file(folder_ + "/run.json", kMaxStateBytes) != identity) {
    throw std::invalid_argument(message("convert", "resume",
                                        "must continue the same input and options",
                                        "unfinished work of other ones in " + folder_));
  }
}

void PartialOutput::look(const std::string& identity, Role role, int rank, bool resume) const {
  check_writable(parent_of(out_));
  if (!fs::exists(folder_)) return;
  check_writable(folder_);
  check_lock(folder_ + "/lock", role == Role::kRank ? LOCK_SH : LOCK_EX);
  if (role == Role::kRank) check_lock(folder_ + "/rank-" + std::to_string(rank), LOCK_EX);
  const bool keeps = role != Role::kWhole || resume;
  if (keeps && fs::exists(folder_ + "/run.json")) check_identity(identity);
}

int64_t PartialOutput::allocated_bytes(const std::string& shard) const {
  return allocated(out_folder() + "/" + shard);
}

int64_t PartialOutput::allocated_bytes() const { return allocated(folder_); }

bool PartialOutput::has_done_shards() const {
  std::error_code error;
  fs::directory_iterator entries(folder_ + "/done", error);
  return !error && entries != fs::directory_iterator{};
}

std::optional<DoneShard> PartialOutput::done(const std::string& shard, const ShardPlan& plan,
                                             std::vector<TensorReport>* reports) const {
  if (!fs::exists(done_path(shard))) return std::nullopt;
  try {
    const Json state =
        io::parse_json(io::read_small_file(done_path(shard), kMaxStateBytes), done_path(shard));
    DoneShard done;
    done.bytes = state.at("bytes").get<int64_t>();
    done.digest = std::stoull(state.at("digest").get<std::string>(), nullptr, 16);
    const Json& figures = state.at("figures");
    if (figures.size() != plan.jobs.size()) return std::nullopt;
    for (size_t j = 0; j < plan.jobs.size(); ++j) {
      TensorReport& report = (*reports)[plan.jobs[j].report];
      const Json& row = figures.at(j);
      report.num_saturated = row.at(0).get<int64_t>();
      report.num_nan = row.at(1).get<int64_t>();
      report.num_bad_blocks = row.at(2).get<int64_t>();
      if (row.size() == 5) report.error = {row.at(3).get<double>(), row.at(4).get<double>()};
    }
    return done;
  } catch (const std::exception&) {
    return std::nullopt;  // damaged notes: the shard is converted again
  }
}

void PartialOutput::mark_done(const std::string& shard, const DoneShard& done,
                              const ShardPlan& plan, const std::vector<TensorReport>& reports) {
  Json figures = Json::array();
  for (const Job& job : plan.jobs) {
    const TensorReport& report = reports[job.report];
    Json row = {report.num_saturated, report.num_nan, report.num_bad_blocks};
    if (report.error) {
      row.push_back(report.error->max_abs);
      row.push_back(report.error->relative_rms);
    }
    figures.push_back(std::move(row));
  }
  Json state = Json::object();
  state["bytes"] = done.bytes;
  state["digest"] = hex(done.digest);
  state["figures"] = std::move(figures);
  const std::string unfinished = folder_ + "/done." + shard;
  ::unlink(unfinished.c_str());
  io::write_small_file(unfinished, state.dump(), durable_);
  io::rename_path(unfinished, done_path(shard));
}

void PartialOutput::forget(const std::string& shard) {
  std::error_code ignored;
  fs::remove(done_path(shard), ignored);
  fs::remove(out_folder() + "/" + shard, ignored);
}

void PartialOutput::publish(bool is_folder, bool overwrite) {
  const std::string name = fs::path(out_).filename();
  const std::string from = is_folder ? out_folder() : out_folder() + "/" + name;
  if (durable_) {
    for (const auto& entry : fs::recursive_directory_iterator(out_folder())) {
      if (entry.is_directory()) io::sync_folder(entry.path());
    }
    io::sync_folder(out_folder());
  }
  const bool replaces = is_folder ? fs::exists(out_) && !fs::is_empty(out_) : fs::exists(out_);
  if (!replaces) {
    // An empty folder may be renamed onto; a file must not have appeared meanwhile.
    if (is_folder) {
      io::rename_path(from, out_);
    } else {
      rename_new(from, out_);
    }
  } else if (!overwrite) {
    errno = EEXIST;
    io::throw_errno(out_, "rename");
  } else if (!is_folder) {
    io::rename_path(from, out_);
  } else if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, out_.c_str(), RENAME_EXCHANGE) != 0) {
    if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP) io::throw_errno(out_, "exchange");
    // No exchange on this file system: two steps, and back if the second fails. The old output
    // lies where no run ever clears, until the new one stands.
    const std::string old = folder_ + kOldEnd;
    io::rename_path(out_, old);
    try {
      io::rename_path(from, out_);
    } catch (...) {
      io::rename_path(old, out_);
      throw;
    }
    std::error_code ignored;
    fs::remove_all(old, ignored);
  }
  published_ = true;
  if (durable_) io::sync_folder(parent_of(out_));
}

void check_output_path(const Source& source, const std::string& out) {
  const auto fail = [&](const std::string& rule, const std::string& got) {
    fail_out(out, rule, got);
  };
  const fs::path path(out);
  if (out.empty() || path.filename().empty() || path.filename() == "." || path.filename() == "..") {
    fail("must be a path that ends in a name", "");
  }
  const std::string name = path.filename();
  if (name.size() > kMaxOutNameBytes) {
    fail("must have a name of at most " + std::to_string(kMaxOutNameBytes) + " bytes",
         ", a name of " + std::to_string(name.size()));
  }
  for (const Shard& shard : source.shards) {
    if (source.is_folder && shard.file_name.size() > kMaxShardNameBytes) {
      io::malformed(source.path,
                    "names of shards must have at most " + std::to_string(kMaxShardNameBytes) +
                        " bytes to be written again",
                    io::quote(shard.file_name));
    }
  }
  if (!source.is_folder && path.extension() != ".safetensors") {
    fail("must end in .safetensors because the input is a file", "");
  }
  if (source.is_folder && path.extension() == ".safetensors") {
    fail("must be a folder because the input is one", "");
  }
  const std::string parent = parent_of(out);
  if (!fs::is_directory(parent)) {
    fail("must lie in an existing folder", ", and " + io::quote(parent) + " is none");
  }
  const fs::path in_real = fs::canonical(source.path);
  const fs::path out_real = fs::canonical(parent) / path.filename();
  const fs::path out_target = fs::weakly_canonical(out_real);
  const auto inside = [](const fs::path& inner, const fs::path& outer) {
    const fs::path relative = inner.lexically_relative(outer);
    return !relative.empty() && *relative.begin() != "..";
  };
  if (in_real == out_target || (fs::exists(out) && fs::equivalent(in_real, out))) {
    fail("must not be the input", "");
  }
  if (source.is_folder && (inside(out_target, in_real) || inside(in_real, out_target))) {
    fail("and the input must not lie in each other", "");
  }
  const fs::file_status status = fs::symlink_status(out);
  if (!fs::exists(status)) return;
  if (fs::is_symlink(status)) fail("must not be a link", "");
  if (source.is_folder != fs::is_directory(status)) {
    fail(source.is_folder ? "must be a folder" : "must be a file", ", which is something else");
  }
}

void check_output_is_free(const Source& source, const std::string& out, bool overwrite) {
  if (!fs::exists(out) || (source.is_folder && fs::is_empty(out))) return;
  if (!overwrite) fail_out(out, "must not exist yet, unless it may be overwritten", "");
  if (source.is_folder) {
    const bool is_checkpoint = std::any_of(
        fs::directory_iterator(out), fs::directory_iterator{},
        [](const fs::directory_entry& e) { return e.path().extension() == ".safetensors"; });
    if (!is_checkpoint) {
      fail_out(out, "must hold a checkpoint to be overwritten", ", which has no .safetensors file");
    }
  }
}

void check_free_space(const std::string& out, int64_t bytes, int64_t cleared) {
  const std::string parent = parent_of(out);
  struct statvfs status;
  if (::statvfs(parent.c_str(), &status) != 0) io::throw_errno(parent, "statvfs");
  const double free = static_cast<double>(status.f_bavail) * static_cast<double>(status.f_frsize) +
                      static_cast<double>(cleared);
  if (free < static_cast<double>(bytes)) {
    throw BackendError(message("convert", parent + ": free space",
                               "must be at least " + counted(bytes, "byte"),
                               static_cast<int64_t>(free)));
  }
}

void copy_side_file(const SideFile& file, const std::string& folder, bool durable,
                    Progress* progress) {
  const std::string to_path = folder + "/" + file.name;
  fs::create_directories(fs::path(to_path).parent_path());
  const io::File from = io::File::open_read(file.path);
  if (from.size() != file.bytes) {
    io::malformed(file.path, "the file must stay as it was when the work began",
                  counted(from.size(), "byte") + " instead of " + std::to_string(file.bytes));
  }
  ::unlink(to_path.c_str());
  io::File to = io::File::create(to_path);
  std::string block(static_cast<size_t>(std::min(kCopyBytes, file.bytes)), '\0');
  for (int64_t offset = 0; offset < file.bytes; offset += kCopyBytes) {
    const int64_t count = std::min(kCopyBytes, file.bytes - offset);
    from.read_at(offset, block.data(), count);
    to.write_at(offset, block.data(), count);
    if (progress != nullptr && progress->cancelled()) {
      throw Cancelled(message("convert", "stopped; nothing was published"));
    }
  }
  if (durable) to.sync();
  to.close();
}

}  // namespace tilekernels::checkpoint
