// Copies of experts, expert parallelism and random routing. Device-safe.
#pragma once

#include "numerics/philox.h"
#include "numerics/types.h"
#include "ops/moe/common.h"

namespace tilekernels {

/// Which of `count` >= 1 copies of an expert a token takes. 64 bits: token * 23333 passes 2^31
/// from token 92037 on.
constexpr int32 choose_copy(int32 ep_rank, int64 token, int32 count) {
  const int64 copy = (ep_rank + token * 23333) % count;
  return static_cast<int32>(copy < 0 ? copy + count : copy);
}

/// The index of an expert among those of its tensor-parallel rank; -1 where another rank has it.
/// Expert-parallel groups hold `experts_per_rank` >= 1 experts each; negative ids stay -1.
constexpr int64 mask_by_tp(int64 expert, int32 experts_per_rank, int32 tp_rank,
                           int32 num_tp_ranks) {
  const int64 p = experts_per_rank;
  if (expert < 0 || expert / p % num_tp_ranks != tp_rank) return -1;
  const int64 shifted = expert - tp_rank * p;
  const int64 q = p * num_tp_ranks;
  const int64 masked = shifted - shifted / q * (q - p);
  return masked < 0 ? -1 : masked;
}

/// What a slot of a token that is routed at random draws.
struct RandomDraw {
  float weight;   // in (0, 1]
  uint32 number;  // modulo (experts - slot): which of the experts that no earlier slot has
};

/// The same at every step and in every layer: it depends on the rank, the token and the slot.
constexpr RandomDraw random_draw(int32 ep_rank, int64 token, int32 slot) {
  const numerics::PhiloxWords words =
      numerics::philox(static_cast<uint64>(static_cast<int64>(ep_rank)), 0,
                       static_cast<uint64>(token * kWeightSlots + slot));
  return {numerics::uniform(words.word[0]), words.word[1]};
}

}  // namespace tilekernels
