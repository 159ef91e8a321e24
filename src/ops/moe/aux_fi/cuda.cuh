// aux_fi on CUDA.
#include "ops/moe/histogram.cuh"

extern "C" __global__ void __launch_bounds__(tilekernels::kTile.threads)
    aux_fi_kernel(const __grid_constant__ tilekernels::HistogramArgs args) {
  tilekernels::histogram(args);
}
