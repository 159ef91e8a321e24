// A library that is opened at run time: a driver, or a compiler.
#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <string>

#include "core/message.h"
#include "tilekernels/error.h"

namespace tilekernels::jit {

/// Opens a library for the life of the process, and fills a table of its entry points.
class Library {
 public:
  explicit Library(const std::string& path) : handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) problem_ = dlerror();
  }

  bool is_open() const { return handle_ != nullptr; }
  /// The loader's words; empty when the library is open.
  const std::string& problem() const { return problem_; }

  /// Null for an entry point that the library lacks.
  template <class Function>
  void load(Function*& entry, const char* name) {
    entry = reinterpret_cast<Function*>(dlsym(handle_, name));
    if (entry == nullptr && absent_ == nullptr) absent_ = name;
  }
  /// The first entry point that it lacks; null: none.
  const char* absent() const { return absent_; }

 private:
  void* handle_;
  std::string problem_;
  const char* absent_ = nullptr;
};

/// The entry points of a machine's library, looked for once, at the first need.
template <class Table>
class LazyTable {
 public:
  /// Both return the problem, or empty: `open` fills the machine's table; `initialise`, unless
  /// null, starts the library behind a table.
  constexpr LazyTable(const char* backend, std::string (*open)(Table&),
                      std::string (*initialise)(const Table&) = nullptr)
      : backend_(backend), open_(open), initialise_(initialise) {}

  /// Errors: BackendError with `problem()`.
  const Table& get() {
    if (const Table* table = ready_.load(std::memory_order_acquire)) return *table;
    if (const std::string found = look(); !found.empty()) {
      throw BackendError(message(backend_, found));
    }
    return *ready_.load(std::memory_order_acquire);
  }

  /// Empty when `get()` works, else one sentence. Looks for the library.
  std::string problem() { return is_ready() ? "" : look(); }

  /// Whether it was found before, without looking.
  bool is_ready() const { return ready_.load(std::memory_order_acquire) != nullptr; }

  /// From now on `reason` is the problem. Takes no lock: in the child of a fork, another thread of
  /// the parent may hold it.
  void close(const char* reason) {
    closed_ = reason;
    ready_ = nullptr;
  }

  /// For tests: makes the table, or with null the machine's, the one that is found next.
  void replace(const Table* table) {
    const std::lock_guard lock(mutex_);
    replacement_ = table;
    problem_.reset();
    closed_ = nullptr;
    ready_ = nullptr;
  }

 private:
  // A thread from before it takes the mutex until after it lets go.
  class Looking {
   public:
    explicit Looking(std::atomic<int>& num) : num_(num) { ++num_; }
    ~Looking() { --num_; }
    Looking(const Looking&) = delete;
    Looking& operator=(const Looking&) = delete;

   private:
    std::atomic<int>& num_;
  };

  static constexpr const char* kForked =
      "this process was forked while another thread started the library: fork before the first "
      "call";

  std::string look() {
    if (const char* reason = closed_) return reason;
    if (num_looking_ != 0 && process_ != getpid()) return kForked;
    process_ = getpid();
    const Looking looking(num_looking_);
    const std::lock_guard lock(mutex_);
    if (problem_) return *problem_;
    const Table* table = replacement_ != nullptr ? replacement_ : &machine_;
    std::string found = replacement_ != nullptr ? "" : open_(machine_);
    if (found.empty() && initialise_ != nullptr) found = initialise_(*table);
    problem_ = found;
    if (found.empty()) ready_.store(table, std::memory_order_release);
    return found;
  }

  const char* const backend_;
  std::string (*const open_)(Table&);
  std::string (*const initialise_)(const Table&);
  std::mutex mutex_;
  Table machine_{};                     // guarded by the mutex until it is published
  const Table* replacement_ = nullptr;  // guarded by the mutex
  std::optional<std::string> problem_;  // guarded by the mutex; unset: not looked for yet
  std::atomic<const Table*> ready_{nullptr};
  std::atomic<const char*> closed_{nullptr};
  // Threads that look, and their process. In the child of a fork they are not there, and what they
  // hold stays held.
  std::atomic<int> num_looking_{0};
  std::atomic<pid_t> process_{0};
};

}  // namespace tilekernels::jit
