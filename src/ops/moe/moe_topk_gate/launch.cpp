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
  MoeTopkGateTile tile{.warps = 8, .width = 4};
  // Every lane gets some of the row before one gets more, a load is of one group, and all are
  // aligned.
  const int64 unit =
      shape.num_groups > 0 ? shape.num_experts / shape.num_groups : shape.num_experts;
  const auto is_right = [&](int64 width) {
    return unit % width == 0 && shape.num_experts >= 32 * width &&
           is_aligned(args.logits, 0, 4 * width) && is_aligned(args.bias, 0, 4 * width) &&
           is_aligned(args.image_bias, 0, 4 * width) && is_aligned(args.scores, 0, 4 * width);
  };
  while (tile.width > 1 && !is_right(tile.width)) tile.width /= 2;
  // A row a block while there are few: every row has a multiprocessor of its own.
  const int64 few = 2 * num_sms(moe_topk_gate_text, where);
  const int64 warps = numerics::min_of<int64>(numerics::ceil_div(args.num_tokens, few), tile.warps);
  if (warps == 1) tile.warps = 1;
  launch(moe_topk_gate_text,
         {.grid = {numerics::ceil_div(args.num_tokens, warps)}, .block = {32 * warps}}, args, shape,
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
