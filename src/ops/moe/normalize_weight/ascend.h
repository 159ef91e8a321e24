// normalize_weight on the vector core: a lane a row for the sums, then a lane a weight.
#pragma once

#include "ops/moe/normalize_weight/op.h"
#include "runtime/ascend/composites.h"

namespace tilekernels::ascend::normalize_weight_kernel {

constexpr int64 kTileRows = kF32Lanes;
constexpr int32 kStages = 4;  // tiles in flight
constexpr int64 kTileWeights = kTileRows * kWeightSlots;

// Bytes of UB that a kernel takes, readable tails included.
constexpr int64 ub_bytes() {
  return kStages * (2 * (kTileWeights * 4 + kVectorBytes) + kTileRows * 4);
}

// The sum of the slots first, first + kStep, …: those of even and of odd number, each by the same
// tree. `start` is where a lane's row begins; absent slots are +0.
template <int32 kSlots, int32 kStep>
TILEKERNELS_CALLEE void sum_slots(Reg<float>& sum, Ub<float> weights, const Reg<int32>& start,
                                  int32 first, int32 num_topk, const Mask& rows, const Mask& all) {
  if constexpr (kStep == kSlots) {
    Reg<int32> place;
    vdup(sum, 0.0f, all);
    const auto exists = static_cast<uint16>(first < num_topk ? 1 : 0);
    for (uint16 i = 0; i < exists; ++i) {
      vadds(place, start, first, rows);
      vgather(sum, weights, place, rows);
    }
  } else {
    Reg<float> odd;
    sum_slots<kSlots, 2 * kStep>(sum, weights, start, first, num_topk, rows, all);
    sum_slots<kSlots, 2 * kStep>(odd, weights, start, first + kStep, num_topk, rows, all);
    vadd(sum, sum, odd, rows);
  }
}

template <int32 kSlots>
TILEKERNELS_VF void normalize(Ub<float> weights, Ub<float> out, uint32 num_rows, int32 num_topk,
                              float inverse) {
  const Ub<float> denominators = out;
  const Ub<float> normalized = out + kTileRows;
  const Mask all = pset<float>();
  const Mask rows = prefix<float>(num_rows);
  {
    Reg<int32> start;
    vci(start, 0);
    vmuls(start, start, num_topk, all);
    Reg<float> sum;
    sum_slots<kSlots, 1>(sum, weights, start, 0, num_topk, rows, all);
    vadds(sum, sum, kWeightEpsilon, rows);
    make_canonical(sum, rows);
    vsts(denominators, sum, rows);
  }
  mem_bar<Bar::kVstVld>();
  // Element e is of row floor((e + 1/2) · RN(1 / num_topk)).
  Reg<float> column;
  Reg<float> quotient;
  Reg<float> denominator;
  Reg<float> weight;
  Reg<int32> row;
  vci(column, 0.0f);
  vadds(column, column, 0.5f, all);
  uint32 left = num_rows * static_cast<uint32>(num_topk);
  const auto turns = static_cast<uint16>((left + kF32Lanes - 1) / kF32Lanes);
  for (uint16 i = 0; i < turns; ++i) {
    const Mask valid = plt<float>(left);
    vmuls(quotient, column, inverse, valid);
    vcvt<0, Round::kFloor, Saturate::kYes>(row, quotient, valid);
    vgather(denominator, denominators, row, valid);
    vlds(weight, weights + i * kF32Lanes);
    vdiv<Precision::kExact>(weight, weight, denominator, valid);
    make_canonical(weight, valid);
    vsts(normalized + i * kF32Lanes, weight, valid);
    vadds(column, column, static_cast<float>(kF32Lanes), all);
  }
}

template <int32 kSlots>
TILEKERNELS_CORE void tiles(const NormalizeWeightArgs& args, const NormalizeWeightShape& shape) {
  MutexPool pool;
  InRing<float> weights(pool, "weights", kStages, kTileWeights);
  // Denominators, then normalized weights
  OutRing<float> out(pool, "out", kStages, kTileRows + kTileWeights);
  const float inverse = 1.0f / static_cast<float>(shape.num_topk);
  const auto rows_of = [&](int64 tile) {
    return numerics::min_of(kTileRows, args.num_tokens - tile * kTileRows);
  };
  pipeline(
      kStages, block_idx(), numerics::ceil_div(args.num_tokens, kTileRows), block_num(),
      [&](int64 tile) {
        copy_in(weights.fill(), gm(args.topk_weights + tile * kTileRows * shape.num_topk),
                {1, rows_of(tile) * shape.num_topk * 4});
        weights.filled();
      },
      [&](int64 tile) {
        const int64 rows = rows_of(tile);
        vf_call<normalize<kSlots>>("normalize", weights.empty(), out.fill(),
                                   static_cast<uint32>(rows), shape.num_topk, inverse);
        weights.emptied();
        out.filled();
        const Ub<float> slot = out.empty();
        copy_out(gm(args.denominator + tile * kTileRows), slot, {1, rows * 4});
        copy_out(gm(args.normalized_weights + tile * kTileRows * shape.num_topk), slot + kTileRows,
                 {1, rows * shape.num_topk * 4});
        out.emptied();
      });
}

TILEKERNELS_CORE void run(const NormalizeWeightArgs& args, const NormalizeWeightShape& shape) {
  prologue();
  switch (power_of_two_from(shape.num_topk)) {
    case 1:
      tiles<1>(args, shape);
      break;
    case 2:
      tiles<2>(args, shape);
      break;
    case 4:
      tiles<4>(args, shape);
      break;
    case 8:
      tiles<8>(args, shape);
      break;
    case 16:
      tiles<16>(args, shape);
      break;
    default:
      tiles<32>(args, shape);
  }
  barrier_all();
}

}  // namespace tilekernels::ascend::normalize_weight_kernel
