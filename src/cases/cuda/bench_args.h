// What the kernels of the device bench take. Device-safe.
#pragma once

#include "numerics/types.h"

namespace tilekernels::cases {

// 16 bytes, what one instruction moves.
struct alignas(16) BenchWord {
  uint32 part[4];
};

struct BenchCopyArgs {
  const BenchWord* from;
  BenchWord* to;
  int64 num_words;
};
struct BenchCopyShape {
  int32 threads;
  int32 words;       // a thread has in flight
  int32 streaming;   // no place in L1, first to leave L2
  int32 persistent;  // blocks walk over the words, else each has its own
};

struct BenchFlushArgs {
  const BenchWord* from;
  uint32* sum;
  int64 num_words;
};
struct BenchFlushShape {
  int32 threads;
  int32 words;
};

struct BenchEmptyArgs {
  int64 unused;
};
struct BenchEmptyShape {
  int32 threads;
};

}  // namespace tilekernels::cases
