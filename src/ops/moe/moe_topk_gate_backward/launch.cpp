// moe_topk_gate_backward: launch plans of the compiled backends.
#include "runtime/ascend/launch.h"
#include "core/check.h"
#include "ops/moe/moe_topk_gate_backward/ascend.h"
#include "ops/moe/moe_topk_gate_backward/op.h"
#include "ops/moe/moe_topk_gate_backward/tile.h"
#include "runtime/cuda/launch.h"

namespace tilekernels {
namespace cuda {

extern const Text moe_topk_gate_backward_text;

void moe_topk_gate_backward(const MoeTopkGateBackwardArgs& args,
                            const MoeTopkGateBackwardShape& shape, const Launch& where) {
  MoeTopkGateBackwardTile tile{
      .wide = shape.num_experts % 4 == 0 && is_aligned(args.scores, 0, 16) &&
              is_aligned(args.grad_scores_sum, 0, 16) && is_aligned(args.grad_logits, 0, 16),
      .rows = 1,
      .staged = 0};
  if (shape.num_experts <= kBackwardKeptExperts) {
    if (args.num_tokens > kBackwardFewRows) {
      tile.rows = numerics::min_of(4, 32 / power_of_two_from(shape.num_topk));
    } else {
      tile.staged = shape.has_aux == 0;
    }
  }
  launch(moe_topk_gate_backward_text,
         {.grid = {numerics::ceil_div(args.num_tokens, int64{tile.rows} * kBackwardWarps)},
          .block = {kBackwardThreads}},
         args, shape, tile, where);
}

}  // namespace cuda

namespace ascend {

extern const Text moe_topk_gate_backward_text;

void moe_topk_gate_backward(const MoeTopkGateBackwardArgs& args,
                            const MoeTopkGateBackwardShape& shape, const Launch& where) {
  using namespace moe_topk_gate_backward_kernel;
  Tile tile{.rows = kMaxRows, .stages = 2};
  while (tile.rows > 1 && ub_bytes(shape, tile) > kUbBytes) tile.rows /= 2;
  if (ub_bytes(shape, tile) > kUbBytes) tile.stages = 1;
  if (ub_bytes(shape, tile) > kUbBytes) {
    Check(moe_topk_gate_backward_text.op)
        .unsupported("num_experts", "must leave a row room in the on-core buffer of ascend",
                     shape.num_experts);
  }
  launch<run>(moe_topk_gate_backward_text, args.num_tokens, args, shape, tile, where);
}

}  // namespace ascend
}  // namespace tilekernels
