// Compiled kernels on disk: one file a key, whole or absent, one compilation among processes.
//
// A file is written under a working name and renamed, so that a reader sees all of it or none; its
// head holds lengths and a digest, so that damage is seen. Who compiles holds a lock on one byte of
// the file `lock`, chosen by the key: the system lets go of it when its holder dies.
#include "runtime/jit/disk_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "core/log.h"
#include "core/message.h"
#include "tilekernels/cache.h"
#include "tilekernels/error.h"

namespace tilekernels::jit {
namespace {

constexpr char kMagic[16] = "tilekernels-jit";
constexpr std::string_view kSuffix = ".kernel";
constexpr std::string_view kWorkingSuffix = ".working-";
constexpr std::string_view kLockName = "lock";
constexpr off_t kMaxFileBytes = off_t{1} << 30;

struct Digest {
  uint64_t words[2];
  bool operator==(const Digest&) const = default;
};

struct Head {
  char magic[16];
  Digest digest;  // of all that follows it
  uint64_t key_bytes;
  uint64_t binary_bytes;
  KernelResources resources;
};
static_assert(sizeof(Head) == 64);
constexpr size_t kDigestEnd = offsetof(Head, key_bytes);

__extension__ using uint128 = unsigned __int128;

uint64_t mix(uint64_t a, uint64_t b) {
  const uint128 product = static_cast<uint128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// Tells damaged bytes and different keys apart; not made to withstand an attacker, who could as
// well replace the whole file.
Digest digest_of(std::string_view bytes) {
  constexpr uint64_t kFactor0 = 0x9E3779B97F4A7C15u;
  constexpr uint64_t kFactor1 = 0xC2B2AE3D27D4EB4Fu;
  uint64_t a = mix(bytes.size() ^ kFactor1, kFactor0);
  uint64_t b = mix(bytes.size() ^ kFactor0, kFactor1);
  while (!bytes.empty()) {
    uint64_t word = 0;
    const size_t taken = std::min(bytes.size(), sizeof(word));
    std::memcpy(&word, bytes.data(), taken);
    bytes.remove_prefix(taken);
    a = mix(a ^ word, kFactor0) + b;
    b = (b ^ word) * kFactor1 ^ (b >> 29);
  }
  return {{mix(a, kFactor1), mix(b ^ a, kFactor0)}};
}

// A descriptor that closes itself.
class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int get() const { return descriptor_; }
  bool is_open() const { return descriptor_ >= 0; }
  // Closes; false if the system reports a failed write only now.
  bool close_now() {
    const int descriptor = descriptor_;
    descriptor_ = -1;
    return close(descriptor) == 0;
  }

 private:
  int descriptor_;
};

bool read_all(int descriptor, char* to, size_t size) {
  while (size > 0) {
    const ssize_t got = read(descriptor, to, size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

bool write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

std::string error_text(int error) {
  char text[256];
  return strerror_r(error, text, sizeof(text));
}

void warn_unusable(const std::string& folder, int error) {
  warn_once("the kernel cache cannot use " + folder + " (" + error_text(error) +
            "): kernels are compiled by each process");
}

// Makes the folder and those above it, private as the XDG specification wants the user's caches.
// A failure shows when the lock in it is opened.
void make_folder(const std::string& folder) {
  for (size_t end = folder.find('/', 1); end != std::string::npos;
       end = folder.find('/', end + 1)) {
    mkdir(folder.substr(0, end).c_str(), 0700);
  }
  mkdir(folder.c_str(), 0700);
}

// "topk_gate" for "op" in a key with the line "op topk_gate".
std::string_view field(std::string_view key, std::string_view name) {
  while (!key.empty()) {
    const size_t end = key.find('\n');
    const std::string_view line = key.substr(0, end);
    if (line.size() > name.size() && line.starts_with(name) && line[name.size()] == ' ') {
      return line.substr(name.size() + 1);
    }
    key = end == std::string_view::npos ? std::string_view() : key.substr(end + 1);
  }
  return "";
}

std::string serialise(const std::string& key, const Compiled& compiled) {
  Head head{};
  std::memcpy(head.magic, kMagic, sizeof(kMagic));
  head.key_bytes = key.size();
  head.binary_bytes = compiled.binary.size();
  head.resources = compiled.resources;
  std::string bytes(reinterpret_cast<const char*>(&head), sizeof(head));
  bytes += key;
  bytes += compiled.binary;
  head.digest = digest_of(std::string_view(bytes).substr(kDigestEnd));
  std::memcpy(bytes.data(), &head, sizeof(head));
  return bytes;
}

// Puts the whole file in place under its name, or leaves nothing.
void publish(const std::string& folder, const std::string& path, const std::string& bytes) {
  static std::atomic<int> count{0};
  // Process ids repeat among containers that share a folder, so the time is in the name too.
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  const std::string working = path + std::string(kWorkingSuffix) + std::to_string(getpid()) + "-" +
                              std::to_string(count.fetch_add(1)) + "-" + std::to_string(now);
  File file(open(working.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file.is_open()) return warn_unusable(folder, errno);
  if (!write_all(file.get(), bytes) || !file.close_now() ||
      rename(working.c_str(), path.c_str()) != 0) {
    const int error = errno;
    unlink(working.c_str());
    warn_unusable(folder, error);
  }
}

// The right to compile a key. Locks belong to the open file, so threads exclude each other too.
class Lock {
 public:
  Lock(const std::string& folder, const std::string& key)
      : file_(open((folder + "/" + std::string(kLockName)).c_str(), O_RDWR | O_CREAT | O_CLOEXEC,
                   0666)) {
    if (!file_.is_open()) error_ = errno;
    range_.l_type = F_WRLCK;
    range_.l_whence = SEEK_SET;
    range_.l_start = static_cast<off_t>(digest_of(key).words[0] >> 2);
    range_.l_len = 1;
  }
  ~Lock() {
    // Let go by name: a child forked meanwhile holds the same open file.
    if (!held_) return;
    range_.l_type = F_UNLCK;
    fcntl(file_.get(), F_OFD_SETLK, &range_);
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  // The folder takes no file at all.
  bool is_impossible() const { return !file_.is_open(); }
  int error() const { return error_; }

  // False while somebody else has it. A file system without locks grants it to everybody.
  bool try_take() {
    if (fcntl(file_.get(), F_OFD_SETLK, &range_) == 0) return held_ = true;
    return errno != EAGAIN && errno != EACCES && errno != EINTR;
  }

 private:
  File file_;
  int error_ = 0;
  struct flock range_ {};
  bool held_ = false;
};

// The kernel of that key, if its file is there and whole.
std::optional<Compiled> find(const std::string& path, const std::string& key) {
  if (access(path.c_str(), F_OK) != 0) return std::nullopt;
  std::optional<CacheFile> file = read_cache_file(path);
  if (!file) {
    warn_once("the cached kernel " + path + " is damaged: compiling it again");
    return std::nullopt;
  }
  if (file->key != key) return std::nullopt;
  return std::move(file->compiled);
}

bool ends_with(std::string_view name, std::string_view suffix) {
  return name.size() > suffix.size() && name.ends_with(suffix);
}

// The files of the cache in `folder` that `wanted` takes, sorted by name.
template <class Wanted>
std::vector<std::string> files_in(const std::string& folder, const Wanted& wanted) {
  std::vector<std::string> paths;
  if (folder.empty()) return paths;
  DIR* const entries = opendir(folder.c_str());
  if (entries == nullptr) {
    if (errno == ENOENT) return paths;
    throw BackendError(message("cache", folder + " cannot be read: " + error_text(errno)));
  }
  while (const dirent* entry = readdir(entries)) {
    if (wanted(std::string_view(entry->d_name))) paths.push_back(folder + "/" + entry->d_name);
  }
  closedir(entries);
  std::sort(paths.begin(), paths.end());
  return paths;
}

bool is_kernel(std::string_view name) { return ends_with(name, kSuffix); }

// The words of `text` that begin with `start`, without it, joined by spaces.
std::string words(std::string_view text, std::string_view start) {
  std::string found;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    if (word.starts_with(start)) {
      found += (found.empty() ? "" : " ") + std::string(word.substr(start.size()));
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return found;
}

}  // namespace

std::string cache_file(const std::string& folder, const std::string& key) {
  const Digest digest = digest_of(key);
  char hex[33];
  std::snprintf(hex, sizeof(hex), "%016llx%016llx",
                static_cast<unsigned long long>(digest.words[0]),
                static_cast<unsigned long long>(digest.words[1]));
  return folder + "/" + std::string(field(key, "op")) + "-" + hex + std::string(kSuffix);
}

CompiledKernel describe(const std::string& key, const Compiled& compiled) {
  const std::string_view options = field(key, "options");
  const KernelResources& resources = compiled.resources;
  return {.op = std::string(field(key, "op")),
          .arch = words(options, "-arch=") + words(options, "--npu-arch="),
          .constants = words(options, "-DTILEKERNELS_"),
          .compiler = std::string(field(key, "compiler")),
          .path = {},
          .size_bytes = static_cast<int64_t>(compiled.binary.size()),
          .registers = resources.registers,
          .spill_bytes = resources.spill_bytes,
          .stack_bytes = resources.stack_bytes,
          .shared_bytes = resources.shared_bytes,
          .cubin = {}};
}

std::optional<CacheFile> read_cache_file(const std::string& path) {
  const File file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status;
  if (!file.is_open() || fstat(file.get(), &status) != 0) return std::nullopt;
  const auto size = static_cast<size_t>(status.st_size);
  if (size < sizeof(Head) || status.st_size > kMaxFileBytes) return std::nullopt;
  std::string bytes(size, '\0');
  if (!read_all(file.get(), bytes.data(), size)) return std::nullopt;
  Head head;
  std::memcpy(&head, bytes.data(), sizeof(head));
  if (std::memcmp(head.magic, kMagic, sizeof(kMagic)) != 0 || head.key_bytes > size ||
      head.binary_bytes > size || sizeof(Head) + head.key_bytes + head.binary_bytes != size ||
      head.digest != digest_of(std::string_view(bytes).substr(kDigestEnd))) {
    return std::nullopt;
  }
  return CacheFile{bytes.substr(sizeof(Head), head.key_bytes),
                   {bytes.substr(sizeof(Head) + head.key_bytes), head.resources}};
}

Compiled find_or_make(const std::string& folder, const std::string& key,
                      const std::function<Compiled()>& make, std::chrono::milliseconds patience) {
  if (folder.empty()) {
    warn_once("no kernel cache: neither TILEKERNELS_CACHE_DIR nor XDG_CACHE_HOME nor HOME is set");
    return make();
  }
  const std::string path = cache_file(folder, key);
  if (std::optional<Compiled> found = find(path, key)) return std::move(*found);
  make_folder(folder);
  Lock lock(folder, key);
  if (lock.is_impossible()) {
    warn_unusable(folder, lock.error());
    return make();
  }
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!lock.try_take() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (std::optional<Compiled> found = find(path, key)) return std::move(*found);
  }
  // Another process may have published it before it let go of the lock.
  if (std::optional<Compiled> found = find(path, key)) return std::move(*found);
  Compiled made = make();
  publish(folder, path, serialise(key, made));
  return made;
}

}  // namespace tilekernels::jit

namespace tilekernels {

std::vector<CompiledKernel> list_cache() {
  std::vector<CompiledKernel> kernels;
  for (const std::string& path : jit::files_in(cache_dir(), jit::is_kernel)) {
    CompiledKernel kernel;
    if (const std::optional<jit::CacheFile> file = jit::read_cache_file(path)) {
      kernel = jit::describe(file->key, file->compiled);
    }
    kernel.path = path;
    kernels.push_back(std::move(kernel));
  }
  return kernels;
}

int64_t clear_cache() {
  using namespace jit;
  int64_t count = 0;
  const std::vector<std::string> paths = files_in(cache_dir(), [](std::string_view name) {
    return is_kernel(name) ||
           name.find(std::string(kSuffix) + std::string(kWorkingSuffix)) !=
               std::string_view::npos ||
           name == kLockName;
  });
  for (const std::string& path : paths) {
    if (unlink(path.c_str()) == 0) {
      count += is_kernel(path) ? 1 : 0;
    } else if (errno != ENOENT) {
      throw BackendError(message("cache", path + " cannot be removed: " + error_text(errno)));
    }
  }
  return count;
}

}  // namespace tilekernels
