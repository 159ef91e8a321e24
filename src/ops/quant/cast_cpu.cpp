// per_token_cast and per_block_cast on SIMD lanes: tile by tile of x that stays in the cache, first
// the largest magnitudes, then the scaling factors, then the codes.
#include <algorithm>
#include <cstring>

#include "hwy/cache_control.h"
#include "ops/quant/cast.h"
#include "runtime/cpu/cache.h"
#include "runtime/cpu/parallel.h"
#include "tilekernels/config.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/quant/cast_cpu.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "ops/quant/cast_amax-inl.h"
#include "ops/quant/cast_encode-inl.h"
#include "ops/quant/scales-inl.h"
#include "runtime/cpu/store-inl.h"

#ifndef TILEKERNELS_OPS_QUANT_CAST_CPU_CPP_
#define TILEKERNELS_OPS_QUANT_CAST_CPU_CPP_
namespace tilekernels::cpu {

constexpr int64 kMaxTileCols = 8192;
constexpr int64 kMinGroup = 16;
constexpr int64 kMaxTileGroups = kMaxTileCols / kMinGroup;
// Rows of scaling blocks in a tile where scaling factors lie by column: 16 of them are a line.
constexpr int64 kMaxTileRows = 16;
// Four groups of 128: a tile's scaling factors are whole packs.
constexpr int64 kColsMultiple = 512;
// Elements behind the last one that vectors may run over.
constexpr int64 kPad = 64;

// How a call is walked: everything that does not depend on the tile.
struct CastWalk {
  int64 rows;       // of scaling blocks
  int64 tile_rows;  // in scaling blocks
  int64 tile_cols;  // in elements, a multiple of kColsMultiple
  int64 num_tile_rows;
  int64 num_tile_cols;
  int64 item_tiles;       // neighbouring tiles that one thread does, one after the other
  int64 num_items;        // in a row of tiles
  int64 out_pitch;        // bytes
  int64 prefetch_offset;  // bytes from what is encoded to what is read next, in the same item
  bool stream;            // whether codes bypass the cache …
  bool by_row;            // … after they were gathered in a row, for want of alignment
};

// A thread's memory besides the tensors.
struct CastScratch {
  alignas(64) uint32 amax[kMaxTileGroups + kPad];
  alignas(64) float inv[kMaxTileGroups + kPad];
  alignas(64) float bases[kMaxTileGroups + kPad];  // bits of what exponent_bases gives
  alignas(64) uint8 sf[kMaxTileRows][4 * (kMaxTileGroups + kPad)];  // as stored
  alignas(64) uint8 row[kMaxTileCols + kPad];                       // codes
  // Of a quantized x: scaling factors of the blocks in a row of the tile, then one for every unit;
  // what codes are multiplied by, largest codes or magnitudes by unit, values
  alignas(64) float scales[kMaxTileCols + kPad];
  alignas(64) float units[kMaxTileCols + kPad];
  alignas(64) float factors[kMaxTileGroups + kPad];
  alignas(64) uint8 tables[kMaxTileCols + kPad];  // of 16 bytes for each unit
  alignas(64) uint32 unit_amax[kMaxTileGroups + kPad];
  alignas(64) float values[kMaxTileCols + kPad];
  alignas(64) uint8 raw[kMaxTileCols + kPad];
};

}  // namespace tilekernels::cpu
#endif  // TILEKERNELS_OPS_QUANT_CAST_CPU_CPP_

HWY_BEFORE_NAMESPACE();
namespace tilekernels::cpu::HWY_NAMESPACE {
namespace {

template <int32 kX, int32 kFmt>
class Tile {
 public:
  Tile(const CastArgs& args, const CastShape& shape, const CastWalk& walk, int64 tile_row,
       int64 tile_col, bool is_first, int64 prefetch_offset, CastScratch& scratch)
      : args_(args),
        shape_(shape),
        walk_(walk),
        is_first_(is_first),
        prefetch_offset_(prefetch_offset),
        scratch_(scratch) {
    m_begin_ = tile_row * walk.tile_rows;
    const bool is_last = tile_col + 1 == walk.num_tile_cols;
    col_begin_ = tile_col * walk.tile_cols;
    cols_ = (is_last ? shape.hidden : col_begin_ + walk.tile_cols) - col_begin_;
    k_begin_ = col_begin_ / shape.block_cols;
    groups_ = ceil_div(cols_, shape.block_cols);
    padded_groups_ = is_last ? args.out_sf.padded_k - k_begin_ : groups_;
    group_shift_ = log2_of(shape.block_cols);
  }

