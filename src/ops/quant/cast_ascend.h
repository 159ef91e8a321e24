// per_token_cast and per_block_cast on the vector core.
//
// An item is a strip of block_rows rows by a span of columns. Its rows come in together; one vector
// function finds the groups' maxima, one their scaling factors and inverses, one the codes.
#pragma once

#include "ops/quant/cast_e2m1_ascend.h"
#include "ops/quant/cast_e4m3_ascend.h"
#include "ops/quant/cast_scales_ascend.h"

namespace tilekernels::ascend::cast_kernel {

// Everything that the items of a kernel share.
struct Cast {
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

  TILEKERNELS_CORE Cast(const CastArgs& a, const CastShape& s, const Tile& t)
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

  template <class T>
  TILEKERNELS_CORE void call_group_max(Ub<T> row, uint32 cols) {
    const Ub<T> to = as_ub<T>(amax);
    const Ub<T> a = as_ub<T>(cells);
    maxima = amax;
    switch (shape.block_cols) {
      case 16:
        return vf_call<group_max<T, 16>>("group_max", to, row, a, cols);
      case 32:
        return vf_call<group_max<T, 32>>("group_max", to, row, a, cols);
      case 64:
        return vf_call<group_max<T, 64>>("group_max", to, row, a, cols);
      default:
        return vf_call<group_max<T, 128>>("group_max", to, row, a, cols);
    }
  }

  template <int32 kDType>
  TILEKERNELS_CORE void call_value_max(const Item& item, Ub<uint8> tile_of_x, Ub<uint8> raw,
                                       const Columns& columns_of_x) {
    int32 turn = 0;
    for_each_table(item, raw, [&](int64 row, int64 rows, Ub<float> of) {
      const Ub<uint8> from = tile_of_x + row * size.x_pitch_bytes;
      const auto pitch = static_cast<int32>(size.x_pitch_bytes);
      const auto cols = static_cast<uint32>(item.cols);
      const Ub<uint32> to = largest[turn % 2];
      const Ub<uint32> before = largest[(turn + 1) % 2];
      if (turn++ == 0) {
        vf_call<value_max<kDType, true>>("value_max", to, before, from, pitch, trips(rows), of,
                                         columns_of_x.first, columns_of_x.inverse, cols);
      } else {
        vf_call<value_max<kDType, false>>("value_max", to, before, from, pitch, trips(rows), of,
                                          columns_of_x.first, columns_of_x.inverse, cols);
      }
    });
    call_group_max<uint32>(largest[(turn + 1) % 2], static_cast<uint32>(item.cols));
  }

  TILEKERNELS_CORE uint32 num_cells(const Item& item) const {
    return static_cast<uint32>(numerics::ceil_div(item.cols, int64{16}));
  }
  TILEKERNELS_CORE void expand_cell_sf(const Item& item, Ub<float> of, const Columns& columns) {
    call_expand<float>(cell_sf, of, columns, 16, shape.x_block_cols, num_cells(item));
  }

  template <int32 kDType>
  TILEKERNELS_CORE void call_cell_max(const Item& item, Ub<uint8> tile_of_x, Ub<uint8> raw,
                                      const Columns& columns_of_x) {
    const uint32 count = num_cells(item);
    int32 turn = 0;
    for_each_table(item, raw, [&](int64 row, int64 rows, Ub<float> of) {
      const Ub<uint16> codes = as_ub<uint16>(cells);
      const Ub<uint32> to = largest[turn % 2];
      const Ub<uint32> before = largest[(turn + 1) % 2];
      vf_call<code_max<kDType>>("code_max", codes, tile_of_x + row * size.x_pitch_bytes,
                                static_cast<int32>(size.x_pitch_bytes), trips(rows),
                                static_cast<uint32>(item.cols));
      expand_cell_sf(item, of, columns_of_x);
      if (turn++ == 0) {
        vf_call<cell_values<kDType, true>>("cell_values", to, before, codes, cell_sf, count);
      } else {
        vf_call<cell_values<kDType, false>>("cell_values", to, before, codes, cell_sf, count);
      }
    });
    const Ub<uint32> of = largest[(turn + 1) % 2];
    maxima = as_ub<uint8>(of);
    if (shape.block_cols == 16) return;
    maxima = amax;
    const Ub<uint32> to = as_ub<uint32>(amax);
    const Ub<uint32> a = as_ub<uint32>(pairs);
    const Ub<uint32> b = as_ub<uint32>(cells);
    const auto groups = static_cast<uint32>(item.groups);
    switch (shape.block_cols) {
      case 32:
        return vf_call<cell_max<2>>("cell_max", to, of, a, b, groups);
      case 64:
        return vf_call<cell_max<4>>("cell_max", to, of, a, b, groups);
      default:
        return vf_call<cell_max<8>>("cell_max", to, of, a, b, groups);
    }
  }

