// The buffers of a cast and what its steps ask about it.
#pragma once

#include "ops/quant/cast_e2m1_ascend.h"
#include "ops/quant/cast_e4m3_ascend.h"
#include "ops/quant/cast_scales_ascend.h"

namespace tilekernels::ascend::cast_kernel {

// Everything that the items of a kernel share.
struct CastState {
  const CastArgs& args;
  const CastShape& shape;
  const Tile tile;
  const SfWords x_words;
  const Sizes size;
  MutexPool pool{};
  // x and, behind it, scaling factors as they are in memory: those of x, a row after the other, or
  // the given ones. All come in together and so need one mutex.
  InRing<uint8> in;
  OutRing<uint8> out;
  OutRing<uint8> sf;
  Ub<float> tables{};       // decoded x_raw
  Ub<uint32> largest[2]{};  // by column or cell
  Ub<uint8> cells{}, pairs{};
  Ub<uint8> amax{}, maxima{};  // of groups; where those of an item are
  Ub<uint32> words{};
  Ub<uint8> bytes{};
  Ub<float> inverses{}, expanded{};
  Ub<uint32> marks{}, expanded_marks{};  // see make_scales
  Ub<float> given_table{}, inverse_table{};
  Ub<float> cell_sf{}, cell_factors{};  // of a quantized x
  Ub<uint32> cell_marks{};
  Ub<uint16> value_table{};
  Ub<uint8> held{};         // the slot of the next row, whose maxima are
  bool has_maxima = false;  // known already

  TILEKERNELS_CORE bool quantized() const { return is_quantized(shape.x_dtype); }
  TILEKERNELS_CORE bool is_e2m1() const { return shape.fmt == kDTypeE2M1x2; }
  // Whether x's scaling factors change at multiples of 16 columns only.
  TILEKERNELS_CORE bool by_cell() const { return shape.x_block_cols % 16 == 0; }

  TILEKERNELS_CORE CastState(const CastArgs& a, const CastShape& s, const Tile& t)
      : args(a),
        shape(s),
        tile(t),
        x_words(is_quantized(s.x_dtype) ? sf_words(a.x_sf.map, s.x_sf_kind) : SfWords{1, 1, 1}),
        size(sizes(s, t.span, x_words.pack_k, x_words.word_bytes)),
        in(pool, "x", t.stages, size.in_bytes, kSlotTail),
        out(pool, "out", s.mode == kCastSfOnly ? 0 : t.stages, size.out_bytes),
        sf(pool, "out_sf", s.mode == kCastGivenSf ? 0 : t.stages, size.blocks_bytes) {
    if (quantized() && shape.x_sf_kind != kSfF32) {
      tables = ub_alloc<float>("x_sf table", size.tables * size.table_pitch / 4);
    }
    if (shape.mode != kCastGivenSf) {
      const auto by_column = [&] {
        return ub_alloc<uint32>("maxima by column", column_bytes(size) / 4, kSlotTail);
      };
      if (quantized() || shape.block_rows > 1) largest[0] = by_column();
      if (quantized()) largest[1] = by_column();
      cells = ub_alloc<uint8>("cells", cell_bytes(size), kSlotTail);
      pairs = ub_alloc<uint8>("pairs of cells", cell_bytes(size), kSlotTail);
      amax = ub_alloc<uint8>("amax", cell_bytes(size), kSlotTail);
      words = ub_alloc<uint32>("sf words", size.groups);
      bytes = ub_alloc<uint8>("sf bytes", size.groups);
    }
    inverses = ub_alloc<float>("inverses", size.groups);
    marks = ub_alloc<uint32>("marks", size.groups);
    if (shape.mode == kCastGivenSf) given_table = ub_alloc<float>("given table", size.groups);
    if (quantized()) cell_sf = ub_alloc<float>("x_sf by cell", cell_bytes(size) / 4);
    if (shape.mode == kCastSfOnly) return;
    expanded = ub_alloc<float>("expanded inverses", size.entries);
    expanded_marks = ub_alloc<uint32>("expanded marks", size.marks);
    if (by_e4m3_table()) {
      inverse_table = ub_alloc<float>("inverses of e4m3", kTableBytes / 4);
      vf_call<make_inverse_table>("make_table", inverse_table);
    }
    if (quantized()) {
      value_table = ub_alloc<uint16>("values of e4m3", kTableBytes / 2);
      vf_call<make_value_table>("make_table", value_table);
      cell_factors = ub_alloc<float>("factors by cell", cell_bytes(size) / 4);
      cell_marks = ub_alloc<uint32>("marks by cell", cell_bytes(size) / 4);
    }
  }

