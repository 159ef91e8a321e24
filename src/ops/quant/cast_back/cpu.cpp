// cast_back on SIMD lanes: whole rows a thread. The scaling factors of a row of blocks are widened
// once, for all its rows; what is left is to load codes, multiply, round and store.
#include <algorithm>
#include <cstring>
#include <memory>
#include <type_traits>

#include "ops/quant/cast_back/op.h"
#include "runtime/cpu/cache.h"
#include "runtime/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/quant/cast_back/cpu.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "numerics/formats-inl.h"
#include "ops/quant/scales-inl.h"
#include "runtime/cpu/store-inl.h"

#ifndef TILEKERNELS_OPS_QUANT_CAST_BACK_CPU_CPP_
#define TILEKERNELS_OPS_QUANT_CAST_BACK_CPU_CPP_
namespace tilekernels::cpu {

// Columns that share a scaling factor in the inner loop; narrower or uneven blocks have one for
// every column.
constexpr int64 kUnitCols = 16;
// Blocks of a multiple of so many columns are worth a table.
constexpr int64 kTableCols = 32;
// Rows of column-major scaling factors that are read together: a cache line of f32 or words.
constexpr int64 kStagedRows = 16;

// How the rows of a call are walked: everything that does not depend on the row.
struct CastBackPlan {
  int64 hidden;
  int64 block_cols;          // at most hidden
  int64 num_blocks;          // in a row
  int64 unit_cols;           // kUnitCols or 1, dividing block_cols unless there is one block
  int64 row_bytes;           // of the output
  int64 staged_pitch_bytes;  // of staged scaling factors, 0 if they are read where they lie
  int64 num_block_rows;
  bool by_table;  // whether results, of bf16, are looked up by block …
  bool by_unit;   // … or by unit, a block being one
  bool stream;    // whether results bypass the cache …
  bool by_row;    // … after a row of them was gathered, for want of alignment
};

// The bf16 results of a block's codes, 16 lower bytes and 16 upper bytes, by the four bits of an
// e2m1 code. Of e4m3 by the lower four bits: `low` where the three above are 0, else `high`, to
// whose upper bytes these three are added.
struct CastBackTable {
  uint8 low[32];
  uint8 high[32];
};

// The table of every one-byte scaling factor.
template <int32 kXDtype, int32 kSfKind>
const CastBackTable* byte_tables() {
  struct Tables {
    Tables() {
      for (int32 byte = 0; byte < 256; ++byte) {
        const auto stored = static_cast<uint8>(byte);
        const float sf = load_scale(kSfKind, &stored);
        for (uint8 i = 0; i < 16; ++i) {
          const auto put = [&](float code, uint32 minus, uint8* table) {
            const uint32 bits = numerics::f32_to_bf16(code * sf) - (minus << 8);
            table[i] = static_cast<uint8>(bits);
            table[16 + i] = static_cast<uint8>(bits >> 8);
          };
          if constexpr (kXDtype == numerics::kDTypeE2M1x2) {
            put(numerics::e2m1_to_f32(i), 0, of[byte].low);
          } else {
            put(numerics::e4m3_to_f32(i), 0, of[byte].low);
            put(numerics::e4m3_to_f32(static_cast<uint8>(16 + i)), 1, of[byte].high);
          }
        }
      }
    }
    alignas(64) CastBackTable of[256] = {};
  };
  static const Tables tables;
  return tables.of;
}

template <int32 kXDtype>
const CastBackTable* byte_tables(int32 sf_kind) {
  if (sf_kind == numerics::kSfE4M3) return byte_tables<kXDtype, numerics::kSfE4M3>();
  return byte_tables<kXDtype, numerics::kSfUE8M0>();
}

// A thread's memory besides the tensors. Vectors may run over the end of each part.
class CastBackScratch {
 public:
  explicit CastBackScratch(const CastBackPlan& plan)
      : num_scales_(plan.num_blocks + kPad),
        num_spread_(plan.by_table ? (plan.num_blocks + 1) * kTableFloats
                                  : numerics::ceil_div(plan.hidden, plan.unit_cols) + kPad),
        num_row_(plan.by_row ? plan.hidden : 0),
        memory_(std::make_unique_for_overwrite<float[]>(
            static_cast<size_t>(2 * num_scales_ + num_spread_ + num_row_ +
                                kStagedRows * plan.staged_pitch_bytes / 4))) {}

  float* scales() const { return memory_.get(); }
  // Scaling factors as they are stored, side by side.
  uint8* raw() const { return reinterpret_cast<uint8*>(scales() + num_scales_); }
  // A scaling factor for every unit …
  float* spread() const { return scales() + 2 * num_scales_; }
  // … or a table for every block.
  CastBackTable* tables() const { return reinterpret_cast<CastBackTable*>(spread()); }
  void* row() const { return spread() + num_spread_; }
  // Scaling factors as they are stored, row-major.
  uint8* staged() const { return reinterpret_cast<uint8*>(spread() + num_spread_ + num_row_); }

 private:
  static constexpr int64 kPad = 64;
  static constexpr int64 kTableFloats = sizeof(CastBackTable) / sizeof(float);
  int64 num_scales_;
  int64 num_spread_;
  int64 num_row_;
  std::unique_ptr<float[]> memory_;
};

}  // namespace tilekernels::cpu
#endif  // TILEKERNELS_OPS_QUANT_CAST_BACK_CPU_CPP_

