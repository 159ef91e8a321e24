// moe_topk_gate on CUDA: exact scores in shared memory, of which each warp of a row takes a share.
#pragma once

#include "ops/moe/moe_topk_gate/room.cuh"
#include "ops/moe/moe_topk_gate/scores.cuh"

namespace tilekernels {

constexpr int32 kThreads = kTile.row_warps * device::kWarpLanes;  // of a row
constexpr int32 kShare = static_cast<int32>(numerics::ceil_div(kExperts, kThreads));

// The experts of a thread, kThreads apart.
struct Share {
  float logits[kShare];
  float bias[kShare];
  float scores[kShare];
};

inline uint32 shared_expert(uint32 i) { return i * kThreads + threadIdx.x; }

inline bool exists_in_share(uint32 i) {
  return kExperts % kThreads == 0 || shared_expert(i) < static_cast<uint32>(kExperts);
}

// Experts beyond the row read as 0.
inline float load_of_share(const float* row, uint32 i) {
  if (!exists_in_share(i)) return 0.0f;
  return numerics::bit_cast<float>(device::load<4>(row + shared_expert(i)).words[0]);
}

inline void load_logits(const Row& row, Share& share) {
#pragma unroll
  for (uint32 i = 0; i < kShare; ++i) share.logits[i] = load_of_share(row.logits, i);
}

inline void load_biases(const Row& row, Share& share) {
#pragma unroll
  for (uint32 i = 0; i < kShare; ++i) {
    share.bias[i] = has_bias(row) ? load_of_share(row.bias, i) : 0.0f;
  }
}

// Puts the share into the room and waits for the others'. Returns whether the row is regular.
inline bool look_together(bool is_fixed, Share& share, Room& room) {
  float squares = 0.0f;
  float largest = -kInf;
#pragma unroll
  for (uint32 i = 0; i < kShare; ++i) {
    const float x = share.logits[i];
    share.scores[i] = exact_score(x);
    const float z = kHasBias ? share.scores[i] + share.bias[i] : share.scores[i];
    squares = numerics::fma_rn(x, x, squares);
    if (!exists_in_share(i)) continue;
    largest = device::max_or_nan(largest, z);
    room.z[shared_expert(i)] = z;
    room.scores[shared_expert(i)] = share.scores[i];
  }
  return all_warps(squares <= kMaxSquares && (is_fixed || largest < kInf));
}

// The whole row for the first warp. Returns the largest z of this lane.
inline float take_row(const Room& room, Held& held) {
  float largest[kWidth];
#pragma unroll
  for (int32 j = 0; j < kWidth; ++j) largest[j] = -kInf;
#pragma unroll
  for (uint32 i = 0; i < kHeld; ++i) {
#pragma unroll
    for (int32 j = 0; j < kWidth; ++j) {
      held.z[i][j] = exists(i) ? room.z[first_expert(i) + j] : -kInf;
      largest[j] = fmaxf(largest[j], held.z[i][j]);
    }
  }
#pragma unroll
  for (int32 j = 1; j < kWidth; ++j) largest[0] = fmaxf(largest[0], largest[j]);
  return largest[0];
}

inline void store_scores(const Share& share, float* to) {
#pragma unroll
  for (uint32 i = 0; i < kShare; ++i) {
    if (exists_in_share(i)) to[shared_expert(i)] = share.scores[i];
  }
}

// Of a row that one warp has looked at.
inline void keep_scores(const Held& held, Room& room) {
#pragma unroll
  for (uint32 i = 0; i < kHeld; ++i) {
    if (!exists(i)) continue;
#pragma unroll
    for (int32 j = 0; j < kWidth; ++j) room.scores[first_expert(i) + j] = held.scores[i][j];
  }
}

}  // namespace tilekernels