  void run() {
    if (shape_.mode == kCastGivenSf) {
      const int64 end = std::min(m_begin_ + walk_.tile_rows, walk_.rows);
      for (int64 m = m_begin_; m < end; ++m) encode_given(m);
      return;
    }
    const int64 end = std::min(m_begin_ + walk_.tile_rows, args_.out_sf.padded_m);
    const int64 sf_size = sf_bytes(shape_.sf_kind);
    for (int64 m = m_begin_; m < end; ++m) {
      uint8* sf = scratch_.sf[m - m_begin_];
      const int64 groups = m < walk_.rows ? groups_ : 0;
      if (groups > 0) cast(m, sf);
      std::memset(sf + groups * sf_size, 0,
                  static_cast<size_t>((padded_groups_ - groups) * sf_size));
    }
    scales::write(args_.out_sf, sf_bytes(shape_.sf_kind), m_begin_, end - m_begin_, k_begin_,
                  padded_groups_, scratch_.sf[0], sizeof(scratch_.sf[0]));
  }

 private:
  static constexpr bool kIsQuantized = is_quantized(kX);
  static constexpr bool kHasTables = kX == kDTypeE4M3 && kFmt == kDTypeE4M3;
  static constexpr int64 kRowsAhead = 4;
  static constexpr uint32 kBoundedAmax = bit_cast<uint32>(0x1p90f);

  const uint8* row(int64 row) const {
    return args_.x + row * args_.x_pitch_bytes + bytes_of<kX>(col_begin_);
  }

  void prefetch_row(const uint8* x) const {
    for (int64 i = 0; i < bytes_of<kX>(cols_); i += 64) hwy::Prefetch(x + i);
  }

  // One row of scaling blocks.
  void cast(int64 m, uint8* sf) {
    const int64 row_begin = m * shape_.block_rows;
    const int64 row_end = std::min(row_begin + shape_.block_rows, args_.num_tokens);
    for (int64 r = row_begin; r < row_end; ++r) {
      if constexpr (kIsQuantized) {
        read_units(r);
        quantized_amax(row(r), r == row_begin);
      } else {
        if (is_first_ && r + kRowsAhead < row_end) prefetch_row(row(r + kRowsAhead));
        // Nothing is encoded, which would do it.
        if (shape_.mode == kCastSfOnly) prefetch_row(row(r) + prefetch_offset_);
        row_amax<kX>(row(r), cols_, shape_.block_cols, r == row_begin, scratch_.amax);
      }
    }
    clear_step(scratch_.amax + groups_);
    if constexpr (kX == kDTypeF16) widen_amax_f16(groups_, scratch_.amax);
    const uint32 largest = scales::compute(shape_.sf_kind, kFmt == kDTypeE2M1x2, scratch_.amax,
                                           groups_, args_.amax_clamp, scratch_.inv, sf);
    if (shape_.mode != kCastAll) return;
    const bool any_bad = largest >= kInfBits;
    // e4m3 scaling factors are rounded down, too, and saturate: then products are as large as x.
    const bool is_bounded =
        shape_.sf_kind != kSfE4M3 || (kFmt == kDTypeE2M1x2 && largest < kBoundedAmax);
    if (is_bounded) {
      encode_rows<false>(row_begin, row_end, any_bad);
    } else {
      encode_rows<true>(row_begin, row_end, any_bad);
    }
  }

  void encode_given(int64 m) {
    float* inv = scratch_.inv;
    scales::read(args_.given_sf, shape_.sf_kind, m, k_begin_, groups_, scratch_.raw, inv);
    bool any_bad = false;
    for (int64 k = 0; k < groups_; ++k) {
      inv[k] = inverse_of_scale(inv[k]);
      any_bad |= is_nan(inv[k]);
    }
    const int64 row_begin = m * shape_.block_rows;
    const int64 row_end = std::min(row_begin + shape_.block_rows, args_.num_tokens);
    encode_rows<true>(row_begin, row_end, any_bad);
  }

