// topk_sum_and_topk_group_idx on CUDA: a warp a row. A few lanes find the two best scores of a
// group, several groups at a time; then a lane a group counts those that rank before its own.
#include "ops/moe/topk_sum_and_topk_group_idx/op.h"
#include "ops/moe/topk_sum_and_topk_group_idx/tile.h"
#include "runtime/cuda/device/fault.cuh"
#include "runtime/cuda/device/grid.cuh"
#include "runtime/cuda/device/topk.cuh"

namespace tilekernels {

constexpr TopkSumAndTopkGroupIdxShape kShape = TILEKERNELS_SHAPE;
constexpr TopkSumAndTopkGroupIdxTile kTile = TILEKERNELS_TILE;

constexpr int32 kGroups = kShape.num_groups;
constexpr int32 kSize = kShape.group_size;
constexpr int32 kLanes = kTile.lanes;
constexpr int32 kGroupsAtOnce = device::kWarpLanes / kLanes;
constexpr int32 kPasses = static_cast<int32>(numerics::ceil_div(kGroups, kGroupsAtOnce));

struct Best {
  int32 first = numerics::kTopkTaken;
  int32 second = numerics::kTopkTaken;
};

inline void merge(Best& best, int32 first, int32 second) {
  best.second =
      numerics::max_of(numerics::min_of(best.first, first), numerics::max_of(best.second, second));
  best.first = numerics::max_of(best.first, first);
}

// The key of a group, in all of its lanes; kTopkTaken of a group that is not there.
inline int32 key_of_group(const float* row, int32 group, int32 lane, bool& is_bad) {
  Best best;
  if (group < kGroups) {
    const float* scores = row + group * int64{kSize};
#pragma unroll 8
    for (int32 i = lane; i < kSize; i += kLanes) {
      const float score = scores[i];
      is_bad |= !numerics::is_finite(score);
      merge(best, numerics::topk_key(score), numerics::kTopkTaken);
    }
  }
#pragma unroll
  for (int32 step = kLanes / 2; step > 0; step /= 2) {
    const int32 first = __shfl_xor_sync(device::kAllLanes, best.first, step);
    const int32 second = __shfl_xor_sync(device::kAllLanes, best.second, step);
    merge(best, first, second);
  }
  if (group >= kGroups) return numerics::kTopkTaken;
  return group_key(best.first, best.second, kShape.num_topk_sum);
}

inline void topk_sum_and_topk_group_idx(const TopkSumAndTopkGroupIdxArgs& args) {
  const auto lane = static_cast<int32>(device::lane_id());
  const int64 token =
      int64{blockIdx.x} * (blockDim.x / device::kWarpLanes) + threadIdx.x / device::kWarpLanes;
  if (token >= args.num_tokens) return;
  device::wait_for_predecessor();
  const float* row = args.scores + token * kGroups * kSize;
  bool is_bad = false;
  int32 key = numerics::kTopkTaken;  // of the group of this lane's number
#pragma unroll
  for (int32 pass = 0; pass < kPasses; ++pass) {
    const int32 first = pass * kGroupsAtOnce;
    const int32 found = key_of_group(row, first + lane / kLanes, lane % kLanes, is_bad);
    const int32 from = (lane - first) * kLanes;
    const int32 mine = __shfl_sync(device::kAllLanes, found, from & (device::kWarpLanes - 1));
    if (lane >= first && lane < first + kGroupsAtOnce) key = mine;
  }
  if (__any_sync(device::kAllLanes, is_bad) && lane == 0) {
    device::note_fault(args.fault, token, kTopkSumAndTopkGroupIdxId, numerics::kFaultNotFinite);
  }
  const int32 rank = device::rank_among_lanes<kGroups>(key);
  if (lane < kGroups && rank < kShape.num_topk_groups) {
    args.group_idx[token * kShape.num_topk_groups + rank] = lane;
  }
}

}  // namespace tilekernels

extern "C" __global__ void __launch_bounds__(128) topk_sum_and_topk_group_idx_kernel(
    const __grid_constant__ tilekernels::TopkSumAndTopkGroupIdxArgs args) {
  tilekernels::topk_sum_and_topk_group_idx(args);
}
