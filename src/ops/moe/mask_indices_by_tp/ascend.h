// mask_indices_by_tp on the vector core: an index a lane, divisions by long multiplications.
#pragma once

#include "ops/moe/mask_indices_by_tp/op.h"
#include "runtime/ascend/faults.h"
#include "runtime/ascend/ring.h"

namespace tilekernels::ascend::mask_indices_by_tp_kernel {

constexpr int64 kTileIndices = 2048;
constexpr int32 kStages = 3;  // tiles in flight

// Bytes of UB that a kernel takes, readable tails included.
constexpr int64 ub_bytes() {
  return 2 * kStages * (kTileIndices * 8 + kVectorBytes) + kFaultUbBytes;
}

// x / by for lanes below 2^31.
TILEKERNELS_CALLEE void divide(Reg<uint32>& quotient, const Reg<uint32>& x, uint32 magic,
                               int32 shift, const Mask& valid) {
  Reg<uint32> low;
  Reg<uint32> twice;
  vadd(twice, x, x, valid);
  vdup(low, magic, valid);
  vmull(low, quotient, twice, low, valid);
  vshrs(quotient, quotient, shift, valid);
}

// `item` is the place of the first index in the core's share, by which faults are noted.
template <bool kIsLong>
TILEKERNELS_VF void mask_tile(Ub<int32> out, Ub<int32> indices, Ub<int32> faults, uint32 count,
                              int32 item, uint32 num_experts, uint32 tp_rank, uint32 per_rank,
                              uint32 per_rank_magic, int32 per_rank_shift, uint32 ranks,
                              uint32 ranks_magic, int32 ranks_shift) {
  const Mask all = pset<int32>();
  Reg<uint32> index;
  Reg<uint32> high;
  Reg<uint32> rank;
  Reg<uint32> turn;
  Reg<uint32> t;
  Reg<int32> place;
  Reg<int32> worst;
  Mask is_expert;
  Mask is_bad;
  start_places(place, worst, item, all);
  uint32 words = 2 * count;
  const auto turns = static_cast<uint16>((count + kF32Lanes - 1) / kF32Lanes);
  for (uint16 i = 0; i < turns; ++i) {
    const Mask valid = plt<int32>(count);
    if constexpr (kIsLong) {
      vld_deintlv(index, high, as_ub<uint32>(indices) + 2 * i * kF32Lanes);
    } else {
      vlds(index, as_ub<uint32>(indices) + i * kF32Lanes);
      vshrs(as<int32>(high), as<int32>(index), 31, valid);
    }
    vcmps<Cmp::kEq>(is_expert, high, 0u, valid);
    vcmps<Cmp::kLt>(is_expert, index, num_experts, is_expert);
    // Neither an expert nor negative
    vcmps<Cmp::kGe>(is_bad, as<int32>(high), 0, valid);
    pnot(is_bad, is_expert, is_bad);
    judge_places(place, worst, is_bad, all);

    divide(rank, index, per_rank_magic, per_rank_shift, is_expert);
    divide(turn, rank, ranks_magic, ranks_shift, is_expert);
    // The number in the rank
    vmuls(t, rank, per_rank, is_expert);
    vsub(index, index, t, is_expert);
    // The number of the rank's column
    vmuls(t, turn, ranks, is_expert);
    vsub(rank, rank, t, is_expert);
    vcmps<Cmp::kEq>(is_expert, rank, tp_rank, is_expert);
    vmuls(t, turn, per_rank, is_expert);
    vadd(index, index, t, is_expert);
    vdup(t, ~0u, valid);
    vsel(index, index, t, is_expert);
    if constexpr (kIsLong) {
      vshrs(as<int32>(high), as<int32>(index), 31, valid);
      vintlv(index, high, index, high);
      vsts(as_ub<uint32>(out) + 2 * i * kF32Lanes, index, plt<int32>(words));
      vsts(as_ub<uint32>(out) + (2 * i + 1) * kF32Lanes, high, plt<int32>(words));
    } else {
      vsts(as_ub<uint32>(out) + i * kF32Lanes, index, valid);
    }
  }
  note_places(faults, worst, all);
}

template <bool kIsLong>
TILEKERNELS_CORE void tiles(const MaskIndicesByTpArgs& args, Ub<int32> faults) {
  constexpr int64 kBytes = kIsLong ? 8 : 4;
  MutexPool pool;
  InRing<int32> indices(pool, "indices", kStages, kTileIndices * kBytes / 4);
  OutRing<int32> out(pool, "out", kStages, kTileIndices * kBytes / 4);
  const auto indices_of = [&](int64 tile) {
    return numerics::min_of(kTileIndices, args.count - tile * kTileIndices);
  };
  const auto* const from = static_cast<const uint8*>(args.indices);
  auto* const to = static_cast<uint8*>(args.out);
  int32 item = 0;
  pipeline(
      kStages, block_idx(), numerics::ceil_div(args.count, kTileIndices), block_num(),
      [&](int64 tile) {
        copy_in(indices.fill(), gm(from + tile * kTileIndices * kBytes),
                {1, indices_of(tile) * kBytes});
        indices.filled();
      },
      [&](int64 tile) {
        vf_call<mask_tile<kIsLong>>(
            "mask_tile", out.fill(), indices.empty(), faults, static_cast<uint32>(indices_of(tile)),
            item, static_cast<uint32>(args.num_experts), static_cast<uint32>(args.tp_rank),
            static_cast<uint32>(args.experts_per_rank.divisor), args.experts_per_rank.magic,
            args.experts_per_rank.shift, static_cast<uint32>(args.num_tp_ranks.divisor),
            args.num_tp_ranks.magic, args.num_tp_ranks.shift);
        item += static_cast<int32>(kTileIndices);
        indices.emptied();
        out.filled();
        copy_out(gm(to + tile * kTileIndices * kBytes), out.empty(),
                 {1, indices_of(tile) * kBytes});
        out.emptied();
      });
}

TILEKERNELS_CORE void run(const MaskIndicesByTpArgs& args, const MaskIndicesByTpShape& shape) {
  prologue();
  const Ub<int32> faults = alloc_faults();
  if (shape.dtype == numerics::kDTypeI64) {
    tiles<true>(args, faults);
  } else {
    tiles<false>(args, faults);
  }
  report_faults(args.fault, faults, kMaskIndicesByTpId, numerics::kFaultIndexOutOfRange,
                [&](int32 item) {
                  const int64 tile = block_idx() + item / kTileIndices * block_num();
                  return (tile * kTileIndices + item % kTileIndices) / args.row_length;
                });
  barrier_all();
}

}  // namespace tilekernels::ascend::mask_indices_by_tp_kernel