  template <bool kChecked>
  void encode_rows(int64 row_begin, int64 row_end, bool any_bad) {
    const int64 out_bytes = bytes_of<kFmt>(cols_);
    const bool by_row = walk_.by_row || any_bad;
    const PlainFactors inv{scratch_.inv, group_shift_};
    const PlainFactors bases{scratch_.bases, group_shift_};
    const bool by_exponent = kX == kDTypeBF16 && !kChecked && write_bases();
    for (int64 r = row_begin; r < row_end; ++r) {
      uint8* out = args_.out + r * walk_.out_pitch + bytes_of<kFmt>(col_begin_);
      uint8* to = by_row ? scratch_.row : out;
      const bool stream = walk_.stream && !by_row;
      if constexpr (kIsQuantized) {
        if (read_units(r) || r == row_begin) fuse_units<kChecked>(inv);
        encode_quantized<kChecked>(row(r), inv, stream, to);
      } else if (by_exponent) {
        encode_row_by_exponent<kFmt>(row(r), cols_, inv, bases, stream, prefetch_offset_, to);
      } else {
        encode_row<kX, kFmt, kChecked>(row(r), cols_, inv, stream, prefetch_offset_, to);
      }
      if (any_bad) clear_bad_groups(to);
      if (!by_row) continue;
      if (walk_.stream) {
        stream_copy(out, to, out_bytes);
      } else {
        std::memcpy(out, to, static_cast<size_t>(out_bytes));
      }
    }
  }

  // Returns false if inverses are not powers of two, or too large for a group that is not all 0.
  bool write_bases() {
    if (shape_.sf_kind != kSfUE8M0 && shape_.sf_kind != kSfRoundedF32) return false;
    auto largest = hn::Zero(kU32);
    for (int64 k = 0; k < groups_; k += kLanes) {
      const VF inv = hn::LoadU(kF, scratch_.inv + k);
      const auto is_zero = hn::Eq(hn::LoadU(kU32, scratch_.amax + k), hn::Zero(kU32));
      largest = hn::Max(largest, hn::IfThenZeroElse(is_zero, hn::BitCast(kU32, inv)));
      hn::StoreU(exponent_bases<kFmt>(inv), kF, scratch_.bases + k);
    }
    return hn::GetLane(hn::MaxOfLanes(kU32, largest)) <= bit_cast<uint32>(kMaxPowerInverse);
  }

  // What rows under the same scaling factors, those of x and those of the result, share.
  template <bool kChecked>
  void fuse_units(const PlainFactors& inv) {
    if (unit_cols_ == 1) return;
    const int shift = log2_of(unit_cols_);
    fuse_factors(scratch_.units, shift, inv.inv, inv.group_shift, cols_, scratch_.factors);
    if constexpr (kHasTables && !kChecked) {
      if (any_negative_unit_) return;
      write_e4m3_tables(scratch_.factors, unit_cols_ / kBlockCols, ceil_div(cols_, unit_cols_),
                        scratch_.tables);
    }
  }

  template <bool kChecked>
  void encode_quantized(const uint8* x, const PlainFactors& inv, bool stream, uint8* to) {
    if (unit_cols_ == 1) {
      const FactorsByCol factors{inv, scratch_.units};
      encode_row<kX, kFmt, true>(x, cols_, factors, stream, prefetch_offset_, to);
      return;
    }
    const float* factors = scratch_.factors;
    // A negative factor may overflow, and -Inf times a zero code is NaN.
    if (kChecked || any_negative_unit_) {
      encode_row<kX, kFmt, true>(x, cols_, FactorsByBlock{factors}, stream, prefetch_offset_, to);
    } else if constexpr (kHasTables) {
      encode_row_by_table(x, cols_, factors, scratch_.tables, log2_of(unit_cols_), stream,
                          prefetch_offset_, to);
    } else {
      encode_row_of_codes<kX, kFmt>(x, cols_, factors, stream, prefetch_offset_, to);
    }
  }

  void clear_bad_groups(uint8* codes) const {
    for (int64 k = 0; k < groups_; ++k) {
      if (!is_nan(scratch_.inv[k])) continue;
      const int64 begin = bytes_of<kFmt>(k * shape_.block_cols);
      const int64 end = bytes_of<kFmt>(std::min(cols_, (k + 1) * shape_.block_cols));
      std::memset(codes + begin, kFmt == kDTypeE4M3 ? 0x7F : 0, static_cast<size_t>(end - begin));
    }
  }

  // ------------------------------ a quantized x

