// topk_sum_and_topk_group_idx on CUDA: a warp a few rows, if lanes have four scores each of finite
// rows (warp_rows); or a warp a row, whatever its shape and scores (any_row).
#include "ops/moe/topk_sum_and_topk_group_idx/op.h"
#include "ops/moe/topk_sum_and_topk_group_idx/tile.h"
#include "runtime/cuda/device/fault.cuh"
#include "runtime/cuda/device/grid.cuh"
#include "runtime/cuda/device/math.cuh"
#include "runtime/cuda/device/memory.cuh"
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

// A few lanes find the two best scores of a group, several groups at a time; then a lane a group
// counts those that rank before its own.
inline void any_row(const TopkSumAndTopkGroupIdxArgs& args, int64 token) {
  const auto lane = static_cast<int32>(device::lane_id());
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
  __syncwarp();  // what warp_rows stored comes before
  if (lane < kGroups && rank < kShape.num_topk_groups) {
    args.group_idx[token * kShape.num_topk_groups + rank] = lane;
  }
}

// `lowest` takes the smallest one in.
inline device::TopTwo best_of(const device::Words<16>& part, float& lowest) {
  float x[4];
#pragma unroll
  for (int32 i = 0; i < 4; ++i) x[i] = numerics::bit_cast<float>(part.words[i]);
  const float low = fminf(x[0], x[1]);
  const float other_low = fminf(x[2], x[3]);
  lowest = fminf(lowest, fminf(low, other_low));
  return device::merged({device::max_or_nan(x[0], x[1]), low},
                        {device::max_or_nan(x[2], x[3]), other_low});
}

// Every lane has four scores of as many groups as there are steps and rows. By shuffles that halve
// their number the lanes of a group come to have one group of one row each, or the same one.
struct WarpRows {
  static constexpr int32 kRows = numerics::max_of(kTile.rows, 1);
  static constexpr int32 kSteps = numerics::max_of(parts_of_row(kShape) / device::kWarpLanes, 1);
  static constexpr int32 kGroupLanes = kSize / 4;
  // Bits of the lane, lowest first: of its row, of its step from the highest bit on, unused ones,
  // of its group among those of a step.
  static constexpr int32 kRowBits = numerics::ceil_log2(kRows);
  static constexpr int32 kStepBits = numerics::ceil_log2(kSteps);
  static constexpr int32 kLaneBits = numerics::ceil_log2(kGroupLanes);
  static constexpr int32 kBits = numerics::ceil_log2(kGroups);

  // The bit of the lane that has bit `bit` of its group.
  static constexpr int32 bit_of_lane(int32 bit) {
    const int32 in_step = kBits - kStepBits;
    return bit < in_step ? kLaneBits + bit : kRowBits + kStepBits - 1 - (bit - in_step);
  }
};

// From the key of the lane's own group.
inline void store_groups(const TopkSumAndTopkGroupIdxArgs& args, int64 first_token, int32 rows,
                         int32 key) {
  using W = WarpRows;
  const auto lane = static_cast<int32>(device::lane_id());
  int32 row = 0;
#pragma unroll
  for (int32 bit = 0; bit < W::kRowBits; ++bit) {
    row |= (lane >> bit & 1) << (W::kRowBits - 1 - bit);
  }
  int32 group = 0;
#pragma unroll
  for (int32 bit = 0; bit < W::kBits; ++bit) group |= (lane >> W::bit_of_lane(bit) & 1) << bit;
  int32 rank = 0;
#pragma unroll
  for (int32 change = 1; change < kGroups; ++change) {
    int32 lanes = 0;
    int32 highest = 0;
#pragma unroll
    for (int32 bit = 0; bit < W::kBits; ++bit) {
      if ((change >> bit & 1) == 0) continue;
      lanes |= 1 << W::bit_of_lane(bit);
      highest = bit;
    }
    // Of equal keys the lower group is first: the one without the highest of the changed bits.
    rank += __shfl_xor_sync(device::kAllLanes, key, lanes) > key - (group >> highest & 1);
  }
  if (row < rows && rank < kShape.num_topk_groups) {
    args.group_idx[(first_token + row) * kShape.num_topk_groups + rank] = group;
  }
}