HWY_BEFORE_NAMESPACE();
namespace tilekernels::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
namespace nm = numerics::HWY_NAMESPACE;

// Not wider where scaling factors go by unit: one is half of its bytes then.
using DF = hn::CappedTag<float, 8>;
// Elsewhere; the same but for AVX-512.
using DWide = hn::CappedTag<float, 16>;
using DU32 = nm::U32Of<DF>;
using DU16 = nm::U16Of<DF>;
using DU8 = nm::U8Of<DF>;
constexpr DF kF;
constexpr DU32 kU32;
constexpr DU16 kU16;
constexpr DU8 kU8;
using VF = hn::Vec<DF>;
using VU32 = hn::Vec<DU32>;
using VU16 = hn::Vec<DU16>;
using V8 = hn::Vec<DU8>;
using SfMap = numerics::SfMap;
using Pair = nm::Pair<DF>;
using Quad = nm::Quad<DF>;
constexpr int64 kLanes = static_cast<int64>(hn::MaxLanes(kF));
// Columns at a time.
template <class D>
constexpr int64 kStepOf = 4 * static_cast<int64>(hn::MaxLanes(D()));
constexpr int64 kStep = kStepOf<DF>;
constexpr int64 kWideStep = kStepOf<DWide>;

// ------------------------------ scaling factors

// The last step of a row asks for more scaling factors than there are.
void pad_scales(float* end) {
  for (int64 i = 0; i < kWideStep; i += kLanes) hn::StoreU(hn::Zero(kF), kF, end + i);
}

template <class Word>
void transpose(const uint8* from, int64 stride, int64 num_rows, int64 num_words, uint8* to,
               int64 pitch_bytes) {
  constexpr int64 kSize = sizeof(Word);
  for (int64 k = 0; k < num_words; ++k) {
    for (int64 m = 0; m < num_rows; ++m) {
      std::memcpy(to + m * pitch_bytes + k * kSize, from + k * stride + m * kSize, kSize);
    }
  }
}

// Of a row: as numbers and, where they are one byte each, as bytes.
struct RowScales {
  float* numbers = nullptr;
  const uint8* bytes = nullptr;
};

// Reads the scaling factors of rows of blocks. Where they lie in columns, those of one row are a
// cache line each, and columns a power of two apart push each other out of the cache; so several
// rows are copied at a time.
class ScaleReader {
 public:
  ScaleReader(const CastBackArgs& args, const CastBackShape& shape, const CastBackPlan& plan,
              const CastBackScratch& scratch)
      : args_(args), shape_(shape), plan_(plan), scratch_(scratch) {}

  RowScales read(int64 block_row) {
    RowScales sf{scratch_.scales()};
    const SfMap& map = args_.x_sf.map;
    SfRead from = args_.x_sf;
    int64 m = block_row;
    if (plan_.staged_pitch_bytes > 0) {
      m = block_row % kStagedRows;
      if (block_row - m != staged_) stage(block_row - m);
      from = {scratch_.staged(), {plan_.staged_pitch_bytes, map.stride_m, 1, map.pack_k}};
    }
    const int64 num = plan_.num_blocks;
    if (is_wide_sf(shape_.sf_kind)) {
      scales::read(from, shape_.sf_kind, m, 0, num, scratch_.raw(), sf.numbers);
    } else {
      sf.bytes = scales::read_bytes(from, m, 0, num, scratch_.raw());
      scales::widen(shape_.sf_kind, sf.bytes, num, sf.numbers);
    }
    pad_scales(sf.numbers + num);
    return sf;
  }

 private:
  void stage(int64 begin) {
    const SfMap& map = args_.x_sf.map;
    const int64 num_rows = std::min(kStagedRows, plan_.num_block_rows - begin);
    const int64 num_words = numerics::ceil_div(plan_.num_blocks, map.pack_k);
    const auto copy = map.stride_m == 4   ? transpose<uint32>
                      : map.stride_m == 2 ? transpose<uint16>
                                          : transpose<uint8>;
    copy(args_.x_sf.at(begin, 0), map.stride_k, num_rows, num_words, scratch_.staged(),
         plan_.staged_pitch_bytes);
    staged_ = begin;
  }

  const CastBackArgs& args_;
  const CastBackShape& shape_;
  const CastBackPlan& plan_;
  const CastBackScratch& scratch_;
  int64 staged_ = -1;
};

// Replaces NaN by bf16_nan. Returns whether Inf is among them, which makes other NaN of zero codes.
bool settle_nan(float* sf, int64 num) {
  const VU32 inf = hn::Set(kU32, numerics::kInfBits);
  auto any_inf = hn::Zero(kU32);
  for (int64 i = 0; i < num; i += kLanes) {
    const VF v = hn::LoadU(kF, sf + i);
    const VU32 is_inf = hn::VecFromMask(kU32, hn::Eq(hn::BitCast(kU32, hn::Abs(v)), inf));
    any_inf = hn::Or(any_inf, is_inf);
    hn::StoreU(hn::IfThenElse(hn::IsNaN(v), nm::bf16_nan(kF), v), kF, sf + i);
  }
  return !hn::AllFalse(kU32, hn::Ne(any_inf, hn::Zero(kU32)));
}

