// moe_topk_gate: launch plans of the compiled backends.
#include "runtime/ascend/launch.h"
#include <string>

#include "core/message.h"
#include "ops/moe/moe_topk_gate/ascend.h"
#include "ops/moe/moe_topk_gate/op.h"
#include "ops/moe/moe_topk_gate/tile.h"
#include "runtime/cuda/launch.h"
#include "tilekernels/error.h"

namespace tilekernels {
namespace cuda {

extern const Text moe_topk_gate_text;

namespace {

// Warps of a row that has its multiprocessor for itself, by predicted latencies (docs/cuda.md):
// scores by way of shared memory cost as much as two or three more experts a lane.
int32 row_warps(const MoeTopkGateShape& shape) {
  constexpr int32 kFewExperts = 160;
  if (shape.num_experts > kMaxHeldExperts) return 1;
  if (shape.scoring == kScoringSoftmax) return 2;
  return shape.num_experts > kFewExperts ? 4 : 1;
}

}  // namespace

void moe_topk_gate(const MoeTopkGateArgs& args, const MoeTopkGateShape& shape,
                   const Launch& where) {
  // A row a block while there are few: every row has a multiprocessor of its own.
  constexpr int32 kMaxRows = 8;
  const int64 few = 2 * num_sms(moe_topk_gate_text, where);
  const int64 rows = numerics::min_of<int64>(numerics::ceil_div(args.num_tokens, few), kMaxRows);
  MoeTopkGateTile tile{
      .rows = rows == 1 ? 1 : kMaxRows, .row_warps = rows == 1 ? row_warps(shape) : 1, .width = 4};
  // Every lane gets some of the row before one gets more, a load is of one group, and all are
  // aligned; but of scores that several warps share, which are read by 4 bytes.
  const bool is_shared = tile.row_warps > 1 && shape.scoring != kScoringSoftmax;
  const int64 unit =
      shape.num_groups > 0 ? shape.num_experts / shape.num_groups : shape.num_experts;
  const auto is_right = [&](int64 width) {
    const auto is_wide = [&](const void* from) {
      return is_shared || is_aligned(from, 0, 4 * width);
    };
    return unit % width == 0 && shape.num_experts >= 32 * width && is_wide(args.logits) &&
           is_wide(args.bias) && is_wide(args.image_bias) && is_wide(args.scores);
  };
  while (tile.width > 1 && !is_right(tile.width)) tile.width /= 2;
  launch(
      moe_topk_gate_text,
      {.grid = {numerics::ceil_div(args.num_tokens, rows)}, .block = {32 * rows * tile.row_warps}},
      args, shape, tile, where);
}

}  // namespace cuda

namespace ascend {

extern const Text moe_topk_gate_text;

void moe_topk_gate(const MoeTopkGateArgs& args, const MoeTopkGateShape& shape,
                   const Launch& where) {
  using namespace moe_topk_gate_kernel;
  Tile tile{.stages = 4};
  while (tile.stages > 1 && ub_bytes(shape, tile) > kUbBytes) tile.stages /= 2;
  if (ub_bytes(shape, tile) > kUbBytes) {
    MoeTopkGateShape most = shape;
    while (ub_bytes(most, tile) > kUbBytes) most.num_experts -= kF32Lanes;
    const char* const op = args.op_id == kMoeTopkGateId ? "moe_topk_gate" : "top2_sum_gate";
    throw Unsupported(message(op, "num_experts",
                              "must be at most " + std::to_string(padded(most)) +
                                  " on ascend, so that a row fits the on-core buffer",
                              int64_t{shape.num_experts}));
  }
  launch<run>(moe_topk_gate_text, args.num_tokens, args, shape, tile, where);
}

}  // namespace ascend
}  // namespace tilekernels
