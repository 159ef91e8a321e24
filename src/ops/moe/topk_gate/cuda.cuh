// topk_gate on CUDA: a warp a row. The kTopk-th largest of the lanes' maxima leaves few candidates;
// each counts those that rank before it, which is its place in the result. Of a row that has its
// multiprocessor for itself the experts are selected one after the other.
#include "ops/moe/common.h"
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
constexpr int32 kRoom = device::candidate_room(kTopk);
constexpr int32 kFew = device::few_candidates(kTopk);
// Of a row alone; with more of either the loop takes longer than ranking.
constexpr bool kIsInTurn = kTile.rows == 1 && kTopk <= 8 && kLoads * kWidth <= 16;

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

// Any row.
inline void select_of_any_row(const float* row, int64* topk_idx) {
  const uint32 expert = device::select_of_any_row<kTopk>(
      kExperts, [&](uint32 e) { return numerics::topk_key(row[e]); });
  if (device::lane_id() < kTopk) topk_idx[device::lane_id()] = expert;
}

// Puts the elements that reach the threshold among the candidates; returns how many there are, or,
// if there is no room for them, any larger number than there is room for.
inline int32 gather_candidates(const float* row, const Scores* held, float threshold,
                               device::Candidates<kRoom>& candidates) {
  constexpr int32 kBlock = numerics::min_of(kLoads, 32 / kWidth);
  int32 count = 0;
#pragma unroll 1
  for (int32 first = 0; first < kLoads; first += kBlock) {
    float scores[kBlock][kWidth];
    uint32 mask = 0;  // a bit an element
#pragma unroll
    for (int32 i = 0; i < kBlock; ++i) {
      if (kLoads % kBlock != 0 && first + i >= kLoads) break;
      const Scores loaded = kIsHeld ? held[i] : load(row, first + i);
#pragma unroll
      for (int32 j = 0; j < kWidth; ++j) {
        const bool exists =
            kExperts % kStep == 0 || first_expert(static_cast<uint32>(first + i)) + j < kExperts;
        scores[i][j] = score(loaded, j);
        if (scores[i][j] >= threshold && exists) mask |= 1u << (i * kWidth + j);
      }
    }
    count = device::add_candidates(candidates, count, scores, mask,
                                   first_expert(static_cast<uint32>(first)), kStep);
    if (count > kRoom) return count;
  }
  return count;
}

inline void topk_gate(const TopkGateArgs& args) {
  __shared__ device::Candidates<kRoom> all_candidates[kTile.rows];
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
  float zeros[kWidth];  // NaN as soon as a score is not finite
  float maxima[kWidth];
  const Scores first = kIsHeld ? held[0] : load(row, 0);
#pragma unroll
  for (int32 j = 0; j < kWidth; ++j) {
    zeros[j] = score(first, j) * 0.0f;
    maxima[j] = score(first, j);
  }
#pragma unroll(kIsHeld ? kLoads : 4)
  for (int32 i = 1; i < kLoads; ++i) {
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
    return select_of_any_row(row, topk_idx);
  }

  if constexpr (kIsInTurn) {
    float values[kLoads][kWidth];
#pragma unroll
    for (int32 i = 0; i < kLoads; ++i) {
#pragma unroll
      for (int32 j = 0; j < kWidth; ++j) values[i][j] = score(held[i], j);
    }
    const uint32 expert = device::select_held<kTopk>(values, first_expert(0), kStep);
    if (lane < kTopk) topk_idx[lane] = expert;
    return;
  }
  device::Candidates<kRoom>& candidates = all_candidates[warp];
  // NaN if there are fewer than kTopk different maxima
  const float threshold = device::topk_threshold<kTopk>(lane_max);
  const int32 count = gather_candidates(row, held, threshold, candidates);
  // Many equal scores; or, if none reaches a NaN threshold, many equal maxima.
  if (count > kRoom || count < kTopk) return select_of_any_row(row, topk_idx);
  device::rank_candidates<kTopk, kFew>(candidates, count,
                                       [&](int32 rank, uint32 expert) { topk_idx[rank] = expert; });
}

}  // namespace tilekernels

extern "C" __global__ void __launch_bounds__(tilekernels::kTile.rows * 32)
    topk_gate_kernel(const __grid_constant__ tilekernels::TopkGateArgs args) {
  tilekernels::topk_gate(args);
}
