// The CUDA launch plan of group_count and aux_fi.
#include "ops/moe/histogram.h"
#include "ops/moe/histogram_tile.h"
#include "runtime/cuda/launch.h"

namespace tilekernels::cuda {
namespace {

using numerics::ceil_div;
using numerics::max_of;
using numerics::min_of;

constexpr int64 kMaxOfOneBlock = 16384;  // indices that one block counts about as fast as several
constexpr int32 kMaxShared = 8192;       // bins; 32 KiB
constexpr int32 kMinShared = 256;

}  // namespace

void histogram(const HistogramArgs& args, const HistogramShape& shape, const Launch& where,
               const Text& text) {
  const int64 num_indices = args.num_tokens * args.num_topk;
  const bool is_shared = args.num_bins <= kMaxShared;
  HistogramTile tile{.phase = kHistogramWhole,
                     .threads = 1024,
                     .max_bins = is_shared ? kMinShared : 0,
                     .wide = is_aligned(args.indices, 0, 16)};
  while (is_shared && tile.max_bins < args.num_bins) tile.max_bins *= 2;
  if (is_shared && num_indices <= kMaxOfOneBlock) {
    return launch(text, {.grid = {1}, .block = {tile.threads}}, args, shape, tile, where);
  }
  // Blocks add to zeros; counts that are to become fractions stand where these will.
  tile.phase = kHistogramAdd;
  tile.threads = 512;
  const int64 indices_of_block = int64{tile.threads} * kHistogramLoads * (tile.wide ? 2 : 1);
  const int64 blocks = min_of(max_of(int64{1}, ceil_div(num_indices, indices_of_block)),
                              int64{2} * num_sms(text, where));
  launch(text,
         {.grid = {blocks},
          .block = {tile.threads},
          .before = {.to = args.out, .size_bytes = int64{args.num_bins} * 4, .value = 0}},
         args, shape, tile, where);
  if (shape.is_fraction == 0) return;
  const HistogramTile finish{.phase = kHistogramFinish, .threads = 128, .max_bins = 0, .wide = 0};
  launch(text, {.grid = {ceil_div(args.num_bins, finish.threads)}, .block = {finish.threads}}, args,
         shape, finish, where);
}

}  // namespace tilekernels::cuda