  template <int32 kDType>
  TILEKERNELS_CORE void call_quantized_max(const Item& item, Ub<uint8> tile_of_x, Ub<uint8> raw,
                                           const Columns& columns_of_x) {
    if (by_cell()) return call_cell_max<kDType>(item, tile_of_x, raw, columns_of_x);
    call_value_max<kDType>(item, tile_of_x, raw, columns_of_x);
  }

  template <class T>
  TILEKERNELS_CORE void call_plain_max(const Item& item, Ub<uint8> tile_of_x) {
    const auto cols = static_cast<uint32>(item.cols);
    if (shape.block_rows == 1) return call_group_max<T>(as_ub<T>(tile_of_x), cols);
    const auto pitch = static_cast<int32>(size.x_pitch_bytes / static_cast<int64>(sizeof(T)));
    vf_call<column_max<T>>("column_max", as_ub<T>(largest[0]), as_ub<T>(tile_of_x), pitch,
                           trips(item.rows), cols);
    call_group_max<T>(as_ub<T>(largest[0]), cols);
  }

  template <int32 kSfKind, bool kIsE2M1>
  TILEKERNELS_CORE void call_make_scales(Ub<uint32> to, uint32 groups) {
    if (shape.x_dtype == kDTypeF16) {
      vf_call<make_scales<kSfKind, kIsE2M1, kDTypeF16>>("make_scales", to, inverses, marks, maxima,
                                                        groups, args.amax_clamp);
    } else if (shape.x_dtype == kDTypeBF16) {
      vf_call<make_scales<kSfKind, kIsE2M1, kDTypeBF16>>("make_scales", to, inverses, marks, maxima,
                                                         groups, args.amax_clamp);
    } else {
      vf_call<make_scales<kSfKind, kIsE2M1, kDTypeF32>>("make_scales", to, inverses, marks, maxima,
                                                        groups, args.amax_clamp);
    }
  }

  template <bool kIsE2M1>
  TILEKERNELS_CORE void call_make_scales(Ub<uint32> to, uint32 groups) {
    switch (shape.sf_kind) {
      case kSfF32:
        return call_make_scales<kSfF32, kIsE2M1>(to, groups);
      case numerics::kSfRoundedF32:
        return call_make_scales<numerics::kSfRoundedF32, kIsE2M1>(to, groups);
      case numerics::kSfUE8M0:
        return call_make_scales<numerics::kSfUE8M0, kIsE2M1>(to, groups);
      default:
        return call_make_scales<kSfE4M3, kIsE2M1>(to, groups);
    }
  }

  template <int32 kDType, bool kAnyNan>
  TILEKERNELS_CORE void call_e4m3(Ub<uint8> to, Ub<uint8> from, int64 rows, Ub<float> factors,
                                  Ub<uint32> of_bad, int64 cols) const {
    vf_call<make_e4m3<kDType, kAnyNan>>("make_e4m3", to, static_cast<int32>(size.out_pitch_bytes),
                                        from, static_cast<int32>(size.x_pitch_bytes), trips(rows),
                                        factors, of_bad, value_table, static_cast<uint32>(cols));
  }
  template <int32 kDType, bool kQuantized, bool kAnyNan>
  TILEKERNELS_CORE void call_e2m1(Ub<uint8> to, Ub<uint8> from, int64 rows, Ub<float> of,
                                  const Columns& columns_of_x, int64 cols) {
    vf_call<make_e2m1<kDType, kQuantized, kAnyNan>>(
        "make_e2m1", to, static_cast<int32>(size.out_pitch_bytes), from,
        static_cast<int32>(size.x_pitch_bytes), trips(rows), expanded, expanded_marks, of,
        columns_of_x.first, columns_of_x.inverse, static_cast<uint32>(cols));
  }

  // Codes of plain rows under the inverses of their groups.
  template <int32 kDType, bool kAnyNan>
  TILEKERNELS_CORE void call_plain_codes(const Item& item, Ub<uint8> to, Ub<uint8> from) {
    if (is_e2m1()) {
      call_e2m1<kDType, false, kAnyNan>(to, from, item.rows, inverses, {}, item.cols);
    } else {
      call_e4m3<kDType, kAnyNan>(to, from, item.rows, e4m3_inverses(), e4m3_marks(), item.cols);
    }
  }

