// A pool of sleeping threads that help the callers of parallel_for.
//
// Jobs lie on their callers' stacks, linked into the pool while helpers may still join. Nobody
// owns a range: caller and helpers take the next one until none is left, so a job makes progress
// however many helpers come.
#include "runtime/cpu/parallel.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "runtime/cpu/float_env.h"
#include "tilekernels/config.h"

namespace tilekernels::cpu {
namespace {

// Long enough to catch the next call of a loop over small ops, short enough to burn nothing.
constexpr std::chrono::microseconds kSpin(15);
// Many ranges a thread, so that a late helper or a slow core costs little; but none shorter than
// a quarter of what is worth waking a thread for.
constexpr int64_t kRangesPerThread = 16;

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

class Job {
 public:
  Job(RangeBody body, int64_t count, int64_t range) : body_(body), count_(count), range_(range) {}

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

  void rethrow() {
    if (error_) std::rethrow_exception(std::move(error_));
  }

  std::atomic<int> num_helping{0};
  // Guarded by the pool's mutex
  int num_places = 0;  // helpers that may still join; the job is linked while there are any
  Job* next_job = nullptr;

 private:
  // Ranges are taken in rising order, so the lowest one that throws always gets to run.
  void fail(int64_t begin, std::exception_ptr error) {
    const std::lock_guard lock(error_mutex_);
    if (!error_ || begin < error_begin_) {
      std::swap(error_, error);
      error_begin_ = begin;
    }
    next_.store(count_, std::memory_order_relaxed);
  }

  const RangeBody body_;
  const int64_t count_;
  const int64_t range_;
  std::atomic<int64_t> next_{0};
  std::mutex error_mutex_;
  std::exception_ptr error_;
  int64_t error_begin_ = 0;
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
  // their pool may be locked for ever: it leaves that copy alone and takes a pool of its own.
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

  // Runs the job with up to `num_helpers` of the pool's threads.
  void run(Job& job, int num_helpers) {
    int num_to_wake;
    {
      const std::lock_guard lock(mutex_);
      num_helpers = start_threads(num_helpers);
      if (num_helpers > 0) link(job, num_helpers);
      num_to_wake = std::min(num_helpers - num_spinning_, num_sleeping_);
    }
    for (int i = 0; i < num_to_wake; ++i) work_.notify_one();

    in_body = true;
    job.work();
    in_body = false;

    {
      const std::lock_guard lock(mutex_);
      if (job.num_places > 0) unlink(job);
    }
    const auto all_left = [&job] { return job.num_helping.load(std::memory_order_acquire) == 0; };
    if (!spin_until(all_left)) {
      std::unique_lock lock(mutex_);
      ++num_waiting_;
      left_.wait(lock, all_left);
      --num_waiting_;
    }
  }

 private:
  Pool(pid_t pid, const Pool* parent) : pid_(pid), parent_(parent) {}

  // Called with the mutex. Returns how many of the wanted threads there are.
  int start_threads(int num_wanted) {
    if (num_wanted <= num_threads_) return num_wanted;
    const SignalsBlocked signals_blocked;
    try {
      while (num_threads_ < num_wanted) {
        std::thread([this] { serve(); }).detach();
        ++num_threads_;
      }
    } catch (const std::system_error&) {
      // The system gives no more threads; those that run, and the caller, do the work.
    }
    return std::min(num_wanted, num_threads_);
  }

  void link(Job& job, int num_places) {
    job.num_places = num_places;
    Job** last = &first_job_;
    while (*last != nullptr) last = &(*last)->next_job;
    *last = &job;
    num_places_.fetch_add(num_places, std::memory_order_relaxed);
  }

  void unlink(Job& job) {
    Job** link = &first_job_;
    while (*link != &job) link = &(*link)->next_job;
    *link = job.next_job;
    num_places_.fetch_sub(job.num_places, std::memory_order_relaxed);
    job.num_places = 0;
  }

  // Called with the mutex. The oldest job with a free place, or null.
  Job* join() {
    Job* const job = first_job_;
    if (job == nullptr) return nullptr;
    job->num_helping.fetch_add(1, std::memory_order_relaxed);
    num_places_.fetch_sub(1, std::memory_order_relaxed);
    if (--job->num_places == 0) first_job_ = job->next_job;
    return job;
  }

  // The life of a pool thread.
  void serve() {
    in_body = true;
    std::unique_lock lock(mutex_);
    for (;;) {
      Job* job = join();
      if (job == nullptr) {
        ++num_spinning_;
        lock.unlock();
        spin_until([this] { return num_places_.load(std::memory_order_relaxed) > 0; });
        lock.lock();
        --num_spinning_;
        ++num_sleeping_;
        work_.wait(lock, [this, &job] { return (job = join()) != nullptr; });
        --num_sleeping_;
      }
      lock.unlock();
      job->work();
      lock.lock();
      // The job may be gone once it counts no helper.
      job->num_helping.fetch_sub(1, std::memory_order_release);
      if (num_waiting_ > 0) left_.notify_all();
    }
  }

  static std::atomic<Pool*> current_;

  const pid_t pid_;
  const Pool* const parent_;  // abandoned; reachable, so that leak checkers see it
  std::mutex mutex_;
  std::condition_variable work_;  // places to take
  std::condition_variable left_;  // a helper left its job
  std::atomic<int> num_places_{0};
  // Guarded by the mutex
  Job* first_job_ = nullptr;
  int num_threads_ = 0;
  int num_spinning_ = 0;
  int num_sleeping_ = 0;
  int num_waiting_ = 0;
};

std::atomic<Pool*> Pool::current_{nullptr};

void run_here(int64_t count, const RangeBody& body) {
  const FloatEnv float_env;
  body(0, count);
  order_streaming_stores();
}

}  // namespace

void parallel_for(int64_t count, int64_t min_per_thread, RangeBody body) {
  if (count <= 0) return;
  min_per_thread = std::max<int64_t>(min_per_thread, 1);
  const int64_t num_worthwhile = count / min_per_thread;
  if (num_worthwhile < 2 || in_body) return run_here(count, body);
  const int64_t num_threads = std::min<int64_t>(get_num_threads(), num_worthwhile);
  if (num_threads < 2) return run_here(count, body);

  const int64_t num_ranges = num_threads * kRangesPerThread;
  Job job(body, count, std::max((count - 1) / num_ranges + 1, min_per_thread / 4));
  Pool::get().run(job, static_cast<int>(num_threads) - 1);
  job.rethrow();
}

}  // namespace tilekernels::cpu
