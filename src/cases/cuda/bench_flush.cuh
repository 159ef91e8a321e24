// Reads memory larger than the L2, so that nothing of what ran before is left there.
#include "cases/cuda/bench_args.h"

namespace tilekernels::cases {

constexpr BenchFlushShape kShape = TILEKERNELS_SHAPE;

extern "C" __global__ void __launch_bounds__(kShape.threads)
    bench_flush_kernel(const __grid_constant__ BenchFlushArgs args) {
  constexpr int32 kChunk = kShape.threads * kShape.words;
  uint32 sum = 0;
  for (int64 first = static_cast<int64>(blockIdx.x) * kChunk; first + kChunk <= args.num_words;
       first += static_cast<int64>(gridDim.x) * kChunk) {
#pragma unroll
    for (int32 i = 0; i < kShape.words; ++i) {
      const BenchWord w = args.from[first + threadIdx.x + i * kShape.threads];
      sum ^= w.part[0] ^ w.part[1] ^ w.part[2] ^ w.part[3];
    }
  }
  // The memory is zero, so this never writes, which the compiler cannot know.
  if (sum != 0) *args.sum = sum;
}

}  // namespace tilekernels::cases
