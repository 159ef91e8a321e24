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
  // A row a block while there are few: every row has a multiprocessor of its own.
  const bool is_small = args.num_tokens <= 2 * num_sms(topk_gate_text, where);
  const TopkGateTile tile{.warps = is_small ? 1 : 8,
                          .wide = shape.num_experts % 4 == 0 && is_aligned(args.scores, 0, 16)};
  launch(topk_gate_text,
         {.grid = {numerics::ceil_div(args.num_tokens, tile.warps)}, .block = {32 * tile.warps}},
         args, shape, tile, where);
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
