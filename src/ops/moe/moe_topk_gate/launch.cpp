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

void moe_topk_gate(const MoeTopkGateArgs& args, const MoeTopkGateShape& shape,
                   const Launch& where) {
  const auto [most, rows] = rows_of_block(args.num_tokens, 8, moe_topk_gate_text, where);
  MoeTopkGateTile tile{.rows = most, .width = 4};
  // Every lane gets some of the row before one gets more, a load is of one group, and all are
  // aligned.
  const int64 unit =
      shape.num_groups > 0 ? shape.num_experts / shape.num_groups : shape.num_experts;
  const auto is_right = [&](int64 width) {
    const auto is_wide = [&](const void* from) { return is_aligned(from, 0, 4 * width); };
    return unit % width == 0 && shape.num_experts >= 32 * width && is_wide(args.logits) &&
           is_wide(args.bias) && is_wide(args.image_bias) && is_wide(args.scores);
  };
  while (tile.width > 1 && !is_right(tile.width)) tile.width /= 2;
  launch(moe_topk_gate_text,
         {.grid = {numerics::ceil_div(args.num_tokens, rows)}, .block = {32 * rows}}, args, shape,
         tile, where);
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
