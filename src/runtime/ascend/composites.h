// What kernels of casts have in common, written once over the layer: loads as fp32 in two orders,
// scaling factors by column, maxima of groups.
#pragma once

#include "numerics/ids.h"
#include "runtime/ascend/ring.h"

namespace tilekernels::ascend {

// Lane types by the numbers of DType
template <int32 kDType>
struct LaneOfDType;
// clang-format off
template <> struct LaneOfDType<numerics::kDTypeF32> { using T = float; };
template <> struct LaneOfDType<numerics::kDTypeF16> { using T = F16; };
template <> struct LaneOfDType<numerics::kDTypeBF16> { using T = BF16; };
template <> struct LaneOfDType<numerics::kDTypeE4M3> { using T = E4M3; };
template <> struct LaneOfDType<numerics::kDTypeE2M1x2> { using T = E2M1x2; };
// clang-format on

constexpr int32 kPair = 2 * kF32Lanes;  // elements that load_pair takes

/// Bytes of `elements` elements of a DType.
constexpr int64 bytes_of(int32 dtype, int64 elements) {
  switch (dtype) {
    case numerics::kDTypeF32:
      return 4 * elements;
    case numerics::kDTypeF16:
    case numerics::kDTypeBF16:
      return 2 * elements;
    case numerics::kDTypeE4M3:
      return elements;
    default:
      return elements / 2;
  }
}

/// `count` elements that are all `value`.
template <class T>
TILEKERNELS_VF void fill(Ub<T> out, T value, uint32 count) {
  Reg<T> filled;
  vdup(filled, value, pset<T>());
  const auto turns = static_cast<uint16>((count + kF32Lanes - 1) / kF32Lanes);
  for (uint16 i = 0; i < turns; ++i) vsts(out + i * kF32Lanes, filled, plt<T>(count));
}

/// As fp32 in the order of memory: elements 0..63 in `a`, 64..127 in `b`.
template <int32 kDType>
TILEKERNELS_CALLEE void load_pair(Reg<float>& a, Reg<float>& b, Ub<uint8> from) {
  using T = typename LaneOfDType<kDType>::T;
  if constexpr (kDType == numerics::kDTypeF32) {
    vlds(a, as_ub<float>(from));
    vlds(b, as_ub<float>(from) + kF32Lanes);
  } else if constexpr (kDType == numerics::kDTypeF16) {
    const Mask all = pset<F16>();
    Reg<F16> x;
    vlds<Dist::kUnpack>(x, as_ub<F16>(from));
    vcvt<0, Round::kNone, Saturate::kNo>(a, x, all);
    vlds<Dist::kUnpack>(x, as_ub<F16>(from) + kF32Lanes);
    vcvt<0, Round::kNone, Saturate::kNo>(b, x, all);
  } else if constexpr (kDType == numerics::kDTypeE4M3) {
    const Mask all = pset<uint8>();
    Reg<E4M3> x;
    vlds<Dist::kUnpack4>(x, as_ub<E4M3>(from));
    vcvt<0, Round::kNone, Saturate::kNo>(a, x, all);
    vlds<Dist::kUnpack4>(x, as_ub<E4M3>(from) + kF32Lanes);
    vcvt<0, Round::kNone, Saturate::kNo>(b, x, all);
  } else {
    // A bf16 is the upper half of its fp32.
    const Mask all = pset<uint8>();
    Reg<BF16> x;
    Reg<uint16> zero;
    if constexpr (kDType == numerics::kDTypeBF16) {
      vlds(x, as_ub<T>(from));
    } else {
      Reg<E2M1x2> codes;
      vlds<Dist::kUnpack4>(codes, as_ub<T>(from));
      vcvt<0, Round::kNone, Saturate::kNo>(x, codes, all);
    }
    vdup(zero, uint16{0}, all);
    vintlv(as<uint16>(a), as<uint16>(b), zero, as<uint16>(x));
  }
}

/// As fp32 by pairs: lane i of `even` is element 2i, of `odd` element 2i + 1.
template <int32 kDType>
TILEKERNELS_CALLEE void load_even_odd(Reg<float>& even, Reg<float>& odd, Ub<uint8> from) {
  using T = typename LaneOfDType<kDType>::T;
  const Mask all = pset<uint8>();
  if constexpr (kDType == numerics::kDTypeF32) {
    vld_deintlv(even, odd, as_ub<float>(from));
  } else if constexpr (kDType == numerics::kDTypeE4M3) {
    Reg<E4M3> x;
    vlds<Dist::kUnpack>(x, as_ub<T>(from));
    vcvt<0, Round::kNone, Saturate::kNo>(even, x, all);
    vcvt<2, Round::kNone, Saturate::kNo>(odd, x, all);
  } else if constexpr (kDType == numerics::kDTypeE2M1x2) {
    Reg<E2M1x2> codes;
    Reg<BF16> x;
    vlds<Dist::kUnpack4>(codes, as_ub<T>(from));
    vcvt<0, Round::kNone, Saturate::kNo>(x, codes, all);
    vcvt<0, Round::kNone, Saturate::kNo>(even, x, all);
    vcvt<1, Round::kNone, Saturate::kNo>(odd, x, all);
  } else {
    Reg<T> x;
    vlds(x, as_ub<T>(from));
    vcvt<0, Round::kNone, Saturate::kNo>(even, x, all);
    vcvt<1, Round::kNone, Saturate::kNo>(odd, x, all);
  }
}

/// Any NaN becomes the canonical one.
TILEKERNELS_CALLEE void make_canonical(Reg<float>& x, const Mask& valid) {
  Reg<float> nan;
  Mask is_nan;
  vcmp<Cmp::kNe>(is_nan, x, x, valid);
  vdup(nan, numerics::kCanonicalNan, valid);
  vsel(x, nan, x, is_nan);
}

/// Rounded once to the output's type, every NaN canonical, to memory. e4m3 saturates.
template <int32 kOut>
TILEKERNELS_CALLEE void store_values(Ub<uint8> out, Reg<float>& y, const Mask& valid) {
  Reg<uint32> nan;
  Mask is_nan;
  vcmp<Cmp::kNe>(is_nan, y, y, valid);
  if constexpr (kOut == numerics::kDTypeF32) {
    vdup(nan, numerics::bit_cast<uint32>(numerics::kCanonicalNan), valid);
    vsel(as<uint32>(y), nan, as<uint32>(y), is_nan);
    vsts(as_ub<float>(out), y, valid);
  } else if constexpr (kOut == numerics::kDTypeE4M3) {
    Reg<E4M3> code;
    vcvt<0, Round::kRint, Saturate::kYes>(code, y, valid);
    vdup(nan, 0x7Fu, valid);
    vsel(as<uint32>(code), nan, as<uint32>(code), is_nan);
    vsts_pack<StoreDist::kPack4>(out, as<uint32>(code), valid);
  } else {
    Reg<typename LaneOfDType<kOut>::T> half;
    vcvt<0, Round::kRint, Saturate::kNo>(half, y, valid);
    vdup(nan, 0x7FFFu, valid);
    vsel(as<uint32>(half), nan, as<uint32>(half), is_nan);
    vsts_pack<StoreDist::kPack>(as_ub<uint16>(out), as<uint32>(half), valid);
  }
}

// ------------------------------ scaling factors by column

/// Which entry of a table of scaling factors a column has: floor((column + offset) / cols). Kept as
/// fp32 numbers, which are exact enough for every column of a span.
struct Columns {
  float first;    // offset + 1/2
  float inverse;  // RN(1 / cols)
};
constexpr int32 kMaxSpan = 8192;           // columns of a span
constexpr int32 kWideCols = 2 * kMaxSpan;  // stands for any wider block

/// For a span that starts at column `start` of blocks of `cols` columns, its first table entry
/// being `skip` entries before the block of `start`; skip <= 3.
TILEKERNELS_CORE Columns columns(int64 start, int64 cols, int64 skip) {
  const int64 within = start % cols;
  // Of wide blocks a span sees one edge at most, and only its place counts.
  const int64 width = numerics::min_of<int64>(cols, kWideCols);
  const int64 left = numerics::min_of<int64>(cols - within, width);
  const int64 offset = width - left + skip * width;
  return {static_cast<float>(offset) + 0.5f, 1.0f / static_cast<float>(width)};
}

/// The table's value for every active lane; `column` holds the lane's column + Columns::first.
TILEKERNELS_CALLEE void look_up(Reg<float>& d, Ub<float> table, const Reg<float>& column,
                                float inverse, const Mask& valid) {
  Reg<float> quotient;
  Reg<int32> index;
  vmuls(quotient, column, inverse, valid);
  vcvt<0, Round::kFloor, Saturate::kYes>(index, quotient, valid);
  vgather(d, table, index, valid);
}

/// d[i] = first + stride · i.
TILEKERNELS_CALLEE void number_columns(Reg<float>& d, float first, float stride, const Mask& all) {
  vci(d, 0.0f);
  vmuls(d, d, stride, all);
  vadds(d, d, first, all);
}

template <class T>
TILEKERNELS_CALLEE void store_expanded(Ub<T> out, Reg<float>& value, const Mask& valid) {
  if constexpr (sizeof(T) == 2) {
    Reg<BF16> half;
    vcvt<0, Round::kRint, Saturate::kNo>(half, value, valid);
    vsts_pack<StoreDist::kPack>(as_ub<uint16>(out), as<uint32>(half), valid);
  } else {
    vsts(out, value, valid);
  }
}

/// out[j] = the table's value for column j · stride, j < count; T is float or BF16. With a step, 64
/// entries of out further is `step` entries of the table further, a multiple of 8.
template <class T>
TILEKERNELS_VF void expand(Ub<T> out, Ub<float> table, float first, float inverse, float stride,
                           int32 step, uint32 count) {
  const Mask all = pset<float>();
  Reg<float> column;
  Reg<float> value;
  Reg<int32> index;
  number_columns(column, first, stride, all);
  const auto turns = static_cast<uint16>((count + kF32Lanes - 1) / kF32Lanes);
  const auto looked_up = static_cast<uint16>(step == 0 ? turns : 0);
  for (uint16 i = 0; i < looked_up; ++i) {
    const Mask valid = plt<float>(count);
    look_up(value, table, column, inverse, valid);
    store_expanded<T>(out + i * kF32Lanes, value, valid);
    vadds(column, column, stride * kF32Lanes, all);
  }
  vmuls(column, column, inverse, all);
  vcvt<0, Round::kFloor, Saturate::kYes>(index, column, all);
  for (uint16 i = looked_up; i < turns; ++i) {
    const Mask valid = plt<float>(count);
    vgather(value, table + i * step, index, valid);
    store_expanded<T>(out + i * kF32Lanes, value, valid);
  }
}

/// Queues expand for columns of blocks of block_cols.
template <class T>
TILEKERNELS_CORE void call_expand(Ub<T> out, Ub<float> table, const Columns& of, int32 stride,
                                  int64 block_cols, int64 count) {
  const int64 cols = int64{stride} * kF32Lanes;
  const int64 step = cols / block_cols;
  const bool steps = cols % block_cols == 0 && step % 8 == 0;
  vf_call<expand<T>>("expand", out, table, of.first, of.inverse, static_cast<float>(stride),
                     steps ? static_cast<int32>(step) : 0, static_cast<uint32>(count));
}

template <int32 kTimes>
TILEKERNELS_CALLEE void store_repeated(Ub<uint32> out, const Reg<uint32>& value, const Mask& all) {
  if constexpr (kTimes == 1) {
    vsts(out, value, all);
  } else if constexpr (kTimes == 2) {
    vst_intlv(out, value, value);
  } else {
    Reg<uint32> low;
    Reg<uint32> high;
    vintlv(low, high, value, value);
    store_repeated<kTimes / 2>(out, low, all);
    store_repeated<kTimes / 2>(out + kTimes / 2 * kF32Lanes, high, all);
  }
}

/// Every word kTimes times, a power of two, for registers of 64.
template <int32 kTimes>
TILEKERNELS_VF void repeat(Ub<uint32> out, Ub<uint32> words, uint16 turns) {
  const Mask all = pset<uint32>();
  Reg<uint32> value;
  for (uint16 i = 0; i < turns; ++i) {
    vlds(value, words + i * kF32Lanes);
    store_repeated<kTimes>(out + i * kTimes * kF32Lanes, value, all);
  }
}

/// The same of fp32 numbers that are powers of two or NaN, as bf16.
template <int32 kTimes>
TILEKERNELS_VF void repeat_bf16(Ub<uint16> out, Ub<float> numbers, uint16 turns) {
  const Mask all = pset<uint32>();
  Reg<uint32> value;
  Reg<uint32> lower;
  for (uint16 i = 0; i < turns; ++i) {
    vlds(value, as_ub<uint32>(numbers) + i * kF32Lanes);
    vshrs(lower, value, 16, all);
    if constexpr (kTimes == 1) {
      vsts_pack<StoreDist::kPack>(out + i * kF32Lanes, lower, all);
    } else {
      vor(value, value, lower, all);
      store_repeated<kTimes / 2>(as_ub<uint32>(out + i * kTimes * kF32Lanes), value, all);
    }
  }
}

// ------------------------------ maxima

/// The maximum over rows of the absolute bits of 16- or 32-bit elements, by column.
template <class T>
TILEKERNELS_VF void column_max(Ub<T> out, Ub<T> x, int32 pitch, uint16 rows, uint32 cols) {
  constexpr T kAbs = static_cast<T>(static_cast<T>(~T{0}) >> 1);
  const Mask all = pset<T>();
  Reg<T> abs;
  Reg<T> largest;
  Reg<T> value;
  vdup(abs, kAbs, all);
  const auto turns = static_cast<uint16>((cols + Reg<T>::kLanes - 1) / Reg<T>::kLanes);
  for (uint16 i = 0; i < turns; ++i) {
    const Mask valid = plt<T>(cols);
    vdup(largest, T{0}, all);
    for (uint16 row = 0; row < rows; ++row) {
      vlds(value, x + (row * pitch + i * Reg<T>::kLanes));
      vand(value, value, abs, valid);
      vmax(largest, largest, value, all);
    }
    vsts(out + i * Reg<T>::kLanes, largest, valid);
  }
}

/// Pairs' maxima: out[j] = max(from[2j], from[2j + 1]), j < count.
template <class T>
TILEKERNELS_CALLEE void pair_max(Ub<T> out, Ub<T> from, uint32 count) {
  Reg<T> even;
  Reg<T> odd;
  const Mask all = pset<T>();
  const auto turns = static_cast<uint16>((count + Reg<T>::kLanes - 1) / Reg<T>::kLanes);
  for (uint16 i = 0; i < turns; ++i) {
    vld_deintlv(even, odd, from + 2 * i * Reg<T>::kLanes);
    vmax(even, even, odd, all);
    vsts(out + i * Reg<T>::kLanes, even, plt<T>(count));
  }
}

/// The maxima of every kCells cells, 2, 4 or 8. `a` and `b` are scratch: half and a quarter as many
/// entries as cells.
template <int32 kCells>
TILEKERNELS_VF void cell_max(Ub<uint32> amax, Ub<uint32> cells, Ub<uint32> a, Ub<uint32> b,
                             uint32 groups) {
  pair_max<uint32>(kCells == 2 ? amax : a, cells, groups * (kCells / 2));
  if constexpr (kCells >= 4) {
    mem_bar<Bar::kVstVld>();
    pair_max<uint32>(kCells == 4 ? amax : b, a, groups * (kCells / 4));
  }
  if constexpr (kCells == 8) {
    mem_bar<Bar::kVstVld>();
    pair_max<uint32>(amax, b, groups);
  }
}

// One turn of the maxima of a row's cells: 8 cells of one block of the row each, or of two, whose
// neighbours' larger ones are taken first.
template <class T, bool kSingle>
TILEKERNELS_CALLEE void block_cells(Ub<T> cells, Ub<T> row, const Reg<T>& abs, const Mask& valid,
                                    const Mask& valid_odd, const Mask& all) {
  Reg<T> value;
  if constexpr (kSingle) {
    vlds(value, row);
    vand(value, value, abs, valid);
  } else {
    Reg<T> odd;
    vld_deintlv(value, odd, row);
    vand(value, value, abs, valid);
    vand(odd, odd, abs, valid_odd);
    vmax(value, value, odd, all);
  }
  vcgmax(value, value, all);
  vstu(cells, value, kVectorBytes / kBlockBytes);
}

/// The maximum of the absolute bits of every kGroup columns of a row. `cells` is scratch: two
/// entries a group.
template <class T, int32 kGroup>
TILEKERNELS_VF void group_max(Ub<T> amax, Ub<T> row, Ub<T> cells, uint32 cols) {
  constexpr T kAbs = static_cast<T>(static_cast<T>(~T{0}) >> 1);
  constexpr int32 kLanes = Reg<T>::kLanes;
  const Mask all = pset<T>();
  Reg<T> abs;
  Reg<T> value;
  vdup(abs, kAbs, all);
  const uint32 groups = (cols + kGroup - 1) / kGroup;
  if constexpr (kGroup >= kLanes) {
    constexpr int32 kRegs = kGroup / kLanes;
    Reg<T> largest;
    const auto whole = static_cast<uint16>(cols / kGroup);
    for (uint16 g = 0; g < whole; ++g) {
      vlds(value, row + g * kGroup);
      vand(largest, value, abs, all);
      for (int32 r = 1; r < kRegs; ++r) {
        vlds(value, row + (g * kGroup + r * kLanes));
        vand(value, value, abs, all);
        vmax(largest, largest, value, all);
      }
      vcmax(largest, largest, all);
      vst_first(amax + g, largest);
    }
    cols -= whole * static_cast<uint32>(kGroup);
    for (auto g = whole; g < static_cast<uint16>(groups); ++g) {
      vdup(largest, T{0}, all);
      for (int32 r = 0; r < kRegs; ++r) {
        vlds(value, row + (g * kGroup + r * kLanes));
        vand(value, value, abs, plt<T>(cols));
        vmax(largest, largest, value, all);
      }
      vcmax(largest, largest, all);
      vst_first(amax + g, largest);
    }
  } else {
    constexpr int32 kBlocks = kVectorBytes / kBlockBytes;
    constexpr bool kSingle = kGroup * sizeof(T) == kBlockBytes;
    constexpr int32 kStep = kSingle ? kLanes : 2 * kLanes;
    constexpr int32 kCells = kGroup * kBlocks / kStep;  // of a group
    static_assert(kCells == 1 || kCells == 2);
    const Ub<T> to = kCells == 1 ? amax : cells;
    const auto whole = static_cast<uint16>(cols / kStep);
    const auto turns = static_cast<uint16>((cols + kStep - 1) / kStep);
    const uint32 left = cols - whole * static_cast<uint32>(kStep);
    for (uint16 i = 0; i < whole; ++i) {
      block_cells<T, kSingle>(to + i * kBlocks, row + i * kStep, abs, all, all, all);
    }
    const Mask rest = prefix<T>(kSingle ? left : (left + 1) / 2);
    const Mask rest_odd = prefix<T>(left / 2);
    for (auto i = whole; i < turns; ++i) {
      block_cells<T, kSingle>(to + i * kBlocks, row + i * kStep, abs, rest, rest_odd, all);
    }
    if constexpr (kCells == 2) {
      mem_bar<Bar::kVstVld>();
      pair_max<T>(amax, cells, groups);
    }
  }
}

}  // namespace tilekernels::ascend
