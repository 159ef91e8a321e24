// A small kernel in the form of an op's cuda.cuh: it includes numerics/, takes its Shape and Tile
// as constants, stores converted values and reports faults.
#include "numerics/fault.h"
#include "numerics/formats.h"
#include "numerics/scaling.h"
#include "numerics/sf_layout.h"
#include "numerics/topk_key.h"
#include "numerics/types.h"

namespace tilekernels {

struct SampleShape {
  int32 hidden;
  int32 dtype;
};
struct SampleTile {
  int32 threads;
};
struct SampleArgs {
  const float* x;
  uint8* out;
  int64 num_rows;
  uint64* fault;
};

constexpr SampleShape kShape = TILEKERNELS_SHAPE;
constexpr SampleTile kTile = TILEKERNELS_TILE;
constexpr bool kPdl = TILEKERNELS_PDL;

extern "C" __global__ void __launch_bounds__(kTile.threads)
    sample_kernel(const __grid_constant__ SampleArgs args) {
  __shared__ float row[kTile.threads];
  if constexpr (kPdl) asm volatile("griddepcontrol.wait;" ::: "memory");
  const int64 first = static_cast<int64>(blockIdx.x) * kShape.hidden;
  for (int32 i = static_cast<int32>(threadIdx.x); i < kShape.hidden; i += kTile.threads) {
    const float value = args.x[first + i];
    row[threadIdx.x] = value;
    if (!numerics::is_finite(value)) {
      atomicMin(reinterpret_cast<unsigned long long*>(args.fault),
                numerics::fault_word(blockIdx.x, 1, numerics::kFaultNotFinite));
    }
    args.out[first + i] = numerics::f32_to_e4m3(row[threadIdx.x]);
  }
}

}  // namespace tilekernels
