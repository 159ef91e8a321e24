// per_token_cast and per_block_cast on the vector core.
//
// An item is a strip of block_rows rows by a span of columns. Its rows come in together; one vector
// function finds the groups' maxima, one their scaling factors and inverses, one the codes.
#pragma once

#include "ops/quant/cast_state_ascend.h"

namespace tilekernels::ascend::cast_kernel {

// The steps of an item, for one type of x.
template <int32 kDType>
struct Cast : CastState {
  static constexpr bool kQuantized = is_quantized(kDType);
  // The maxima's: values of a quantized x are fp32.
  static constexpr int32 kMaxDType = kQuantized ? kDTypeF32 : kDType;

  TILEKERNELS_CORE Cast(const CastArgs& a, const CastShape& s, const Tile& t)
      : CastState(a, s, t) {}

  // ---- maxima

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

  template <class T>
  TILEKERNELS_CORE void call_plain_max(const Item& item, Ub<uint8> tile_of_x) {
    const auto cols = static_cast<uint32>(item.cols);
    if (shape.block_rows == 1) return call_group_max<T>(as_ub<T>(tile_of_x), cols);
    const auto pitch = static_cast<int32>(size.x_pitch_bytes / static_cast<int64>(sizeof(T)));
    vf_call<column_max<T>>("column_max", as_ub<T>(largest[0]), as_ub<T>(tile_of_x), pitch,
                           trips(item.rows), cols);
    call_group_max<T>(as_ub<T>(largest[0]), cols);
  }

  TILEKERNELS_CORE void find_maxima(const Item& item, Ub<uint8> from, Ub<uint8> raw,
                                    const Columns& columns_of_x) {
    if constexpr (kQuantized) {
      if (by_cell()) return call_cell_max(item, from, raw, columns_of_x);
      call_value_max(item, from, raw, columns_of_x);
    } else if constexpr (kDType == kDTypeF32) {
      call_plain_max<uint32>(item, from);
    } else {
      call_plain_max<uint16>(item, from);
    }
  }

  // ---- scaling factors

