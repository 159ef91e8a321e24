// group_count on CUDA.
#include "ops/moe/histogram.cuh"

extern "C" __global__ void __launch_bounds__(tilekernels::kTile.threads)
    group_count_kernel(const __grid_constant__ tilekernels::HistogramArgs args) {
  tilekernels::histogram(args);
}
