// get_fused_mapping: launch plans of the compiled backends.
#include <algorithm>
#include <memory>

#include "ops/moe/get_fused_mapping/ascend.h"
#include "ops/moe/get_fused_mapping/op.h"
#include "ops/moe/get_fused_mapping/tile.h"
#include "runtime/ascend/launch.h"
#include "runtime/cuda/launch.h"

namespace tilekernels {
namespace cuda {

extern const Text get_fused_mapping_text;

namespace {

constexpr int64 kFewEntries = 4096;
constexpr int64 kBlockPositions = 32 * kMapWarps;  // of few entries, worth a block
constexpr int64 kPartEntries = 512;                // of many, worth a block
constexpr int64 kMostParts = 128;
constexpr int64 kMostSorted = 2048;     // of a part
constexpr int64 kMostCounts = 1 << 15;  // that every block reads
static_assert(kFewEntries < 1 << kSortedEntryBits && kMostSorted < 1 << kSortedEntryBits);
static_assert(kMostParts * kMostSorted < kMapGroups << 16);
static_assert(kMostParts * kMostSorted + kMostSortedExperts < 1 << (32 - kSortedEntryBits));

// Parts of a block, a power of two, whose counts fit.
int32 most_parts(const GetFusedMappingShape& shape, bool is_sorted) {
  const int32 bytes = is_sorted ? kMapSortedCountBytes : kMapCountBytes;
  int32 parts = kMapWarps;
  while (parts > 1 && parts * shape.num_experts * 4 > bytes) parts /= 2;
  return parts;
}

// A power of two: all loads of a lane where a block sorts, else some.
int32 loads_of(int64 warp_entries, bool is_sorted, int32 most) {
  const int64 all = warp_entries / 32;
  int32 loads = 1;
  while (is_sorted ? loads < all : loads < most && 2 * loads <= all) loads *= 2;
  return loads;
}

}  // namespace

void get_fused_mapping(const GetFusedMappingArgs& args, const GetFusedMappingShape& shape,
                       const Launch& where) {
  const Text& text = get_fused_mapping_text;
  GetFusedMappingArgs mine = args;
  const auto run = [&](int64 blocks, const GetFusedMappingTile& tile) {
    launch(text, {.grid = {blocks}, .block = {32 * kMapWarps}}, mine, shape, tile, where);
  };
  const int64 sms = num_sms(text, where);
  const int32 counted_parts = map_counted_parts(shape.num_experts);
  const int64 most_blocks =
      std::min({kMostParts, sms, kMostCounts / shape.num_experts * counted_parts});
  int64 blocks = std::min(most_blocks, numerics::ceil_div(args.num_entries, kPartEntries));
  const bool can_sort = shape.num_experts <= kMostSortedExperts;
  const int64 few =
      can_sort ? std::min(kFewEntries, kMostSortedLoads * 32 * int64{most_parts(shape, true)})
               : kFewEntries;
  if (args.num_entries <= few || blocks <= 1) {
    const bool is_sorted = can_sort && args.num_entries <= few;
    const int32 parts = args.num_entries <= 32 ? 1 : most_parts(shape, is_sorted);
    mine.part = numerics::align_up(args.num_entries, 32 * parts);
    const int64 wanted = numerics::ceil_div(args.num_expanded, kBlockPositions);
    return run(std::clamp<int64>(wanted, 1, sms),
               {kMapAtOnce, parts, loads_of(mine.part / parts, is_sorted, 4),
                is_sorted ? static_cast<int32>(kFewEntries) : 0});
  }
  mine.part = numerics::align_up(numerics::ceil_div(args.num_entries, blocks), 32 * kMapWarps);
  blocks = numerics::ceil_div(args.num_entries, mine.part);
  const int32 sorted = can_sort && mine.part <= kMostSorted ? static_cast<int32>(kMostSorted) : 0;
  const int64 counting_blocks = numerics::ceil_div(blocks, counted_parts);
  const std::shared_ptr<void> counts = scratch(
      counting_blocks * (1 + counted_parts) * shape.num_experts * (sorted > 0 ? 2 : 4), where);
  mine.counts = static_cast<int32*>(counts.get());
  run(counting_blocks, {kMapCount, counted_parts,
                        loads_of(mine.part * counted_parts / kMapWarps, false, 8), sorted});
  const int32 parts = most_parts(shape, sorted > 0);
  run(blocks, {kMapPlace, parts, loads_of(mine.part / parts, sorted > 0, 4), sorted});
}

}  // namespace cuda

namespace ascend {

extern const Text get_fused_mapping_text;

void get_fused_mapping(const GetFusedMappingArgs& args, const GetFusedMappingShape& shape,
                       const Launch& where) {
  using namespace get_fused_mapping_kernel;
  static_assert(ub_bytes(kMaxFusedExperts) <= kUbBytes);
  constexpr int64 kPartEntries = 1024;   // worth a core
  constexpr int64 kPadPositions = 2048;  // as well
  const Text& text = get_fused_mapping_text;
  GetFusedMappingArgs mine = args;
  const int64 most = num_cores(text, where);
  const int64 cores =
      std::clamp<int64>(numerics::ceil_div(args.num_entries, kPartEntries), 1, most);
  // A part a core
  mine.part = std::max<int64>(1, numerics::ceil_div(args.num_entries, cores));
  const int64 parts = std::max<int64>(1, numerics::ceil_div(args.num_entries, mine.part));
  const std::shared_ptr<void> counts = scratch(parts * shape.num_experts * 4, where);
  mine.counts = static_cast<int32*>(counts.get());
  launch<run>(text, parts, mine, shape, Tile{kCount}, where);
  const int64 padding = numerics::ceil_div(args.num_expanded - args.num_entries, kPadPositions);
  launch<run>(text, std::max(parts, padding), mine, shape, Tile{kPlace}, where);
}

}  // namespace ascend
}  // namespace tilekernels
