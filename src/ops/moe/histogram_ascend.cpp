// group_count and aux_fi: the launch plan of the ascend kernel that both share.
#include "ops/moe/histogram_ascend.h"

#include <memory>

#include "runtime/ascend/launch.h"
#include "tilekernels/tensor.h"

namespace tilekernels::ascend {

void histogram(const HistogramArgs& args, const HistogramShape& shape, const Launch& where,
               const Text& text) {
  using namespace histogram_kernel;
  static_assert(count_ub_bytes() <= kUbBytes && add_ub_bytes() <= kUbBytes);
  constexpr int64 kMaxEntries = 1 << 24;  // of all rows of counts
  const int64 tiles = numerics::ceil_div(args.num_tokens * args.num_topk, kTileIndices);
  const int64 num_rows = numerics::max_of(
      int64{1},
      numerics::min_of(numerics::min_of(tiles, num_vec_cores()), kMaxEntries / args.num_bins));
  histogram_kernel::Args mine{.indices = args.indices,
                              .counts = static_cast<int32*>(args.out),
                              .out = args.out,
                              .num_tokens = args.num_tokens,
                              .num_chosen = args.num_chosen,
                              .num_rows = num_rows,
                              .num_topk = args.num_topk,
                              .num_bins = args.num_bins,
                              .fault = args.fault};
  if (num_rows == 1 && shape.is_fraction == 0) {
    return launch<run>(text, num_rows, mine, shape, Tile{kCount}, where);
  }
  const std::shared_ptr<void> counts =
      default_allocator().allocate(num_rows * args.num_bins * 4, where.device, where.stream);
  mine.counts = static_cast<int32*>(counts.get());
  launch<run>(text, num_rows, mine, shape, Tile{kCount}, where);
  launch<run>(text, numerics::ceil_div(args.num_bins, kAddBins), mine, shape, Tile{kAdd}, where);
}

}  // namespace tilekernels::ascend
