// cast_back: launch plans of the compiled backends.
#include "runtime/ascend/launch.h"
#include "ops/quant/cast_back/ascend.h"
#include "ops/quant/cast_back/op.h"
#include "ops/quant/cast_back/tile.h"
#include "runtime/cuda/launch.h"

namespace tilekernels {
namespace cuda {

extern const Text cast_back_text;

namespace {

constexpr int32 kThreads = 128;
constexpr int32 kManyRows = 4;

// Whether every chunk is whole and lies on a multiple of its size.
bool is_wide(const CastBackArgs& args, const CastBackShape& shape) {
  const int32 chunk = chunk_of(shape);
  const int64 pitch = args.num_tokens == 1 ? 0 : args.x_stride;
  return shape.hidden % chunk == 0 &&
         is_aligned(args.x, pitch, chunk / elements_per_unit(shape.x_dtype)) &&
         is_aligned(args.out, 0, 16);
}

}  // namespace

void cast_back(const CastBackArgs& args, const CastBackShape& shape, const Launch& where) {
  const int64 chunks = numerics::ceil_div(shape.hidden, chunk_of(shape));
  const int64 busy = kBusyThreads * num_sms(cast_back_text, where);
  CastBackTile tile{.threads = kThreads, .rows = 1, .wide = is_wide(args, shape)};
  if (chunks * args.num_tokens >= kManyRows * busy) tile.rows = kManyRows;
  const int64 threads = numerics::ceil_div(args.num_tokens, tile.rows) * chunks;
  launch(cast_back_text, {.grid = {numerics::ceil_div(threads, kThreads)}, .block = {kThreads}},
         args, shape, tile, where);
}

}  // namespace cuda

namespace ascend {

extern const Text cast_back_text;

void cast_back(const CastBackArgs& args, const CastBackShape& shape, const Launch& where) {
  using namespace cast_back_kernel;
  const SfWords words = sf_words(args.x_sf.map, shape.sf_kind);
  const Tile tile = plan(shape, words.pack_k, words.word_bytes);
  launch<run>(cast_back_text, args.num_tokens * num_spans(shape, tile), args, shape, tile, where);
}

}  // namespace ascend
}  // namespace tilekernels
