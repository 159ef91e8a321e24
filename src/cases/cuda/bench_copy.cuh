// The yardstick: a copy, 16 bytes an instruction.
#include "cases/cuda/bench_args.h"

namespace tilekernels::cases {

constexpr BenchCopyShape kShape = TILEKERNELS_SHAPE;

inline BenchWord load(const BenchWord* from) {
  BenchWord w;
  if constexpr (kShape.streaming != 0) {
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w.part[0]), "=r"(w.part[1]), "=r"(w.part[2]), "=r"(w.part[3])
                 : "l"(from));
  } else {
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w.part[0]), "=r"(w.part[1]), "=r"(w.part[2]), "=r"(w.part[3])
                 : "l"(from));
  }
  return w;
}

inline void store(BenchWord* to, const BenchWord& w) {
  if constexpr (kShape.streaming != 0) {
    asm volatile("st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(w.part[0]),
                 "r"(w.part[1]), "r"(w.part[2]), "r"(w.part[3])
                 : "memory");
  } else {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(w.part[0]),
                 "r"(w.part[1]), "r"(w.part[2]), "r"(w.part[3])
                 : "memory");
  }
}

extern "C" __global__ void __launch_bounds__(kShape.threads)
    bench_copy_kernel(const __grid_constant__ BenchCopyArgs args) {
  constexpr int32 kChunk = kShape.threads * kShape.words;
  const int64 step = static_cast<int64>(gridDim.x) * kChunk;
  int64 first = static_cast<int64>(blockIdx.x) * kChunk;
  do {
    const int64 at = first + threadIdx.x;
    BenchWord words[kShape.words];
    if (first + kChunk <= args.num_words) {
#pragma unroll
      for (int32 i = 0; i < kShape.words; ++i) words[i] = load(args.from + at + i * kShape.threads);
#pragma unroll
      for (int32 i = 0; i < kShape.words; ++i) store(args.to + at + i * kShape.threads, words[i]);
    } else {
      for (int64 i = at; i < args.num_words; i += kShape.threads) {
        store(args.to + i, load(args.from + i));
      }
    }
    first += step;
  } while (kShape.persistent != 0 && first < args.num_words);
}

}  // namespace tilekernels::cases
