// Nothing: what a launch costs.
#include "cases/cuda/bench_args.h"

namespace tilekernels::cases {

extern "C" __global__ void bench_empty_kernel(const __grid_constant__ BenchEmptyArgs) {}

}  // namespace tilekernels::cases
