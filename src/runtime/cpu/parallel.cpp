// A pool of sleeping threads that help the callers of parallel_for.
//
// Nobody owns a range: caller and helpers take the next one until none is left, so a job makes
// progress however many helpers come. Callers publish jobs in slots that live as long as the pool;
// a helper joins with one compare-and-swap, and a lock is taken only where threads are started.
#include "runtime/cpu/parallel.h"

#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "runtime/cpu/float_env.h"
#include "tilekernels/config.h"

namespace tilekernels::cpu {
namespace {

// Long enough to catch the next call of a loop over small ops, short enough to burn nothing.
constexpr std::chrono::microseconds kSpin(15);
// Many ranges a thread, so that a late helper or a slow core costs little; but none shorter than
// a quarter of what is worth waking a thread for.
constexpr int64_t kRangesPerThread = 16;

constexpr auto kNothing = [](int64_t, int64_t) {};

// Whether this thread is inside a body, so that a nested loop stays in it.
thread_local bool in_body = false;

void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

template <class Condition>
bool spin_until(const Condition& condition) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 16; ++i) {
      if (condition()) return true;
      pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return condition();
}

// Streaming stores are not ordered by the locks that end a job.
void order_streaming_stores() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_sfence();
#endif
}

void run_here(int64_t count, const RangeBody& body) {
  const FloatEnv float_env;
  body(0, count);
  order_streaming_stores();
}

void futex_wait(std::atomic<uint32_t>& word, uint32_t seen) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>& word, int num_threads) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, num_threads, nullptr, nullptr, 0);
}

// One loop. The fields are the caller's while nobody may join, and constant afterwards.
class alignas(64) Job {
 public:
  // Called by callers: the slot is theirs, or it is another's.
  bool acquire() {
    return !acquired_.load(std::memory_order_relaxed) &&
           !acquired_.exchange(true, std::memory_order_acquire);
  }
  void release() { acquired_.store(false, std::memory_order_release); }

  void publish(RangeBody body, int64_t count, int64_t range, int num_places) {
    body_ = body;
    count_ = count;
    range_ = range;
    next_.store(0, std::memory_order_relaxed);
    state_.store(static_cast<uint32_t>(num_places), std::memory_order_release);
  }

  // Called by helpers: takes a place; `num_left` are the places still free.
  bool join(uint32_t* num_left) {
    uint32_t state = state_.load(std::memory_order_relaxed);
    while ((state & kPlaces) != 0) {
      if (state_.compare_exchange_weak(state, state - 1 + kOneHelper, std::memory_order_acq_rel)) {
        *num_left = (state & kPlaces) - 1;
        return true;
      }
    }
    return false;
  }

  void leave() {
    const uint32_t before = state_.fetch_sub(kOneHelper, std::memory_order_release);
    // The slot may serve another job by now; its caller would only look once more.
    if ((before & ~kPlaces) == (kOneHelper | kCallerWaits)) futex_wake(state_, 1);
  }

  // Called by the caller: no more helpers, and those inside are done.
  void close() {
    state_.fetch_and(~kPlaces, std::memory_order_relaxed);
    const auto all_left = [this] { return state_.load(std::memory_order_acquire) == 0; };
    if (spin_until(all_left)) return;
    uint32_t state = state_.fetch_or(kCallerWaits, std::memory_order_acquire) | kCallerWaits;
    while (state != kCallerWaits) {
      futex_wait(state_, state);
      state = state_.load(std::memory_order_acquire);
    }
  }

  // Takes ranges until none is left.
  void work() {
    const FloatEnv float_env;
    for (;;) {
      const int64_t begin = next_.fetch_add(range_, std::memory_order_relaxed);
      if (begin >= count_) break;
      try {
        body_(begin, std::min(begin + range_, count_));
      } catch (...) {
        fail(begin, std::current_exception());
      }
    }
    order_streaming_stores();
  }

  // What the lowest range that failed has thrown, or null.
  std::exception_ptr take_error() { return std::exchange(error_, nullptr); }

 private:
  // state_: places still free, helpers inside, and whether the caller sleeps until they left
  static constexpr uint32_t kPlaces = 0x7FFF;
  static constexpr uint32_t kOneHelper = 0x8000;
  static constexpr uint32_t kCallerWaits = 0x80000000;

  // Ranges are taken in rising order, so the lowest one that throws always gets to run.
  void fail(int64_t begin, std::exception_ptr error) {
    const std::lock_guard lock(error_mutex_);
    if (!error_ || begin < error_begin_) {
      std::swap(error_, error);
      error_begin_ = begin;
    }
    next_.store(count_, std::memory_order_relaxed);
  }

  std::atomic<uint32_t> state_{0};
  std::atomic<bool> acquired_{false};
  RangeBody body_{kNothing};
  int64_t count_ = 0;
  int64_t range_ = 0;
  std::mutex error_mutex_;
  std::exception_ptr error_;
  int64_t error_begin_ = 0;
  alignas(64) std::atomic<int64_t> next_{0};
};

// Keeps the object that holds this code mapped: a sleeping thread's code must outlast a dlclose.
void pin_code() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&pin_code), &info) != 0 && info.dli_fname != nullptr) {
    dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
  }
}

// The process's signals stay with the caller's threads.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP}) sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &saved_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &saved_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t saved_;
};