// The scaling factors of the units of a row, from those of its blocks; those of columns zipped.
const float* spread_scales(float* sf, const CastBackPlan& plan, const CastBackScratch& scratch) {
  float* units = sf;
  const int64 num_units = numerics::ceil_div(plan.hidden, plan.unit_cols);
  if (plan.block_cols != plan.unit_cols) {
    units = scratch.spread();
    const int64 block_units = numerics::ceil_div(plan.block_cols, plan.unit_cols);
    scales::spread(sf, block_units, 0, num_units, units);
    pad_scales(units + num_units);
  }
  if (plan.unit_cols > 1) return units;
  const DWide d;
  constexpr int64 kNum = kWideStep / 4;
  for (int64 i = 0; i < num_units; i += 2 * kNum) {
    float* at = units + i;
    const nm::Pair<DWide> zipped = nm::zip_f32(d, hn::LoadU(d, at), hn::LoadU(d, at + kNum));
    hn::StoreU(zipped.lo, d, at);
    hn::StoreU(zipped.hi, d, at + kNum);
  }
  return units;
}

// Of a step of columns from `column`.
struct ScalesByColumn {
  using D = DWide;
  const float* scales;

  HWY_INLINE nm::Quad<D> operator()(int64 column) const {
    constexpr int64 kNum = kWideStep / 4;
    const D d;
    const float* at = scales + column;
    return {{hn::LoadU(d, at), hn::LoadU(d, at + kNum)},
            {hn::LoadU(d, at + 2 * kNum), hn::LoadU(d, at + 3 * kNum)}};
  }
};

struct ScalesByUnit {
  using D = DF;
  const float* scales;

  HWY_INLINE Quad operator()(int64 column) const {
    const VF lower = hn::Set(kF, scales[column / kUnitCols]);
    const VF upper = hn::Set(kF, scales[(column + kStep / 2) / kUnitCols]);
    return {{lower, lower}, {upper, upper}};
  }
};

// ------------------------------ codes to results

template <int32 kOutDtype>
using Element = std::conditional_t<kOutDtype == numerics::kDTypeF32, float, uint16>;

// Bytes of an even number of codes.
template <int32 kXDtype>
HWY_INLINE int64 code_bytes(int64 num) {
  return kXDtype == numerics::kDTypeE4M3 ? num : num >> 1;
}

template <int32 kXDtype, class D>
HWY_INLINE nm::Quad<D> widen(D d, const uint8* x) {
  const nm::U8Of<D> d8;
  if constexpr (kXDtype == numerics::kDTypeE4M3) return nm::widen_e4m3(d, hn::LoadU(d8, x));
  if constexpr (kXDtype == numerics::kDTypeE2M1x2) {
    return nm::widen_e2m1(d, hn::LoadU(hn::Half<decltype(d8)>(), x));
  }
}

// kAnyNan: NaN may have other bits than bf16_nan.
template <int32 kOutDtype, bool kAnyNan, class D>
HWY_INLINE void narrow(D d, const nm::Pair<D>& y, bool stream, Element<kOutDtype>* out) {
  const nm::U16Of<D> d16;
  if constexpr (kOutDtype == numerics::kDTypeF32) {
    const nm::Pair<D> z = nm::unzip_f32(d, y);
    store(stream, nm::canonical(d, z.lo), d, out);
    store(stream, nm::canonical(d, z.hi), d, out + hn::MaxLanes(d));
  } else if constexpr (kOutDtype == numerics::kDTypeF16) {
    store(stream, nm::narrow_f16(d, y), d16, out);
  } else if constexpr (kAnyNan) {
    store(stream, nm::narrow_bf16(d, y), d16, out);
  } else {
    store(stream, nm::narrow_bf16_nan(d, y), d16, out);
  }
}

// A step of columns.
template <int32 kXDtype, int32 kOutDtype, bool kAnyNan, class D>
HWY_INLINE void convert(D d, const uint8* x, const nm::Quad<D>& scales, bool stream,
                        Element<kOutDtype>* out) {
  const nm::Quad<D> code = widen<kXDtype>(d, x);
  const auto times = [](const nm::Pair<D>& a, const nm::Pair<D>& b) {
    return nm::Pair<D>{hn::Mul(a.lo, b.lo), hn::Mul(a.hi, b.hi)};
  };
  narrow<kOutDtype, kAnyNan>(d, times(code.lower, scales.lower), stream, out);
  narrow<kOutDtype, kAnyNan>(d, times(code.upper, scales.upper), stream, out + kStepOf<D> / 2);
}

// Less than a step.
template <int32 kXDtype, int32 kOutDtype, bool kAnyNan, class D>
void convert_tail(D d, const uint8* x, const nm::Quad<D>& scales, int64 num,
                  Element<kOutDtype>* out) {
  uint8 codes[kStepOf<D>] = {};
  Element<kOutDtype> results[kStepOf<D>];
  std::memcpy(codes, x, static_cast<size_t>(code_bytes<kXDtype>(num)));
  convert<kXDtype, kOutDtype, kAnyNan>(d, codes, scales, false, results);
  std::memcpy(out, results, static_cast<size_t>(num) * sizeof(results[0]));
}

template <int32 kXDtype, int32 kOutDtype, bool kAnyNan, class Scales>
void convert_columns(const uint8* x, const Scales& scales, int64 hidden, bool stream,
                     Element<kOutDtype>* out) {
  using D = typename Scales::D;
  int64 k = 0;
  for (; k + kStepOf<D> <= hidden; k += kStepOf<D>) {
    convert<kXDtype, kOutDtype, kAnyNan>(D(), x + code_bytes<kXDtype>(k), scales(k), stream,
                                         out + k);
  }
  if (k < hidden) {
    convert_tail<kXDtype, kOutDtype, kAnyNan>(D(), x + code_bytes<kXDtype>(k), scales(k),
                                              hidden - k, out + k);
  }
}

