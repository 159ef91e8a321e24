// expand_to_fused: launch plans of the compiled backends.
#include <memory>

#include "ops/moe/expand_to_fused/ascend.h"
#include "ops/moe/expand_to_fused/op.h"
#include "ops/moe/expand_to_fused/tile.h"
#include "runtime/ascend/launch.h"
#include "runtime/cuda/launch.h"

namespace tilekernels {
namespace cuda {

extern const Text expand_to_fused_text;

namespace {

constexpr int64 kSmallEntries = 1024;  // every block may look at all of them

// The widest loads that all rows are aligned to.
int32 widest_unit(const ExpandToFusedArgs& args, const ExpandToFusedShape& shape) {
  const int64 pitch = args.num_tokens > 1 ? args.x_stride : 0;
  int32 unit = 16;
  while (unit > 1 && !(shape.row_bytes % unit == 0 && is_aligned(args.x, pitch, unit) &&
                       is_aligned(args.out, 0, unit))) {
    unit /= 2;
  }
  return unit;
}

}  // namespace

void expand_to_fused(const ExpandToFusedArgs& args, const ExpandToFusedShape& shape,
                     const Launch& where) {
  const Text& text = expand_to_fused_text;
  ExpandToFusedArgs mine = args;
  const int64 entries = args.num_tokens * shape.num_topk;
  const bool is_small = entries <= kSmallEntries;
  ExpandToFusedTile tile{is_small ? kExpandSmall : kExpandCopy, widest_unit(args, shape), 32};
  while (tile.threads < kExpandThreads && tile.threads * tile.unit < shape.row_bytes) {
    tile.threads *= 2;
  }
  std::shared_ptr<void> owner;
  if (!is_small) {
    owner = scratch(args.num_expanded * 4, where);
    mine.owner = static_cast<int32*>(owner.get());
    launch(text,
           {.grid = {numerics::ceil_div(entries, kExpandThreads)},
            .block = {kExpandThreads},
            .before = {.to = owner.get(), .size_bytes = args.num_expanded * 4, .value = 0xFF}},
           mine, shape, ExpandToFusedTile{kExpandClaim, 1, kExpandThreads}, where);
  }
  const int64 groups =
      numerics::ceil_div(args.num_expanded, expand_rows(tile.phase, shape.row_bytes));
  const int64 rows = groups + (is_small ? 0 : args.num_tokens);
  const int64 blocks = expand_sf_blocks(shape.sf_words, args.padded_expanded, tile) +
                       rows * expand_spans(shape.row_bytes, tile);
  launch(text, {.grid = {blocks}, .block = {tile.threads}}, mine, shape, tile, where);
}

}  // namespace cuda

namespace ascend {

extern const Text expand_to_fused_text;

void expand_to_fused(const ExpandToFusedArgs& args, const ExpandToFusedShape& shape,
                     const Launch& where) {
  using namespace expand_to_fused_kernel;
  static_assert(ub_bytes() <= kUbBytes);
  constexpr int64 kWorthACore = 8;  // positions
  launch<run>(expand_to_fused_text, numerics::ceil_div(args.padded_expanded, kWorthACore), args,
              shape, where);
}

}  // namespace ascend
}  // namespace tilekernels
