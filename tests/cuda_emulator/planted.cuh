// Kernels with planted faults, and right ones beside them, which the emulator must tell apart. One
// a number, which is the Shape.
#include "numerics/types.h"
#include "runtime/cuda/device/memory.cuh"
#include "runtime/cuda/device/warp.cuh"

namespace tilekernels {

struct PlantedArgs {
  const uint32* x;
  uint32* out;
  int64 count;
};
struct PlantedShape {
  int32 kernel;
};
constexpr PlantedShape kShape = TILEKERNELS_SHAPE;

template <int32 kKernel>
inline void run(const PlantedArgs& args) {
  const uint32 i = threadIdx.x;
  const uint32 lane = device::lane_id();
  __shared__ uint32 held[256];
  if constexpr (kKernel == 0 || kKernel == 1) {  // reversed; 1: without its barrier
    held[i] = args.x[i];
    if constexpr (kKernel == 0) __syncthreads();
    args.out[i] = held[blockDim.x - 1 - i];
  } else if constexpr (kKernel == 2) {  // a barrier that only some reach
    if (i < 40) __syncthreads();
    args.out[i] = i;
  } else if constexpr (kKernel == 3) {  // two barriers that are taken for one
    if (i < 32) {
      __syncthreads();
    } else {
      __syncthreads();
    }
  } else if constexpr (kKernel == 4) {  // one element too far
    args.out[i + 1] = i;
  } else if constexpr (kKernel == 5) {  // 16 bytes at any multiple of 4
    const device::Words<16> words = device::load<16>(args.x + 1);
    args.out[i] = words.words[0];
  } else if constexpr (kKernel == 6) {  // a mask that names lanes which go another way
    if (lane < 16) args.out[i] = __shfl_xor_sync(device::kAllLanes, i, 1);
    __syncwarp();
  } else if constexpr (kKernel == 7) {  // a mask without the own lane
    args.out[i] = __ballot_sync(0xFFFF, 1);
  } else if constexpr (kKernel == 8) {  // a lane that has left
    if (i == 3) return;
    args.out[i] = __ballot_sync(device::kAllLanes, 1);
  } else if constexpr (kKernel == 9 || kKernel == 10) {  // a neighbour's value; 9: unsynchronised
    held[i] = 7;
    __syncwarp();
    held[i] = args.x[i];
    if constexpr (kKernel == 10) __syncwarp();
    args.out[i] = held[i ^ 1];
  } else if constexpr (kKernel == 11) {  // what nobody wrote
    args.out[i] = held[i];
  } else if constexpr (kKernel == 12) {  // the last one wins: depends on the order
    args.out[0] = i;
  } else if constexpr (kKernel == 13) {  // blocks that wait for the next one, and remember
    volatile uint32* const flags = args.out;
    if (i == 0) {
      held[0] = 1 + blockIdx.x;
      if (blockIdx.x + 1 < gridDim.x) {
        while (flags[blockIdx.x + 1] == 0) {
        }
      }
    }
    __syncthreads();
    if (i == 1) flags[blockIdx.x] = held[0];
  } else if constexpr (kKernel == 14) {  // a flag that nobody sets
    while (atomicAdd(args.out, 0) == 0) {
    }
  } else if constexpr (kKernel == 15) {  // histogram
    if (i < 8) held[i] = 0;
    __syncthreads();
    atomicAdd(&held[args.x[i] % 8], 1u);
    __syncthreads();
    if (i < 8) atomicAdd(args.out + i, held[i]);
  } else if constexpr (kKernel == 16 || kKernel == 17) {  // dynamic shared memory; 17: too far
    extern __shared__ __align__(16) uint32 dynamic[];
    dynamic[kKernel == 16 ? i : i + 1] = args.x[i];
    __syncthreads();
    args.out[i] = dynamic[blockDim.x - 1 - i];
  } else if constexpr (kKernel == 18) {  // what the lanes of a warp get from each other
    uint32* const mine = args.out + 12 * i;
    mine[0] = __shfl_sync(device::kAllLanes, i, 5, 8);
    mine[1] = __shfl_up_sync(device::kAllLanes, i, 3, 16);
    mine[2] = __shfl_down_sync(device::kAllLanes, i, 3, 16);
    mine[3] = __shfl_xor_sync(device::kAllLanes, i, 9);
    mine[4] = __ballot_sync(device::kAllLanes, lane % 3 == 0);
    mine[5] = static_cast<uint32>(__any_sync(device::kAllLanes, lane == 7)) |
              static_cast<uint32>(__all_sync(device::kAllLanes, lane == 7)) << 1;
    mine[6] = __match_any_sync(device::kAllLanes, lane % 5);
    mine[7] = __reduce_add_sync(device::kAllLanes, lane);
    mine[8] =
        static_cast<uint32>(__reduce_min_sync(device::kAllLanes, static_cast<int32>(lane) - 9));
    if (lane < 8) mine[9] = __reduce_max_sync(0xFF, lane);
    if (lane >= 8) mine[9] = __reduce_xor_sync(0xFFFFFF00, lane);
    mine[10] = static_cast<uint32>(__syncthreads_count(i % 2 == 0));
    uint32 lower;
    asm("mov.u32 %0, %%lanemask_lt;" : "=r"(lower));
    mine[11] = lower;
#ifdef TILEKERNELS_TILE
  } else if constexpr (kKernel == 19) {  // an instruction that the emulator does not have
    uint32 d;
    asm("bfind.u32 %0, %1;" : "=r"(d) : "r"(i));
    args.out[i] = d;
#endif
  } else if constexpr (kKernel == 20) {  // a null pointer
    args.out[i] = *reinterpret_cast<const uint32*>(args.count);
  } else if constexpr (kKernel == 22) {  // a shuffle from a lane that the mask leaves out
    if (lane < 16) args.out[i] = __shfl_sync(0xFFFF, i, 20);
  }
}

}  // namespace tilekernels

extern "C" __global__ void __launch_bounds__(256)
    planted_kernel(const __grid_constant__ tilekernels::PlantedArgs args) {
#if TILEKERNELS_PDL
  if (args.count < 0) asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  tilekernels::run<tilekernels::kShape.kernel>(args);
}
