// topk_sum_and_topk_group_idx on the vector core: a lane a group, the groups of several rows at a
// time. Groups of more scores than a piece come piece by piece.
#pragma once

#include "ops/moe/topk_sum_and_topk_group_idx/op.h"
#include "runtime/ascend/faults.h"
#include "runtime/ascend/ring.h"

namespace tilekernels::ascend::topk_sum_and_topk_group_idx_kernel {

constexpr int32 kStages = 2;         // pieces in flight
constexpr int64 kPieceScores = 256;  // of a group

constexpr int64 rows_of_tile(const TopkSumAndTopkGroupIdxShape& shape) {
  return kF32Lanes / shape.num_groups;
}

// Bytes of UB that a kernel takes, readable tails included.
constexpr int64 ub_bytes() {
  return kStages * (kF32Lanes * kPieceScores * 4 + kVectorBytes) +  // scores
         kStages * (kF32Lanes * 8 + kVectorBytes) +                 // ids
         4 * 2 * kVectorBytes + kFaultUbBytes;
}

// Nothing is known of a tile before its first piece.
TILEKERNELS_VF void clear_best(Ub<int32> best, Ub<int32> second, Ub<int32> largest) {
  const Mask all = pset<int32>();
  Reg<int32> value;
  vdup(value, numerics::kTopkTaken, all);
  vsts(best, value, all);
  vsts(second, value, all);
  vdup(value, 0, all);
  vsts(largest, value, all);
}

// Merges `count` scores of every group into its two best keys and its largest magnitude. A group's
// scores start `pitch` elements after those of the one before.
TILEKERNELS_VF void take_piece(Ub<int32> best, Ub<int32> second, Ub<int32> largest,
                               Ub<float> scores, uint32 num_groups, int32 pitch, uint16 count) {
  const Mask all = pset<int32>();
  const Mask valid = prefix<int32>(num_groups);
  Reg<int32> first_key;
  Reg<int32> second_key;
  Reg<int32> magnitude;
  Reg<int32> place;
  Reg<int32> key;
  Reg<int32> t;
  Reg<int32> positive;
  Reg<int32> nan;
  Reg<float> score;
  Mask is_nan;
  vlds(first_key, best);
  vlds(second_key, second);
  vlds(magnitude, largest);
  vdup(positive, 0x7FFFFFFF, all);
  vdup(nan, numerics::kTopkNan, all);
  vci(place, 0);
  vmuls(place, place, pitch, all);
  for (uint16 i = 0; i < count; ++i) {
    vgather(score, scores, place, valid);
    vadds(place, place, 1, valid);
    vand(t, as<int32>(score), positive, valid);
    vmax(magnitude, magnitude, t, valid);
    vadds(score, score, 0.0f, valid);  // -0 becomes +0
    vshrs(t, as<int32>(score), 31, valid);
    vand(t, t, positive, valid);
    vxor(key, as<int32>(score), t, valid);
    vcmp<Cmp::kNe>(is_nan, score, score, valid);
    vsel(key, nan, key, is_nan);
    vmin(t, first_key, key, valid);
    vmax(second_key, second_key, t, valid);
    vmax(first_key, first_key, key, valid);
  }
  mem_bar<Bar::kVldVst>();
  vsts(best, first_key, valid);
  vsts(second, second_key, valid);
  vsts(largest, magnitude, valid);
}

// A key as the number it stands for, and back.
TILEKERNELS_CALLEE void flip(Reg<int32>& d, const Reg<int32>& s, const Reg<int32>& positive,
                             const Mask& valid) {
  Reg<int32> t;
  vshrs(t, s, 31, valid);
  vand(t, t, positive, valid);
  vxor(d, s, t, valid);
}

// The keys of the groups' values into `keys`; `row` is the core's number of the tile's first row.
TILEKERNELS_VF void finish_keys(Ub<int32> keys, Ub<int32> best, Ub<int32> second, Ub<int32> largest,
                                Ub<int32> faults, uint32 num_lanes, float inverse,
                                int32 num_topk_sum, int32 row) {
  const Mask all = pset<int32>();
  const Mask valid = prefix<int32>(num_lanes);
  Reg<int32> key;
  Reg<int32> t;
  Reg<int32> positive;
  Reg<float> sum;
  Mask is_bad;
  vdup(positive, 0x7FFFFFFF, all);
  vlds(key, best);
  const auto sums = static_cast<uint16>(num_topk_sum - 1);
  for (uint16 i = 0; i < sums; ++i) {
    Reg<float> other;
    vlds(t, second);
    flip(as<int32>(sum), key, positive, valid);
    flip(as<int32>(other), t, positive, valid);
    vadd(sum, sum, other, valid);
    vadds(sum, sum, 0.0f, valid);
    flip(key, as<int32>(sum), positive, valid);
    vcmp<Cmp::kNe>(is_bad, sum, sum, valid);
    vdup(t, numerics::kTopkNan, valid);
    vsel(key, t, key, is_bad);
  }
  vsts(keys, key, valid);

  // The row of lane l is floor((l + 1/2) · RN(1 / num_groups)).
  vlds(t, largest);
  vcmps<Cmp::kGe>(is_bad, t, static_cast<int32>(numerics::kInfBits), valid);
  vci(sum, 0.0f);
  vadds(sum, sum, 0.5f, all);
  vmuls(sum, sum, inverse, all);
  vcvt<0, Round::kFloor, Saturate::kYes>(t, sum, all);
  vadds(t, t, row, all);
  note_faults(faults, t, is_bad, all);
}

// A lane's place is the number of groups of its row that rank before its own.
TILEKERNELS_VF void rank_groups(Ub<int32> out, Ub<int32> keys, uint32 num_lanes, uint16 num_groups,
                                float inverse, int32 num_topk_groups) {
  const Mask all = pset<int32>();
  const Mask valid = prefix<int32>(num_lanes);
  Reg<int32> key;
  Reg<int32> other;
  Reg<int32> lane;
  Reg<int32> row;
  Reg<int32> group;
  Reg<int32> first;
  Reg<int32> place;
  Reg<int32> next;
  Reg<float> column;
  vdup(place, 0, all);
  vsts(out, place, all);
  vsts(out + kF32Lanes, place, all);
  vci(lane, 0);
  vci(column, 0.0f);
  vadds(column, column, 0.5f, all);
  vmuls(column, column, inverse, all);
  vcvt<0, Round::kFloor, Saturate::kYes>(row, column, all);
  vmuls(first, row, static_cast<int32>(num_groups), all);
  vsub(group, lane, first, all);
  vlds(key, keys);
  for (uint16 g = 0; g < num_groups; ++g) {
    Mask is_before;
    Mask is_equal;
    vadds(next, first, static_cast<int32>(g), valid);
    vgather(other, keys, next, valid);
    vcmp<Cmp::kEq>(is_equal, other, key, valid);
    vcmps<Cmp::kGt>(is_equal, group, static_cast<int32>(g), is_equal);
    vcmp<Cmp::kGt>(is_before, other, key, valid);
    por(is_before, is_before, is_equal, all);
    vadds(next, place, 1, valid);
    vsel(place, next, place, is_before);
  }
  // Low words of 64-bit ids; the high ones are 0.
  Mask is_best;
  vcmps<Cmp::kLt>(is_best, place, num_topk_groups, valid);
  vmuls(next, row, num_topk_groups, is_best);
  vadd(next, next, place, is_best);
  vadd(next, next, next, is_best);
  mem_bar<Bar::kVstVst>();
  vscatter(out, group, next, is_best);
}

TILEKERNELS_CORE void run(const TopkSumAndTopkGroupIdxArgs& args,
                          const TopkSumAndTopkGroupIdxShape& shape) {
  prologue();
  const Ub<int32> faults = alloc_faults();
  MutexPool pool;
  InRing<float> scores(pool, "scores", kStages, kF32Lanes * kPieceScores);
  OutRing<int32> out(pool, "group_idx", kStages, 2 * kF32Lanes);
  const Ub<int32> best = ub_alloc<int32>("best", kF32Lanes);
  const Ub<int32> second = ub_alloc<int32>("second", kF32Lanes);
  const Ub<int32> largest = ub_alloc<int32>("largest", kF32Lanes);
  const Ub<int32> keys = ub_alloc<int32>("keys", kF32Lanes);
  const int64 size = shape.group_size;
  const int64 pieces = numerics::ceil_div(size, kPieceScores);
  const int64 tile_rows = rows_of_tile(shape);
  const int64 num_tiles = numerics::ceil_div(args.num_tokens, tile_rows);
  const int64 mine =
      numerics::max_of(int64{0}, numerics::ceil_div(num_tiles - block_idx(), block_num()));
  const float inverse = 1.0f / static_cast<float>(shape.num_groups);
  // Of a turn, which is a piece of a tile
  const auto first_row = [&](int64 turn) {
    return (block_idx() + turn / pieces * block_num()) * tile_rows;
  };
  const auto rows_of = [&](int64 turn) {
    return numerics::min_of(tile_rows, args.num_tokens - first_row(turn));
  };
  const auto scores_of = [&](int64 turn) {
    return numerics::min_of(kPieceScores, size - turn % pieces * kPieceScores);
  };
  const auto pitch_of = [&](int64 turn) {
    return numerics::align_up(scores_of(turn) * 4, kBlockBytes);
  };
  pipeline(
      kStages, 0, mine * pieces, 1,
      [&](int64 turn) {
        const float* from =
            args.scores + first_row(turn) * shape.num_groups * size + turn % pieces * kPieceScores;
        copy_in(scores.fill(), gm(from),
                {rows_of(turn) * shape.num_groups, scores_of(turn) * 4, size * 4, pitch_of(turn)});
        scores.filled();
      },
      [&](int64 turn) {
        const auto lanes = static_cast<uint32>(rows_of(turn) * shape.num_groups);
        if (turn % pieces == 0) vf_call<clear_best>("clear_best", best, second, largest);
        vf_call<take_piece>("take_piece", best, second, largest, scores.empty(), lanes,
                            static_cast<int32>(pitch_of(turn) / 4),
                            static_cast<uint16>(scores_of(turn)));
        scores.emptied();
        if ((turn + 1) % pieces != 0) return;
        vf_call<finish_keys>("finish_keys", keys, best, second, largest, faults, lanes, inverse,
                             shape.num_topk_sum, static_cast<int32>(turn / pieces * tile_rows));
        vf_call<rank_groups>("rank_groups", out.fill(), keys, lanes,
                             static_cast<uint16>(shape.num_groups), inverse, shape.num_topk_groups);
        out.filled();
        copy_out(gm(args.group_idx + first_row(turn) * shape.num_topk_groups), out.empty(),
                 {1, rows_of(turn) * shape.num_topk_groups * 8});
        out.emptied();
      });
  report_faults(args.fault, faults, kTopkSumAndTopkGroupIdxId, numerics::kFaultNotFinite,
                [&](int32 row) {
                  const int64 tile = block_idx() + row / tile_rows * block_num();
                  return tile * tile_rows + row % tile_rows;
                });
  barrier_all();
}

}  // namespace tilekernels::ascend::topk_sum_and_topk_group_idx_kernel