  template <int32 kSfKind, bool kIsE2M1>
  TILEKERNELS_CORE void call_make_scales(Ub<uint32> to, uint32 groups) {
    vf_call<make_scales<kSfKind, kIsE2M1, kMaxDType>>("make_scales", to, inverses, marks, maxima,
                                                      groups, args.amax_clamp);
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

  template <int32 kTimes>
  TILEKERNELS_CORE void call_make_repeated(Ub<uint32> to, uint32 groups) {
    vf_call<make_scales<kSfF32, true, kDType, kTimes>>("make_scales", to, expanded, marks, maxima,
                                                       groups, args.amax_clamp);
  }
  // Of two rows at a time: with inverses as their codes read them.
  TILEKERNELS_CORE void make_scales_of_bf16(Ub<uint8> slot, Ub<uint32> to, uint32 groups,
                                            bool direct) {
    if (by_e4m3_table()) {
      vf_call<make_e4m3_scales>("make_scales", words, slot, trips(direct ? 0 : 1),
                                trips(direct ? 1 : 0), as_ub<uint32>(expanded),
                                as_ub<uint16>(maxima), inverse_table,
                                uint16{numerics::f32_to_e4m3(args.amax_clamp / kE2M1Max)}, groups);
    } else if (shape.block_cols == 16) {
      call_make_repeated<2>(to, groups);
    } else {
      call_make_repeated<4>(to, groups);
    }
  }

  TILEKERNELS_CORE void make_scales_of(Ub<uint8> slot, Ub<uint32> to, uint32 groups, bool direct) {
    if constexpr (kDType == kDTypeBF16) {
      if (by_e4m3_table() || makes_repeated()) {
        return make_scales_of_bf16(slot, to, groups, direct);
      }
    }
    if (is_e2m1()) {
      call_make_scales<true>(to, groups);
    } else {
      call_make_scales<false>(to, groups);
    }
  }

  TILEKERNELS_CORE void compute_scales(const Item& item) {
    const SfWords of = sf_words(args.out_sf.map, shape.sf_kind);
    const Ub<uint8> slot = sf.fill();
    const bool direct = in_a_row(of) && (is_wide_sf(shape.sf_kind) || by_e4m3_table());
    const Ub<uint32> to = direct ? as_ub<uint32>(slot) : words;
    if (item.rows <= 0) {
      vf_call<make_zeros>("make_zeros", to, trips(numerics::ceil_div(item.groups, kF32Lanes)));
    } else {
      make_scales_of(slot, to, static_cast<uint32>(item.groups), direct);
    }
    store_scales(item, of, slot, direct);
  }

  // ---- codes

  template <bool kAnyNan>
  TILEKERNELS_CORE void call_e4m3(Ub<uint8> to, Ub<uint8> from, int64 rows, Ub<float> factors,
                                  Ub<uint32> of_bad, int64 cols) const {
    vf_call<make_e4m3<kDType, kAnyNan>>("make_e4m3", to, static_cast<int32>(size.out_pitch_bytes),
                                        from, static_cast<int32>(size.x_pitch_bytes), trips(rows),
                                        factors, of_bad, value_table, static_cast<uint32>(cols));
  }
  template <bool kAnyNan>
  TILEKERNELS_CORE void call_e2m1(Ub<uint8> to, Ub<uint8> from, int64 rows, Ub<float> of,
                                  const Columns& columns_of_x, int64 cols) {
    vf_call<make_e2m1<kDType, kQuantized, kAnyNan>>(
        "make_e2m1", to, static_cast<int32>(size.out_pitch_bytes), from,
        static_cast<int32>(size.x_pitch_bytes), trips(rows), expanded, expanded_marks, of,
        columns_of_x.first, columns_of_x.inverse, static_cast<uint32>(cols));
  }

  // Codes of plain rows under the inverses of their groups.
  template <bool kAnyNan>
  TILEKERNELS_CORE void call_plain_codes(const Item& item, Ub<uint8> to, Ub<uint8> from) {
    if (is_e2m1()) {
      call_e2m1<kAnyNan>(to, from, item.rows, inverses, {}, item.cols);
    } else {
      call_e4m3<kAnyNan>(to, from, item.rows, e4m3_inverses(), e4m3_marks(), item.cols);
    }
  }

  // Codes of quantized rows.
  TILEKERNELS_CORE void call_codes_again(const Item& item, Ub<uint8> to, Ub<uint8> from,
                                         Ub<uint8> raw, const Columns& columns_of_x) {
    for_each_table(item, raw, [&](int64 row, int64 rows, Ub<float> of) {
      const Ub<uint8> mine = from + row * size.x_pitch_bytes;
      const Ub<uint8> codes = to + row * size.out_pitch_bytes;
      if (is_e2m1()) {
        call_e2m1<true>(codes, mine, rows, of, columns_of_x, item.cols);
      } else if (by_cell()) {
        if (num_tables(item) > 1) expand_cell_sf(item, of, columns_of_x);
        vf_call<fuse_factors>("fuse_factors", cell_factors, cell_marks, cell_sf, e4m3_inverses(),
                              num_cells(item));
        call_e4m3<false>(codes, mine, rows, cell_factors, cell_marks, item.cols);
      } else {
        vf_call<make_e4m3_by_column<kDType>>(
            "make_e4m3", codes, static_cast<int32>(size.out_pitch_bytes), mine,
            static_cast<int32>(size.x_pitch_bytes), trips(rows), inverses,
            1.0f / static_cast<float>(shape.block_cols), of, columns_of_x.first,
            columns_of_x.inverse, static_cast<uint32>(item.cols));
      }
    });
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

  // Codes of bf16 in the ways that other types lack; whether one of them applied.
  TILEKERNELS_CORE bool call_bf16_codes(const Item& item, const Item& next, Ub<uint8> to,
                                        Ub<uint8> from) {
    if (by_pow2()) {
      vf_call<make_e2m1_pow2>("make_e2m1", to, static_cast<int32>(size.out_pitch_bytes), from,
                              static_cast<int32>(size.x_pitch_bytes), trips(item.rows),
                              as_ub<uint16>(expanded), static_cast<uint32>(item.cols));
      return true;
    }
    const bool two = by_two_rows() && next.rows > 0 && next.cols == item.cols;
    if (two) call_codes_and_max(item, to, from);
    return two;
  }

  TILEKERNELS_CORE void call_codes(const Item& item, const Item& next, Ub<uint8> to, Ub<uint8> from,
                                   Ub<uint8> raw, const Columns& columns_of_x) {
    if constexpr (kQuantized) {
      call_codes_again(item, to, from, raw, columns_of_x);
    } else {
      if constexpr (kDType == kDTypeBF16) {
        if (call_bf16_codes(item, next, to, from)) return;
      }
      if (shape.mode == kCastGivenSf) {
        call_plain_codes<true>(item, to, from);
      } else {
        call_plain_codes<false>(item, to, from);
      }
    }
  }

  TILEKERNELS_CORE void compute_codes(const Item& item, const Item& next, Ub<uint8> from,
                                      Ub<uint8> raw, const Columns& columns_of_x) {
    if (!by_e4m3_table() && !makes_repeated()) expand_inverses(item);
    const Ub<uint8> to = out.fill();
    call_codes(item, next, to, from, raw, columns_of_x);
    out.filled();
    const int64 pitch = bytes_of(shape.fmt, shape.hidden);
    copy_out(gm(args.out + item.row * pitch + bytes_of(shape.fmt, item.start)), out.empty(),
             {item.rows, bytes_of(shape.fmt, item.cols), pitch, size.out_pitch_bytes});
    out.emptied();
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
};

// A launch for one type of x, which a host compiles in a file of its own.
template <int32 kDType>
TILEKERNELS_CORE_PART void run_as(const CastArgs& args, const CastShape& shape, const Tile& tile) {
  prologue();
  Cast<kDType> cast(args, shape, tile);
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

TILEKERNELS_CORE void run(const CastArgs& args, const CastShape& shape, const Tile& tile) {
  switch (shape.x_dtype) {
    case kDTypeF32:
      return run_as<kDTypeF32>(args, shape, tile);
    case kDTypeF16:
      return run_as<kDTypeF16>(args, shape, tile);
    case kDTypeBF16:
      return run_as<kDTypeBF16>(args, shape, tile);
    case kDTypeE4M3:
      return run_as<kDTypeE4M3>(args, shape, tile);
    default:
      return run_as<kDTypeE2M1x2>(args, shape, tile);
  }
}

}  // namespace tilekernels::ascend::cast_kernel