template <int32 kXDtype, int32 kOutDtype, bool kAnyNan>
void convert_row(const uint8* x, const float* sf, int64 unit_cols, int64 hidden, bool stream,
                 Element<kOutDtype>* out) {
  if (unit_cols == 1) {
    convert_columns<kXDtype, kOutDtype, kAnyNan>(x, ScalesByColumn{sf}, hidden, stream, out);
  } else {
    convert_columns<kXDtype, kOutDtype, kAnyNan>(x, ScalesByUnit{sf}, hidden, stream, out);
  }
}

// ------------------------------ codes to bf16, by table
//
// A block has few different results. Those of e4m3 differ by their exponent for all but 24 codes,
// as long as none of them overflows or is subnormal; e2m1 has 8 and their negatives. Blocks whose
// scaling factor does not promise that, or is no number, are computed.

constexpr struct CodeValues {
  constexpr CodeValues() {
    for (uint8 i = 0; i < 16; ++i) {
      e2m1[i] = numerics::e2m1_to_f32(i);
      e4m3_low[i] = numerics::e4m3_to_f32(i);
      e4m3_high[i] = numerics::e4m3_to_f32(static_cast<uint8>(16 + i));
    }
  }
  float e2m1[16] = {};
  float e4m3_low[16] = {};
  float e4m3_high[16] = {};
} kCodeValues;

// The least and the largest bits of |sf| of blocks with a table: finite under e2m1; under e4m3
// 2^-9 · |sf| is normal and 448 · |sf| far from overflow.
template <int32 kXDtype>
constexpr uint32 kLeastTableBits = kXDtype == numerics::kDTypeE4M3 ? 10u << 23 : 0;
template <int32 kXDtype>
constexpr uint32 kMostTableBits = (kXDtype == numerics::kDTypeE4M3 ? 245u << 23 : 255u << 23) - 1;

template <int32 kXDtype>
HWY_INLINE bool has_table(float sf) {
  const uint32 bits = numerics::abs_bits(sf);
  return bits >= kLeastTableBits<kXDtype> && bits <= kMostTableBits<kXDtype>;
}

template <int32 kXDtype>
bool all_have_tables(const float* sf, int64 num) {
  auto least = hn::Set(kU32, kMostTableBits<kXDtype>);
  auto most = hn::Set(kU32, kLeastTableBits<kXDtype>);
  int64 k = 0;
  for (; k + kLanes <= num; k += kLanes) {
    const VU32 bits = hn::BitCast(kU32, hn::Abs(hn::LoadU(kF, sf + k)));
    least = hn::Min(least, bits);
    most = hn::Max(most, bits);
  }
  bool all = hn::GetLane(hn::MinOfLanes(kU32, least)) >= kLeastTableBits<kXDtype> &&
             hn::GetLane(hn::MaxOfLanes(kU32, most)) <= kMostTableBits<kXDtype>;
  for (; k < num; ++k) all &= has_table<kXDtype>(sf[k]);
  return all;
}

// Rounds products to bf16, which are the upper halves then; `bias` is 0x7FFF less what table
// entries lack.
template <class D>
HWY_INLINE hn::Vec<nm::U32Of<D>> table_results(D /*d*/, hn::Vec<D> products,
                                               hn::Vec<nm::U32Of<D>> bias) {
  const nm::U32Of<D> d32;
  const auto bits = hn::BitCast(d32, products);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d32, 1u));
  return hn::Add(hn::Add(bits, bias), odd);
}

// In each 128-bit block the lower bytes of first results and of second ones, then the upper bytes.
template <class D, class V>
HWY_INLINE V table_words(D /*d*/, V first, V second) {
  alignas(16) static constexpr uint8 kSplit[16] = {0, 4, 8, 12, 2, 6, 10, 14,
                                                   1, 5, 9, 13, 3, 7, 11, 15};
  const nm::U8Of<D> d8;
  const nm::U16Of<D> d16;
  const auto pairs =
      hn::OddEven(hn::BitCast(d16, second), hn::BitCast(d16, hn::ShiftRight<16>(first)));
  const auto split = hn::TableLookupBytes(hn::BitCast(d8, pairs), hn::LoadDup128(d8, kSplit));
  return hn::BitCast(nm::U32Of<D>(), split);
}

// Two tables of 32 bytes: of the lower and the upper half's first and second results.
template <class V>
HWY_INLINE void store_two_tables(V first, V second, uint8* low, uint8* high) {
  const nm::U32Of<DWide> d32;
  const hn::Half<decltype(d32)> half;
  alignas(64) static constexpr int32 kOrder[16] = {0, 4,  1, 5,  2,  6,  3,  7,
                                                   8, 12, 9, 13, 10, 14, 11, 15};
  const auto words =
      hn::TableLookupLanes(table_words(DWide(), first, second), hn::SetTableIndices(d32, kOrder));
  hn::StoreU(hn::LowerHalf(half, words), half, reinterpret_cast<uint32*>(low));
  hn::StoreU(hn::UpperHalf(half, words), half, reinterpret_cast<uint32*>(high));
}