  // Rows of x's scaling factors that an item needs.
  TILEKERNELS_CORE int64 first_table(const Item& item) const {
    return item.row / shape.x_block_rows;
  }
  TILEKERNELS_CORE int64 num_tables(const Item& item) const {
    return (item.row + item.rows - 1) / shape.x_block_rows - first_table(item) + 1;
  }

  TILEKERNELS_CORE void load(const Item& item) {
    if (item.rows <= 0) return;
    const int64 row_bytes = bytes_of(shape.x_dtype, item.cols);
    const Ub<uint8> slot = in.fill();
    copy_in(slot, gm(args.x + item.row * args.x_pitch_bytes + bytes_of(shape.x_dtype, item.start)),
            {item.rows, row_bytes, args.x_pitch_bytes, size.x_pitch_bytes});
    if (quantized()) {
      const SfSpan span = sf_span(x_words, item.start, item.cols, shape.x_block_cols);
      for (int64 t = 0; t < num_tables(item); ++t) {
        const int64 m = first_table(item) + t;
        copy_in_words(slot + (size.raw_offset + t * size.words_bytes),
                      args.x_sf.base + m / x_words.pack_m * args.x_sf.map.stride_m +
                          span.first * args.x_sf.map.stride_k,
                      x_words, args.x_sf.map.stride_k, span.count);
      }
    }
    if (shape.mode == kCastGivenSf) {
      const SfWords given_words = sf_words(args.given_sf.map, shape.sf_kind);
      copy_in_words(slot + size.raw_offset, args.given_sf.at(item.m, item.first_group), given_words,
                    args.given_sf.map.stride_k, item.groups);
    }
    in.filled();
  }

  // The table of one row of x's scaling factors.
  TILEKERNELS_CORE Ub<float> table(Ub<uint8> raw, int64 t) const {
    return shape.x_sf_kind == kSfF32 ? as_ub<float>(raw + t * size.words_bytes)
                                     : tables + t * size.table_pitch / 4;
  }

  // Calls visit(first row of the strip, rows, table) for rows that share their scaling factors.
  template <class Visit>
  TILEKERNELS_CORE void for_each_table(const Item& item, Ub<uint8> raw, const Visit& visit) const {
    for (int64 t = 0; t < num_tables(item); ++t) {
      const int64 m = first_table(item) + t;
      const int64 begin = numerics::max_of(m * shape.x_block_rows, item.row);
      const int64 end = numerics::min_of((m + 1) * int64{shape.x_block_rows}, item.row + item.rows);
      visit(begin - item.row, end - begin, table(raw, t));
    }
  }

  TILEKERNELS_CORE uint32 num_cells(const Item& item) const {
    return static_cast<uint32>(numerics::ceil_div(item.cols, int64{16}));
  }
  TILEKERNELS_CORE void expand_cell_sf(const Item& item, Ub<float> of, const Columns& columns) {
    call_expand<float>(cell_sf, of, columns, 16, shape.x_block_cols, num_cells(item));
  }

  // Whether products of bf16 are exact, but for those that are too small for any code but 0.
  TILEKERNELS_CORE bool by_pow2() const {
    const bool pow2 =
        shape.sf_kind == numerics::kSfRoundedF32 || shape.sf_kind == numerics::kSfUE8M0;
    return shape.x_dtype == kDTypeBF16 && shape.mode == kCastAll && pow2 && is_e2m1();
  }

  // Whether scaling factors and inverses are made by make_e4m3_scales.
  TILEKERNELS_CORE bool by_e4m3_table() const {
    return shape.x_dtype == kDTypeBF16 && shape.mode == kCastAll && is_e2m1() &&
           shape.sf_kind == kSfE4M3 && shape.block_cols == 16;
  }
  // Whether the codes of a row are made together with the maxima of the next one.
  TILEKERNELS_CORE bool by_two_rows() const {
    return shape.x_dtype == kDTypeBF16 && shape.mode == kCastAll && is_e2m1() && !by_pow2() &&
           shape.block_rows == 1 && shape.block_cols <= 32 && tile.stages > 1;
  }

  // Whether make_scales writes the inverses as the codes read them.
  TILEKERNELS_CORE bool makes_repeated() const { return by_two_rows() && shape.sf_kind == kSfF32; }

  // One every 16 columns: of the narrowest groups they are so from the start.
  TILEKERNELS_CORE Ub<float> e4m3_inverses() const {
    return shape.block_cols == 16 ? inverses : expanded;
  }
  TILEKERNELS_CORE Ub<uint32> e4m3_marks() const {
    return shape.block_cols == 16 ? marks : expanded_marks;
  }

