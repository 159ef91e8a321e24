// What orders the pipes of a kernel: rings of UB buffers that own their mutexes, the pipeline over
// them, and for what is not in a ring a wait of one pipe for another.
//
// Every slot has one mutex. Whoever works on the slot holds it, so that a buffer is read after it
// was filled and filled again after it was read, on whatever pipe.
#pragma once

#include "runtime/ascend/vector_core.h"

namespace tilekernels::ascend {

constexpr int32 kMaxDepth = 8;  // slots of a ring

/// Pipe kTo goes on when all that kFrom was given so far is done. Waits of one pair of pipes that
/// may be under way at once take different flags `id`.
template <Pipe kFrom, Pipe kTo>
TILEKERNELS_CORE void wait_for(int32 id = 0) {
  set_flag<kFrom, kTo>(id);
  wait_flag<kFrom, kTo>(id);
}

/// Hands out the mutex ids of a kernel.
struct MutexPool {
  int32 next = 0;
};

/// Slots that `kFirst` fills and `kSecond` empties, both in the order of their calls.
template <class T, Pipe kFirst, Pipe kSecond>
class Ring {
 public:
  /// A ring of no slots is for a kernel that has no use for it.
  TILEKERNELS_CORE Ring(MutexPool& pool, const char* name, int32 depth, int64 elements,
                        int32 readable_tail_bytes = kVectorBytes)
      : depth_(depth) {
    for (int32 i = 0; i < depth; ++i) slots_[i] = ub_alloc<T>(name, elements, readable_tail_bytes);
    mutex_ = pool.next;
    pool.next += depth;
  }

  /// The slot to be filled, the first pipe's until `filled`.
  TILEKERNELS_CORE Ub<T> fill() {
    lock<kFirst>(mutex_ + filling_);
    return slots_[filling_];
  }
  TILEKERNELS_CORE void filled() {
    unlock<kFirst>(mutex_ + filling_);
    filling_ = filling_ + 1 == depth_ ? 0 : filling_ + 1;
  }
  /// The oldest filled slot, the second pipe's until `emptied`.
  TILEKERNELS_CORE Ub<T> empty() {
    lock<kSecond>(mutex_ + emptying_);
    return slots_[emptying_];
  }
  /// The slot after it, for a second pipe that works on two: `emptied` then leaves it locked, as
  /// the oldest.
  TILEKERNELS_CORE Ub<T> empty_next() {
    const int32 next = emptying_ + 1 == depth_ ? 0 : emptying_ + 1;
    lock<kSecond>(mutex_ + next);
    return slots_[next];
  }
  TILEKERNELS_CORE void emptied() {
    unlock<kSecond>(mutex_ + emptying_);
    emptying_ = emptying_ + 1 == depth_ ? 0 : emptying_ + 1;
  }

 private:
  Ub<T> slots_[kMaxDepth];
  int32 depth_;
  int32 mutex_;
  int32 filling_ = 0;
  int32 emptying_ = 0;
};

/// Copies in fill, vector functions empty.
template <class T>
using InRing = Ring<T, Pipe::kMte2, Pipe::kV>;
/// Vector functions fill, copies out empty.
template <class T>
using OutRing = Ring<T, Pipe::kV, Pipe::kMte3>;

/// Runs load(i) and compute(i) for i = first, first + step, … < end, the loads `stages` - 1 items
/// ahead. The rings that loads fill have at least `stages` slots.
template <class Load, class Compute>
TILEKERNELS_CORE void pipeline(int32 stages, int64 first, int64 end, int64 step, const Load& load,
                               const Compute& compute) {
  int64 loading = first;
  for (int64 i = first; i < end; i += step) {
    for (; loading < end && loading < i + stages * step; loading += step) load(loading);
    compute(i);
  }
}

/// The mask of the lowest `count` lanes.
template <class T>
TILEKERNELS_CALLEE Mask prefix(uint32 count) {
  return plt<T>(count);
}

}  // namespace tilekernels::ascend
