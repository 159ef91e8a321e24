// moe_topk_gate on CUDA: a warp a row. Scores that need not be stored are approximated first; the
// few experts that may be among the best by them are scored exactly, and each counts those that
// rank before it, which is its place in the result. Of a row that has its multiprocessor for itself
// all experts are scored exactly at once.
#include "ops/moe/moe_topk_gate/any_row.cuh"
#include "ops/moe/moe_topk_gate/candidates.cuh"
#include "runtime/cuda/device/grid.cuh"

namespace tilekernels {

constexpr int32 kMaxThreads = kTile.rows * device::kWarpLanes;
// Blocks of a multiprocessor, so that short rows run 32 at once: 64 registers a thread, which is
// about what they need.
constexpr int32 kMinBlocks = kTile.rows > 1 && kLoads* kWidth <= 16 ? 32 / kTile.rows : 1;

inline void route(const MoeTopkGateArgs& args, Row& row, bool is_fixed, Held& held, Room& room) {
  float largest = -kInf;
  bool is_regular = look_at_row(row, is_fixed, held, largest);
  if constexpr (kIsSoftmax && !kIsHeld) add_up<false>(row, nullptr);
  is_regular = __all_sync(device::kAllLanes, is_regular);
  if constexpr (kIsKept) keep_scores(held, room);
  if constexpr (kIsSoftmax && kIsHeld) {
    if (is_regular) add_up<true>(row, held.logits);
  }
  Choice choice;
  if (is_regular) {
    if (is_fixed) {
      choice = fixed_choice<true>(args, row);
    } else {
      is_regular = select(row, held, largest, room, choice);
    }
  }
  if (!is_regular) return route_any(args, row, is_fixed);
  store_choices(args, row, choice, is_fixed);
  if constexpr (kShape.has_scores) store_scores(row, args.scores + row.token * kExperts, held);
}

inline void moe_topk_gate(const MoeTopkGateArgs& args) {
  __shared__ Room rooms[kTile.rows];
  static_assert(sizeof(rooms) <= device::kMaxStaticShared);
  const uint32 warp = threadIdx.x / device::kWarpLanes;
  const int64 token = int64{blockIdx.x} * (blockDim.x / device::kWarpLanes) + warp;
  if (token >= args.num_tokens) return;
  device::wait_for_predecessor();
  Row row{args.logits + token * kExperts, kShape.has_bias ? args.bias : nullptr, token, 0.0f, 0.0f};
  Held held;
  if constexpr (kIsHeld) load_logits(row, held);
  if (kShape.has_image_bias && args.image_token_mask[token]) row.bias = args.image_bias;
  if constexpr (kIsHeld) load_biases(row, held);
  const bool is_fixed = kShape.has_fixed && args.fix_routing_mask[token];
  const bool is_left_out = kShape.has_mask && !args.mask[token];
  if (is_left_out || (kShape.has_random && args.force_random[token])) {
    return route_unseen(args, token, is_left_out);
  }
  route(args, row, is_fixed, held, rooms[warp]);
}

}  // namespace tilekernels

extern "C" __global__ void __launch_bounds__(tilekernels::kMaxThreads, tilekernels::kMinBlocks)
    moe_topk_gate_kernel(const __grid_constant__ tilekernels::MoeTopkGateArgs args) {
  tilekernels::moe_topk_gate(args);
}
