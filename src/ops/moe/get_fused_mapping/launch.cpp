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
constexpr int64 kPadPositions = 1024;  // worth a block
constexpr int64 kMostPadBlocks = 64;
constexpr int64 kPartEntries = 1024;    // of many, worth a block
constexpr int64 kMostParts = 64;        // every block reads the counts of all
constexpr int64 kMostCounts = 1 << 15;  // of these

// Parts of a block, a power of two, whose counts fit.
int32 most_parts(const GetFusedMappingShape& shape) {
  int32 parts = kMapWarps;
  while (parts > 1 && parts * shape.num_experts * 4 > kMapCountBytes) parts /= 2;
  return parts;
}

}  // namespace

void get_fused_mapping(const GetFusedMappingArgs& args, const GetFusedMappingShape& shape,
                       const Launch& where) {
  const Text& text = get_fused_mapping_text;
  GetFusedMappingArgs mine = args;
  const auto run = [&](int64 blocks, int32 phase, int32 parts) {
    const int64 steps = mine.part / (32 * parts);
    const GetFusedMappingTile tile{phase, parts, steps <= 1 ? 1 : steps == 2 ? 2 : 4};
    launch(text, {.grid = {blocks}, .block = {32 * kMapWarps}}, mine, shape, tile, where);
  };
  const int64 most_blocks =
      std::min({kMostParts, int64{num_sms(text, where)}, kMostCounts / shape.num_experts});
  int64 blocks = std::min(most_blocks, numerics::ceil_div(args.num_entries, kPartEntries));
  if (args.num_entries <= kFewEntries || blocks <= 1) {
    const int32 parts = args.num_entries <= 32 ? 1 : most_parts(shape);
    mine.part = numerics::align_up(args.num_entries, 32 * parts);
    const int64 padding = numerics::ceil_div(args.num_expanded, kPadPositions);
    return run(std::clamp<int64>(padding, 1, kMostPadBlocks), kMapAtOnce, parts);
  }
  mine.part = numerics::align_up(numerics::ceil_div(args.num_entries, blocks), 32 * kMapWarps);
  blocks = numerics::ceil_div(args.num_entries, mine.part);
  const std::shared_ptr<void> counts = scratch(blocks * shape.num_experts * 4, where);
  mine.counts = static_cast<int32*>(counts.get());
  run(blocks, kMapCount, kMapWarps);
  run(blocks, kMapPlace, most_parts(shape));
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
