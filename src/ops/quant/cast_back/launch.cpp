// cast_back: launch plans of the compiled backends.
#include "runtime/ascend/launch.h"
#include "ops/quant/cast_back/ascend.h"
#include "ops/quant/cast_back/op.h"

namespace tilekernels::ascend {

void cast_back(const CastBackArgs& args, const CastBackShape& shape, const Launch&) {
  using namespace cast_back_kernel;
  const SfWords words = sf_words(args.x_sf.map, shape.sf_kind);
  const Tile tile = plan(shape, words.pack_k, words.word_bytes);
  launch("cast_back", args.num_tokens * num_spans(shape, tile), args,
         [&](const CastBackArgs& mine) { run(mine, shape, tile); });
}

}  // namespace tilekernels::ascend
