// mask_indices_by_tp: launch plans of the compiled backends.
#include "runtime/ascend/launch.h"
#include "ops/moe/mask_indices_by_tp/ascend.h"
#include "ops/moe/mask_indices_by_tp/op.h"
#include "ops/moe/mask_indices_by_tp/tile.h"
#include "runtime/cuda/launch.h"

namespace tilekernels {
namespace cuda {

extern const Text mask_indices_by_tp_text;

void mask_indices_by_tp(const MaskIndicesByTpArgs& args, const MaskIndicesByTpShape& shape,
                        const Launch& where) {
  const MaskIndicesByTpTile tile{.wide = is_aligned(args.indices, 0, 16) &&
                                         is_aligned(args.out, 0, 16)};
  const int64 width = tile.wide == 0 ? 1 : shape.dtype == numerics::kDTypeI64 ? 2 : 4;
  launch(mask_indices_by_tp_text,
         {.grid = {numerics::ceil_div(args.count, kMaskIndicesThreads * width)},
          .block = {kMaskIndicesThreads}},
         args, shape, tile, where);
}

}  // namespace cuda

namespace ascend {

extern const Text mask_indices_by_tp_text;

void mask_indices_by_tp(const MaskIndicesByTpArgs& args, const MaskIndicesByTpShape& shape,
                        const Launch& where) {
  using namespace mask_indices_by_tp_kernel;
  static_assert(ub_bytes() <= kUbBytes);
  launch<run>(mask_indices_by_tp_text, numerics::ceil_div(args.count, kTileIndices), args, shape,
              where);
}

}  // namespace ascend
}  // namespace tilekernels