  // Makes `units` the input scaling factors of that row: those of columns, or of parts of a group
  // and a block of x, whichever is narrower. Returns whether they were others before.
  bool read_units(int64 r) {
    const int64 m = r / shape_.x_block_rows;
    if (m == units_of_) return false;
    units_of_ = m;
    const int64 block = shape_.x_block_cols;
    unit_cols_ = block % kBlockCols != 0 ? 1 : std::min<int64>(block, shape_.block_cols);
    const int64 begin = col_begin_ / block;
    const int64 num = (col_begin_ + cols_ - 1) / block + 1 - begin;
    scales::read(args_.x_sf, shape_.x_sf_kind, m, begin, num, scratch_.raw, scratch_.scales);
    uint32 signs = 0;
    for (int64 i = 0; i < num; ++i) signs |= bit_cast<uint32>(scratch_.scales[i]);
    any_negative_unit_ = signs >> 31 != 0;
    const int64 units = ceil_div(cols_, unit_cols_);
    scales::spread(scratch_.scales, block / unit_cols_, col_begin_ % block / unit_cols_, units,
                   scratch_.units);
    clear_step(reinterpret_cast<uint32*>(scratch_.units + units));
    return true;
  }

  // Takes a row into the maxima of its groups.
  void quantized_amax(const uint8* x, bool is_first) {
    if (unit_cols_ == 1) {
      const uint8* values = multiply(x);
      return row_amax<kDTypeF32>(values, cols_, shape_.block_cols, is_first, scratch_.amax);
    }
    // Columns of one group under one scaling factor: the largest code decides.
    uint32* amax = scratch_.unit_amax;
    const int64 units = ceil_div(cols_, unit_cols_);
    row_amax<kX>(x, cols_, unit_cols_, true, amax);
    clear_step(amax + units);
    widen_amax_codes<kX>(units, scratch_.units, amax);
    join_units(groups_, shape_.block_cols / unit_cols_, amax);
    for (int64 k = 0; k < groups_; k += kLanes) {
      const VU32 bits = hn::LoadU(kU32, amax + k);
      const VU32 before = is_first ? bits : hn::LoadU(kU32, scratch_.amax + k);
      hn::StoreU(hn::Max(bits, before), kU32, scratch_.amax + k);
    }
  }

  // The codes of a row, each times its scaling factor.
  const uint8* multiply(const uint8* x) {
    const auto step = [&](const uint8* at, int64 col) {
      const Quad values = load<kX>(kF, at);
      const auto store_pair = [&](const Pair& p, int64 i) {
        const Pair v = nm::unzip_f32(kF, p);
        const float* units = scratch_.units + i;
        hn::StoreU(hn::Mul(v.lo, hn::LoadU(kF, units)), kF, scratch_.values + i);
        hn::StoreU(hn::Mul(v.hi, hn::LoadU(kF, units + kLanes)), kF, scratch_.values + i + kLanes);
      };
      store_pair(values.lower, col);
      store_pair(values.upper, col + kPairCols);
    };
    int64 col = 0;
    for (; col + kStep <= cols_; col += kStep) step(x + bytes_of<kX>(col), col);
    if (col < cols_) {
      alignas(64) uint8 rest[kStep] = {};
      std::memcpy(rest, x + bytes_of<kX>(col), static_cast<size_t>(bytes_of<kX>(cols_ - col)));
      step(rest, col);
    }
    return reinterpret_cast<const uint8*>(scratch_.values);
  }

