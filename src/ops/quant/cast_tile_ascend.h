// What a cast keeps in the on-core buffer, and what an item of its work is.
#pragma once

#include "ops/quant/cast.h"
#include "ops/quant/scales_ascend.h"

namespace tilekernels::ascend::cast_kernel {

using numerics::kDTypeBF16;
using numerics::kDTypeE2M1x2;
using numerics::kDTypeE4M3;
using numerics::kDTypeF16;
using numerics::kDTypeF32;
using numerics::kE2M1Max;
using numerics::kSfE4M3;
using numerics::kSfF32;

/// Tile constants, made by `plan`.
struct Tile {
  int32 stages;    // items in flight
  int32 span;      // columns of an item
  int32 ub_bytes;  // what the kernel allocates
};

constexpr int64 kSlotTail = 512;           // what loads of pairs of registers may read past a row
constexpr int64 kTableBytes = 512;         // of what is known of every e4m3 code
constexpr uint32 kNanCodes = 0x7F7F7F7Fu;  // e4m3 codes of bad groups

constexpr int64 ub_slot(int64 bytes, int64 tail = kVectorBytes) {
  return numerics::align_up(bytes, kBlockBytes) + tail;
}

// Sizes of the buffers of a tile, in elements or bytes as the name says.
struct Sizes {
  int64 x_pitch_bytes;
  int64 x_bytes;
  int64 raw_offset;  // of scaling factors in a slot
  int64 in_bytes;    // of a slot
  int64 out_pitch_bytes;
  int64 out_bytes;
  int64 row;           // columns of a span, whole turns of the loops over them
  int64 groups;        // of a span, whole registers
  int64 entries;       // expanded inverses
  int64 marks;         // expanded marks
  int64 table;         // entries of one row of scaling factors of x
  int64 tables;        // such rows
  int64 table_pitch;   // bytes
  int64 words_bytes;   // raw words of one row
  int64 blocks_bytes;  // spread scaling factors
};

constexpr int64 whole_registers(int64 lanes) { return numerics::align_up(lanes, 2 * kF32Lanes); }

constexpr Sizes sizes(const CastShape& shape, int64 span, int64 x_pack_k, int64 x_word_bytes) {
  Sizes s{};
  s.x_pitch_bytes = numerics::align_up(bytes_of(shape.x_dtype, span), kBlockBytes);
  s.x_bytes = shape.block_rows * s.x_pitch_bytes;
  s.out_pitch_bytes = numerics::align_up(bytes_of(shape.fmt, span), kBlockBytes);
  s.out_bytes = shape.mode == kCastSfOnly ? 0 : shape.block_rows * s.out_pitch_bytes;
  s.row = numerics::align_up(span, 2 * kPair);
  s.groups = whole_registers(numerics::ceil_div(span, shape.block_cols));
  s.marks = s.groups * (shape.block_cols / 16);
  s.entries = shape.fmt == kDTypeE2M1x2 ? 2 * s.marks : s.marks;
  if (is_quantized(shape.x_dtype)) {
    const int64 words = most_sf_words(span, shape.x_block_cols, x_pack_k);
    s.table = words * x_pack_k;
    s.tables = numerics::min_of<int64>(shape.block_rows, shape.block_rows / shape.x_block_rows + 2);
    s.table_pitch = numerics::align_up(4 * s.table, kBlockBytes);
    s.words_bytes = numerics::align_up(words * x_word_bytes, kBlockBytes);
  }
  s.raw_offset = s.x_bytes + kSlotTail;
  const int64 raw = is_quantized(shape.x_dtype)  ? s.tables * s.words_bytes
                    : shape.mode == kCastGivenSf ? 4 * s.groups
                                                 : 0;
  s.in_bytes = raw == 0 ? s.x_bytes : s.raw_offset + raw;
  s.blocks_bytes = numerics::max_of(s.groups * kBlockBytes, int64{4} * kVectorBytes);
  return s;
}

// What maxima take: by column and by cell of 8 columns or more.
constexpr int64 column_bytes(const Sizes& s) { return 4 * s.row; }
constexpr int64 cell_bytes(const Sizes& s) {
  return numerics::max_of<int64>(4 * s.row / 8, kVectorBytes);
}

constexpr int64 ub_bytes(const CastShape& shape, int64 stages, int64 span, int64 x_pack_k,
                         int64 x_word_bytes) {
  const Sizes s = sizes(shape, span, x_pack_k, x_word_bytes);
  const bool quantized = is_quantized(shape.x_dtype);
  int64 bytes = stages * (ub_slot(s.in_bytes, kSlotTail) + ub_slot(s.out_bytes));
  bytes += stages * ub_slot(s.blocks_bytes);
  // Maxima by column, cells, their pairs, amax
  bytes += (quantized ? 2 : 1) * ub_slot(column_bytes(s), kSlotTail);
  bytes += 3 * ub_slot(cell_bytes(s), kSlotTail);
  // Words, bytes, inverses, marks, given table
  bytes += 5 * ub_slot(4 * s.groups, kSlotTail);
  bytes += ub_slot(4 * s.entries) + ub_slot(4 * s.marks) + ub_slot(kTableBytes);
  // Tables of x's scaling factors; by cell these, factors and marks
  if (quantized) bytes += ub_slot(s.tables * s.table_pitch) + 3 * ub_slot(cell_bytes(s));
  return bytes;
}

constexpr int64 kMostItemBytes = 32 * 1024;  // of x: longer items overlap less in a short run
constexpr int64 kEnoughCols = 256;           // but rows of fewer columns copy badly

/// The widest span, and as many stages as fit, up to 3; a span is whole groups.
constexpr Tile plan(const CastShape& shape, int32 x_pack_k, int32 x_word_bytes) {
  const int64 most =
      numerics::min_of<int64>(kMaxSpan, numerics::align_up(numerics::max_of(shape.hidden, 1), 128));
  for (int64 span = most; span >= 128; span = numerics::align_up(span / 2, 128)) {
    const bool is_long = shape.block_rows * bytes_of(shape.x_dtype, span) > kMostItemBytes;
    if (span > kEnoughCols && is_long) continue;
    for (int32 stages = 3; stages >= 2; --stages) {
      const int64 bytes = ub_bytes(shape, stages, span, x_pack_k, x_word_bytes);
      if (bytes <= kUbBytes) {
        return {stages, static_cast<int32>(span), static_cast<int32>(bytes)};
      }
    }
    if (span == 128) break;
  }
  return {1, 128, static_cast<int32>(ub_bytes(shape, 1, 128, x_pack_k, x_word_bytes))};
}

// A strip of rows by a span of columns; or, beyond the last strip, padding of the scaling factors.
struct Item {
  int64 m;    // row of scaling factors
  int64 row;  // first row of x
  int64 rows;
  int64 start;  // first column
  int64 cols;
  int64 first_group;
  int64 groups;
  bool is_last;  // of its strip
};

TILEKERNELS_CORE int64 num_spans(const CastShape& shape, const Tile& tile) {
  return numerics::ceil_div(shape.hidden, tile.span);
}
TILEKERNELS_CORE int64 num_items(const CastArgs& args, const CastShape& shape, const Tile& tile) {
  const int64 strips = shape.mode == kCastGivenSf
                           ? row_blocks(args, shape)
                           : numerics::max_of(row_blocks(args, shape), args.out_sf.padded_m);
  return strips * num_spans(shape, tile);
}

TILEKERNELS_CORE Item item_of(const CastArgs& args, const CastShape& shape, const Tile& tile,
                              int64 index) {
  const int64 spans = num_spans(shape, tile);
  Item item{};
  item.m = index / spans;
  item.row = item.m * shape.block_rows;
  item.rows = numerics::min_of<int64>(shape.block_rows, args.num_tokens - item.row);
  item.start = index % spans * tile.span;
  item.cols = numerics::min_of<int64>(tile.span, shape.hidden - item.start);
  item.first_group = item.start / shape.block_cols;
  item.groups = numerics::ceil_div(item.cols, shape.block_cols);
  item.is_last = item.start + item.cols == shape.hidden;
  return item;
}

}  // namespace tilekernels::ascend::cast_kernel