  // Inverses as the functions of codes read them, one every kCols columns.
  template <int32 kCols>
  TILEKERNELS_CORE void call_repeat(Ub<uint32> to, Ub<uint32> of, int64 groups) const {
    const uint16 turns = trips(numerics::ceil_div(groups, kF32Lanes));
    switch (shape.block_cols) {
      case 16:
        return vf_call<repeat<16 / kCols>>("repeat", to, of, turns);
      case 32:
        return vf_call<repeat<32 / kCols>>("repeat", to, of, turns);
      case 64:
        return vf_call<repeat<64 / kCols>>("repeat", to, of, turns);
      default:
        return vf_call<repeat<128 / kCols>>("repeat", to, of, turns);
    }
  }
  TILEKERNELS_CORE void call_repeat_bf16(int64 groups) const {
    const uint16 turns = trips(numerics::ceil_div(groups, kF32Lanes));
    const Ub<uint16> to = as_ub<uint16>(expanded);
    switch (shape.block_cols) {
      case 16:
        return vf_call<repeat_bf16<1>>("repeat", to, inverses, turns);
      case 32:
        return vf_call<repeat_bf16<2>>("repeat", to, inverses, turns);
      case 64:
        return vf_call<repeat_bf16<4>>("repeat", to, inverses, turns);
      default:
        return vf_call<repeat_bf16<8>>("repeat", to, inverses, turns);
    }
  }
  TILEKERNELS_CORE void expand_inverses(const Item& item) const {
    const Ub<uint32> of = as_ub<uint32>(inverses);
    const Ub<uint32> to = as_ub<uint32>(expanded);
    if (by_pow2()) {
      call_repeat_bf16(item.groups);
    } else if (is_e2m1()) {
      call_repeat<8>(to, of, item.groups);
      if (quantized() || shape.mode == kCastGivenSf) {
        call_repeat<16>(expanded_marks, marks, item.groups);
      }
    } else if (shape.block_cols != 16) {
      call_repeat<16>(to, of, item.groups);
      if (shape.mode != kCastGivenSf && !quantized()) {
        call_repeat<16>(expanded_marks, marks, item.groups);
      }
    }
  }

  // Whether scaling factors lie one after the other in memory, a strip's.
  TILEKERNELS_CORE bool in_a_row(const SfWords& of) const {
    return args.out_sf.map.stride_k == of.word_bytes;
  }

  TILEKERNELS_CORE void store_scales(const Item& item, const SfWords& of, Ub<uint8> slot,
                                     bool direct) {
    const int64 sf_size = numerics::sf_bytes(shape.sf_kind);
    // With a strip's last span goes the padding of its last word.
    const int64 count = item.is_last ? args.out_sf.padded_k - item.first_group : item.groups;
    const uint16 turns = trips(numerics::ceil_div(item.groups, kF32Lanes));
    constexpr int64 kBlocks = kVectorBytes / kBlockBytes;
    uint8* const to = args.out_sf.at(item.m, item.first_group);
    if (in_a_row(of)) {
      if (!direct) vf_call<pack_bytes>("pack_bytes", slot, words, turns);
      sf.filled();
      copy_out(gm(to), sf.empty(), {1, count * sf_size});
      sf.emptied();
      return;
    }
    const bool whole_words =
        item.first_group % of.pack_k == 0 && (item.is_last || item.groups % of.pack_k == 0);
    const int64 pieces = whole_words ? numerics::ceil_div(count, of.pack_k) : count;
    const uint16 spreads = trips(numerics::ceil_div(pieces, kBlocks));
    if (of.pack_k > 1 && whole_words) {
      vf_call<pack_bytes>("pack_bytes", bytes, words, turns);
      if (of.pack_k == 2) {
        vf_call<spread<uint16>>("spread", slot, as_ub<uint16>(bytes), spreads);
      } else {
        vf_call<spread<uint32>>("spread", slot, as_ub<uint32>(bytes), spreads);
      }
    } else {
      vf_call<spread<uint32>>("spread", slot, words, spreads);
    }
    sf.filled();
    const Ub<uint8> from = sf.empty();
    if (whole_words) {
      copy_out(gm(to), from, {pieces, of.word_bytes, args.out_sf.map.stride_k, kBlockBytes});
    } else {
      // Spans of less than a word: byte by byte.
      for (int64 k = 0; k < pieces; ++k) {
        copy_out(gm(args.out_sf.at(item.m, item.first_group + k)), from + k * kBlockBytes, {1, 1});
      }
    }
    sf.emptied();
  }
};

}  // namespace tilekernels::ascend::cast_kernel