  template <int32 kDType>
  TILEKERNELS_CORE void call_plain_codes(const Item& item, Ub<uint8> to, Ub<uint8> from) {
    if (shape.mode == kCastGivenSf) {
      call_plain_codes<kDType, true>(item, to, from);
    } else {
      call_plain_codes<kDType, false>(item, to, from);
    }
  }

  // Codes of quantized rows.
  template <int32 kDType>
  TILEKERNELS_CORE void call_codes_again(const Item& item, Ub<uint8> to, Ub<uint8> from,
                                         Ub<uint8> raw, const Columns& columns_of_x) {
    for_each_table(item, raw, [&](int64 row, int64 rows, Ub<float> of) {
      const Ub<uint8> mine = from + row * size.x_pitch_bytes;
      const Ub<uint8> codes = to + row * size.out_pitch_bytes;
      if (is_e2m1()) {
        call_e2m1<kDType, true, true>(codes, mine, rows, of, columns_of_x, item.cols);
      } else if (by_cell()) {
        if (num_tables(item) > 1) expand_cell_sf(item, of, columns_of_x);
        vf_call<fuse_factors>("fuse_factors", cell_factors, cell_marks, cell_sf, e4m3_inverses(),
                              num_cells(item));
        call_e4m3<kDType, false>(codes, mine, rows, cell_factors, cell_marks, item.cols);
      } else {
        vf_call<make_e4m3_by_column<kDType>>(
            "make_e4m3", codes, static_cast<int32>(size.out_pitch_bytes), mine,
            static_cast<int32>(size.x_pitch_bytes), trips(rows), inverses,
            1.0f / static_cast<float>(shape.block_cols), of, columns_of_x.first,
            columns_of_x.inverse, static_cast<uint32>(item.cols));
      }
    });
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

  template <int32 kTimes>
  TILEKERNELS_CORE void call_make_repeated(Ub<uint32> to, uint32 groups) {
    vf_call<make_scales<kSfF32, true, kDTypeBF16, kTimes>>("make_scales", to, expanded, marks,
                                                           maxima, groups, args.amax_clamp);
  }

  TILEKERNELS_CORE void compute_scales(const Item& item) {
    const SfWords of = sf_words(args.out_sf.map, shape.sf_kind);
    const auto groups = static_cast<uint32>(item.groups);
    const Ub<uint8> slot = sf.fill();
    const bool direct = in_a_row(of) && (is_wide_sf(shape.sf_kind) || by_e4m3_table());
    const Ub<uint32> to = direct ? as_ub<uint32>(slot) : words;
    const uint16 turns = trips(numerics::ceil_div(item.groups, kF32Lanes));
    if (item.rows <= 0) {
      vf_call<make_zeros>("make_zeros", to, turns);
    } else if (by_e4m3_table()) {
      vf_call<make_e4m3_scales>("make_scales", words, slot, trips(direct ? 0 : 1),
                                trips(direct ? 1 : 0), as_ub<uint32>(expanded),
                                as_ub<uint16>(maxima), inverse_table,
                                uint16{numerics::f32_to_e4m3(args.amax_clamp / kE2M1Max)}, groups);
    } else if (makes_repeated()) {
      if (shape.block_cols == 16) {
        call_make_repeated<2>(to, groups);
      } else {
        call_make_repeated<4>(to, groups);
      }
    } else if (is_e2m1()) {
      call_make_scales<true>(to, groups);
    } else {
      call_make_scales<false>(to, groups);
    }
    store_scales(item, of, slot, direct);
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

  // `next` is the item after it, of no rows if there is none.
  TILEKERNELS_CORE void compute(const Item& item, const Item& next) {
    if (item.rows <= 0) return compute_scales(item);
    const Ub<uint8> from = has_maxima ? held : in.empty();
    const Ub<uint8> raw = from + size.raw_offset;
    Columns columns_of_x{};
    if (quantized()) {
      const SfSpan span = sf_span(x_words, item.start, item.cols, shape.x_block_cols);
      columns_of_x = span.columns;
      for (int64 t = 0; t < num_tables(item) && shape.x_sf_kind != kSfF32; ++t) {
        call_decode(table(raw, t), raw + t * size.words_bytes, x_words, shape.x_sf_kind,
                    first_table(item) + t, span.count);
      }
    }
    if (shape.mode == kCastGivenSf) {
      const auto groups = static_cast<uint32>(item.groups);
      const bool is_f32 = is_wide_sf(shape.sf_kind);
      if (!is_f32) {
        call_decode(given_table, raw, SfWords{1, 1, 1}, shape.sf_kind, 0, item.groups);
      }
      const Ub<float> of = is_f32 ? as_ub<float>(raw) : given_table;
      if (is_e2m1()) {
        vf_call<invert<true>>("invert", inverses, marks, of, groups);
      } else {
        vf_call<invert<false>>("invert", inverses, marks, of, groups);
      }
    } else {
      if (!has_maxima) find_maxima(item, from, raw, columns_of_x);
      compute_scales(item);
    }
    has_maxima = false;
    if (shape.mode != kCastSfOnly) compute_codes(item, next, from, raw, columns_of_x);
    in.emptied();
  }

  TILEKERNELS_CORE void find_maxima(const Item& item, Ub<uint8> from, Ub<uint8> raw,
                                    const Columns& columns_of_x) {
    if (shape.x_dtype == kDTypeE4M3) {
      call_quantized_max<kDTypeE4M3>(item, from, raw, columns_of_x);
    } else if (shape.x_dtype == kDTypeE2M1x2) {
      call_quantized_max<kDTypeE2M1x2>(item, from, raw, columns_of_x);
    } else if (shape.x_dtype == kDTypeF32) {
      call_plain_max<uint32>(item, from);
    } else {
      call_plain_max<uint16>(item, from);
    }
  }

  // Codes of a row and the maxima of the next, whose slot stays locked.
  TILEKERNELS_CORE void call_codes_and_max(const Item& item, Ub<uint8> to, Ub<uint8> from) {
    held = in.empty_next();
    has_maxima = true;
    maxima = amax;
    const Ub<uint16> row = as_ub<uint16>(held);
    const Ub<uint16> cell = as_ub<uint16>(amax);
    const auto cols = static_cast<uint32>(item.cols);
    if (shape.block_cols == 16) {
      vf_call<make_e2m1_and_max<16>>("make_e2m1", to, from, expanded, cell, row, cols);
    } else {
      vf_call<make_e2m1_and_max<32>>("make_e2m1", to, from, expanded, cell, row, cols);
    }
  }

  TILEKERNELS_CORE void compute_codes(const Item& item, const Item& next, Ub<uint8> from,
                                      Ub<uint8> raw, const Columns& columns_of_x) {
    if (!by_e4m3_table() && !makes_repeated()) expand_inverses(item);
    const Ub<uint8> to = out.fill();
    switch (shape.x_dtype) {
      case kDTypeF32:
        call_plain_codes<kDTypeF32>(item, to, from);
        break;
      case kDTypeF16:
        call_plain_codes<kDTypeF16>(item, to, from);
        break;
      case kDTypeBF16:
        if (by_pow2()) {
          vf_call<make_e2m1_pow2>("make_e2m1", to, static_cast<int32>(size.out_pitch_bytes), from,
                                  static_cast<int32>(size.x_pitch_bytes), trips(item.rows),
                                  as_ub<uint16>(expanded), static_cast<uint32>(item.cols));
        } else if (by_two_rows() && next.rows > 0 && next.cols == item.cols) {
          call_codes_and_max(item, to, from);
        } else {
          call_plain_codes<kDTypeBF16>(item, to, from);
        }
        break;
      case kDTypeE4M3:
        call_codes_again<kDTypeE4M3>(item, to, from, raw, columns_of_x);
        break;
      default:
        call_codes_again<kDTypeE2M1x2>(item, to, from, raw, columns_of_x);
    }
    out.filled();
    const int64 pitch = bytes_of(shape.fmt, shape.hidden);
    copy_out(gm(args.out + item.row * pitch + bytes_of(shape.fmt, item.start)), out.empty(),
             {item.rows, bytes_of(shape.fmt, item.cols), pitch, size.out_pitch_bytes});
    out.emptied();
  }
};

TILEKERNELS_CORE void run(const CastArgs& args, const CastShape& shape, const Tile& tile) {
  prologue();
  Cast cast(args, shape, tile);
  const int64 items = num_items(args, shape, tile);
  pipeline(
      tile.stages, block_idx(), items, block_num(),
      [&](int64 index) { cast.load(item_of(args, shape, tile, index)); },
      [&](int64 index) {
        const int64 next = index + block_num();
        cast.compute(item_of(args, shape, tile, index),
                     next < items ? item_of(args, shape, tile, next) : Item{});
      });
  barrier_all();
}

}  // namespace tilekernels::ascend::cast_kernel