// The lower bytes of 16 results, then their upper bytes less `minus`. Results are numbers.
template <int32 kXDtype>
HWY_INLINE void write_table(const float* values, float sf, uint32 minus, uint8* table) {
  const VF scale = hn::Set(kF, sf);
  const VU32 bias = hn::Set(kU32, 0x7FFFu - (minus << 24));
  const auto results = [&](const float* at) {
    return table_results(kF, hn::Mul(hn::LoadU(kF, at), scale), bias);
  };
  // Words of the lower and upper bytes of results i.., of results 8 + i..
  const auto words_of = [&](const float* at) {
    const VU32 first = results(at);
    const VU32 second = kXDtype == numerics::kDTypeE2M1x2
                            ? hn::Xor(first, hn::Set(kU32, 0x80000000u))
                            : results(at + 8);
    return table_words(kF, first, second);
  };
  auto* const words = reinterpret_cast<uint32*>(table);
  if constexpr (kLanes == 8) {
    alignas(32) static constexpr int32 kOrder[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    hn::StoreU(hn::TableLookupLanes(words_of(values), hn::SetTableIndices(kU32, kOrder)), kU32,
               words);
  } else {
    const VU32 lower = words_of(values);
    const VU32 upper = words_of(values + 4);
    hn::StoreU(hn::InterleaveLower(kU32, lower, upper), kU32, words);
    hn::StoreU(hn::InterleaveUpper(kU32, lower, upper), kU32, words + 4);
  }
}

// Two tables at a time: of e4m3 both of a block, of e2m1 those of two blocks. Writes up to one
// table more, of the scaling factor that follows the last.
template <int32 kXDtype>
HWY_INLINE void write_wide_tables(const float* sf, int64 num, CastBackTable* tables) {
  const DWide d;
  const nm::U32Of<DWide> d32;
  const hn::Half<DWide> half;
  const auto bias = hn::Set(d32, 0x7FFFu);
  if constexpr (kXDtype == numerics::kDTypeE2M1x2) {
    const auto values =
        hn::Combine(d, hn::LoadU(half, kCodeValues.e2m1), hn::LoadU(half, kCodeValues.e2m1));
    for (int64 k = 0; k < num; k += 2) {
      const auto scales = hn::Combine(d, hn::Set(half, sf[k + 1]), hn::Set(half, sf[k]));
      const auto first = table_results(d, hn::Mul(values, scales), bias);
      const auto second = hn::Xor(first, hn::Set(d32, 0x80000000u));
      store_two_tables(first, second, tables[k].low, tables[k + 1].low);
    }
  } else {
    const auto values = [&](int64 i) {
      return hn::Combine(d, hn::LoadU(half, kCodeValues.e4m3_high + i),
                         hn::LoadU(half, kCodeValues.e4m3_low + i));
    };
    const auto first_values = values(0);
    const auto second_values = values(8);
    const auto biases = hn::ConcatUpperLower(d32, hn::Set(d32, 0x7FFFu - (1u << 24)), bias);
    for (int64 k = 0; k < num; ++k) {
      const auto scale = hn::Set(d, sf[k]);
      store_two_tables(table_results(d, hn::Mul(first_values, scale), biases),
                       table_results(d, hn::Mul(second_values, scale), biases), tables[k].low,
                       tables[k].high);
    }
  }
}

// Returns whether every block has a table.
template <int32 kXDtype>
bool write_tables(const float* sf, int64 num, CastBackTable* tables) {
  if constexpr (kWideStep != kStep) {
    write_wide_tables<kXDtype>(sf, num, tables);
  } else {
    for (int64 k = 0; k < num; ++k) {
      if constexpr (kXDtype == numerics::kDTypeE2M1x2) {
        write_table<kXDtype>(kCodeValues.e2m1, sf[k], 0, tables[k].low);
      } else {
        write_table<kXDtype>(kCodeValues.e4m3_low, sf[k], 0, tables[k].low);
        write_table<kXDtype>(kCodeValues.e4m3_high, sf[k], 1, tables[k].high);
      }
    }
  }
  return all_have_tables<kXDtype>(sf, num);
}

template <bool kStream, class D, class V>
HWY_INLINE void store_results(D /*d*/, V lower, V upper, uint16* out) {
  const nm::U8Of<D> d8;
  const nm::U16Of<D> d16;
  store<kStream>(hn::BitCast(d16, hn::InterleaveLower(d8, lower, upper)), d16, out);
  store<kStream>(hn::BitCast(d16, hn::InterleaveUpper(d8, lower, upper)), d16,
                 out + kStepOf<D> / 2);
}

HWY_INLINE V8 load_nibbles(const uint8* x) {
  VU16 pairs;
  if constexpr (kLanes == 8) {
    // Bytes 0 to 3 and 8 to 11 go to the lower block.
    alignas(32) static constexpr uint8 kZip[32] = {
        0, 128, 1, 128, 2, 128, 3, 128, 8,  128, 9,  128, 10, 128, 11, 128,
        4, 128, 5, 128, 6, 128, 7, 128, 12, 128, 13, 128, 14, 128, 15, 128};
    const V8 bytes = hn::LoadDup128(kU8, x);
    pairs = hn::BitCast(kU16, hn::TableLookupBytesOr0(bytes, hn::Load(kU8, kZip)));
  } else {
    pairs = hn::PromoteTo(kU16, hn::LoadU(hn::Rebind<uint8, DU16>(), x));
  }
  const VU16 both = hn::Or(pairs, hn::ShiftLeft<4>(pairs));
  return hn::BitCast(kU8, hn::And(both, hn::Set(kU16, uint16{0x0F0F})));
}

// e2m1 codes as bytes in zipped order.
template <class D>
HWY_INLINE hn::Vec<nm::U8Of<D>> load_nibbles(D d, const uint8* x) {
  if constexpr (hn::MaxLanes(d) == 16) {
    const nm::U8Of<D> d8;
    return nm::zip_bytes(d8, nm::split_e2m1(d, hn::LoadU(hn::Half<decltype(d8)>(), x)));
  } else {
    return load_nibbles(x);
  }
}

// Looks up `num` codes, a multiple of a step. Returns false, with wrong results, where NaN is among
// them.
template <int32 kXDtype, bool kStream, class D>
HWY_INLINE bool look_up(D d, const uint8* x, int64 num, const CastBackTable& table, uint16* out) {
  const nm::U8Of<D> d8;
  const nm::U16Of<D> d16;
  using V = hn::Vec<nm::U8Of<D>>;
  const V low_lower = hn::LoadDup128(d8, table.low);
  const V low_upper = hn::LoadDup128(d8, table.low + 16);
  if constexpr (kXDtype == numerics::kDTypeE2M1x2) {
    for (int64 k = 0; k < num; k += kStepOf<D>) {
      const V code = load_nibbles(d, x + code_bytes<kXDtype>(k));
      store_results<kStream>(d, hn::TableLookupBytes(low_lower, code),
                             hn::TableLookupBytes(low_upper, code), out + k);
    }
    return true;
  } else {
    const V high_lower = hn::LoadDup128(d8, table.high);
    const V high_upper = hn::LoadDup128(d8, table.high + 16);
    // By the upper four bits: what they add to the upper byte, and whether the table is `low`.
    alignas(16) static constexpr uint8 kAdds[16] = {0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07,
                                                    0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87};
    alignas(16) static constexpr uint8 kIsLow[16] = {0xFF, 0, 0, 0, 0, 0, 0, 0,
                                                     0xFF, 0, 0, 0, 0, 0, 0, 0};
    const V adds = hn::LoadDup128(d8, kAdds);
    const V lows = hn::LoadDup128(d8, kIsLow);
    const V nibble = hn::Set(d8, uint8{0x0F});
    V largest = hn::Zero(d8);
    for (int64 k = 0; k < num; k += kStepOf<D>) {
      const V code = nm::zip_bytes(d8, hn::LoadU(d8, x + k));
      largest = hn::Max(largest, hn::Add(code, code));  // without the sign
      const V index = hn::And(code, nibble);
      const V top = hn::And(hn::BitCast(d8, hn::ShiftRight<4>(hn::BitCast(d16, code))), nibble);
      const auto is_low = hn::MaskFromVec(hn::TableLookupBytes(lows, top));
      const V lower = hn::IfThenElse(is_low, hn::TableLookupBytes(low_lower, index),
                                     hn::TableLookupBytes(high_lower, index));
      const V upper = hn::IfThenElse(is_low, hn::TableLookupBytes(low_upper, index),
                                     hn::TableLookupBytes(high_upper, index));
      store_results<kStream>(d, lower, hn::Add(upper, hn::TableLookupBytes(adds, top)), out + k);
    }
    return hn::AllFalse(d8, hn::Eq(largest, hn::Set(d8, uint8{0xFE})));
  }
}

// Looks up the codes of blocks of kUnitCols, of which two lie in a vector: its halves have tables
// of their own.
template <bool kStream>
void look_up_units(const uint8* x, const RowScales& sf, const CastBackTable* tables,
                   const CastBackPlan& plan, uint16* out) {
  constexpr auto kXDtype = numerics::kDTypeE2M1x2;
  const uint8* unit = sf.bytes;
  int64 k = 0;
  for (; k + kStep <= plan.hidden; k += kStep) {
    const auto table = [&](int64 i) {
      if constexpr (kLanes == 8) {
        const hn::Half<DU8> half;
        return hn::Combine(kU8, hn::LoadU(half, tables[unit[1]].low + i),
                           hn::LoadU(half, tables[unit[0]].low + i));
      } else {
        return hn::LoadU(kU8, tables[unit[0]].low + i);
      }
    };
    const V8 codes = nm::split_e2m1(kF, hn::LoadU(hn::Half<DU8>(), x + code_bytes<kXDtype>(k)));
    const V8 lower = hn::TableLookupBytes(table(0), codes);
    const V8 upper = hn::TableLookupBytes(table(16), codes);
    const VU16 first = hn::BitCast(kU16, hn::InterleaveLower(kU8, lower, upper));
    const VU16 second = hn::BitCast(kU16, hn::InterleaveUpper(kU8, lower, upper));
    if constexpr (kLanes == 8) {
      store<kStream>(hn::ConcatLowerLower(kU16, second, first), kU16, out + k);
      store<kStream>(hn::ConcatUpperUpper(kU16, second, first), kU16, out + k + kStep / 2);
    } else {
      store<kStream>(first, kU16, out + k);
      store<kStream>(second, kU16, out + k + kStep / 2);
    }
    unit += kStep / kUnitCols;
  }
  if (k < plan.hidden) {
    convert_tail<kXDtype, numerics::kDTypeBF16, true>(
        kF, x + code_bytes<kXDtype>(k), ScalesByUnit{sf.numbers}(k), plan.hidden - k, out + k);
  }
}

// A block, or the rest of one, that is not looked up.
template <int32 kXDtype>
HWY_NOINLINE void convert_block(const uint8* x, float sf, int64 num, bool stream, uint16* out) {
  constexpr auto kOutDtype = numerics::kDTypeBF16;
  const VF scale = hn::Set(kF, sf);
  const Quad scales{{scale, scale}, {scale, scale}};
  int64 k = 0;
  for (; k + kStep <= num; k += kStep) {
    convert<kXDtype, kOutDtype, true>(kF, x + code_bytes<kXDtype>(k), scales, stream, out + k);
  }
  if (k < num) {
    convert_tail<kXDtype, kOutDtype, true>(kF, x + code_bytes<kXDtype>(k), scales, num - k,
                                           out + k);
  }
}

// The tables of a row's blocks.
struct RowTables {
  const CastBackTable* tables;  // one a block, or of every byte
  bool all;                     // whether every block has one
};

template <int32 kXDtype>
RowTables tables_of(const RowScales& sf, int32 sf_kind, int64 num, const CastBackScratch& scratch) {
  if (sf.bytes == nullptr) {
    return {scratch.tables(), write_tables<kXDtype>(sf.numbers, num, scratch.tables())};
  }
  const bool all = kXDtype == numerics::kDTypeE2M1x2 || all_have_tables<kXDtype>(sf.numbers, num);
  return {byte_tables<kXDtype>(sf_kind), all};
}

// Looks up a step of e2m1 codes, which lies in the blocks of two tables.
template <bool kStream>
HWY_INLINE void look_up_two(const uint8* x, const uint8* first, const uint8* second, uint16* out) {
  const DWide d;
  const nm::U8Of<DWide> d8;
  const nm::U16Of<DWide> d16;
  const hn::Half<decltype(d8)> half;
  // Lower and upper bytes of the first, of the second
  const auto tables = hn::Combine(d8, hn::LoadU(half, second), hn::LoadU(half, first));
  const auto swapped = hn::SwapAdjacentBlocks(tables);
  const auto codes = nm::split_e2m1(d, hn::LoadU(half, x));
  const auto lower = hn::TableLookupBytes(hn::OddEvenBlocks(swapped, tables), codes);
  const auto upper = hn::TableLookupBytes(hn::OddEvenBlocks(tables, swapped), codes);
  const auto of_float = [&](auto v) { return hn::BitCast(d, v); };
  const nm::Pair<DWide> results =
      nm::unzip_f32(d, {of_float(hn::InterleaveLower(d8, lower, upper)),
                        of_float(hn::InterleaveUpper(d8, lower, upper))});
  store<kStream>(hn::BitCast(d16, results.lo), d16, out);
  store<kStream>(hn::BitCast(d16, results.hi), d16, out + kWideStep / 2);
}

template <int32 kXDtype, bool kStream>
void look_up_row(const uint8* x, RowScales sf, RowTables tables, const CastBackPlan& plan,
                 uint16* out) {
  const int64 hidden = plan.hidden;
  const int64 block_cols = plan.block_cols;
  int64 k = 0;
  int64 i = 0;
  const auto table = [&](int64 block) -> const CastBackTable& {
    return tables.tables[sf.bytes == nullptr ? block : sf.bytes[block]];
  };
  if (kXDtype == numerics::kDTypeE2M1x2 && block_cols == kStep && tables.all) {
    for (; k + kWideStep <= hidden; k += kWideStep, i += kWideStep / kStep) {
      const uint8* step = x + code_bytes<kXDtype>(k);
      if constexpr (kWideStep == kStep) {
        look_up<kXDtype, kStream>(kF, step, kStep, table(i), out + k);
      } else {
        look_up_two<kStream>(step, table(i).low, table(i + 1).low, out + k);
      }
    }
  }
  for (; k < hidden; k += block_cols, ++i) {
    const uint8* block = x + code_bytes<kXDtype>(k);
    const int64 num = std::min(block_cols, hidden - k);
    int64 done = tables.all || has_table<kXDtype>(sf.numbers[i]) ? num & -kStep : 0;
    const bool looked_up = kWideStep == kStep || done % kWideStep == 0
                               ? look_up<kXDtype, kStream>(DWide(), block, done, table(i), out + k)
                               : look_up<kXDtype, kStream>(kF, block, done, table(i), out + k);
    if (!looked_up) done = 0;
    if (done < num) {
      convert_block<kXDtype>(block + code_bytes<kXDtype>(done), sf.numbers[i], num - done, kStream,
                             out + k + done);
    }
  }
}

// ------------------------------ rows

template <int32 kXDtype, int32 kOutDtype>
void convert_rows(const CastBackArgs& args, const CastBackShape& shape, const CastBackPlan& plan,
                  int64 begin, int64 end, const CastBackScratch& scratch) {
  using Out = Element<kOutDtype>;
  constexpr bool kIsBF16 = kOutDtype == numerics::kDTypeBF16;
  const bool stream = plan.stream && !plan.by_row;
  ScaleReader reader(args, shape, plan, scratch);
  RowScales sf;
  RowTables tables{};
  const float* units = nullptr;
  bool any_nan = true;
  int64 block_row = -1;
  for (int64 m = begin; m < end; ++m) {
    if (m / shape.block_rows != block_row) {
      block_row = m / shape.block_rows;
      sf = reader.read(block_row);
      if (plan.by_table || plan.by_unit) {
        tables = tables_of<kXDtype>(sf, shape.sf_kind, plan.num_blocks, scratch);
      } else {
        if (kIsBF16) any_nan = settle_nan(sf.numbers, plan.num_blocks);
        units = spread_scales(sf.numbers, plan, scratch);
      }
    }
    const uint8* x = args.x + m * args.x_stride;
    Out* const out = static_cast<Out*>(args.out) + m * plan.hidden;
    Out* const row = plan.by_row ? static_cast<Out*>(scratch.row()) : out;
    if constexpr (kIsBF16) {
      if (plan.by_table) {
        const auto look_up = stream ? look_up_row<kXDtype, true> : look_up_row<kXDtype, false>;
        look_up(x, sf, tables, plan, row);
      } else if (plan.by_unit) {
        const auto look_up = stream ? look_up_units<true> : look_up_units<false>;
        look_up(x, sf, tables.tables, plan, row);
      } else {
        const auto convert = any_nan ? convert_row<kXDtype, kOutDtype, true>
                                     : convert_row<kXDtype, kOutDtype, false>;
        convert(x, units, plan.unit_cols, plan.hidden, stream, row);
      }
    } else {
      convert_row<kXDtype, kOutDtype, true>(x, units, plan.unit_cols, plan.hidden, stream, row);
    }
    if (plan.by_row) stream_copy(out, row, plan.row_bytes);
  }
}

template <int32 kXDtype>
void convert_rows(const CastBackArgs& args, const CastBackShape& shape, const CastBackPlan& plan,
                  int64 begin, int64 end, const CastBackScratch& scratch) {
  using namespace numerics;  // NOLINT: the dtypes' numbers
  if (shape.out_dtype == kDTypeF32) {
    convert_rows<kXDtype, kDTypeF32>(args, shape, plan, begin, end, scratch);
  } else if (shape.out_dtype == kDTypeF16) {
    convert_rows<kXDtype, kDTypeF16>(args, shape, plan, begin, end, scratch);
  } else {
    convert_rows<kXDtype, kDTypeBF16>(args, shape, plan, begin, end, scratch);
  }
}

}  // namespace

