// per_token_cast on CUDA.
#include "ops/quant/cast.cuh"

extern "C" __global__ void __launch_bounds__(tilekernels::kTile.threads,
                                             tilekernels::kTile.min_blocks)
    per_token_cast_kernel(const __grid_constant__ tilekernels::CastArgs args) {
  tilekernels::cast_blocks(args);
}
