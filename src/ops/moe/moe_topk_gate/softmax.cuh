// moe_topk_gate on CUDA: what softmax takes of a whole row.
#pragma once

#include "numerics/topk_key.h"
#include "ops/moe/moe_topk_gate/room.cuh"
#include "ops/moe/moe_topk_gate/scores.cuh"
#include "runtime/cuda/device/math.cuh"
#include "runtime/cuda/device/row_sum.cuh"

namespace tilekernels {

// Loads with partial sums of their own.
constexpr int32 kBlockLoads = numerics::min_of(kLoads, numerics::kRowPartials / kStep);

// Largest logit and sum of exponentials; `kIsRegular`: all logits are finite.
template <bool kIsRegular>
inline void add_up(Row& row, const Scores* held) {
  int32 key = numerics::kTopkTaken;
  if constexpr (kIsRegular) {
    float largest = -kInf;
#pragma unroll(kHeld)
    for (int32 i = 0; i < kLoads; ++i) {
      const Scores logits = kIsHeld ? held[i] : load(row.logits, i);
      if (!exists(i)) continue;
#pragma unroll
      for (int32 j = 0; j < kWidth; ++j) largest = fmaxf(largest, number(logits, j));
    }
    key = numerics::topk_key_of_number(largest);
  } else {
#pragma unroll 1
    for (uint32 e = device::lane_id(); e < kExperts; e += device::kWarpLanes) {
      key = numerics::max_of(key, numerics::topk_key(row.logits[e]));
    }
  }
  key = __reduce_max_sync(device::kAllLanes, key);
  row.largest =
      key == numerics::kTopkNan ? numerics::kCanonicalNan : numerics::number_of_topk_key(key);

  float partials[kBlockLoads][kWidth] = {};
#pragma unroll 1
  for (int32 first = 0; first < kLoads; first += kBlockLoads) {
#pragma unroll
    for (int32 i = 0; i < kBlockLoads; ++i) {
      if (kLoads % kBlockLoads != 0 && first + i >= kLoads) break;
      if (!exists(first + i)) continue;
      const Scores logits = kIsHeld && kIsRegular ? held[i] : load(row.logits, first + i);
#pragma unroll
      for (int32 j = 0; j < kWidth; ++j) {
        const float x = number(logits, j) - row.largest;
        partials[i][j] += kIsRegular ? device::exp_of_small(x) : numerics::exp_f32(x);
      }
    }
  }
  row.sum = device::sum_partials(partials);
}

}  // namespace tilekernels
