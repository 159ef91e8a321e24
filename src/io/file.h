// Files by offset: complete reads and writes whatever the system does in between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace tilekernels::io {

/// An open file. Reads and writes at an offset may come from several threads at once.
/// Errors: BackendError with path, call and the system's reason; DataError when a file ends early.
class File {
 public:
  File() = default;
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  /// An existing regular file (never a device or a pipe, which could block), read only.
  static File open_read(const std::string& path);
  /// A new file, readable and writable; an existing one or a link under that name is an error.
  static File create(const std::string& path);
  /// An existing regular file of ours, to be read back and written on.
  static File open_update(const std::string& path);

  bool is_open() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  const std::string& path() const { return path_; }
  int64_t size() const;

  /// Exactly `count` bytes from `offset`.
  void read_at(int64_t offset, void* to, int64_t count) const;
  void write_at(int64_t offset, const void* from, int64_t count) const;
  void resize(int64_t count) const;
  /// Waits until the bytes are on the disk.
  void sync() const;
  void close();

 private:
  File(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  int fd_ = -1;
  std::string path_;
};

/// Throws BackendError "[checkpoint] path: call failed: reason" from errno.
[[noreturn]] void throw_errno(const std::string& path, const std::string& call);

/// Makes renames and new names in `folder` durable.
void sync_folder(const std::string& folder);
/// rename(2): `to` is replaced in one step.
void rename_path(const std::string& from, const std::string& to);
/// A whole small file. Errors: DataError when it is larger than `max_bytes`.
std::string read_small_file(const std::string& path, int64_t max_bytes);
/// Writes a new file and, if `durable`, waits for the disk.
void write_small_file(const std::string& path, const std::string& bytes, bool durable);

}  // namespace tilekernels::io
