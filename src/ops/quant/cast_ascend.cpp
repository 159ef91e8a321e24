// per_token_cast and per_block_cast: the launch plan of the ascend kernel that both share.
#include "ops/quant/cast_ascend.h"

#include "runtime/ascend/launch.h"

namespace tilekernels::ascend {
namespace cast_kernel {

extern template void run_as<kDTypeF32>(const CastArgs&, const CastShape&, const Tile&);
extern template void run_as<kDTypeF16>(const CastArgs&, const CastShape&, const Tile&);
extern template void run_as<kDTypeBF16>(const CastArgs&, const CastShape&, const Tile&);
extern template void run_as<kDTypeE4M3>(const CastArgs&, const CastShape&, const Tile&);
extern template void run_as<kDTypeE2M1x2>(const CastArgs&, const CastShape&, const Tile&);

}  // namespace cast_kernel

namespace {

using cast_kernel::plan;

// The widest elements and blocks, scaling factors by the element, must fit.
constexpr CastShape widest(int32 x_dtype) {
  return {.mode = kCastAll,
          .x_dtype = x_dtype,
          .fmt = numerics::kDTypeE4M3,
          .sf_kind = numerics::kSfF32,
          .x_sf_kind = numerics::kSfF32,
          .hidden = 1 << 20,
          .block_rows = 128,
          .block_cols = 128,
          .x_block_rows = 1,
          .x_block_cols = 1};
}
static_assert(plan(widest(numerics::kDTypeF32), 1, 4).ub_bytes <= kUbBytes);
static_assert(plan(widest(numerics::kDTypeE4M3), 1, 4).ub_bytes <= kUbBytes);
static_assert(plan(widest(numerics::kDTypeE4M3), 4, 4).ub_bytes <= kUbBytes);

}  // namespace

void cast_blocks(const CastArgs& args, const CastShape& shape, const Launch& where,
                 const Text& text) {
  const SfWords words =
      is_quantized(shape.x_dtype) ? sf_words(args.x_sf.map, shape.x_sf_kind) : SfWords{1, 1, 1};
  const cast_kernel::Tile tile = plan(shape, words.pack_k, words.word_bytes);
  launch<cast_kernel::run>(text, cast_kernel::num_items(args, shape, tile), args, shape, tile,
                           where);
}

}  // namespace tilekernels::ascend
