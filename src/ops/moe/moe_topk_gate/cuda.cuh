// moe_topk_gate on CUDA: a warp a row. Scores that need not be stored are approximated first; the
// few experts that may be among the best by them are scored exactly, and each counts those that
// rank before it, which is its place in the result.
#include "ops/moe/moe_topk_gate/any_row.cuh"
#include "ops/moe/moe_topk_gate/candidates.cuh"
#include "runtime/cuda/device/grid.cuh"

namespace tilekernels {

// Blocks of a multiprocessor: with 64 registers a thread short rows need no more than they get.
constexpr int32 kMinBlocks = kTile.warps > 1 && kLoads* kWidth <= 16 ? 4 : 1;

// A row in the registers of its warp, or one load of it at a time.
struct Held {
  Scores logits[kHeld];
  Scores bias[kHeld];
  float z[kHeld][kWidth];
  float scores[kHeld][kWidth];
};

// The first look. `largest` z of this lane; returns whether its logits and z are in range.
inline bool look_at_row(const Row& row, bool is_fixed, Held& held, float& largest) {
  float squares = 0.0f;
  largest = -kInf;
#pragma unroll(kHeldUnroll)
  for (uint32 i = 0; i < kLoads; ++i) {
    const uint32 at = kIsHeld ? i : 0;
    if constexpr (!kIsHeld) {
      held.logits[0] = load(row.logits, i);
      held.bias[0] = load_bias(row, i);
    }
    look(held.logits[at], held.bias[at], i, held.z[at], held.scores[at]);
#pragma unroll
    for (int32 j = 0; j < kWidth; ++j) {
      const float x = number(held.logits[at], j);
      squares = numerics::fma_rn(x, x, squares);
      largest = device::max_or_nan(largest, held.z[at][j]);
    }
  }
  return squares <= kMaxSquares && (is_fixed || largest < kInf);
}

// The groups that take part; z of the others becomes -Inf.
inline uint32 close_groups(const Row& row, Held& held, Room& room, float& largest) {
  const uint32 groups = kGroupsAreLanes || kGroupsAreRuns ? best_groups_of_held(held.z, room)
                                                          : best_groups_of_any(row);
  largest = -kInf;
#pragma unroll(kHeldUnroll)
  for (uint32 i = 0; i < kLoads; ++i) {
    const uint32 at = kIsHeld ? i : 0;
    if constexpr (!kIsHeld) {
      look(load(row.logits, i), load_bias(row, i), i, held.z[0], held.scores[0]);
    }
#pragma unroll
    for (int32 j = 0; j < kWidth; ++j) {
      if (!is_in(groups, first_expert(i) + j)) held.z[at][j] = -kInf;
      largest = fmaxf(largest, held.z[at][j]);
    }
  }
  return groups;
}

// Puts the candidates of a regular row into the room. Returns how many; fewer than kTopk or more
// than there is room for: many equal values, or few that are not -Inf.
inline int32 find_candidates(const Row& row, Held& held, float largest, Room& room) {
  uint32 groups = ~0u;
  if constexpr (kGroups > 0) groups = close_groups(row, held, room, largest);
  float threshold = threshold_of(largest);
  threshold = numerics::fma_rn(fabsf(threshold), -kRelativeMargin, threshold) - kMargin;
  if (!(threshold > -kInf)) return 0;
  return gather_candidates(row, held.z, groups, threshold, room);
}

// The experts of a regular row from its candidates.
inline Choice choose(const Row& row, int32 count, Room& room) {
  __syncwarp();
  if (count > device::kWarpLanes || !rank_few_candidates(row, count, room)) {
    rank_candidates(row, count, room);
  }
  __syncwarp();
  return chosen_of_lane(room);
}

inline void store_scores(const Row& row, float* to, Held& held) {
#pragma unroll(kHeldUnroll)
  for (uint32 i = 0; i < kLoads; ++i) {
    const uint32 at = kIsHeld ? i : 0;
    if constexpr (!kIsHeld) {
      held.logits[0] = load(row.logits, i);
      look(held.logits[0], load_bias(row, i), i, held.z[0], held.scores[0]);
    }
    Scores words;
#pragma unroll
    for (int32 j = 0; j < kWidth; ++j) {
      const float score =
          kIsSoftmax ? regular_score_of(row, number(held.logits[at], j)) : held.scores[at][j];
      words.words[j] = numerics::bit_cast<uint32>(score);
    }
    if (exists(i)) device::store<kWidth * 4>(to + first_expert(i), words);
  }
}

inline void moe_topk_gate(const MoeTopkGateArgs& args) {
  __shared__ Room rooms[kTile.warps];
  const uint32 warp = threadIdx.x / device::kWarpLanes;
  const int64 token = int64{blockIdx.x} * (blockDim.x / device::kWarpLanes) + warp;
  if (token >= args.num_tokens) return;
  device::wait_for_predecessor();
  Room& room = rooms[warp];
  Row row{args.logits + token * kExperts, kShape.has_bias ? args.bias : nullptr, token, 0.0f, 0.0f};

  Held held;
  if constexpr (kIsHeld) {
#pragma unroll
    for (uint32 i = 0; i < kLoads; ++i) held.logits[i] = load(row.logits, i);
  }
  if (kShape.has_image_bias && args.image_token_mask[token]) row.bias = args.image_bias;
  if constexpr (kIsHeld) {
#pragma unroll
    for (uint32 i = 0; i < kLoads; ++i) held.bias[i] = load_bias(row, i);
  }
  const bool is_fixed = kShape.has_fixed && args.fix_routing_mask[token];
  if (kShape.has_mask && !args.mask[token]) {
    if (device::lane_id() < kSlots) store_slot(args, token, -1, 0.0f);
    return clear(args, token);
  }
  if (kShape.has_random && args.force_random[token]) {
    draw_experts(args, token);
    return clear(args, token);
  }

  float largest;
  const bool is_regular = look_at_row(row, is_fixed, held, largest);
  if constexpr (kIsSoftmax && !kIsHeld) add_up<false>(row, nullptr);
  if (!__all_sync(device::kAllLanes, is_regular)) return route_any(args, row, is_fixed);
  if constexpr (kIsSoftmax && kIsHeld) add_up<true>(row, held.logits);

  Choice choice;
  if (is_fixed) {
    choice = fixed_choice<true>(args, row);
  } else {
    const int32 count = find_candidates(row, held, largest, room);
    if (count > kRoom || count < kTopk) return route_any(args, row, false);
    choice = choose(row, count, room);
  }
  store_choices(args, token, choice, is_fixed);
  if constexpr (kShape.has_scores) store_scores(row, args.scores + token * kExperts, held);
}

}  // namespace tilekernels

extern "C" __global__ void __launch_bounds__(tilekernels::kTile.warps * 32, tilekernels::kMinBlocks)
    moe_topk_gate_kernel(const __grid_constant__ tilekernels::MoeTopkGateArgs args) {
  tilekernels::moe_topk_gate(args);
}
