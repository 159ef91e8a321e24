// The CUDA launch plan of both casts.
#include <string>

#include "core/check.h"
#include "ops/quant/cast_tile.h"
#include "runtime/cuda/launch.h"

namespace tilekernels::cuda {
namespace {

using numerics::ceil_div;
using numerics::max_of;
using numerics::min_of;

constexpr int32 kThreads = 128;                      // of a block, unless one team is more
constexpr int64 kMaxColumns = (int64{1} << 31) - 1;  // threads across a row
constexpr int32 kRegisters = 65536;                  // of a multiprocessor

// Whether every chunk is whole and lies on a multiple of its size.
bool is_wide(const CastArgs& args, const CastShape& shape) {
  const int32 chunk = chunk_of(shape.x_dtype);
  const int64 pitch = args.num_tokens == 1 ? 0 : args.x_pitch_bytes;
  return shape.hidden % chunk == 0 &&
         is_aligned(args.x, pitch,
                    chunk / elements_per_unit(shape.x_dtype) * bytes_per_unit(shape.x_dtype)) &&
         is_aligned(args.out, 0, chunk / elements_per_unit(shape.fmt));
}

// Rows a thread: enough loads in flight, few enough registers.
int32 rows_of_thread(const CastShape& shape, int64 num_chunks, int64 busy) {
  if (shape.block_rows == 1) {
    const int32 rows = is_quantized(shape.x_dtype) ? 2 : 4;
    return num_chunks >= rows * busy ? rows : 1;
  }
  const int32 block = shape.block_rows * (shape.block_cols / chunk_of(shape.x_dtype));  // chunks
  return max_of(1, min_of(block / 32, max_of(4, block / 512)));
}

// The fewest registers a thread that hold everything: the fewer, the more threads run.
int32 registers_of(const CastShape& shape, const CastTile& tile) {
  const bool quantized = is_quantized(shape.x_dtype);
  if (quantized && shape.x_block_cols % chunk_of(shape.x_dtype) != 0) return 96;
  const bool is_heavy = !tile.wide || tile.rows > 4 || shape.sf_kind == numerics::kSfE4M3 ||
                        (quantized && shape.fmt != numerics::kDTypeE4M3);
  if (is_heavy) return 64;
  // The search for magnitudes of halves keeps two rows a word beside the rows, and e2m1 both
  // magnitudes and units of the pairs that it rounds.
  const bool is_paired = shape.fmt == numerics::kDTypeE2M1x2 ? shape.sf_kind != numerics::kSfF32
                                                             : shape.x_dtype != numerics::kDTypeF32;
  return is_paired || tile.pack > 1 ? 48 : 40;
}

}  // namespace

void cast_blocks(const CastArgs& args, const CastShape& shape, const Launch& where,
                 const Text& text) {
  const int64 chunks = col_blocks(shape) * (shape.block_cols / chunk_of(shape.x_dtype));
  CastTile tile{};
  tile.wide = is_wide(args, shape);
  tile.rows = rows_of_thread(shape, chunks * args.num_tokens, kBusyThreads * num_sms(text, where));
  tile.pack = shape.mode == kCastGivenSf ? 1 : args.out_sf.map.pack_k;
  const int32 team = team_of(shape, tile);
  if (col_blocks(shape) * team > kMaxColumns) {
    const int64 most = kMaxColumns / team * shape.block_cols;
    Check(text.op).unsupported("hidden", "must be at most " + std::to_string(most) + " on cuda",
                               shape.hidden);
  }
  tile.threads = max_of(kThreads, team);
  tile.min_blocks = max_of(1, kRegisters / registers_of(shape, tile) / tile.threads);
  const int64 blocks = row_blocks(args, shape);
  const int64 team_rows = shape.block_rows == 1 ? ceil_div(blocks, tile.rows) : blocks;
  launch(text,
         {.grid = {ceil_div(team_rows * col_blocks(shape) * team, tile.threads)},
          .block = {tile.threads}},
         args, shape, tile, where);
}

}  // namespace tilekernels::cuda
