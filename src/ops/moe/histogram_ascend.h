// group_count and aux_fi on the vector core: the histogram instruction counts bytes, so an index is
// split in a low byte and the number of its slice of 256 bins, whose indices a mask picks.
//
// A first launch counts shares of the indices into rows of counts, one share a row; a second one
// adds the rows up.
#pragma once

#include "ops/moe/histogram.h"
#include "runtime/ascend/faults.h"
#include "runtime/ascend/ring.h"

namespace tilekernels::ascend::histogram_kernel {

struct Args {
  const int64* indices;  // num_tokens x num_topk
  int32* counts;         // num_rows x num_bins
  void* out;             // num_bins
  int64 num_tokens;
  int64 num_chosen;
  int64 num_rows;
  int32 num_topk;
  int32 num_bins;
  uint64* fault;
};

// What a launch does
constexpr int32 kCount = 0;
constexpr int32 kAdd = 1;

struct Tile {
  int32 phase;
};

constexpr int64 kTileIndices = 2048;
constexpr int32 kStages = 3;  // tiles in flight
constexpr int32 kSliceBins = 256;
constexpr int64 kWindowBins = 8192;  // that are counted in one pass over the indices
constexpr int32 kNoSlice = 255;      // of an index that is not counted
static_assert(kWindowBins / kSliceBins <= kNoSlice);
static_assert(kTileIndices < 65536, "a lane of the histogram holds the counts of a tile");

// Bytes of UB that the counting kernel takes, readable tails included.
constexpr int64 count_ub_bytes() {
  constexpr int64 kTail = kVectorBytes;
  return kStages * (kTileIndices * 8 + kTail) + 2 * (kTileIndices + kTail) +
         (kWindowBins * 4 + kTail) + kFaultUbBytes;
}

TILEKERNELS_VF void clear_counts(Ub<int32> counts, uint16 slices) {
  const Mask all = pset<int32>();
  Reg<int32> zero;
  vdup(zero, 0, all);
  for (uint16 s = 0; s < slices; ++s) {
    for (int32 r = 0; r < kSliceBins / kF32Lanes; ++r) {
      vsts(counts + (s * kSliceBins + r * kF32Lanes), zero, all);
    }
  }
}

// Where an index is one of the bins first_bin, first_bin + 1, …, its distance from the first as a
// low byte and a slice; elsewhere kNoSlice. `item` is the place of the first index in the core's
// share, by which faults are noted.
TILEKERNELS_VF void split_indices(Ub<uint8> lows, Ub<uint8> slices, Ub<int32> indices,
                                  Ub<int32> faults, uint32 count, uint32 first_bin,
                                  uint32 window_bins, uint32 num_bins, int32 item) {
  const Mask all = pset<int32>();
  Reg<int32> low;
  Reg<int32> high;
  Reg<int32> t;
  Reg<int32> no_slice;
  Reg<int32> place;
  Reg<int32> worst;
  Mask is_bin;
  Mask other;
  Mask is_bad;
  vdup(no_slice, kNoSlice, all);
  start_places(place, worst, item, all);
  const auto turns = static_cast<uint16>((count + kF32Lanes - 1) / kF32Lanes);
  for (uint16 i = 0; i < turns; ++i) {
    const Mask valid = plt<int32>(count);
    vld_deintlv(low, high, indices + 2 * i * kF32Lanes);
    vcmps<Cmp::kEq>(is_bin, high, 0, valid);
    vcmps<Cmp::kLt>(is_bin, as<uint32>(low), num_bins, is_bin);
    // Neither a bin nor -1
    vand(t, low, high, valid);
    vcmps<Cmp::kNe>(other, t, -1, valid);
    pnot(is_bad, is_bin, other);
    judge_places(place, worst, is_bad, all);

    vadds(as<uint32>(low), as<uint32>(low), 0 - first_bin, is_bin);
    vcmps<Cmp::kLt>(is_bin, as<uint32>(low), window_bins, is_bin);
    vshrs(as<uint32>(t), as<uint32>(low), 8, is_bin);
    vsel(t, t, no_slice, is_bin);
    vsts_pack<StoreDist::kPack4>(slices + i * kF32Lanes, as<uint32>(t), valid);
    vsts_pack<StoreDist::kPack4>(lows + i * kF32Lanes, as<uint32>(low), valid);
  }
  note_places(faults, worst, all);
}

// Adds 128 counts to those in UB.
TILEKERNELS_CALLEE void add_counts(Ub<int32> counts, const Reg<uint16>& found,
                                   const Reg<uint16>& zero, const Mask& all) {
  Reg<uint16> lower;
  Reg<uint16> upper;
  Reg<int32> count;
  Reg<int32> next;
  vintlv(lower, upper, found, zero);  // as 32-bit numbers
  vlds(count, counts);
  vlds(next, counts + kF32Lanes);
  vadd(count, count, as<int32>(lower), all);
  vadd(next, next, as<int32>(upper), all);
  mem_bar<Bar::kVldVst>();
  vsts(counts, count, all);
  vsts(counts + kF32Lanes, next, all);
}

TILEKERNELS_VF void count_bytes(Ub<int32> counts, Ub<uint8> lows, Ub<uint8> slices, uint32 count,
                                uint16 num_slices) {
  const Mask all = pset<int32>();
  const Mask all_words = pset<uint16>();
  Reg<uint16> zero;
  Reg<uint16> lower;
  Reg<uint16> upper;
  Reg<uint8> low;
  Reg<uint8> slice;
  Mask is_here;
  vdup(zero, uint16{0}, all_words);
  const auto turns = static_cast<uint16>((count + kVectorBytes - 1) / kVectorBytes);
  for (uint16 s = 0; s < num_slices; ++s) {
    uint32 left = count;
    vdup(lower, uint16{0}, all_words);
    vdup(upper, uint16{0}, all_words);
    for (uint16 i = 0; i < turns; ++i) {
      const Mask valid = plt<uint8>(left);
      vlds(slice, slices + i * kVectorBytes);
      vcmps<Cmp::kEq>(is_here, slice, static_cast<uint8>(s), valid);
      vlds(low, lows + i * kVectorBytes);
      vhist<false>(lower, low, is_here);
      vhist<true>(upper, low, is_here);
    }
    add_counts(counts + s * kSliceBins, lower, zero, all);
    add_counts(counts + (s * kSliceBins + kSliceBins / 2), upper, zero, all);
  }
}

// Counts shares of the tiles: row r has the tiles r, r + num_rows, …
TILEKERNELS_CORE void count(const Args& args, const HistogramShape& shape) {
  const Ub<int32> faults = alloc_faults();
  MutexPool pool;
  InRing<int32> indices(pool, "indices", kStages, 2 * kTileIndices);
  OutRing<int32> counts(pool, "counts", 1, kWindowBins);
  const Ub<uint8> lows = ub_alloc<uint8>("lows", kTileIndices);
  const Ub<uint8> slices = ub_alloc<uint8>("slices", kTileIndices);
  const int64 num_indices = args.num_tokens * args.num_topk;
  const int64 num_tiles = numerics::ceil_div(num_indices, kTileIndices);
  // Items are numbered as if every row had so many tiles.
  const int64 row_tiles = numerics::max_of(int64{1}, numerics::ceil_div(num_tiles, args.num_rows));
  const auto indices_of = [&](int64 tile) {
    return numerics::min_of(kTileIndices, num_indices - tile * kTileIndices);
  };
  int64 row_turn = 0;
  for (int64 row = block_idx(); row < args.num_rows; row += block_num()) {
    for (int64 first = 0; first < args.num_bins; first += kWindowBins) {
      const int64 window = numerics::min_of(kWindowBins, args.num_bins - first);
      const auto num_slices = static_cast<uint16>(numerics::ceil_div(window, kSliceBins));
      const Ub<int32> of_window = counts.fill();
      vf_call<clear_counts>("clear_counts", of_window, num_slices);
      auto item = static_cast<int32>(row_turn * row_tiles * kTileIndices);
      pipeline(
          kStages, row, num_tiles, args.num_rows,
          [&](int64 tile) {
            copy_in(indices.fill(), gm(args.indices + tile * kTileIndices),
                    {1, indices_of(tile) * 8});
            indices.filled();
          },
          [&](int64 tile) {
            const auto num = static_cast<uint32>(indices_of(tile));
            vf_call<split_indices>("split_indices", lows, slices, indices.empty(), faults, num,
                                   static_cast<uint32>(first), static_cast<uint32>(window),
                                   static_cast<uint32>(args.num_bins), item);
            indices.emptied();
            vf_call<count_bytes>("count_bytes", of_window, lows, slices, num, num_slices);
            item += static_cast<int32>(kTileIndices);
          });
      counts.filled();
      copy_out(gm(args.counts + row * args.num_bins + first), counts.empty(), {1, window * 4});
      counts.emptied();
    }
    ++row_turn;
  }
  report_faults(args.fault, faults, histogram_op_id(shape), numerics::kFaultIndexOutOfRange,
                [&](int32 item) {
                  const int64 turn = item / kTileIndices;
                  const int64 row = block_idx() + turn / row_tiles * block_num();
                  const int64 tile = row + turn % row_tiles * args.num_rows;
                  return (tile * kTileIndices + item % kTileIndices) / args.num_topk;
                });
}

// ------------------------------ adding up

constexpr int64 kAddBins = kSliceBins;  // of an item
constexpr int64 kAddRows = 64;          // at a time

// Bytes of UB that the adding kernel takes, readable tails included.
constexpr int64 add_ub_bytes() {
  constexpr int64 kTail = kVectorBytes;
  return 2 * (kAddRows * kAddBins * 4 + kTail) + 4 * (kAddBins * 4 + kTail);
}

TILEKERNELS_VF void add_rows(Ub<int32> sums, Ub<int32> rows, uint16 num_rows, uint32 num_bins) {
  Reg<int32> sum;
  Reg<int32> row;
  const auto turns = static_cast<uint16>((num_bins + kF32Lanes - 1) / kF32Lanes);
  for (uint16 i = 0; i < turns; ++i) {
    const Mask valid = plt<int32>(num_bins);
    vlds(sum, sums + i * kF32Lanes);
    for (uint16 r = 0; r < num_rows; ++r) {
      vlds(row, rows + (r * static_cast<int32>(kAddBins) + i * kF32Lanes));
      vadd(sum, sum, row, valid);
    }
    mem_bar<Bar::kVldVst>();
    vsts(sums + i * kF32Lanes, sum, valid);
  }
}

TILEKERNELS_VF void copy_sums(Ub<int32> out, Ub<int32> sums, uint32 num_bins) {
  Reg<int32> sum;
  const auto turns = static_cast<uint16>((num_bins + kF32Lanes - 1) / kF32Lanes);
  for (uint16 i = 0; i < turns; ++i) {
    const Mask valid = plt<int32>(num_bins);
    vlds(sum, sums + i * kF32Lanes);
    vsts(out + i * kF32Lanes, sum, valid);
  }
}

TILEKERNELS_VF void divide_all(Ub<float> out, Ub<float> products, float denominator,
                               uint32 num_bins) {
  const Mask all = pset<float>();
  Reg<float> x;
  Reg<float> by;
  vdup(by, denominator, all);
  const auto turns = static_cast<uint16>((num_bins + kF32Lanes - 1) / kF32Lanes);
  for (uint16 i = 0; i < turns; ++i) {
    const Mask valid = plt<float>(num_bins);
    vlds(x, products + i * kF32Lanes);
    vdiv<Precision::kExact>(x, x, by, valid);
    vsts(out + i * kF32Lanes, x, valid);
  }
}

TILEKERNELS_CORE void add_up(const Args& args, bool is_fraction) {
  MutexPool pool;
  InRing<int32> rows(pool, "rows", 2, kAddRows * kAddBins);
  OutRing<int32> out(pool, "out", 2, kAddBins);
  const Ub<int32> sums = ub_alloc<int32>("sums", kAddBins);
  const Ub<float> products = ub_alloc<float>("products", kAddBins);
  const int64 chunks = numerics::ceil_div(args.num_rows, kAddRows);
  const int64 items = numerics::ceil_div(args.num_bins, kAddBins);
  const int64 mine =
      numerics::max_of(int64{0}, numerics::ceil_div(items - block_idx(), block_num()));
  const auto first_of = [&](int64 turn) {
    return (block_idx() + turn / chunks * block_num()) * kAddBins;
  };
  const auto bins_of = [&](int64 turn) {
    return numerics::min_of(kAddBins, args.num_bins - first_of(turn));
  };
  const auto rows_of = [&](int64 turn) {
    return numerics::min_of(kAddRows, args.num_rows - turn % chunks * kAddRows);
  };
  pipeline(
      2, 0, mine * chunks, 1,
      [&](int64 turn) {
        const int32* from = args.counts + turn % chunks * kAddRows * args.num_bins + first_of(turn);
        copy_in(rows.fill(), gm(from),
                {rows_of(turn), bins_of(turn) * 4, args.num_bins * int64{4}, kAddBins * 4});
        rows.filled();
      },
      [&](int64 turn) {
        const auto num_bins = static_cast<uint32>(bins_of(turn));
        if (turn % chunks == 0) vf_call<clear_counts>("clear_counts", sums, uint16{1});
        vf_call<add_rows>("add_rows", sums, rows.empty(), static_cast<uint16>(rows_of(turn)),
                          num_bins);
        rows.emptied();
        if ((turn + 1) % chunks != 0) return;
        if (!is_fraction) {
          vf_call<copy_sums>("copy_sums", out.fill(), sums, num_bins);
        } else {
          // Products have up to 62 bits: the scalar unit rounds them.
          wait_for<Pipe::kV, Pipe::kS>();
          for (uint32 bin = 0; bin < num_bins; ++bin) {
            const int64 product = int64{get_value(sums, bin)} * args.num_bins;
            set_value(products, bin, static_cast<float>(product));
          }
          wait_for<Pipe::kS, Pipe::kV>();
          const auto chosen = static_cast<float>(numerics::max_of(args.num_chosen, int64{1}));
          vf_call<divide_all>("divide_all", as_ub<float>(out.fill()), products, chosen, num_bins);
        }
        out.filled();
        copy_out(gm(static_cast<int32*>(args.out) + first_of(turn)), out.empty(),
                 {1, num_bins * int64{4}});
        out.emptied();
      });
}

TILEKERNELS_CORE void run(const Args& args, const HistogramShape& shape, const Tile& tile) {
  prologue();
  if (tile.phase == kCount) {
    count(args, shape);
  } else {
    add_up(args, shape.is_fraction != 0);
  }
  barrier_all();
}

}  // namespace tilekernels::ascend::histogram_kernel
