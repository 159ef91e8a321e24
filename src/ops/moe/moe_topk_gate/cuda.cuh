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

// Finds the candidates of a row that selects; returns whether they are neither too few nor too
// many.
inline bool has_candidates(const Row& row, Held& held, float largest, Room& room, int32& count) {
  count = find_candidates(row, held, largest, room);
  return kTopk <= count && count <= kRoom;
}

inline void route_regular(const MoeTopkGateArgs& args, const Row& row, bool is_fixed, int32 count,
                          Room& room) {
  const Choice choice = is_fixed ? fixed_choice<true>(args, row) : choose(row, count, room);
  store_choices(args, row.token, choice, is_fixed);
}

// By several warps, each with a share of the experts. The first one selects.
inline void route(const MoeTopkGateArgs& args, Row& row, bool is_fixed, bool is_first, Share& share,
                  Room& room) {
  bool is_regular = look_together(is_fixed, share, room);
  const bool is_stored = kShape.has_scores && is_regular;
  if (is_stored) store_scores(share, args.scores + row.token * kExperts);
  if (!is_first) return;
  Held held;
  float largest = -kInf;
  if (is_regular) largest = take_row(room, held);
  int32 count = 0;
  if (is_regular && !is_fixed) is_regular = has_candidates(row, held, largest, room, count);
  if (!is_regular) return route_any(args, row, is_fixed, !is_stored);
  route_regular(args, row, is_fixed, count, room);
}

// By one warp; of softmax a second one may add up the row, and store its scores, meanwhile.
inline void route(const MoeTopkGateArgs& args, Row& row, bool is_fixed, bool is_first, Held& held,
                  Room& room) {
  float* const scores = args.scores + row.token * kExperts;
  if constexpr (kSumsApart) {
    if (!is_first) {
      const bool is_summed = add_up_apart(row, held, room);
      if (kShape.has_scores && is_summed) store_scores(row, scores, held);
      return;
    }
  }
  float largest = -kInf;
  bool is_regular = look_at_row(row, is_fixed, held, largest);
  if constexpr (kIsSoftmax && !kIsHeld) add_up<false>(row, nullptr);
  is_regular = __all_sync(device::kAllLanes, is_regular);
  if constexpr (kIsKept) keep_scores(held, room);
  if constexpr (kIsSoftmax && kIsHeld && !kSumsApart) {
    if (is_regular) add_up<true>(row, held.logits);
  }
  int32 count = 0;
  if (is_regular && !is_fixed) is_regular = has_candidates(row, held, largest, room, count);
  if constexpr (kSumsApart) is_regular = take_sum(is_regular, row, room);
  if (!is_regular) return route_any(args, row, is_fixed, true);
  route_regular(args, row, is_fixed, count, room);
  if constexpr (kShape.has_scores && !kSumsApart) store_scores(row, scores, held);
}

// `Loaded`: Held, or the Share of a warp.
template <class Loaded>
inline void load_and_route(const MoeTopkGateArgs& args, int64 token, bool is_first, Room& room) {
  Row row{args.logits + token * kExperts, kShape.has_bias ? args.bias : nullptr, token, 0.0f, 0.0f};
  Loaded loaded;
  if constexpr (kIsHeld) load_logits(row, loaded);
  if (kShape.has_image_bias && args.image_token_mask[token]) row.bias = args.image_bias;
  if constexpr (kIsHeld) load_biases(row, loaded);
  const bool is_fixed = kShape.has_fixed && args.fix_routing_mask[token];
  const bool is_left_out = kShape.has_mask && !args.mask[token];
  if (is_left_out || (kShape.has_random && args.force_random[token])) {
    if (is_first) route_unseen(args, token, is_left_out);
    return;
  }
  route(args, row, is_fixed, is_first, loaded, room);
}

inline void moe_topk_gate(const MoeTopkGateArgs& args) {
  __shared__ Room rooms[kTile.rows];
  const uint32 warp = threadIdx.x / device::kWarpLanes;
  const int64 token =
      kIsAlone ? blockIdx.x : int64{blockIdx.x} * (blockDim.x / device::kWarpLanes) + warp;
  if (token >= args.num_tokens) return;
  device::wait_for_predecessor();
  const bool is_first =  // by a vote, so that the compiler knows that lanes agree
      kTile.row_warps == 1 || __all_sync(device::kAllLanes, warp == 0);
  Room& room = rooms[kIsAlone ? 0 : warp];
  if constexpr (kIsShared) {
    load_and_route<Share>(args, token, is_first, room);
  } else {
    load_and_route<Held>(args, token, is_first, room);
  }
}

}  // namespace tilekernels

extern "C" __global__ void __launch_bounds__(tilekernels::kMaxThreads, tilekernels::kMinBlocks)
    moe_topk_gate_kernel(const __grid_constant__ tilekernels::MoeTopkGateArgs args) {
  tilekernels::moe_topk_gate(args);
}
