// moe_topk_gate on CUDA: a row, and how its experts lie on the lanes of a warp.
#pragma once

#include "ops/moe/moe_topk_gate/op.h"
#include "ops/moe/moe_topk_gate/tile.h"
#include "runtime/cuda/device/memory.cuh"
#include "runtime/cuda/device/warp.cuh"

namespace tilekernels {

constexpr MoeTopkGateShape kShape = TILEKERNELS_SHAPE;
constexpr MoeTopkGateTile kTile = TILEKERNELS_TILE;

constexpr int32 kExperts = kShape.num_experts;
constexpr int32 kTopk = kShape.num_topk;
constexpr int32 kSlots = kTopk + kShape.num_shared;
constexpr int32 kLogical = kExperts + kShape.num_shared;
constexpr bool kIsSoftmax = kShape.scoring == kScoringSoftmax;
constexpr bool kIsSigmoid = kShape.scoring == kScoringSigmoid;
constexpr bool kHasBias = kShape.has_bias || kShape.has_image_bias;

constexpr int32 kWidth = kTile.width;
constexpr int32 kStep = kWidth * device::kWarpLanes;
constexpr int32 kLoads = static_cast<int32>(numerics::ceil_div(kExperts, kStep));
// Longer rows are loaded again for every look.
constexpr bool kIsHeld = kExperts <= kMaxHeldExperts;
constexpr int32 kHeld = kIsHeld ? kLoads : 1;

// A row that has its multiprocessor for itself: few steps one after the other rather than few
// instructions.
constexpr bool kIsAlone = kTile.rows == 1;
constexpr int32 kGroups = kShape.num_groups;
// The first look at a row takes the exact scores of all; where there is room they stay in shared
// memory, so that none is taken twice.
constexpr bool kIsExact =
    !kIsSoftmax && ((kIsAlone && kIsHeld) || kShape.has_scores || kGroups > 0);
constexpr int32 kMaxKeptExperts = 512;  // of rows that share a block's static shared memory
constexpr bool kIsKept = kIsExact && kIsHeld && (kIsAlone || kExperts <= kMaxKeptExperts);
constexpr int32 kGroupSize = kGroups > 0 ? kExperts / kGroups : 1;
constexpr int32 kGroupLanes = numerics::max_of(kGroupSize / kWidth, 1);
// A group is some neighbouring lanes of one load; or of several, over which it goes on.
constexpr bool kGroupsAreLanes = kIsHeld && kGroupSize % kWidth == 0 && kGroupSize <= kStep &&
                                 (kGroupSize & (kGroupSize - 1)) == 0;
constexpr bool kGroupsAreRuns =
    kGroups > 0 && kIsHeld && !kGroupsAreLanes && kGroupSize % kWidth == 0 && kLoads <= 8;

constexpr float kInf = numerics::bit_cast<float>(numerics::kInfBits);

using Scores = device::Words<kWidth * 4>;

// Where a row lies, and what softmax takes of all its logits.
struct Row {
  const float* logits;
  const float* bias;  // may be null
  int64 token;
  float largest;  // logit, and the sum of exponentials
  float sum;
};

inline bool has_bias(const Row& row) {
  return kShape.has_bias || (kShape.has_image_bias && row.bias != nullptr);
}

// The first expert of load `i` of this lane.
inline uint32 first_expert(uint32 i) { return i * kStep + device::lane_id() * kWidth; }

inline bool exists(uint32 i) {
  return kExperts % kStep == 0 || first_expert(i) < static_cast<uint32>(kExperts);
}

// A row in the registers of a warp, or one load of it at a time.
struct Held {
  Scores logits[kHeld];
  Scores bias[kHeld];
  float z[kHeld][kWidth];
  float scores[kHeld][kWidth];
};

inline float number(const Scores& scores, int32 j) {
  return numerics::bit_cast<float>(scores.words[j]);
}

// Experts beyond the row read as 0.
inline Scores load(const float* row, uint32 i) {
  if (exists(i)) return device::load<kWidth * 4>(row + first_expert(i));
  return {};
}

inline Scores load_bias(const Row& row, uint32 i) {
  if (has_bias(row)) return load(row.bias, i);
  return {};
}

inline void load_logits(const Row& row, Held& held) {
#pragma unroll
  for (uint32 i = 0; i < kHeld; ++i) held.logits[i] = load(row.logits, i);
}

inline void load_biases(const Row& row, Held& held) {
#pragma unroll
  for (uint32 i = 0; i < kHeld; ++i) held.bias[i] = load_bias(row, i);
}

}  // namespace tilekernels
