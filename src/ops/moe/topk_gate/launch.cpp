// topk_gate: launch plans of the compiled backends.
#include "runtime/ascend/launch.h"
#include "ops/moe/topk_gate/ascend.h"
#include "ops/moe/topk_gate/op.h"
#include "ops/moe/topk_gate/tile.h"
#include "runtime/cuda/launch.h"

namespace tilekernels {
namespace cuda {

extern const Text topk_gate_text;

void topk_gate(const TopkGateArgs& args, const TopkGateShape& shape, const Launch& where) {
  const int32 room = shape.num_topk <= 8 ? 32 : 16;  // rows whose candidates a block has room for
  const auto [most, rows] = rows_of_block(args.num_tokens, room, topk_gate_text, where);
  const TopkGateTile tile{.rows = most,
                          .wide = shape.num_experts % 4 == 0 && is_aligned(args.scores, 0, 16)};
  launch(topk_gate_text,
         {.grid = {numerics::ceil_div(args.num_tokens, rows)}, .block = {32 * rows}}, args, shape,
         tile, where);
}

}  // namespace cuda

namespace ascend {

extern const Text topk_gate_text;

void topk_gate(const TopkGateArgs& args, const TopkGateShape& shape, const Launch& where) {
  using namespace topk_gate_kernel;
  constexpr Tile kTile{.stages = 6};
  static_assert(ub_bytes(kTile) <= kUbBytes);
  launch<run>(topk_gate_text, args.num_tokens, args, shape, kTile, where);
}

}  // namespace ascend
}  // namespace tilekernels
