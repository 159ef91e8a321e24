// Files by offset: complete reads and writes whatever the system does in between.
#include "io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "core/message.h"
#include "io/text.h"
#include "tilekernels/error.h"

namespace tilekernels::io {
namespace {

// Linux moves at most 2 GiB - 4 KiB a call; a smaller step keeps a long call interruptible.
constexpr int64_t kMaxStepBytes = int64_t{1} << 30;

int open_retry(const std::string& path, int flags, mode_t mode) {
  for (;;) {
    const int fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
    if (fd >= 0 || errno != EINTR) return fd;
  }
}

void require_regular(int fd, const std::string& path) {
  struct stat status;
  if (::fstat(fd, &status) != 0) {
    const int reason = errno;
    ::close(fd);
    errno = reason;
    throw_errno(path, "fstat");
  }
  if (!S_ISREG(status.st_mode)) {
    ::close(fd);
    throw BackendError(
        message("checkpoint", path + ":", "must be a regular file", "something else"));
  }
}

}  // namespace

void throw_errno(const std::string& path, const std::string& call) {
  const int reason = errno;
  char text[128] = {};
  throw BackendError(message(
      "checkpoint", path + ": " + call + " failed: " + ::strerror_r(reason, text, sizeof text)));
}

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

File::File(File&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

File& File::operator=(File&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = std::exchange(other.fd_, -1);
    path_ = std::move(other.path_);
  }
  return *this;
}

File File::open_read(const std::string& path) {
  // O_NONBLOCK: opening a pipe must not wait for a writer; regular files ignore it.
  const int fd = open_retry(path, O_RDONLY | O_NONBLOCK, 0);
  if (fd < 0) throw_errno(path, "open");
  require_regular(fd, path);
  return File(fd, path);
}

File File::create(const std::string& path) {
  const int fd = open_retry(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW, 0666);
  if (fd < 0) throw_errno(path, "create");
  return File(fd, path);
}

File File::open_update(const std::string& path) {
  const int fd = open_retry(path, O_RDWR | O_NOFOLLOW | O_NONBLOCK, 0);
  if (fd < 0) throw_errno(path, "open");
  require_regular(fd, path);
  return File(fd, path);
}

int64_t File::size() const {
  struct stat status;
  if (::fstat(fd_, &status) != 0) throw_errno(path_, "fstat");
  return status.st_size;
}

void File::read_at(int64_t offset, void* to, int64_t count) const {
  char* cursor = static_cast<char*>(to);
  while (count > 0) {
    const size_t step = static_cast<size_t>(std::min(count, kMaxStepBytes));
    const ssize_t got = ::pread(fd_, cursor, step, offset);
    if (got < 0) {
      if (errno == EINTR) continue;
      throw_errno(path_, "read");
    }
    if (got == 0) {
      malformed(path_, "the file must reach byte " + std::to_string(offset + count),
                "its end at byte " + std::to_string(offset) + " (cut while it was read?)");
    }
    cursor += got;
    offset += got;
    count -= got;
  }
}

void File::write_at(int64_t offset, const void* from, int64_t count) const {
  const char* cursor = static_cast<const char*>(from);
  while (count > 0) {
    const size_t step = static_cast<size_t>(std::min(count, kMaxStepBytes));
    const ssize_t put = ::pwrite(fd_, cursor, step, offset);
    if (put < 0) {
      if (errno == EINTR) continue;
      throw_errno(path_, "write");
    }
    cursor += put;
    offset += put;
    count -= put;
  }
}

void File::resize(int64_t count) const {
  while (::ftruncate(fd_, count) != 0) {
    if (errno != EINTR) throw_errno(path_, "resize");
  }
}

void File::sync() const {
  while (::fsync(fd_) != 0) {
    if (errno != EINTR) throw_errno(path_, "fsync");
  }
}

void File::close() {
  // Network file systems report a failed write here. EINTR has closed the file on Linux.
  if (fd_ >= 0 && ::close(std::exchange(fd_, -1)) != 0 && errno != EINTR) {
    throw_errno(path_, "close");
  }
}

void sync_folder(const std::string& folder) {
  const int fd = open_retry(folder, O_RDONLY | O_DIRECTORY, 0);
  if (fd < 0) throw_errno(folder, "open");
  // Some file systems cannot sync a folder and say EINVAL: nothing more can be done there.
  const bool failed = ::fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP;
  const int reason = errno;
  ::close(fd);
  if (failed) {
    errno = reason;
    throw_errno(folder, "fsync");
  }
}

void rename_path(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) throw_errno(to, "rename from " + from);
}

std::string read_small_file(const std::string& path, int64_t max_bytes) {
  const File file = File::open_read(path);
  const int64_t size = file.size();
  if (size > max_bytes) {
    malformed(path, "the file must have at most " + std::to_string(max_bytes) + " bytes",
              std::to_string(size));
  }
  std::string bytes(static_cast<size_t>(size), '\0');
  file.read_at(0, bytes.data(), size);
  return bytes;
}

void write_small_file(const std::string& path, const std::string& bytes, bool durable) {
  File file = File::create(path);
  file.write_at(0, bytes.data(), static_cast<int64_t>(bytes.size()));
  if (durable) file.sync();
  file.close();
}

}  // namespace tilekernels::io
