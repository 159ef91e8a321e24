// Loops over independent items, on threads of our own.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace tilekernels::cpu {

/// A reference to a callable (int64_t begin, int64_t end); it must outlive the call it is given to.
class RangeBody {
 public:
  template <class Body, class = std::enable_if_t<!std::is_same_v<std::decay_t<Body>, RangeBody>>>
  RangeBody(Body&& body)  // NOLINT: bodies convert at the call
      : body_(const_cast<void*>(static_cast<const void*>(std::addressof(body)))),
        call_([](void* object, int64_t begin, int64_t end) {
          (*static_cast<std::remove_reference_t<Body>*>(object))(begin, end);
        }) {}
  void operator()(int64_t begin, int64_t end) const { call_(body_, begin, end); }

 private:
  void* body_;
  void (*call_)(void*, int64_t, int64_t);
};

/// Calls body(begin, end) on disjoint ranges that cover [0, count), on up to `get_num_threads()`
/// threads, the caller's among them, and returns when all are done. The cut is arbitrary: an
/// item's result must not depend on its range. Bodies run in the environment of `FloatEnv`.
///
/// Args:
///   min_per_thread: items that are worth waking a thread for (see `items_per_thread`). Below
///     twice that many the body runs once, on [0, count), in the caller.
/// May be called by many threads at once, from a body (then it runs in that thread) and in a
/// forked child. A failure to start threads means fewer threads.
/// Errors: rethrows the exception of the lowest range that threw; ranges above it may not run.
void parallel_for(int64_t count, int64_t min_per_thread, RangeBody body);

/// Items that keep one thread busy for about as long as it takes to wake another.
constexpr int64_t items_per_thread(double nanoseconds_per_item) {
  constexpr double kWorthWaking = 20e3;  // nanoseconds; a sleeping thread is up in 5 to 50 µs
  const double items = kWorthWaking / nanoseconds_per_item;
  return items < 1 ? 1 : static_cast<int64_t>(items);
}

}  // namespace tilekernels::cpu
