// inplace_unique_group_indices on the vector core: an index a lane, compared with the lanes before.
#pragma once

#include "ops/moe/inplace_unique_group_indices/op.h"
#include "runtime/ascend/faults.h"
#include "runtime/ascend/ring.h"

namespace tilekernels::ascend::inplace_unique_group_indices_kernel {

constexpr int64 kTileIndices = 1024;
constexpr int32 kStages = 3;          // tiles in flight
constexpr int32 kBefore = kF32Lanes;  // readable keys before the first
static_assert(kBefore >= kWeightSlots);

constexpr int64 rows_of_tile(int32 num_topk) { return kTileIndices / num_topk; }

// Bytes of UB that a kernel takes, readable tails included.
constexpr int64 ub_bytes() {
  return 2 * kStages * (kTileIndices * 8 + kVectorBytes) +
         ((kBefore + kTileIndices) * 4 + kVectorBytes) + kFaultUbBytes;
}

// No group stands before a tile's first row.
TILEKERNELS_VF void clear_before(Ub<int32> keys) {
  const Mask all = pset<int32>();
  Reg<int32> none;
  vdup(none, -1, all);
  vsts(keys, none, all);
}

// Groups as 32-bit keys, other indices as -1. `item` is the place of the first index in the core's
// share, by which faults are noted.
TILEKERNELS_VF void make_keys(Ub<int32> keys, Ub<int32> indices, Ub<int32> faults, uint32 count,
                              uint32 num_groups, int32 item) {
  const Mask all = pset<int32>();
  Reg<int32> low;
  Reg<int32> high;
  Reg<int32> none;
  Reg<int32> t;
  Reg<int32> place;
  Reg<int32> worst;
  Mask is_group;
  Mask is_bad;
  vdup(none, -1, all);
  start_places(place, worst, item, all);
  const auto turns = static_cast<uint16>((count + kF32Lanes - 1) / kF32Lanes);
  for (uint16 i = 0; i < turns; ++i) {
    const Mask valid = plt<int32>(count);
    vld_deintlv(low, high, indices + 2 * i * kF32Lanes);
    vcmps<Cmp::kEq>(is_group, high, 0, valid);
    vcmps<Cmp::kLt>(is_group, as<uint32>(low), num_groups, is_group);
    vcmps<Cmp::kGe>(is_bad, high, 0, valid);
    pnot(is_bad, is_group, is_bad);
    judge_places(place, worst, is_bad, all);
    vsel(low, low, none, is_group);
    vsts(keys + (kBefore + i * kF32Lanes), low, valid);
  }
  note_places(faults, worst, all);
}

TILEKERNELS_VF void drop_repeats(Ub<int32> out, Ub<int32> indices, Ub<int32> keys, uint32 count,
                                 uint16 num_topk, float inverse) {
  const Mask all = pset<int32>();
  Reg<int32> key;
  Reg<int32> other;
  Reg<int32> low;
  Reg<int32> high;
  Reg<int32> none;
  Reg<int32> place;
  Reg<float> column;
  vdup(none, -1, all);
  vci(place, 0);
  uint32 words = 2 * count;
  const auto turns = static_cast<uint16>((count + kF32Lanes - 1) / kF32Lanes);
  for (uint16 i = 0; i < turns; ++i) {
    const Mask valid = plt<int32>(count);
    // The slot of a lane: its place less num_topk · floor((place + 1/2) · RN(1 / num_topk))
    vcvt<0, Round::kRint, Saturate::kYes>(column, place, valid);
    vadds(column, column, 0.5f, valid);
    vmuls(column, column, inverse, valid);
    vcvt<0, Round::kFloor, Saturate::kYes>(other, column, valid);
    vmuls(other, other, static_cast<int32>(num_topk), valid);
    Reg<int32> slot;
    vsub(slot, place, other, valid);
    vadds(place, place, kF32Lanes, all);

    const Ub<int32> mine = keys + (kBefore + i * kF32Lanes);
    vlds(key, mine);
    Mask is_repeated = pset<int32, Pattern::kNone>();
    for (uint16 step = 1; step < num_topk; ++step) {
      Mask is_same;
      vldu(other, mine + (-static_cast<int32>(step)));
      vcmps<Cmp::kGe>(is_same, slot, static_cast<int32>(step), valid);
      vcmp<Cmp::kEq>(is_same, key, other, is_same);
      por(is_repeated, is_repeated, is_same, all);
    }
    vcmps<Cmp::kGe>(is_repeated, key, 0, is_repeated);
    vld_deintlv(low, high, indices + 2 * i * kF32Lanes);
    vsel(low, none, low, is_repeated);
    vsel(high, none, high, is_repeated);
    vintlv(low, high, low, high);
    vsts(out + 2 * i * kF32Lanes, low, plt<int32>(words));
    vsts(out + (2 * i + 1) * kF32Lanes, high, plt<int32>(words));
  }
}

TILEKERNELS_CORE void run(const InplaceUniqueGroupIndicesArgs& args,
                          const InplaceUniqueGroupIndicesShape& shape) {
  prologue();
  const Ub<int32> faults = alloc_faults();
  MutexPool pool;
  InRing<int32> indices(pool, "indices", kStages, 2 * kTileIndices);
  OutRing<int32> out(pool, "out", kStages, 2 * kTileIndices);
  const Ub<int32> keys = ub_alloc<int32>("keys", kBefore + kTileIndices);
  vf_call<clear_before>("clear_before", keys);
  const int64 tile_rows = rows_of_tile(shape.num_topk);
  const auto count_of = [&](int64 tile) {
    return numerics::min_of(tile_rows, args.num_tokens - tile * tile_rows) * shape.num_topk;
  };
  const float inverse = 1.0f / static_cast<float>(shape.num_topk);
  int32 item = 0;
  pipeline(
      kStages, block_idx(), numerics::ceil_div(args.num_tokens, tile_rows), block_num(),
      [&](int64 tile) {
        copy_in(indices.fill(), gm(args.group_indices + tile * tile_rows * shape.num_topk),
                {1, count_of(tile) * 8});
        indices.filled();
      },
      [&](int64 tile) {
        const auto count = static_cast<uint32>(count_of(tile));
        const Ub<int32> from = indices.empty();
        vf_call<make_keys>("make_keys", keys, from, faults, count,
                           static_cast<uint32>(args.num_groups), item);
        vf_call<drop_repeats>("drop_repeats", out.fill(), from, keys, count,
                              static_cast<uint16>(shape.num_topk), inverse);
        item += static_cast<int32>(kTileIndices);
        indices.emptied();
        out.filled();
        copy_out(gm(args.group_indices + tile * tile_rows * shape.num_topk), out.empty(),
                 {1, count * int64{8}});
        out.emptied();
      });
  report_faults(args.fault, faults, kInplaceUniqueGroupIndicesId, numerics::kFaultIndexOutOfRange,
                [&](int32 at) {
                  const int64 tile = block_idx() + at / kTileIndices * block_num();
                  return tile * tile_rows + at % kTileIndices / shape.num_topk;
                });
  barrier_all();
}

}  // namespace tilekernels::ascend::inplace_unique_group_indices_kernel