inline void warp_rows(const TopkSumAndTopkGroupIdxArgs& args, int64 first_token) {
  using W = WarpRows;
  const auto lane = static_cast<int32>(device::lane_id());
  const int32 rows =
      W::kRows == 1
          ? 1
          : static_cast<int32>(numerics::min_of(int64{W::kRows}, args.num_tokens - first_token));
  device::Words<16> parts[W::kRows * W::kSteps];
#pragma unroll
  for (int32 i = 0; i < W::kRows * W::kSteps; ++i) {
    const int32 row = numerics::min_of(i / W::kSteps, rows - 1);  // the last one for absent ones
    parts[i] = device::load<16>(args.scores + (first_token + row) * (kGroups * kSize) +
                                (i % W::kSteps * device::kWarpLanes + lane) * 4);
  }
  device::TopTwo best[W::kRows * W::kSteps];
  float lowest = numerics::kFloatMax;
#pragma unroll
  for (int32 i = 0; i < W::kRows * W::kSteps; ++i) best[i] = best_of(parts[i], lowest);
    // The highest bit of i, which is one of the row, goes to the lowest bit of the lane.
#pragma unroll
  for (int32 bit = 0; bit < W::kRowBits + W::kStepBits; ++bit) {
    const int32 half = W::kRows * W::kSteps >> (bit + 1);
    const bool is_upper = (lane >> bit & 1) != 0;
#pragma unroll
    for (int32 i = 0; i < half; ++i) {
      const device::TopTwo kept = is_upper ? best[half + i] : best[i];
      const device::TopTwo given = is_upper ? best[i] : best[half + i];
      best[i] = device::merged(kept, {__shfl_xor_sync(device::kAllLanes, given.first, 1 << bit),
                                      __shfl_xor_sync(device::kAllLanes, given.second, 1 << bit)});
    }
  }
#pragma unroll
  for (int32 bit = W::kRowBits + W::kStepBits; bit < W::kLaneBits; ++bit) {
    best[0] =
        device::merged(best[0], {__shfl_xor_sync(device::kAllLanes, best[0].first, 1 << bit),
                                 __shfl_xor_sync(device::kAllLanes, best[0].second, 1 << bit)});
  }
  const float value = kShape.num_topk_sum == 1 ? best[0].first : best[0].first + best[0].second;
  store_groups(args, first_token, rows, numerics::topk_key_of_number(value));

  // Rows that are not finite, and those beside them, are stored again.
  const bool is_bad = !numerics::is_finite(best[0].first) || lowest < -numerics::kFloatMax;
  if (!__any_sync(device::kAllLanes, is_bad)) return;
#pragma unroll 1
  for (int32 row = 0; row < rows; ++row) any_row(args, first_token + row);
}

inline void topk_sum_and_topk_group_idx(const TopkSumAndTopkGroupIdxArgs& args) {
  constexpr int32 kRows = numerics::max_of(kTile.rows, 1);
  const int64 token =
      (int64{blockIdx.x} * (blockDim.x / device::kWarpLanes) + threadIdx.x / device::kWarpLanes) *
      kRows;
  if (token >= args.num_tokens) return;
  device::wait_for_predecessor();
  if constexpr (kTile.rows > 0) {
    warp_rows(args, token);
  } else {
    any_row(args, token);
  }
}

}  // namespace tilekernels

// With rows of finite scores in registers, 80 of them a thread.
extern "C" __global__ void __launch_bounds__(256, tilekernels::kTile.rows > 1 ? 3 : 1)
    topk_sum_and_topk_group_idx_kernel(
        const __grid_constant__ tilekernels::TopkSumAndTopkGroupIdxArgs args) {
  tilekernels::topk_sum_and_topk_group_idx(args);
}