  const CastArgs& args_;
  const CastShape& shape_;
  const CastWalk& walk_;
  const bool is_first_;  // of an item: nobody has prefetched it
  const int64 prefetch_offset_;
  CastScratch& scratch_;
  int64 m_begin_;
  int64 col_begin_;
  int64 cols_;
  int64 k_begin_;
  int64 groups_;
  int64 padded_groups_;
  int group_shift_;
  int64 units_of_ = -1;
  int64 unit_cols_ = 0;  // of a multiple of kBlockCols, or 1
  bool any_negative_unit_ = false;
};

template <int32 kX, int32 kFmt>
void run_tiles(const CastArgs& args, const CastShape& shape, const CastWalk& walk, int64 begin,
               int64 end) {
  CastScratch scratch;
  for (int64 item = begin; item < end; ++item) {
    const int64 row = item / walk.num_items;
    const int64 first = item % walk.num_items * walk.item_tiles;
    const int64 last = std::min(first + walk.item_tiles, walk.num_tile_cols);
    for (int64 col = first; col < last; ++col) {
      // Rows of one block: the next row of the tile comes next, and then the next tile's.
      const bool prefetches = shape.block_rows == 1 || col + 1 < last;
      const int64 offset = prefetches ? walk.prefetch_offset : 0;
      Tile<kX, kFmt>(args, shape, walk, row, col, col == first, offset, scratch).run();
    }
  }
}

template <int32 kX>
void run_tiles(const CastArgs& args, const CastShape& shape, const CastWalk& walk, int64 begin,
               int64 end) {
  if (shape.fmt == kDTypeE4M3) {
    run_tiles<kX, kDTypeE4M3>(args, shape, walk, begin, end);
  } else {
    run_tiles<kX, kDTypeE2M1x2>(args, shape, walk, begin, end);
  }
}

}  // namespace

void cast_tiles(const CastArgs& args, const CastShape& shape, const CastWalk& walk, int64 begin,
                int64 end) {
  switch (shape.x_dtype) {
    case kDTypeF32:
      return run_tiles<kDTypeF32>(args, shape, walk, begin, end);
    case kDTypeF16:
      return run_tiles<kDTypeF16>(args, shape, walk, begin, end);
    case kDTypeBF16:
      return run_tiles<kDTypeBF16>(args, shape, walk, begin, end);
    case kDTypeE4M3:
      return run_tiles<kDTypeE4M3>(args, shape, walk, begin, end);
    default:
      return run_tiles<kDTypeE2M1x2>(args, shape, walk, begin, end);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace tilekernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilekernels::cpu {
namespace {

HWY_EXPORT(cast_tiles);

CastWalk plan_walk(const CastArgs& args, const CastShape& shape) {
  using numerics::align_up;
  using numerics::ceil_div;
  CastWalk walk;
  walk.rows = row_blocks(args, shape);
  const bool writes_sf = shape.mode != kCastGivenSf;
  const bool by_col = writes_sf && args.out_sf.map.stride_m < args.out_sf.map.stride_k;
  walk.tile_rows = by_col && shape.block_rows == 1 ? kMaxTileRows : 1;
  walk.num_tile_rows = ceil_div(writes_sf ? args.out_sf.padded_m : walk.rows, walk.tile_rows);

  // A quarter of a small second-level cache: the next tile arrives while one is encoded.
  constexpr int64 kTileBytes = 128 << 10;
  const int64 x_bits = element_bits(shape.x_dtype);
  const int64 fitting = kTileBytes * 8 / x_bits / shape.block_rows / kColsMultiple * kColsMultiple;
  const int64 most = std::clamp(fitting, kColsMultiple, kMaxTileCols);
  const int64 parts = ceil_div(shape.hidden, most);
  walk.tile_cols = align_up(ceil_div(shape.hidden, parts), kColsMultiple);
  walk.num_tile_cols = ceil_div(shape.hidden, walk.tile_cols);
  // Long items for the prefetches, but several for each thread.
  const int64 num_wanted = 4 * get_num_threads();
  walk.item_tiles = std::clamp<int64>(walk.num_tile_rows * walk.num_tile_cols / num_wanted, 1,
                                      shape.block_rows == 1 ? 1 : walk.num_tile_cols);
  walk.num_items = ceil_div(walk.num_tile_cols, walk.item_tiles);

  walk.out_pitch = shape.hidden / elements_per_unit(shape.fmt);
  walk.prefetch_offset = shape.block_rows == 1 ? args.x_pitch_bytes : walk.tile_cols * x_bits / 8;
  walk.stream = should_stream(args.num_tokens * walk.out_pitch);
  walk.by_row =
      walk.stream && !HWY_STATIC_DISPATCH(is_streamable)(args.out, walk.out_pitch, walk.out_pitch);
  return walk;
}

}  // namespace

void cast_blocks(const CastArgs& args, const CastShape& shape, const Launch&) {
  const auto cast = HWY_DYNAMIC_DISPATCH(cast_tiles);
  const CastWalk walk = plan_walk(args, shape);
  const double elements =
      static_cast<double>(walk.tile_rows * shape.block_rows) *
      static_cast<double>(std::min<int64>(walk.item_tiles * walk.tile_cols, shape.hidden));
  parallel_for(walk.num_tile_rows * walk.num_items, items_per_thread(0.3 * elements),
               [&](int64 begin, int64 end) { cast(args, shape, walk, begin, end); });
}

}  // namespace tilekernels::cpu
#endif
