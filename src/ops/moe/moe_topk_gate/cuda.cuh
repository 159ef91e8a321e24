// moe_topk_gate on CUDA: a warp a row. Scores that need not be stored are approximated first; the
// few experts that may be among the best by them are scored exactly, and each counts those that
// rank before it, which is its place in the result. Of a row that has its multiprocessor for itself
// all experts are scored exactly at once, by several warps if there are many, and one selects.
#include "ops/moe/moe_topk_gate/any_row.cuh"
#include "ops/moe/moe_topk_gate/candidates.cuh"
#include "ops/moe/moe_topk_gate/share.cuh"
#include "runtime/cuda/device/grid.cuh"

namespace tilekernels {

constexpr int32 kMaxThreads = kTile.rows * kTile.row_warps * device::kWarpLanes;
// Blocks of a multiprocessor: with 64 registers a thread short rows need no more than they get.
constexpr int32 kMinBlocks = kTile.rows > 1 && (kLoads * kWidth) <= 16 ? 4 : 1;

inline void moe_topk_gate(const MoeTopkGateArgs& args) {
  __shared__ Room rooms[kTile.rows];
  const uint32 warp = threadIdx.x / device::kWarpLanes;
  const int64 token =
      kIsAlone ? blockIdx.x : int64{blockIdx.x} * (blockDim.x / device::kWarpLanes) + warp;
  if (token >= args.num_tokens) return;
  device::wait_for_predecessor();
  Room& room = rooms[kIsAlone ? 0 : warp];
  const bool is_first =  // by a vote, so that the compiler knows that lanes agree
      kTile.row_warps == 1 || __all_sync(device::kAllLanes, warp == 0);
  Row row{args.logits + token * kExperts, kShape.has_bias ? args.bias : nullptr, token, 0.0f, 0.0f};
  float* const scores = args.scores + token * kExperts;

  Held held;
  Share share;
  if constexpr (kIsShared) load_logits(row, share);
  if constexpr (!kIsShared && kIsHeld) load_logits(row, held);
  if (kShape.has_image_bias && args.image_token_mask[token]) row.bias = args.image_bias;
  if constexpr (kIsShared) load_biases(row, share);
  if constexpr (!kIsShared && kIsHeld) load_biases(row, held);
  const bool is_fixed = kShape.has_fixed && args.fix_routing_mask[token];
  const bool is_left_out = kShape.has_mask && !args.mask[token];
  if (is_left_out || (kShape.has_random && args.force_random[token])) {
    if (is_first) route_unseen(args, token, is_left_out);
    return;
  }

  bool is_regular;
  float largest = -kInf;
  if constexpr (kIsShared) {
    is_regular = look_together(is_fixed, share, room);
    if (kShape.has_scores && is_regular) store_scores(share, scores);
    if (!is_first) return;
    if (is_regular) largest = take_row(room, held);
  } else {
    if constexpr (kSumsApart) {
      if (!is_first) {
        is_regular = add_up_apart(row, held, room);
        if (kShape.has_scores && is_regular) store_scores(row, scores, held);
        return;
      }
    }
    is_regular = look_at_row(row, is_fixed, held, largest);
    if constexpr (kIsSoftmax && !kIsHeld) add_up<false>(row, nullptr);
    is_regular = __all_sync(device::kAllLanes, is_regular);
    if constexpr (kIsKept) keep_scores(held, room);
    if constexpr (kIsSoftmax && kIsHeld && !kSumsApart) {
      if (is_regular) add_up<true>(row, held.logits);
    }
  }

  const bool is_stored = kShape.has_scores && kIsShared && is_regular;
  int32 count = 0;
  if (is_regular && !is_fixed) {
    count = find_candidates(row, held, largest, room);
    is_regular = kTopk <= count && count <= kRoom;
  }
  if constexpr (kSumsApart) is_regular = take_sum(is_regular, row, room);
  if (!is_regular) return route_any(args, row, is_fixed, !is_stored);
  const Choice choice = is_fixed ? fixed_choice<true>(args, row) : choose(row, count, room);
  store_choices(args, token, choice, is_fixed);
  if constexpr (kShape.has_scores && !kIsShared && !kSumsApart) store_scores(row, scores, held);
}

}  // namespace tilekernels

extern "C" __global__ void __launch_bounds__(tilekernels::kMaxThreads, tilekernels::kMinBlocks)
    moe_topk_gate_kernel(const __grid_constant__ tilekernels::MoeTopkGateArgs args) {
  tilekernels::moe_topk_gate(args);
}
