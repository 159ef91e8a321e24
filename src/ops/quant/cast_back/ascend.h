// cast_back on the vector core: an item is a row by a span of columns.
#pragma once

#include "ops/quant/cast_back/op.h"
#include "ops/quant/scales_ascend.h"

namespace tilekernels::ascend::cast_back_kernel {

/// Tile constants, made by `plan`.
struct Tile {
  int32 stages;    // items in flight
  int32 span;      // columns of an item
  int32 ub_bytes;  // what the kernel allocates
};

// Lanes of f16 or bf16 whose NaN is made canonical, to memory.
template <class T>
TILEKERNELS_CALLEE void store_halves(Ub<uint8> out, Reg<T>& y, const Reg<uint16>& nan,
                                     const Mask& valid) {
  Mask is_nan;
  vcmp<Cmp::kNe>(is_nan, y, y, valid);
  vsel(as<uint16>(y), nan, as<uint16>(y), is_nan);
  vsts(as_ub<T>(out), y, valid);
}

// A row of codes times their scaling factors, `sf` one every 16 columns, as f16 or bf16: by pairs
// of columns, which meet in one 32-bit lane.
template <int32 kDType, int32 kOut>
TILEKERNELS_VF void widen_pairs(Ub<uint8> out, Ub<uint8> x, Ub<float> sf, uint32 cols) {
  using T = typename LaneOfDType<kOut>::T;
  const Mask all = pset<float>();
  const Mask halves = pset<uint8>();
  constexpr int32 kStepBytes = static_cast<int32>(bytes_of(kDType, kPair));
  Reg<uint16> nan;
  vdup(nan, uint16{0x7FFF}, halves);
  const auto turns = static_cast<uint16>((cols + kPair - 1) / kPair);
  for (uint16 i = 0; i < turns; ++i) {
    const Mask valid = plt<uint16>(cols);
    Reg<float> even;
    Reg<float> odd;
    Reg<float> factor;
    Reg<T> y;
    load_even_odd<kDType>(even, odd, x + i * kStepBytes);
    vlds<Dist::kE2b>(factor, sf + i * 8);
    vmul(even, even, factor, all);
    vmul(odd, odd, factor, all);
    vcvt<0, Round::kRint, Saturate::kNo>(y, even, all);
    vcvt<1, Round::kRint, Saturate::kNo>(as<T>(odd), odd, all);
    vor(as<uint16>(y), as<uint16>(y), as<uint16>(odd), halves);
    store_halves(out + 2 * i * kPair, y, nan, valid);
  }
}

// The same of FP4 codes under e4m3 or powers of two, as bf16, which holds the products exactly.
// `sf` holds one every 16 columns, as bf16.
TILEKERNELS_VF void widen_exact(Ub<uint8> out, Ub<uint8> x, Ub<uint16> sf, uint32 cols) {
  const Mask halves = pset<uint8>();
  Reg<uint16> nan;
  vdup(nan, uint16{0x7FFF}, halves);
  const auto turns = static_cast<uint16>((cols + kPair - 1) / kPair);
  for (uint16 i = 0; i < turns; ++i) {
    const Mask valid = plt<uint16>(cols);
    Reg<E2M1x2> codes;
    Reg<BF16> y;
    Reg<BF16> factor;
    vlds<Dist::kUnpack4>(codes, as_ub<E2M1x2>(x + i * kF32Lanes));
    vlds<Dist::kE2b>(as<uint16>(factor), sf + i * 8);
    vcvt<0, Round::kNone, Saturate::kNo>(y, codes, halves);
    vmul(y, y, factor, halves);
    store_halves(out + 2 * i * kPair, y, nan, valid);
  }
}

// A row of codes times their scaling factors: one of `table` every 8 columns with kExpanded, else
// looked up by column.
template <int32 kDType, int32 kOut, bool kExpanded>
TILEKERNELS_VF void widen(Ub<uint8> out, Ub<uint8> x, Ub<float> table, float first, float inverse,
                          uint32 cols) {
  const Mask all = pset<float>();
  Reg<float> column;
  Reg<float> a;
  Reg<float> b;
  Reg<float> sf_a;
  Reg<float> sf_b;
  if constexpr (!kExpanded) number_columns(column, first, 1.0f, all);
  constexpr int32 kStepBytes = static_cast<int32>(bytes_of(kDType, kPair));
  constexpr int32 kHalfBytes = static_cast<int32>(bytes_of(kOut, kF32Lanes));
  const auto turns = static_cast<uint16>((cols + kPair - 1) / kPair);
  for (uint16 i = 0; i < turns; ++i) {
    const Mask valid_a = plt<float>(cols);
    const Mask valid_b = plt<float>(cols);
    load_pair<kDType>(a, b, x + i * kStepBytes);
    if constexpr (kExpanded) {
      vlds<Dist::kE2b>(sf_a, table + i * 16);
      vlds<Dist::kE2b>(sf_b, table + (i * 16 + 8));
    } else {
      look_up(sf_a, table, column, inverse, valid_a);
      vadds(column, column, static_cast<float>(kF32Lanes), all);
      look_up(sf_b, table, column, inverse, valid_b);
      vadds(column, column, static_cast<float>(kF32Lanes), all);
    }
    vmul(a, a, sf_a, valid_a);
    vmul(b, b, sf_b, valid_b);
    store_values<kOut>(out + 2 * i * kHalfBytes, a, valid_a);
    store_values<kOut>(out + (2 * i + 1) * kHalfBytes, b, valid_b);
  }
}

// Sizes of the buffers of a tile, in bytes.
struct Sizes {
  int64 raw_offset;  // of scaling factors behind the codes
  int64 out;
  int64 words;
  int64 table;
  int64 expanded;
};

constexpr Sizes sizes(const CastBackShape& shape, int64 span, int64 pack_k, int64 word_bytes) {
  const int64 words = most_sf_words(span, shape.block_cols, pack_k);
  return {numerics::align_up(bytes_of(shape.x_dtype, span), kBlockBytes) + kVectorBytes,
          numerics::align_up(bytes_of(shape.out_dtype, span), kBlockBytes),
          numerics::align_up(words * word_bytes, kBlockBytes),
          numerics::align_up(words * pack_k * 4, kBlockBytes), numerics::align_up(span, kPair) / 2};
}

constexpr int64 ub_bytes(const CastBackShape& shape, int64 stages, int64 span, int64 pack_k,
                         int64 word_bytes) {
  const Sizes s = sizes(shape, span, pack_k, word_bytes);
  constexpr int64 kTail = kVectorBytes;
  return stages * (s.raw_offset + s.out + s.words + 2 * kTail) + s.table + s.expanded + 2 * kTail;
}

/// The widest span, and as many stages as fit, up to 3.
constexpr Tile plan(const CastBackShape& shape, int32 pack_k, int32 word_bytes) {
  int64 span = numerics::min_of<int64>(
      kMaxSpan, numerics::align_up(numerics::max_of(shape.hidden, 1), kPair));
  while (true) {
    for (int32 stages = 3; stages >= 2; --stages) {
      const int64 bytes = ub_bytes(shape, stages, span, pack_k, word_bytes);
      if (bytes <= kUbBytes) {
        return {stages, static_cast<int32>(span), static_cast<int32>(bytes)};
      }
    }
    span = numerics::align_up(span / 2, kPair);
  }
}

TILEKERNELS_CORE int64 num_spans(const CastBackShape& shape, const Tile& tile) {
  return numerics::ceil_div(shape.hidden, tile.span);
}

template <int32 kDType, int32 kOut>
TILEKERNELS_CORE void call_widen(Ub<uint8> out, Ub<uint8> x, Ub<float> table, Ub<float> expanded,
                                 const CastBackShape& shape, const Columns& of, int64 count) {
  const auto cols = static_cast<uint32>(count);
  if constexpr (kOut != numerics::kDTypeF32) {
    if (shape.block_cols % 16 == 0) {
      const int64 entries = (count + 15) / 16;
      if constexpr (kDType == numerics::kDTypeE2M1x2 && kOut == numerics::kDTypeBF16) {
        if (shape.sf_kind != numerics::kSfF32) {
          call_expand<BF16>(as_ub<BF16>(expanded), table, of, 16, shape.block_cols, entries);
          return vf_call<widen_exact>("widen", out, x, as_ub<uint16>(expanded), cols);
        }
      }
      call_expand<float>(expanded, table, of, 16, shape.block_cols, entries);
      return vf_call<widen_pairs<kDType, kOut>>("widen", out, x, expanded, cols);
    }
  }
  if (shape.block_cols % 8 != 0) {
    return vf_call<widen<kDType, kOut, false>>("widen", out, x, table, of.first, of.inverse, cols);
  }
  call_expand<float>(expanded, table, of, 8, shape.block_cols, (cols + 7) / 8);
  vf_call<widen<kDType, kOut, true>>("widen", out, x, expanded, 0.0f, 0.0f, cols);
}

template <int32 kDType>
TILEKERNELS_CORE void call_widen(Ub<uint8> out, Ub<uint8> x, Ub<float> table, Ub<float> expanded,
                                 const CastBackShape& shape, const Columns& of, int64 count) {
  switch (shape.out_dtype) {
    case numerics::kDTypeF32:
      return call_widen<kDType, numerics::kDTypeF32>(out, x, table, expanded, shape, of, count);
    case numerics::kDTypeF16:
      return call_widen<kDType, numerics::kDTypeF16>(out, x, table, expanded, shape, of, count);
    default:
      return call_widen<kDType, numerics::kDTypeBF16>(out, x, table, expanded, shape, of, count);
  }
}

TILEKERNELS_CORE void run(const CastBackArgs& args, const CastBackShape& shape, const Tile& tile) {
  prologue();
  const SfWords words = sf_words(args.x_sf.map, shape.sf_kind);
  const Sizes size = sizes(shape, tile.span, words.pack_k, words.word_bytes);
  const bool is_f32 = shape.sf_kind == numerics::kSfF32;
  MutexPool pool;
  // Codes and, behind them, their scaling factors as they are in memory.
  InRing<uint8> in(pool, "x", tile.stages, size.raw_offset + size.words);
  OutRing<uint8> out(pool, "out", tile.stages, size.out);
  const Ub<float> decoded = ub_alloc<float>("x_sf table", size.table / 4);
  const Ub<float> expanded = ub_alloc<float>("expanded", size.expanded / 4);
  const int64 spans = num_spans(shape, tile);
  const auto cols_of = [&](int64 start) {
    return numerics::min_of<int64>(tile.span, shape.hidden - start);
  };
  pipeline(
      tile.stages, block_idx(), args.num_tokens * spans, block_num(),
      [&](int64 item) {
        const int64 row = item / spans;
        const int64 start = item % spans * tile.span;
        const int64 cols = cols_of(start);
        const Ub<uint8> slot = in.fill();
        copy_in(slot, gm(args.x + row * args.x_stride + bytes_of(shape.x_dtype, start)),
                {1, bytes_of(shape.x_dtype, cols)});
        const SfSpan span = sf_span(words, start, cols, shape.block_cols);
        const numerics::SfMap& map = args.x_sf.map;
        const int64 m = row / shape.block_rows;
        copy_in_words(slot + size.raw_offset,
                      args.x_sf.base + m / map.pack_m * map.stride_m + span.first * map.stride_k,
                      words, map.stride_k, span.count);
        in.filled();
      },
      [&](int64 item) {
        const int64 row = item / spans;
        const int64 start = item % spans * tile.span;
        const int64 cols = cols_of(start);
        const SfSpan span = sf_span(words, start, cols, shape.block_cols);
        const Ub<uint8> from = in.empty();
        const Ub<uint8> mine = from + size.raw_offset;
        if (!is_f32) {
          call_decode(decoded, mine, words, shape.sf_kind, row / shape.block_rows, span.count);
        }
        const Ub<float> table = is_f32 ? as_ub<float>(mine) : decoded;
        const Ub<uint8> to = out.fill();
        if (shape.x_dtype == numerics::kDTypeE4M3) {
          call_widen<numerics::kDTypeE4M3>(to, from, table, expanded, shape, span.columns, cols);
        } else {
          call_widen<numerics::kDTypeE2M1x2>(to, from, table, expanded, shape, span.columns, cols);
        }
        in.emptied();
        out.filled();
        const int64 at = bytes_of(shape.out_dtype, row * shape.hidden + start);
        copy_out(gm(static_cast<uint8*>(args.out) + at), out.empty(),
                 {1, bytes_of(shape.out_dtype, cols)});
        out.emptied();
      });
  barrier_all();
}

}  // namespace tilekernels::ascend::cast_back_kernel
