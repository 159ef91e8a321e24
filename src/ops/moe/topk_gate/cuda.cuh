// topk_gate on CUDA: a warp a row. The kTopk-th largest of the lanes' maxima leaves few candidates;
// each counts those that rank before it, which is its place in the result.
#include "ops/moe/topk_gate/op.h"
#include "ops/moe/topk_gate/tile.h"
#include "runtime/cuda/device/fault.cuh"
#include "runtime/cuda/device/grid.cuh"
#include "runtime/cuda/device/memory.cuh"
#include "runtime/cuda/device/topk.cuh"

namespace tilekernels {

constexpr TopkGateShape kShape = TILEKERNELS_SHAPE;
constexpr TopkGateTile kTile = TILEKERNELS_TILE;

constexpr int32 kExperts = kShape.num_experts;
constexpr int32 kTopk = kShape.num_topk;
constexpr int32 kWidth = kTile.wide ? 4 : 1;  // scores a load
constexpr int32 kStep = kWidth * device::kWarpLanes;
constexpr int32 kLoads = static_cast<int32>(numerics::ceil_div(kExperts, kStep));
// Longer rows are loaded again for the second look.
constexpr bool kIsHeld = kLoads * kWidth <= 32;
constexpr int32 kHeld = kIsHeld ? kLoads : 1;
// Room for candidates: random scores have about kTopk of them, nine in 256 for the top 8.
constexpr int32 kSlots = kTopk <= 8 ? 64 : 192;
constexpr int32 kUnroll = 4;  // of the comparisons

using Scores = device::Words<kWidth * 4>;

// The first expert of load `i` of this lane.
inline uint32 first_expert(uint32 i) { return i * kStep + device::lane_id() * kWidth; }

// Experts beyond the row read as the least finite score.
inline Scores load(const float* row, int32 i) {
  const uint32 first = first_expert(static_cast<uint32>(i));
  if (kExperts % kStep == 0 || first < kExperts) {
    return device::load<kWidth * 4>(row + first);
  }
  Scores scores;
  for (int32 j = 0; j < kWidth; ++j) {
    scores.words[j] = numerics::bit_cast<uint32>(-numerics::kFloatMax);
  }
  return scores;
}

inline float score(const Scores& scores, int32 j) {
  return numerics::bit_cast<float>(scores.words[j]);
}

// Any row: the element that ranks next after the last one, kTopk times.
inline void select_one_by_one(const float* row, int64* topk_idx) {
  uint64 last = ~uint64{0};
#pragma unroll 1
  for (int32 k = 0; k < kTopk; ++k) {
    uint64 next = 0;
#pragma unroll 1
    for (uint32 i = device::lane_id(); i < kExperts; i += device::kWarpLanes) {
      const uint64 ranking = device::ranking(numerics::topk_key(row[i]), i);
      if (ranking < last && ranking > next) next = ranking;
    }
    last = device::warp_max(next);
    if (device::lane_id() == 0) topk_idx[k] = device::ranked_index(last);
  }
}

// Puts the elements that reach the threshold into the slots; returns how many there are, or, if the
// slots do not take them, any larger number than these are.
inline int32 gather_candidates(const float* row, const Scores* held, float threshold,
                               uint64* slots) {
  const uint32 lower_lanes = (1u << device::lane_id()) - 1;
  constexpr int32 kBlock = numerics::min_of(kLoads, 32 / kWidth);  // a bit an element
  int32 count = 0;
#pragma unroll 1
  for (int32 first = 0; first < kLoads; first += kBlock) {
    uint32 mask = 0;
#pragma unroll
    for (int32 i = 0; i < kBlock; ++i) {
      if (kLoads % kBlock != 0 && first + i >= kLoads) break;
      const Scores scores = kIsHeld ? held[i] : load(row, first + i);
#pragma unroll
      for (int32 j = 0; j < kWidth; ++j) {
        const bool exists =
            kExperts % kStep == 0 || first_expert(static_cast<uint32>(first + i)) + j < kExperts;
        if (score(scores, j) >= threshold && exists) mask |= 1u << (i * kWidth + j);
      }
    }
    // One element of each lane that has one left
    while (const uint32 lanes = __ballot_sync(device::kAllLanes, mask != 0)) {
      const int32 slot = count + __popc(lanes & lower_lanes);
      if (mask != 0 && slot < kSlots) {
        const auto bit = static_cast<uint32>(__ffs(static_cast<int32>(mask)) - 1);
        const uint32 expert =
            first_expert(static_cast<uint32>(first) + bit / kWidth) + bit % kWidth;
        slots[slot] = device::ranking(numerics::topk_key_of_number(row[expert]), expert);
      }
      mask &= mask - 1;
      count += __popc(lanes);
      if (count > kSlots) return count;
    }
  }
  return count;
}

inline void topk_gate(const TopkGateArgs& args) {
  __shared__ uint64 all_slots[kTile.max_warps][kSlots + kUnroll];
  const uint32 warp = threadIdx.x / device::kWarpLanes;
  const auto lane = static_cast<int32>(device::lane_id());
  const int64 token = int64{blockIdx.x} * (blockDim.x / device::kWarpLanes) + warp;
  if (token >= args.num_tokens) return;
  device::wait_for_predecessor();
  const float* row = args.scores + token * kExperts;
  int64* topk_idx = args.topk_idx + token * kTopk;

  Scores held[kHeld];
  if constexpr (kIsHeld) {
#pragma unroll
    for (int32 i = 0; i < kLoads; ++i) held[i] = load(row, i);
  }
  // In kWidth parts that do not wait for each other
  float zeros[kWidth] = {};  // NaN as soon as a score is not finite
  float maxima[kWidth];
#pragma unroll
  for (int32 j = 0; j < kWidth; ++j) maxima[j] = -numerics::kFloatMax;
#pragma unroll(kIsHeld ? kLoads : 4)
  for (int32 i = 0; i < kLoads; ++i) {
    const Scores scores = kIsHeld ? held[i] : load(row, i);
#pragma unroll
    for (int32 j = 0; j < kWidth; ++j) {
      zeros[j] = numerics::fma_rn(score(scores, j), 0.0f, zeros[j]);
      maxima[j] = fmaxf(maxima[j], score(scores, j));
    }
  }
  float zero = zeros[0];
  float lane_max = maxima[0];
#pragma unroll
  for (int32 j = 1; j < kWidth; ++j) {
    zero += zeros[j];
    lane_max = fmaxf(lane_max, maxima[j]);
  }
  if (__any_sync(device::kAllLanes, numerics::is_nan(zero))) {
    if (lane == 0) {
      device::note_fault(args.fault, token, kTopkGateId, numerics::kFaultNotFinite);
    }
    return select_one_by_one(row, topk_idx);
  }

  uint64* slots = all_slots[warp];
  const float threshold = device::topk_threshold<kTopk>(lane_max);
  const int32 count = gather_candidates(row, held, threshold, slots);
  // Many equal scores; or, if none reaches a NaN threshold, many equal maxima.
  if (count > kSlots || count < kTopk) return select_one_by_one(row, topk_idx);
  if (lane < kUnroll) slots[count + lane] = 0;
  __syncwarp();
#pragma unroll 1
  for (int32 i = lane; i < count; i += device::kWarpLanes) {
    const uint64 mine = slots[i];
    int32 place = 0;
#pragma unroll 1
    for (int32 other = 0; other < count; other += kUnroll) {
#pragma unroll
      for (int32 k = 0; k < kUnroll; ++k) place += slots[other + k] > mine;
    }
    if (place < kTopk) topk_idx[place] = device::ranked_index(mine);
  }
}

}  // namespace tilekernels

extern "C" __global__ void __launch_bounds__(tilekernels::kTile.max_warps * 32)
    topk_gate_kernel(const __grid_constant__ tilekernels::TopkGateArgs args) {
  tilekernels::topk_gate(args);
}
