// normalize_weight: launch plans of the compiled backends.
#include "runtime/ascend/launch.h"
#include "ops/moe/normalize_weight/ascend.h"
#include "ops/moe/normalize_weight/op.h"
#include "ops/moe/normalize_weight/tile.h"
#include "runtime/cuda/launch.h"

namespace tilekernels {
namespace cuda {

extern const Text normalize_weight_text;

void normalize_weight(const NormalizeWeightArgs& args, const NormalizeWeightShape& shape,
                      const Launch& where) {
  NormalizeWeightTile tile{.width = 4};
  while (tile.width > 1 &&
         (shape.num_topk % tile.width != 0 || !is_aligned(args.topk_weights, 0, 4 * tile.width) ||
          !is_aligned(args.normalized_weights, 0, 4 * tile.width))) {
    tile.width /= 2;
  }
  const int64 rows = kNormalizeThreads / lanes_of_row(shape, tile);
  launch(normalize_weight_text,
         {.grid = {numerics::ceil_div(args.num_tokens, rows)}, .block = {kNormalizeThreads}}, args,
         shape, tile, where);
}

}  // namespace cuda

namespace ascend {

extern const Text normalize_weight_text;

void normalize_weight(const NormalizeWeightArgs& args, const NormalizeWeightShape& shape,
                      const Launch& where) {
  using namespace normalize_weight_kernel;
  static_assert(ub_bytes() <= kUbBytes);
  // A tile a core, so that few tokens spread over all cores
  launch<run>(normalize_weight_text, numerics::ceil_div(args.num_tokens, kTileRows), args, shape,
              where);
}

}  // namespace ascend
}  // namespace tilekernels
