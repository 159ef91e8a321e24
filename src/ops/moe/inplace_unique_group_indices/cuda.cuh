// inplace_unique_group_indices on CUDA: an index a lane, rows in groups of lanes.
#include "ops/moe/inplace_unique_group_indices/op.h"
#include "runtime/cuda/device/fault.cuh"
#include "runtime/cuda/device/grid.cuh"
#include "runtime/cuda/device/warp.cuh"

namespace tilekernels {

constexpr InplaceUniqueGroupIndicesShape kShape = TILEKERNELS_SHAPE;

constexpr int32 kTopk = kShape.num_topk;
constexpr int32 kLanes = power_of_two_from(kTopk);  // of a row

inline void inplace_unique_group_indices(const InplaceUniqueGroupIndicesArgs& args) {
  const auto k = static_cast<int32>(threadIdx.x % kLanes);
  const int64 token = int64{blockIdx.x} * (blockDim.x / kLanes) + threadIdx.x / kLanes;
  const bool exists = token < args.num_tokens && k < kTopk;
  int64* const place = args.group_indices + token * kTopk + k;
  device::wait_for_predecessor();
  const int64 index = exists ? *place : -1;
  const bool is_group = static_cast<uint64>(index) < static_cast<uint64>(args.num_groups);
  const int32 group = is_group ? static_cast<int32>(index) : -1;
  bool is_repeated = false;
#pragma unroll
  for (int32 step = 1; step < kTopk; ++step) {
    const int32 before = __shfl_up_sync(device::kAllLanes, group, step);
    is_repeated |= k >= step && before == group;
  }
  if (is_repeated && is_group) *place = -1;
  if (index >= args.num_groups) {
    device::note_fault(args.fault, token, kInplaceUniqueGroupIndicesId,
                       numerics::kFaultIndexOutOfRange);
  }
}

}  // namespace tilekernels

extern "C" __global__ void __launch_bounds__(256) inplace_unique_group_indices_kernel(
    const __grid_constant__ tilekernels::InplaceUniqueGroupIndicesArgs args) {
  tilekernels::inplace_unique_group_indices(args);
}
