// topk_gate: launch plans of the compiled backends.
#include "runtime/ascend/launch.h"
#include "ops/moe/topk_gate/ascend.h"
#include "ops/moe/topk_gate/op.h"

namespace tilekernels::ascend {

void topk_gate(const TopkGateArgs& args, const TopkGateShape& shape, const Launch&) {
  using namespace topk_gate_kernel;
  constexpr Tile kTile{.stages = 6};
  static_assert(ub_bytes(kTile) <= kUbBytes);
  launch("topk_gate", args.num_tokens, args,
         [&](const TopkGateArgs& mine) { run(mine, shape, kTile); });
}

}  // namespace tilekernels::ascend
