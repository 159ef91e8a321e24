// moe_topk_gate on CUDA: the few experts that may be among the best of a row, and their ranks.
#pragma once

#include "ops/moe/moe_topk_gate/groups.cuh"
#include "ops/moe/moe_topk_gate/room.cuh"
#include "ops/moe/moe_topk_gate/scores.cuh"
#include "runtime/cuda/device/topk.cuh"

namespace tilekernels {

constexpr int32 kBlock = numerics::min_of(kLoads, 32 / kWidth);  // loads: a bit an element

// gather_candidates for kBlock loads from `first` on, with `count` candidates before.
inline int32 gather_block(const Row& row, const Held& held, uint32 groups, float threshold,
                          int32 first, int32 count, Room& room) {
  float z[kBlock][kWidth];
  uint32 mask = 0;
#pragma unroll
  for (int32 i = 0; i < kBlock; ++i) {
    if (kLoads % kBlock != 0 && first + i >= kLoads) break;
    if constexpr (!kIsHeld) {
      float scores[kWidth];
      look(load(row.logits, first + i), load_bias(row, first + i), first + i, z[i], scores);
    }
#pragma unroll
    for (int32 j = 0; j < kWidth; ++j) {
      if constexpr (kIsHeld) z[i][j] = held.z[i][j];
      bool is_candidate = z[i][j] >= threshold;
      if (!kIsHeld && kGroups > 0) is_candidate &= is_in(groups, first_expert(first + i) + j);
      if (is_candidate) mask |= 1u << (i * kWidth + j);
    }
  }
  return device::add_candidates(room.candidates, count, z, mask, first_expert(first), kStep);
}

// Puts the experts whose z reaches the threshold into the room; returns how many there are, or, if
// the room does not take them, any larger number than it takes.
inline int32 gather_candidates(const Row& row, const Held& held, uint32 groups, float threshold,
                               Room& room) {
  int32 count = 0;
  if constexpr (kLoads == kBlock) {
    count = gather_block(row, held, groups, threshold, 0, 0, room);
  } else {
#pragma unroll 1
    for (int32 first = 0; first < kLoads && count <= kRoom; first += kBlock) {
      count = gather_block(row, held, groups, threshold, first, count, room);
    }
  }
  return count;
}

// So that no score is taken twice.
inline void keep_scores(const Held& held, Room& room) {
#pragma unroll
  for (uint32 i = 0; i < kHeld; ++i) {
    if (!exists(i)) continue;
#pragma unroll
    for (int32 j = 0; j < kWidth; ++j) room.scores[first_expert(i) + j] = held.scores[i][j];
  }
}

inline float regular_score_of(const Row& row, uint32 expert, const Room& room) {
  return kIsKept ? room.scores[expert] : regular_score_of(row, row.logits[expert]);
}

// Makes the z of candidate `i` exact. Returns its score.
inline float score_candidate(const Row& row, int32 i, Room& room) {
  const uint32 expert = room.candidates.indices[i];
  const float score = regular_score_of(row, expert, room);
  if (kIsApproximate) room.candidates.scores[i] = ranked(row, row.logits[expert], score, expert);
  return score;
}

// The experts of a regular row from its candidates.
inline Choice choose(const Row& row, int32 count, Room& room) {
  constexpr int32 kFew = device::few_candidates(kTopk);
  const auto lane = static_cast<int32>(device::lane_id());
  __syncwarp();
  float score = 0.0f;  // of this lane's candidate
  if (!kIsKept && lane < count) score = score_candidate(row, lane, room);
  const auto take = [&](int32 rank, uint32 expert) {
    room.chosen[rank] = pack(expert, kIsKept ? room.scores[expert] : score);
  };
  if (count > kFew || !device::rank_few_candidates<kTopk, kFew>(room.candidates, count, take)) {
    if (kIsApproximate) {
#pragma unroll 1
      for (int32 i = lane + device::kWarpLanes; i < count; i += device::kWarpLanes) {
        score_candidate(row, i, room);
      }
    }
    device::rank_many_candidates<kTopk>(room.candidates, count, [&](int32 rank, uint32 expert) {
      room.chosen[rank] = pack(expert, regular_score_of(row, expert, room));
    });
  }
  __syncwarp();
  return chosen_of_lane(room);
}

// Selects the experts of a regular row. False where it cannot: of many equal values, or of fewer
// than kTopk that are not -Inf.
inline bool select(const Row& row, Held& held, float largest, Room& room, Choice& choice) {
  uint32 groups = ~0u;
  if constexpr (kGroups > 0) groups = close_groups(row, held, room, largest);
  // NaN if there are fewer than kTopk different maxima
  float threshold = device::topk_threshold<kTopk>(largest);
  threshold = numerics::fma_rn(fabsf(threshold), -kRelativeMargin, threshold) - kMargin;
  if (!(threshold > -kInf)) return false;
  const int32 count = gather_candidates(row, held, groups, threshold, room);
  if (count < kTopk || count > kRoom) return false;
  choice = choose(row, count, room);
  return true;
}

}  // namespace tilekernels
