// topk_sum_and_topk_group_idx: launch plans of the compiled backends.
#include "runtime/ascend/launch.h"
#include "ops/moe/topk_sum_and_topk_group_idx/ascend.h"
#include "ops/moe/topk_sum_and_topk_group_idx/op.h"
#include "ops/moe/topk_sum_and_topk_group_idx/tile.h"
#include "runtime/cuda/launch.h"

namespace tilekernels {
namespace cuda {

extern const Text topk_sum_and_topk_group_idx_text;

void topk_sum_and_topk_group_idx(const TopkSumAndTopkGroupIdxArgs& args,
                                 const TopkSumAndTopkGroupIdxShape& shape, const Launch& where) {
  constexpr int32 kMaxWarps = 8;
  // Lanes that load side by side take whole sectors of 32 bytes, and all when there are few groups.
  TopkSumAndTopkGroupIdxTile tile{.lanes = 1, .rows = 0};
  while (tile.lanes < 32 && tile.lanes < shape.group_size &&
         (tile.lanes < 8 || tile.lanes * shape.num_groups < 32)) {
    tile.lanes *= 2;
  }
  const int64 sms = num_sms(topk_sum_and_topk_group_idx_text, where);
  if (is_aligned(args.scores, 0, 16)) {
    tile.rows = rows_in_parts(shape);
    if (args.num_tokens <= 8 * sms) tile.rows = numerics::min_of(tile.rows, 1);
  }
  const int64 warps = args.num_tokens <= 2 * sms ? 1 : kMaxWarps;
  launch(topk_sum_and_topk_group_idx_text,
         {.grid = {numerics::ceil_div(args.num_tokens, warps * numerics::max_of(tile.rows, 1))},
          .block = {32 * warps}},
         args, shape, tile, where);
}

}  // namespace cuda

namespace ascend {

extern const Text topk_sum_and_topk_group_idx_text;

void topk_sum_and_topk_group_idx(const TopkSumAndTopkGroupIdxArgs& args,
                                 const TopkSumAndTopkGroupIdxShape& shape, const Launch& where) {
  using namespace topk_sum_and_topk_group_idx_kernel;
  static_assert(ub_bytes() <= kUbBytes);
  launch<run>(topk_sum_and_topk_group_idx_text,
              numerics::ceil_div(args.num_tokens, rows_of_tile(shape)), args, shape, where);
}

}  // namespace ascend
}  // namespace tilekernels
