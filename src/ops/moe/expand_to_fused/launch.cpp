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

constexpr int64 kSmallEntries = 1024;
constexpr int64 kWarps = kExpandThreads / 32;

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
  const int32 unit = widest_unit(args, shape);
  const int64 spans = expand_spans(shape.row_bytes, unit);
  const int64 entries = args.num_tokens * shape.num_topk;
  const auto run = [&](int64 blocks, const ExpandToFusedTile& tile, const Fill& before = {}) {
    if (blocks == 0) return;
    launch(text, {.grid = {blocks}, .block = {kExpandThreads}, .before = before}, mine, shape, tile,
           where);
  };
  if (entries <= kSmallEntries && shape.sf_words == 0) {
    return run(numerics::ceil_div(args.num_expanded * spans, kWarps), {kExpandSmall, unit});
  }
  const std::shared_ptr<void> owner = scratch(args.num_expanded * 4, where);
  mine.owner = static_cast<int32*>(owner.get());
  // Without entries too: nobody owns a position until somebody claims it.
  run(numerics::max_of(int64{1}, numerics::ceil_div(entries, kExpandThreads)), {kExpandClaim, 1},
      {.to = mine.owner, .size_bytes = args.num_expanded * 4, .value = 0xFF});
  const int64 rows =
      args.num_tokens + numerics::ceil_div(args.num_expanded, int64{kExpandZeroRows});
  run(numerics::ceil_div(rows * spans, kWarps), {kExpandCopy, unit});
  if (shape.sf_words == 0) return;
  const int64 words =
      shape.sf_by_col != 0
          ? numerics::align_up(args.padded_expanded, kExpandThreads) * shape.sf_words
          : args.padded_expanded * shape.sf_words;
  run(numerics::ceil_div(words, kExpandThreads), {kExpandSf, 1});
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
