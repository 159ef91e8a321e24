// moe_topk_gate_backward on the vector core: tiles of rows. What slots have is worked on with a
// lane a row, the dense term with a lane an expert.
#pragma once

#include "ops/moe/moe_topk_gate_backward/op.h"
#include "runtime/ascend/composites.h"
#include "runtime/ascend/elementary.h"
#include "runtime/ascend/faults.h"
#include "runtime/ascend/row_sum.h"

namespace tilekernels::ascend::moe_topk_gate_backward_kernel {

/// Tile constants.
struct Tile {
  int32 rows;    // of a tile at most, 1..kF32Lanes
  int32 stages;  // tiles in flight
};

constexpr int32 kMaxRows = kF32Lanes;

// Planes of the slots: value k of row i stands at 64 k + i.
constexpr int32 kPlane = kWeightSlots * kF32Lanes;
constexpr int32 kExperts = 0;  // -1 where a slot does not count
constexpr int32 kScores = kPlane;
constexpr int32 kDeltas = 2 * kPlane;  // gradients at first
constexpr int32 kRouted = 3 * kPlane;  // the tree of the scores at first
constexpr int32 kDots = 4 * kPlane;    // the tree of the products
constexpr int32 kWriters = kDots;      // then kExperts, but -1 where a later slot has the same
constexpr int32 kPlanes = 5 * kPlane;

// What rows with a dense term have, by row.
constexpr int32 kSums = 0;
constexpr int32 kProducts = kF32Lanes;
constexpr int32 kMeans = 2 * kF32Lanes;
constexpr int32 kInverses = 3 * kF32Lanes;
constexpr int32 kIsDense = 4 * kF32Lanes;
constexpr int32 kRowValues = 5 * kF32Lanes;

// Floats of UB from row to row.
constexpr int64 pitch_of(const MoeTopkGateBackwardShape& shape) {
  return numerics::align_up(shape.num_experts, kBlockBytes / 4);
}

// Where a tile's inputs stand in their slot, in bytes.
struct Inputs {
  int64 sums;  // behind the scores
  int64 topk_idx;
  int64 weights;
  int64 grads;
  int64 mask;
  int64 end;
};

constexpr Inputs inputs_of(const MoeTopkGateBackwardShape& shape, const Tile& tile) {
  const int64 row = tile.rows * pitch_of(shape) * 4;
  const int64 slots = numerics::align_up(int64{4} * tile.rows * shape.num_topk, kBlockBytes);
  Inputs at{};
  at.sums = row;
  at.topk_idx = at.sums + (shape.has_aux != 0 ? row : 0);
  at.weights = at.topk_idx + 2 * slots;
  at.grads = at.weights + slots;
  at.mask = at.grads + slots;
  at.end = at.mask + (shape.has_aux != 0 ? numerics::align_up(tile.rows, kBlockBytes) : 0);
  return at;
}

// Bytes of UB that a kernel takes, readable tails included.
constexpr int64 ub_bytes(const MoeTopkGateBackwardShape& shape, const Tile& tile) {
  constexpr int64 kTail = kVectorBytes;
  const int64 out = tile.rows * pitch_of(shape) * 4;
  return tile.stages * (inputs_of(shape, tile).end + out + 2 * kTail) + (kPlanes + kRowValues) * 4 +
         2 * kTail + kFaultUbBytes;
}

// d = score_derivative(score); d is not score.
template <int32 kScoring>
TILEKERNELS_CALLEE void derivative(Reg<float>& d, const Reg<float>& score, const Mask& m) {
  if constexpr (kScoring == kScoringSigmoid) {
    vneg(d, score, m);
    vadds(d, d, 1.0f, m);
    vmul(d, score, d, m);
  } else {
    sqrt_softplus_derivative(d, score, m);
  }
}

// The planes of a tile but for kDeltas' and kRouted's final values, and its faults.
TILEKERNELS_VF void read_slots(Ub<float> planes, Ub<int32> topk_idx, Ub<float> weights,
                               Ub<float> grads, Ub<float> scores, Ub<int32> faults, uint32 num_rows,
                               int32 num_topk, int32 num_slots, int32 num_experts, int32 pitch,
                               int32 item) {
  const Mask all = pset<float>();
  const Mask rows = prefix<float>(num_rows);
  Reg<int32> start;
  Reg<int32> row;
  Reg<int32> place;
  Reg<int32> low;
  Reg<int32> high;
  Reg<int32> none;
  Reg<float> score;
  Reg<float> grad;
  Reg<float> product;
  Reg<float> zero;
  Mask valid;
  Mask known;
  Mask other;
  Mask is_bad = pset<float, Pattern::kNone>();
  vci(row, 0);
  vmuls(start, row, num_topk, all);
  vmuls(row, row, pitch, all);
  vdup(none, -1, all);
  vdup(zero, 0.0f, all);
  for (uint16 k = 0; k < static_cast<uint16>(num_topk); ++k) {
    vadds(place, start, int32{k}, rows);
    vgather(grad, grads, place, rows);
    vgather(product, weights, place, rows);
    vadd(place, place, place, rows);
    vgather(low, topk_idx, place, rows);
    vadds(place, place, 1, rows);
    vgather(high, topk_idx, place, rows);
    vcmps<Cmp::kEq>(known, high, 0, rows);
    vcmps<Cmp::kGe>(other, low, 0, known);
    vcmps<Cmp::kLt>(valid, low, num_experts, other);
    vcmps<Cmp::kEq>(known, high, -1, rows);
    vcmps<Cmp::kEq>(other, low, -1, known);
    por(known, valid, other, rows);
    pnot(other, known, rows);
    por(is_bad, is_bad, other, rows);
    vadd(place, row, low, valid);
    vgather(score, scores, place, valid);
    vsel(score, score, zero, valid);
    vmul(product, grad, product, valid);
    vsel(grad, grad, zero, valid);
    vsel(low, low, none, valid);
    const int32 at = k * kF32Lanes;
    vsts(as_ub<int32>(planes + kExperts) + at, low, all);
    vsts(planes + kScores + at, score, all);
    vsts(planes + kDeltas + at, grad, all);
    vsts(planes + kRouted + at, score, all);
    vsts(planes + kDots + at, product, all);
  }
  for (auto k = static_cast<uint16>(num_topk); k < static_cast<uint16>(num_slots); ++k) {
    vsts(planes + kRouted + k * kF32Lanes, zero, all);
    vsts(planes + kDots + k * kF32Lanes, zero, all);
  }
  vci(place, item);
  note_faults(faults, place, is_bad, all);
}

// The tree of weight_denominator over both trees' planes; the sums are the first ones.
TILEKERNELS_VF void add_slots(Ub<float> planes, int32 half) {
  const Mask all = pset<float>();
  Reg<float> a;
  Reg<float> b;
  for (uint16 i = 0; i < static_cast<uint16>(half); ++i) {
    const int32 at = i * kF32Lanes;
    const int32 other = (i + half) * kF32Lanes;
    vlds(a, planes + kRouted + at);
    vlds(b, planes + kRouted + other);
    vadd(a, a, b, all);
    mem_bar<Bar::kVldVst>();
    vsts(planes + kRouted + at, a, all);
    vlds(a, planes + kDots + at);
    vlds(b, planes + kDots + other);
    vadd(a, a, b, all);
    mem_bar<Bar::kVldVst>();
    vsts(planes + kDots + at, a, all);
  }
}

// kDeltas, from gradients.
TILEKERNELS_VF void make_deltas(Ub<float> planes, float factor, uint16 num_topk) {
  const Mask all = pset<float>();
  Reg<float> denominator;
  Reg<float> dot;
  Reg<float> delta;
  vlds(denominator, planes + kRouted);
  vadds(denominator, denominator, kWeightEpsilon, all);
  vlds(dot, planes + kDots);
  for (uint16 k = 0; k < num_topk; ++k) {
    vlds(delta, planes + kDeltas + k * kF32Lanes);
    vmuls(delta, delta, factor, all);
    vsub(delta, delta, dot, all);
    vdiv<Precision::kExact>(delta, delta, denominator, all);
    mem_bar<Bar::kVldVst>();
    vsts(planes + kDeltas + k * kF32Lanes, delta, all);
  }
}

// kRouted, for every slot the deltas of all slots of its expert, and kWriters.
TILEKERNELS_VF void route(Ub<float> planes, uint16 num_topk) {
  const Mask all = pset<float>();
  const Ub<int32> experts = as_ub<int32>(planes + kExperts);
  Reg<int32> expert;
  Reg<int32> other;
  Reg<int32> none;
  Reg<float> delta;
  Reg<float> sum;
  Mask same;
  vdup(none, -1, all);
  for (uint16 k = 0; k < num_topk; ++k) {
    vlds(expert, experts + k * kF32Lanes);
    vdup(sum, 0.0f, all);
    for (uint16 i = 0; i < num_topk; ++i) {
      vlds(other, experts + i * kF32Lanes);
      vlds(delta, planes + kDeltas + i * kF32Lanes);
      vcmp<Cmp::kEq>(same, expert, other, all);
      vadd(delta, sum, delta, all);
      vsel(sum, delta, sum, same);
    }
    vsts(planes + kRouted + k * kF32Lanes, sum, all);
    vmov(other, expert);
    for (auto i = static_cast<uint16>(k + 1); i < num_topk; ++i) {
      Reg<int32> later;
      vlds(later, experts + i * kF32Lanes);
      vcmp<Cmp::kEq>(same, expert, later, all);
      vsel(other, none, other, same);
    }
    vsts(as_ub<int32>(planes + kWriters) + k * kF32Lanes, other, all);
  }
}

// The sum of a row's scores, or of their products with H, to lane 0 of d.
template <bool kIsDot, int32 kRegs>
TILEKERNELS_CALLEE void sum_experts(Reg<float>& d, Ub<float> scores, Ub<float> sums, uint32 cols) {
  const Mask all = pset<float>();
  Reg<float> partials[kRegs];
  Reg<float> score;
  Reg<float> sum;
  clear_partials(partials);
  const auto add = [&](Reg<float>& partial, int32 at, const Mask& valid) {
    vlds(score, scores + at);
    vadds(score, score, 0.0f, valid);  // zero behind the row
    if constexpr (kIsDot) {
      vlds(sum, sums + at);
      vadds(sum, sum, 0.0f, valid);
      vmula(partial, sum, score, all);
    } else {
      vadd(partial, partial, score, all);
    }
  };
  const auto turns = static_cast<uint16>(cols / (kRegs * kF32Lanes));
  for (uint16 i = 0; i < turns; ++i) {
    for (int32 q = 0; q < kRegs; ++q) add(partials[q], (i * kRegs + q) * kF32Lanes, all);
  }
  uint32 left = cols - turns * static_cast<uint32>(kRegs * kF32Lanes);
  for (int32 q = 0; q < kRegs; ++q) {
    // One turn or none: nothing is read where no element is left.
    const auto any = static_cast<uint16>(left > 0 ? 1 : 0);
    for (uint16 i = 0; i < any; ++i) {
      add(partials[q], (turns * kRegs + q) * kF32Lanes, plt<float>(left));
    }
  }
  sum_partials(d, partials);
}

template <int32 kRegs>
TILEKERNELS_VF void sum_row(Ub<float> values, Ub<float> scores, Ub<float> sums, uint32 cols) {
  Reg<float> d;
  sum_experts<false, kRegs>(d, scores, sums, cols);
  vst_first(values + kSums, d);
  sum_experts<true, kRegs>(d, scores, sums, cols);
  vst_first(values + kProducts, d);
}

// What follows from the sums of a tile's rows.
TILEKERNELS_VF void find_dense(Ub<float> values, Ub<uint8> mask, uint32 num_rows) {
  const Mask all = pset<float>();
  const Mask rows = prefix<float>(num_rows);
  Reg<float> sum;
  Reg<float> inverse;
  Reg<float> flag;
  Reg<uint8> wanted;
  Mask has_part;
  Mask is_dense;
  vlds<Dist::kUnpack4>(wanted, mask);
  vcmps<Cmp::kNe>(has_part, as<uint32>(wanted), 0u, rows);
  vlds(sum, values + kSums);
  vcmps<Cmp::kNe>(is_dense, sum, 0.0f, has_part);
  vdup(flag, 1.0f, is_dense);
  vsts(values + kIsDense, flag, all);
  vdup(flag, 1.0f, all);
  vdiv<Precision::kExact>(inverse, flag, sum, rows);
  vsts(values + kInverses, inverse, all);
  vlds(sum, values + kProducts);
  vmul(sum, sum, inverse, rows);
  vsts(values + kMeans, sum, all);
}

// The gradients of the slots' experts into rows of zeros; of rows with a dense term kRouted.
template <int32 kScoring, bool kHasAux>
TILEKERNELS_VF void scatter(Ub<float> out, Ub<float> planes, Ub<float> values, int32 pitch,
                            uint16 num_topk) {
  const Mask all = pset<float>();
  Reg<int32> row;
  Reg<int32> place;
  Reg<float> score;
  Reg<float> routed;
  Reg<float> grad;
  Mask valid;
  Mask is_dense;
  vci(row, 0);
  vmuls(row, row, pitch, all);
  if constexpr (kHasAux) {
    vlds(grad, values + kIsDense);
    vcmps<Cmp::kNe>(is_dense, grad, 0.0f, all);
  }
  for (uint16 k = 0; k < num_topk; ++k) {
    vlds(place, as_ub<int32>(planes + kWriters) + k * kF32Lanes);
    vcmps<Cmp::kGe>(valid, place, 0, all);
    vlds(score, planes + kScores + k * kF32Lanes);
    vlds(routed, planes + kRouted + k * kF32Lanes);
    derivative<kScoring>(grad, score, all);
    vmul(grad, routed, grad, all);
    make_canonical(grad, all);
    if constexpr (kHasAux) vsel(grad, routed, grad, is_dense);
    vadd(place, place, row, all);
    vscatter(out, grad, place, valid);
  }
}

// Adds the dense term to a row that has one.
template <int32 kScoring>
TILEKERNELS_VF void add_dense(Ub<float> out, Ub<float> scores, Ub<float> sums, Ub<float> values,
                              uint32 cols) {
  const Mask all = pset<float>();
  Reg<float> mean;
  Reg<float> inverse;
  Reg<float> routed;
  Reg<float> grad;
  Reg<float> score;
  Reg<float> of_score;
  Mask is_dense;
  vlds<Dist::kBrc>(grad, values + kIsDense);
  vcmps<Cmp::kNe>(is_dense, grad, 0.0f, all);
  vlds<Dist::kBrc>(mean, values + kMeans);
  vlds<Dist::kBrc>(inverse, values + kInverses);
  const auto turns = static_cast<uint16>((cols + kF32Lanes - 1) / kF32Lanes);
  for (uint16 i = 0; i < turns; ++i) {
    const Mask valid = plt<float>(cols);
    vlds(grad, sums + i * kF32Lanes);
    vlds(score, scores + i * kF32Lanes);
    vlds(routed, out + i * kF32Lanes);
    vsub(grad, grad, mean, valid);
    vmul(grad, grad, inverse, valid);
    vadd(grad, routed, grad, valid);
    derivative<kScoring>(of_score, score, valid);
    vmul(grad, grad, of_score, valid);
    make_canonical(grad, valid);
    vsel(grad, grad, routed, is_dense);
    mem_bar<Bar::kVldVst>();
    vsts(out + i * kF32Lanes, grad, valid);
  }
}

TILEKERNELS_CORE void call_sum_row(Ub<float> values, Ub<float> scores, Ub<float> sums,
                                   uint32 cols) {
  if (cols <= 4 * kF32Lanes) {
    vf_call<sum_row<4>>("sum_row", values, scores, sums, cols);
  } else {
    vf_call<sum_row<kRowSumRegs>>("sum_row", values, scores, sums, cols);
  }
}

template <int32 kScoring>
TILEKERNELS_CORE void tiles(const MoeTopkGateBackwardArgs& args,
                            const MoeTopkGateBackwardShape& shape, const Tile& tile,
                            int64 tile_rows, Ub<int32> faults) {
  const bool has_aux = shape.has_aux != 0;
  const int64 experts = shape.num_experts;
  const int64 topk = shape.num_topk;
  const int64 pitch = pitch_of(shape);
  const Inputs at = inputs_of(shape, tile);
  MutexPool pool;
  InRing<uint8> inputs(pool, "inputs", tile.stages, at.end);
  OutRing<float> out(pool, "grad_logits", tile.stages, tile.rows * pitch);
  const Ub<float> planes = ub_alloc<float>("slots", kPlanes);
  const Ub<float> values = ub_alloc<float>("rows", kRowValues);
  const auto cols = static_cast<uint32>(experts);
  const auto num_topk = static_cast<uint16>(topk);
  const auto row_pitch = static_cast<int32>(pitch);
  const int32 num_slots = power_of_two_from(shape.num_topk);
  const auto rows_of = [&](int64 i) {
    return numerics::min_of(tile_rows, args.num_tokens - i * tile_rows);
  };
  int32 item = 0;
  pipeline(
      tile.stages, block_idx(), numerics::ceil_div(args.num_tokens, tile_rows), block_num(),
      [&](int64 i) {
        const int64 first = i * tile_rows;
        const int64 rows = rows_of(i);
        const Ub<uint8> slot = inputs.fill();
        copy_in(slot, gm(args.scores + first * experts),
                {rows, experts * 4, experts * 4, pitch * 4});
        copy_in(slot + at.topk_idx, gm(args.topk_idx + first * topk), {1, rows * topk * 8});
        copy_in(slot + at.weights, gm(args.topk_weights + first * topk), {1, rows * topk * 4});
        copy_in(slot + at.grads, gm(args.grad_topk_weights + first * topk), {1, rows * topk * 4});
        if (has_aux) {
          copy_in(slot + at.mask, gm(args.mask + first), {1, rows});
          const int64 sequence = first / args.tokens_per_sequence;
          const int64 last = (first + rows - 1) / args.tokens_per_sequence;
          copy_in(slot + at.sums, gm(args.grad_scores_sum + sequence * experts),
                  {last - sequence + 1, experts * 4, experts * 4, pitch * 4});
        }
        inputs.filled();
      },
      [&](int64 i) {
        const int64 first = i * tile_rows;
        const int64 rows = rows_of(i);
        const auto num_rows = static_cast<uint32>(rows);
        const Ub<uint8> slot = inputs.empty();
        const auto u = as_ub<float>(slot);
        vf_call<read_slots>("read_slots", planes, as_ub<int32>(slot + at.topk_idx),
                            as_ub<float>(slot + at.weights), as_ub<float>(slot + at.grads), u,
                            faults, num_rows, shape.num_topk, num_slots, shape.num_experts,
                            row_pitch, item);
        item += static_cast<int32>(rows);
        for (int32 half = num_slots / 2; half > 0; half /= 2) {
          vf_call<add_slots>("add_slots", planes, half);
        }
        vf_call<make_deltas>("make_deltas", planes, args.routed_scaling_factor, num_topk);
        vf_call<route>("route", planes, num_topk);
        const Ub<float> to = out.fill();
        vf_call<fill<float>>("fill", to, 0.0f, static_cast<uint32>(rows * pitch));
        if (has_aux) {
          const auto h = as_ub<float>(slot + at.sums);
          const int64 sequence = first / args.tokens_per_sequence;
          const auto h_of = [&](int64 row) {
            return h + ((first + row) / args.tokens_per_sequence - sequence) * pitch;
          };
          for (int64 row = 0; row < rows; ++row) {
            call_sum_row(values + row, u + row * pitch, h_of(row), cols);
          }
          vf_call<find_dense>("find_dense", values, slot + at.mask, num_rows);
          vf_call<scatter<kScoring, true>>("scatter", to, planes, values, row_pitch, num_topk);
          for (int64 row = 0; row < rows; ++row) {
            vf_call<add_dense<kScoring>>("add_dense", to + row * pitch, u + row * pitch, h_of(row),
                                         values + row, cols);
          }
        } else {
          vf_call<scatter<kScoring, false>>("scatter", to, planes, values, row_pitch, num_topk);
        }
        inputs.emptied();
        out.filled();
        copy_out(gm(args.grad_logits + first * experts), out.empty(),
                 {rows, experts * 4, experts * 4, pitch * 4});
        out.emptied();
      });
}

TILEKERNELS_CORE void run(const MoeTopkGateBackwardArgs& args,
                          const MoeTopkGateBackwardShape& shape, const Tile& tile) {
  prologue();
  const Ub<int32> faults = alloc_faults();
  // A tile a core, so that few tokens spread over all cores
  const int64 tile_rows =
      numerics::min_of<int64>(tile.rows, numerics::ceil_div(args.num_tokens, block_num()));
  if (shape.scoring == kScoringSigmoid) {
    tiles<kScoringSigmoid>(args, shape, tile, tile_rows, faults);
  } else {
    tiles<kScoringSqrtSoftplus>(args, shape, tile, tile_rows, faults);
  }
  report_faults(args.fault, faults, kMoeTopkGateBackwardId, numerics::kFaultIndexOutOfRange,
                [&](int32 item) {
                  const int64 turn = item / tile_rows;
                  return (block_idx() + turn * block_num()) * tile_rows + item % tile_rows;
                });
  barrier_all();
}

}  // namespace tilekernels::ascend::moe_topk_gate_backward_kernel