void cast_back(const CastBackArgs& args, const CastBackShape& shape, const CastBackPlan& plan,
               int64 begin, int64 end, const CastBackScratch& scratch) {
  if (shape.x_dtype == numerics::kDTypeE4M3) {
    convert_rows<numerics::kDTypeE4M3>(args, shape, plan, begin, end, scratch);
  } else {
    convert_rows<numerics::kDTypeE2M1x2>(args, shape, plan, begin, end, scratch);
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace tilekernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilekernels::cpu {
namespace {

HWY_EXPORT(cast_back);

CastBackPlan make_plan(const CastBackArgs& args, const CastBackShape& shape) {
  CastBackPlan plan;
  plan.hidden = shape.hidden;
  plan.block_cols = std::min(shape.block_cols, shape.hidden);
  plan.num_blocks = numerics::ceil_div(plan.hidden, plan.block_cols);
  plan.num_block_rows = numerics::ceil_div(args.num_tokens, shape.block_rows);
  const numerics::SfMap& map = args.x_sf.map;
  const int64 word_bytes = is_wide_sf(shape.sf_kind) ? 4 : map.pack_k;
  const bool by_column = map.stride_m == word_bytes && map.pack_m == 1 && plan.num_block_rows > 1 &&
                         plan.num_blocks > map.pack_k;
  // Not a power of two
  plan.staged_pitch_bytes =
      by_column ? numerics::align_up(plan.num_blocks * word_bytes, 64) + 64 : 0;
  const bool is_even = plan.num_blocks == 1 || plan.block_cols % kUnitCols == 0;
  plan.unit_cols = is_even ? kUnitCols : 1;
  plan.by_table = shape.out_dtype == numerics::kDTypeBF16 &&
                  (plan.num_blocks == 1 || plan.block_cols % kTableCols == 0);
  plan.by_unit = shape.out_dtype == numerics::kDTypeBF16 && !plan.by_table &&
                 shape.x_dtype == numerics::kDTypeE2M1x2 && !is_wide_sf(shape.sf_kind) &&
                 plan.block_cols == kUnitCols;
  plan.row_bytes = plan.hidden * (shape.out_dtype == numerics::kDTypeF32 ? 4 : 2);
  plan.stream = should_stream(args.num_tokens * plan.row_bytes);
  plan.by_row =
      plan.stream && !HWY_STATIC_DISPATCH(is_streamable)(args.out, plan.row_bytes, plan.row_bytes);
  return plan;
}

}  // namespace

void cast_back(const CastBackArgs& args, const CastBackShape& shape, const Launch&) {
  const auto convert = HWY_DYNAMIC_DISPATCH(cast_back);
  const CastBackPlan plan = make_plan(args, shape);
  const double nanoseconds = 0.2 * static_cast<double>(plan.hidden);
  parallel_for(args.num_tokens, items_per_thread(nanoseconds), [&](int64 begin, int64 end) {
    convert(args, shape, plan, begin, end, CastBackScratch(plan));
  });
}

}  // namespace tilekernels::cpu
#endif
