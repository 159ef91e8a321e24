// The CUDA launch plan of group_count and aux_fi.
#include <memory>

#include "ops/moe/histogram.h"
#include "ops/moe/histogram_tile.h"
#include "runtime/cuda/launch.h"

namespace tilekernels::cuda {
namespace {

using numerics::ceil_div;
using numerics::max_of;
using numerics::min_of;

constexpr int64 kMaxOfOneBlock = 16384;  // indices that one block counts about as fast as several
constexpr int64 kFewForLoads = 1 << 17;  // indices that blocks with two loads a thread suffice for
constexpr int64 kManyForAdding = 1 << 19;  // indices whose blocks would wait for each other's sums
constexpr int32 kFewForParts = 1024;  // bins whose counts by block take less than a fill before
constexpr int32 kMaxShared = 8192;    // bins; 32 KiB
constexpr int32 kMinShared = 256;

}  // namespace

void histogram(const HistogramArgs& args, const HistogramShape& shape, const Launch& where,
               const Text& text) {
  const int64 num_indices = args.num_tokens * args.num_topk;
  const bool is_shared = args.num_bins <= kMaxShared;
  HistogramTile tile{.phase = kHistogramWhole,
                     .threads = 1024,
                     .max_bins = is_shared ? kMinShared : 0,
                     .loads = num_indices <= 1024 ? 1 : 8};
  while (is_shared && tile.max_bins < args.num_bins) tile.max_bins *= 2;
  if (is_shared && num_indices <= kMaxOfOneBlock) {
    return launch(text, {.grid = {1}, .block = {tile.threads}}, args, shape, tile, where);
  }
  // Each block keeps its counts for a last launch that adds them up; or, where bins are many and
  // most counts of a block are zero, blocks add to zeros.
  HistogramArgs mine = args;
  const bool has_parts = is_shared && (shape.is_fraction != 0 || args.num_bins <= kFewForParts ||
                                       num_indices >= kManyForAdding);
  tile.phase = has_parts ? kHistogramPart : kHistogramAdd;
  tile.threads = 512;
  if (has_parts && num_indices <= kFewForLoads) tile.loads = 2;
  const int64 indices_of_block = int64{tile.threads} * tile.loads;
  const int64 blocks = min_of(max_of(int64{1}, ceil_div(num_indices, indices_of_block)),
                              int64{2} * num_sms(text, where));
  mine.num_parts = has_parts ? blocks : 1;
  std::shared_ptr<void> counts;
  if (has_parts) counts = scratch(blocks * args.num_bins * 4, where);
  mine.counts = static_cast<int32*>(has_parts ? counts.get() : args.out);
  Plan plan{.grid = {blocks}, .block = {tile.threads}};
  if (!has_parts) plan.before = {.to = args.out, .size_bytes = int64{args.num_bins} * 4};
  launch(text, plan, mine, shape, tile, where);
  if (shape.is_fraction == 0 && !has_parts) return;
  tile = {.phase = kHistogramFinish, .threads = 128, .max_bins = 0, .loads = 1};
  launch(text,
         {.grid = {ceil_div(int64{args.num_bins}, kHistogramFinishBins)}, .block = {tile.threads}},
         mine, shape, tile, where);
}

}  // namespace tilekernels::cuda