// Never destroyed, its threads never joined: they may be asleep in it when the process ends.
class Pool {
 public:
  // The pool of this process. A forked child has none of its parent's threads, and its copy of
  // their pool may be in any state: it leaves that copy alone and takes a pool of its own.
  static Pool& get() {
    Pool* pool = current_.load(std::memory_order_acquire);
    const pid_t pid = getpid();
    if (pool == nullptr) pin_code();
    while (pool == nullptr || pool->pid_ != pid) {
      Pool* fresh = new Pool(pid, pool);
      if (current_.compare_exchange_strong(pool, fresh, std::memory_order_acq_rel)) return *fresh;
      delete fresh;
    }
    return *pool;
  }

  // Runs the body with up to `num_helpers` of the pool's threads.
  void run(int64_t count, int64_t range, const RangeBody& body, int num_helpers) {
    Job* const job = acquire_job();
    if (job == nullptr) return run_here(count, body);
    num_helpers = start_threads(num_helpers);
    job->publish(body, count, range, num_helpers);
    published_.fetch_add(1);
    wake(num_helpers);

    in_body = true;
    job->work();
    in_body = false;

    job->close();
    const std::exception_ptr error = job->take_error();
    job->release();
    if (error) std::rethrow_exception(error);
  }

 private:
  static constexpr int kMaxJobs = 64;  // callers at once that get help

  Pool(pid_t pid, const Pool* parent) : pid_(pid), parent_(parent) {}

  Job* acquire_job() {
    for (int i = 0; i < kMaxJobs; ++i) {
      if (!jobs_[i].acquire()) continue;
      int seen = num_jobs_.load(std::memory_order_relaxed);
      while (seen <= i && !num_jobs_.compare_exchange_weak(seen, i + 1)) {
      }
      return &jobs_[i];
    }
    return nullptr;
  }

  // Returns how many of the wanted threads there are.
  int start_threads(int num_wanted) {
    if (num_wanted <= num_threads_.load(std::memory_order_acquire)) return num_wanted;
    const std::lock_guard lock(start_mutex_);
    const SignalsBlocked signals_blocked;
    try {
      while (num_threads_ < num_wanted) {
        std::thread([this] { serve(); }).detach();
        ++num_threads_;
      }
    } catch (const std::exception&) {
      // The system gives no more threads; those that run, and the caller, do the work.
    }
    return std::min<int>(num_wanted, num_threads_);
  }

  // For so many places. Waking costs the waker microseconds a thread: it wakes a few, and they the
  // next ones.
  void wake(int num_wanted) {
    constexpr int kAtOnce = 4;
    num_wanted -= num_spinning_.load(std::memory_order_relaxed);
    if (num_wanted > 0 && num_sleeping_.load() > 0) {
      futex_wake(published_, std::min(num_wanted, kAtOnce));
    }
  }

  Job* join() {
    const int num_jobs = num_jobs_.load(std::memory_order_acquire);
    for (int i = 0; i < num_jobs; ++i) {
      uint32_t num_left = 0;
      if (!jobs_[i].join(&num_left)) continue;
      wake(static_cast<int>(num_left));
      return &jobs_[i];
    }
    return nullptr;
  }

  // The life of a pool thread.
  void serve() {
    in_body = true;
    for (;;) {
      const uint32_t seen = published_.load();
      if (Job* const job = join()) {
        job->work();
        job->leave();
        continue;
      }
      num_spinning_.fetch_add(1, std::memory_order_relaxed);
      const bool is_published =
          spin_until([this, seen] { return published_.load(std::memory_order_relaxed) != seen; });
      num_spinning_.fetch_sub(1, std::memory_order_relaxed);
      if (is_published) continue;
      // Sequentially consistent, as is the publisher's order: it sees a sleeper, or the sleeper
      // sees its job.
      num_sleeping_.fetch_add(1);
      futex_wait(published_, seen);
      num_sleeping_.fetch_sub(1);
    }
  }

  static std::atomic<Pool*> current_;

  const pid_t pid_;
  [[maybe_unused]] const Pool* const parent_;  // abandoned; reachable, so that leak checkers see it
  Job jobs_[kMaxJobs];
  std::atomic<int> num_jobs_{0};  // slots that were ever used
  std::mutex start_mutex_;
  std::atomic<int> num_threads_{0};
  alignas(64) std::atomic<uint32_t> published_{0};  // counts; sleepers wait for its change
  alignas(64) std::atomic<int> num_spinning_{0};
  std::atomic<int> num_sleeping_{0};
};

std::atomic<Pool*> Pool::current_{nullptr};

}  // namespace

void parallel_for(int64_t count, int64_t min_per_thread, RangeBody body) {
  if (count <= 0) return;
  min_per_thread = std::max<int64_t>(min_per_thread, 1);
  const int64_t num_worthwhile = count / min_per_thread;
  if (num_worthwhile < 2 || in_body) return run_here(count, body);
  const int64_t num_threads = std::min<int64_t>(get_num_threads(), num_worthwhile);
  if (num_threads < 2) return run_here(count, body);

  const int64_t num_ranges = num_threads * kRangesPerThread;
  const int64_t range = std::max((count - 1) / num_ranges + 1, min_per_thread / 4);
  Pool::get().run(count, range, body, static_cast<int>(num_threads) - 1);
}

}  // namespace tilekernels::cpu
