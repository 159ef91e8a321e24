// moe_topk_gate on the vector core: a row in three vector functions.
//
// `score_row` goes over the logits and leaves the scores and the keys of selection in UB,
// `select_…` takes the best as topk_ascend.h says, `finish_row` makes weights and ids of a lane a
// slot. The scalar unit reads each token's flags and sends it this way or another: tokens left out
// and random ones never come to the vector functions above; copies of experts and ranks of tensors,
// which take 64-bit remainders, are looked up by the scalar unit between selection and finish.
#pragma once

#include "ops/moe/moe_topk_gate/op.h"
#include "ops/moe/topk_ascend.h"
#include "runtime/ascend/composites.h"
#include "runtime/ascend/elementary.h"
#include "runtime/ascend/faults.h"
#include "runtime/ascend/row_sum.h"

namespace tilekernels::ascend::moe_topk_gate_kernel {

/// Tile constants.
struct Tile {
  int32 stages;  // rows in flight
};

// Experts with the lanes behind them.
constexpr int64 padded(const MoeTopkGateShape& shape) {
  return numerics::align_up(int64{shape.num_experts}, kF32Lanes);
}
constexpr int32 regs_of(const MoeTopkGateShape& shape) {
  return static_cast<int32>(padded(shape) / kF32Lanes);
}
// Windows of rows that go by chunks reach beyond the row.
constexpr int32 kWindow = kChunkRegs * kF32Lanes;
constexpr int64 num_keys(const MoeTopkGateShape& shape) { return padded(shape) + kWindow; }

// A slot of the outputs: ids, weights, the ids of unmapped, scores
constexpr int32 kIdWords = 2 * kWeightSlots;
constexpr int32 kWeightsAt = kIdWords;
constexpr int32 kUnmappedAt = 2 * kIdWords;
constexpr int32 kScoresAt = 3 * kIdWords;
constexpr int64 out_words(const MoeTopkGateShape& shape) {
  return kScoresAt + (shape.has_scores ? padded(shape) : 0);
}

constexpr int64 bytes_of(int64 words, int64 tail = kVectorBytes) {
  return numerics::align_up(words * 4 + tail, kBlockBytes);
}

// Bytes of UB that a kernel takes, readable tails included.
constexpr int64 ub_bytes(const MoeTopkGateShape& shape, const Tile& tile) {
  const int64 row = padded(shape);
  const int64 num_biases = (shape.has_bias ? 1 : 0) + (shape.has_image_bias ? 1 : 0);
  int64 bytes = tile.stages * (bytes_of(row + kIdWords) + bytes_of(out_words(shape)));
  bytes += bytes_of(row, kRowSumTail) + bytes_of(num_keys(shape));
  bytes += num_biases * bytes_of(row) + bytes_of(kF32Lanes);
  if (shape.num_groups > 0) {
    bytes += bytes_of(num_keys(shape)) + bytes_of(row) + bytes_of(kF32Lanes);
  }
  bytes += bytes_of(kWhole) + 2 * bytes_of(kF32Lanes) + bytes_of(kIdWords + kF32Lanes);
  return bytes + 2 * bytes_of(1) + kFaultUbBytes;
}

// A fault is an item: the row's turn and the kind.
constexpr int32 kMaxKinds = 8;
constexpr int32 item_of(int32 turn, int32 kind) { return turn * kMaxKinds + kind; }

// ------------------------------ scores

TILEKERNELS_CALLEE void make_canonical(Reg<float>& x, const Mask& valid) {
  Reg<float> nan;
  Mask is_nan;
  vcmp<Cmp::kNe>(is_nan, x, x, valid);
  vdup(nan, numerics::kCanonicalNan, valid);
  vsel(x, nan, x, is_nan);
}

// topk_key of values without -0.
TILEKERNELS_CALLEE void make_keys(Reg<int32>& key, const Reg<float>& value, const Mask& valid) {
  Reg<int32> constant;
  Mask is_nan;
  vshrs(key, as<int32>(value), 31, valid);
  vdup(constant, 0x7FFFFFFF, valid);
  vand(key, key, constant, valid);
  vxor(key, key, as<int32>(value), valid);
  vcmp<Cmp::kNe>(is_nan, value, value, valid);
  vdup(constant, numerics::kTopkNan, valid);
  vsel(key, constant, key, is_nan);
}

// 64 experts of a row. With kScoringSoftmax the scores are e^(logit - row_max), to be divided.
template <int32 kScoring, bool kCanonical, bool kTail>
TILEKERNELS_CALLEE void score_lanes(Ub<float> scores, Ub<int32> keys, Reg<int32>& largest,
                                    Ub<float> logits, Ub<float> bias, const Reg<float>& row_max,
                                    const Mask& valid, const Mask& all) {
  Reg<float> logit;
  Reg<float> ranked;
  Reg<float> score;
  vlds(logit, logits);
  vlds(ranked, bias);
  {
    Reg<float> abs;
    vabs(abs, logit, valid);
    vmax(largest, largest, as<int32>(abs), all);
    if constexpr (kScoring == kScoringSqrtSoftplus) {
      sqrt_softplus(score, abs, logit, valid);
      vadd(ranked, ranked, score, valid);
    } else if constexpr (kScoring == kScoringSigmoid) {
      sigmoid(score, logit, valid);
      vadd(ranked, ranked, score, valid);
    } else {
      vadd(ranked, ranked, logit, valid);
      vsub(score, logit, row_max, valid);
      exp_of_negative(score, score, valid);
    }
  }
  if constexpr (kCanonical) make_canonical(score, valid);
  vsts(scores, score, valid);
  Reg<int32> key;
  make_keys(key, ranked, valid);
  if constexpr (kTail) {
    Reg<int32> taken;
    vdup(taken, numerics::kTopkTaken, all);
    vsel(key, key, taken, valid);
  }
  vsts(keys, key, all);
}

template <int32 kScoring, bool kCanonical>
TILEKERNELS_VF void score_row(Ub<float> scores, Ub<int32> keys, Ub<int32> faults, Ub<float> logits,
                              Ub<float> bias, int32 bias_step, Ub<float> largest_logit,
                              uint32 num_experts, int32 turn) {
  const Mask all = pset<float>();
  Reg<int32> largest;
  Reg<float> row_max;
  vdup(largest, 0, all);
  if constexpr (kScoring == kScoringSoftmax) vlds<Dist::kBrc>(row_max, largest_logit);
  const auto whole = static_cast<uint16>(num_experts / kF32Lanes);
  for (uint16 i = 0; i < whole; ++i) {
    score_lanes<kScoring, kCanonical, false>(scores + i * kF32Lanes, keys + i * kF32Lanes, largest,
                                             logits + i * kF32Lanes, bias + i * bias_step, row_max,
                                             all, all);
  }
  const uint32 rest = num_experts % kF32Lanes;
  const auto turns = static_cast<uint16>(whole + (rest > 0 ? 1 : 0));
  for (auto i = whole; i < turns; ++i) {
    score_lanes<kScoring, kCanonical, true>(scores + i * kF32Lanes, keys + i * kF32Lanes, largest,
                                            logits + i * kF32Lanes, bias + i * bias_step, row_max,
                                            prefix<float>(rest), all);
  }
  Reg<int32> item;
  Mask is_bad;
  vcmps<Cmp::kGe>(is_bad, largest, static_cast<int32>(numerics::kInfBits), all);
  vdup(item, item_of(turn, numerics::kFaultNotFinite), all);
  note_faults(faults, item, is_bad, all);
}

// The largest logit. With a NaN among them it is one, as every score of the row is then.
TILEKERNELS_VF void find_largest(Ub<float> largest_logit, Ub<float> logits, uint32 num_experts) {
  const Mask all = pset<float>();
  Reg<float> largest;
  Reg<float> lowest;
  Reg<float> logit;
  vdup(lowest, -numerics::bit_cast<float>(numerics::kInfBits), all);
  vmov(largest, lowest);
  const auto whole = static_cast<uint16>(num_experts / kF32Lanes);
  for (uint16 i = 0; i < whole; ++i) {
    vlds(logit, logits + i * kF32Lanes);
    vmax(largest, largest, logit, all);
  }
  const uint32 rest = num_experts % kF32Lanes;
  const auto turns = static_cast<uint16>(whole + (rest > 0 ? 1 : 0));
  for (auto i = whole; i < turns; ++i) {
    vlds(logit, logits + i * kF32Lanes);
    vsel(logit, logit, lowest, prefix<float>(rest));
    vmax(largest, largest, logit, all);
  }
  vcmax(largest, largest, all);
  vst_first(largest_logit, largest);
}

template <int32 kRegs>
TILEKERNELS_VF void sum_scores(Ub<float> sum, Ub<float> scores, uint32 num_experts) {
  Reg<float> total;
  sum_row<numerics::kDTypeF32, kSumValues, kRegs>(total, as_ub<uint8>(scores), num_experts);
  vst_first(sum, total);
}

TILEKERNELS_VF void divide_scores(Ub<float> out, Ub<float> scores, Ub<float> sum,
                                  uint32 num_experts) {
  Reg<float> divisor;
  Reg<float> score;
  vlds<Dist::kBrc>(divisor, sum);
  const auto turns = static_cast<uint16>((num_experts + kF32Lanes - 1) / kF32Lanes);
  for (uint16 i = 0; i < turns; ++i) {
    const Mask valid = plt<float>(num_experts);
    vlds(score, scores + i * kF32Lanes);
    vdiv<Precision::kExact>(score, score, divisor, valid);
    make_canonical(score, valid);
    vsts(out + i * kF32Lanes, score, valid);
  }
}

// ------------------------------ selection

// Lanes that go over the experts of a group, each over a part: a power of two.
constexpr int32 parts_of(int32 num_groups, int32 group_size) {
  int32 parts = 1;
  while (group_size % (2 * parts) == 0 && num_groups * 2 * parts <= kF32Lanes) parts *= 2;
  return parts;
}

// Notes which groups are among the best. `levels` is the number of times that lanes of one group
// are joined.
TILEKERNELS_VF void choose_groups(Ub<int32> chosen, Ub<int32> keys, uint32 num_groups,
                                  uint32 num_parts, int32 part_size, uint16 levels,
                                  uint16 num_topk_groups) {
  const Mask all = pset<int32>();
  const Mask groups = prefix<int32>(num_groups);
  Reg<int32> first;
  Reg<int32> second;
  {
    const Mask parts = prefix<int32>(num_parts);
    Reg<int32> place;
    Reg<int32> key;
    Reg<int32> lower;
    Reg<int32> other;
    vci(place, 0);
    vmuls(place, place, part_size, all);
    vdup(first, numerics::kTopkTaken, all);
    vdup(second, numerics::kTopkTaken, all);
    for (uint16 i = 0; i < static_cast<uint16>(part_size); ++i) {
      vgather(key, keys, place, parts);
      vmin(lower, first, key, parts);
      vmax(second, second, lower, parts);
      vmax(first, first, key, parts);
      vadds(place, place, 1, all);
    }
    for (uint16 i = 0; i < levels; ++i) {
      vdintlv(second, other, second, second);
      vmax(second, second, other, all);
      vdintlv(first, other, first, first);
      vmin(lower, first, other, all);
      vmax(second, second, lower, all);
      vmax(first, first, other, all);
    }
  }
  Reg<int32> key;
  Reg<int32> taken;
  vdup(taken, numerics::kTopkTaken, all);
  {
    // The numbers that the keys stand for, NaN for a NaN's.
    Reg<int32> magnitude;
    vdup(magnitude, 0x7FFFFFFF, all);
    vshrs(key, first, 31, groups);
    vand(key, key, magnitude, groups);
    vxor(first, first, key, groups);
    vshrs(key, second, 31, groups);
    vand(key, key, magnitude, groups);
    vxor(second, second, key, groups);
    Reg<float>& sum = as<float>(first);
    vadd(sum, sum, as<float>(second), groups);
    vadds(sum, sum, 0.0f, groups);  // -0 becomes +0
    make_keys(key, sum, groups);
    vsel(key, key, taken, groups);
  }
  Reg<int32> lanes;
  Reg<int32> best;
  Reg<int32> lane;
  Reg<int32> one;
  Mask winner;
  Reg<int32>& is_chosen = second;
  vci(lanes, 0);
  vdup(one, 1, all);
  vdup(is_chosen, 0, all);
  for (uint16 i = 0; i < num_topk_groups; ++i) {
    vcmax(best, key, all);
    vdintlv(best, lane, best, best);
    vdup_lane0(lane, lane, all);
    vcmp<Cmp::kEq>(winner, lanes, lane, all);
    vsel(key, taken, key, winner);
    vsel(is_chosen, one, is_chosen, winner);
  }
  vsts(chosen, is_chosen, all);
}

// Takes the experts of the other groups out.
TILEKERNELS_VF void close_groups(Ub<int32> open_keys, Ub<int32> keys, Ub<int32> group_of,
                                 Ub<int32> chosen, uint16 turns) {
  const Mask all = pset<int32>();
  Reg<int32> key;
  Reg<int32> group;
  Reg<int32> is_chosen;
  Reg<int32> taken;
  Mask is_open;
  vdup(taken, numerics::kTopkTaken, all);
  for (uint16 i = 0; i < turns; ++i) {
    vlds(key, keys + i * kF32Lanes);
    vlds(group, group_of + i * kF32Lanes);
    vgather(is_chosen, chosen, group, all);
    vcmps<Cmp::kNe>(is_open, is_chosen, 0, all);
    vsel(key, key, taken, is_open);
    vsts(open_keys + i * kF32Lanes, key, all);
  }
}

template <int32 kRegs>
TILEKERNELS_CALLEE void load_numbers(Reg<int32> (&numbers)[kRegs], Ub<int32> places) {
  for (int32 r = 0; r < kRegs; ++r) vlds(numbers[r], places + r * kF32Lanes);
}

// The best of a whole row. `places` are the numbers of number_experts.
template <int32 kRegs>
TILEKERNELS_VF void select_whole(Ub<int32> best, Ub<int32> keys, Ub<int32> places,
                                 uint16 num_topk) {
  const Mask all = pset<int32>();
  Reg<int32> dealt[kRegs];
  Reg<int32> ids[kRegs];
  load_numbers(ids, places);
  deal_out(dealt, keys, ids, all);
  sort_lanes(dealt, ids, all);
  take_best<kRegs, false>(dealt, ids, best, best, num_topk, all);
}

// The best of a window, to `best`, and their keys where the next window starts, which is this one's
// end. Position p of the window is expert base + p; but at first positions, in all but the first
// window, stand those that were in `best`.
template <bool kFirst, bool kLast>
TILEKERNELS_VF void select_window(Ub<int32> best, Ub<int32> window, Ub<int32> places,
                                  Ub<int32> positions, int32 base, uint16 num_topk) {
  const Mask all = pset<int32>();
  const Ub<int32> next = window + chunk_of(kChunkRegs);
  {
    Reg<int32> dealt[kChunkRegs];
    Reg<int32> numbers[kChunkRegs];
    load_numbers(numbers, places);
    deal_out(dealt, window, numbers, all);
    sort_lanes(dealt, numbers, all);
    if constexpr (!kLast) {
      Reg<int32> taken;
      vdup(taken, numerics::kTopkTaken, all);
      mem_bar<Bar::kVldVst>();
      vsts(next, taken, prefix<int32>(kCarry));
      mem_bar<Bar::kVstVst>();
    }
    take_best<kChunkRegs, !kLast>(dealt, numbers, kFirst ? best : positions, next, num_topk, all);
  }
  if constexpr (!kFirst) {
    mem_bar<Bar::kVstVld>();
    const Mask routed = prefix<int32>(num_topk);
    Reg<int32> position;
    Reg<int32> id;
    Reg<int32> old;
    Mask is_old;
    vlds(position, positions);
    vcmps<Cmp::kLt>(is_old, position, kCarry, routed);
    vgather(old, best, position, is_old);
    vadds(id, position, base, routed);
    vsel(id, old, id, is_old);
    mem_bar<Bar::kVldVst>();
    vsts(best, id, routed);
  }
}

// The experts that a token brings along; -1 for what is none.
TILEKERNELS_VF void take_fixed(Ub<int32> best, Ub<int32> faults, Ub<uint32> fixed, uint32 num_topk,
                               int32 num_experts, int32 turn) {
  const Mask all = pset<int32>();
  const Mask routed = prefix<int32>(num_topk);
  Reg<int32> id;
  Reg<int32> high;
  Mask is_expert;
  vld_deintlv(id, high, as_ub<int32>(fixed));
  vcmps<Cmp::kEq>(is_expert, high, 0, routed);
  vcmps<Cmp::kGe>(is_expert, id, 0, is_expert);
  vcmps<Cmp::kLt>(is_expert, id, num_experts, is_expert);
  vdup(high, -1, all);
  vsel(id, id, high, is_expert);
  vsts(best, id, routed);
  Reg<int32>& item = high;
  Mask is_bad;
  pnot(is_bad, is_expert, routed);
  vdup(item, item_of(turn, numerics::kFaultIndexOutOfRange), all);
  note_faults(faults, item, is_bad, all);
}

// ------------------------------ outputs

// int64 ids from int32 ones.
TILEKERNELS_CALLEE void store_slots(Ub<uint32> out, const Reg<int32>& ids, uint32 num_slots,
                                    const Mask& slots) {
  Reg<int32> low;
  Reg<int32> high;
  vshrs(high, ids, 31, slots);
  vintlv(low, high, ids, high);
  uint32 words = 2 * num_slots;
  vsts(as_ub<int32>(out), low, plt<int32>(words));
}

// Weights and ids, a lane a slot. `order` turns the sum over neighbours into that over slots 16, 8,
// 4, 2 and 1 apart: it reverses the bits of a slot's number.
template <bool kSoftmax, bool kNorm>
TILEKERNELS_VF void finish_row(Ub<uint32> out_ids, Ub<float> out_weights, Ub<int32> best,
                               Ub<float> scores, Ub<float> sum, Ub<int32> order, uint32 num_topk,
                               uint32 num_slots, float scale) {
  const Mask all = pset<int32>();
  const Mask routed = prefix<int32>(num_topk);
  const Mask slots = prefix<int32>(num_slots);
  Reg<int32> id;
  Reg<float> weight;
  Reg<float> other;
  vlds(id, best);
  {
    Mask is_expert;
    vcmps<Cmp::kGe>(is_expert, id, 0, routed);
    vgather(weight, scores, id, is_expert);
    vdup(other, 0.0f, all);
    vsel(weight, weight, other, is_expert);
    if constexpr (kSoftmax) {
      vlds<Dist::kBrc>(other, sum);
      vdiv<Precision::kExact>(weight, weight, other, is_expert);
    }
  }
  if constexpr (kNorm) {
    Reg<int32> from;
    vlds(from, order);
    vselr(other, weight, from);
    vcadd(other, other, all);
    vadds(other, other, kWeightEpsilon, all);
    vdup_lane0(other, other, all);
    vdiv<Precision::kExact>(weight, weight, other, routed);
  }
  vmuls(weight, weight, scale, routed);
  make_canonical(weight, routed);
  vdup(other, 1.0f, all);  // of shared experts
  vsel(weight, weight, other, routed);
  vsts(out_weights, weight, slots);
  store_slots(out_ids, id, num_slots, slots);
}

// What the scalar unit has written.
TILEKERNELS_VF void take_given(Ub<uint32> out, Ub<uint32> given, uint32 num_words) {
  Reg<uint32> words;
  vlds(words, given);
  vsts(out, words, prefix<uint32>(num_words));
}

// No experts.
TILEKERNELS_VF void clear_row(Ub<uint32> out, uint32 num_slots) {
  const Mask all = pset<uint32>();
  Reg<uint32> words;
  vdup(words, 0xFFFFFFFFu, all);
  vsts(out, words, all);
  vsts(out + kUnmappedAt, words, all);
  vdup(words, 0u, all);
  vsts(out + kWeightsAt, words, prefix<uint32>(num_slots));
}

// ------------------------------ tables

TILEKERNELS_VF void number_places(Ub<int32> places, int32 regs) {
  const Mask all = pset<int32>();
  Reg<int32> number;
  vci(number, 0);
  vmuls(number, number, regs, all);
  for (uint16 r = 0; r < static_cast<uint16>(regs); ++r) {
    vsts(places + r * kF32Lanes, number, all);
    vadds(number, number, 1, all);
  }
}

// group_of[e] = floor((e + 1/2) · inverse).
TILEKERNELS_VF void number_groups(Ub<int32> group_of, float inverse, uint16 turns) {
  const Mask all = pset<float>();
  Reg<float> expert;
  Reg<float> quotient;
  Reg<int32> group;
  vci(expert, 0.0f);
  vadds(expert, expert, 0.5f, all);
  for (uint16 i = 0; i < turns; ++i) {
    vmuls(quotient, expert, inverse, all);
    vcvt<0, Round::kFloor, Saturate::kYes>(group, quotient, all);
    vsts(group_of + i * kF32Lanes, group, all);
    vadds(expert, expert, static_cast<float>(kF32Lanes), all);
  }
}

// Makes -0 of a bias +0, so that no sum with it is -0, and finds out whether one is NaN.
TILEKERNELS_VF void clean_bias(Ub<float> bias, Ub<int32> has_nan, uint32 num_experts) {
  const Mask all = pset<float>();
  Reg<float> value;
  Reg<int32> found;
  Reg<int32> one;
  Mask is_nan;
  vdup(found, 0, all);
  vdup(one, 1, all);
  const auto turns = static_cast<uint16>((num_experts + kF32Lanes - 1) / kF32Lanes);
  for (uint16 i = 0; i < turns; ++i) {
    const Mask valid = plt<float>(num_experts);
    vlds(value, bias + i * kF32Lanes);
    vadds(value, value, 0.0f, valid);
    vcmp<Cmp::kNe>(is_nan, value, value, valid);
    vsel(found, one, found, is_nan);
    mem_bar<Bar::kVldVst>();
    vsts(bias + i * kF32Lanes, value, valid);
  }
  vcmax(found, found, all);
  vst_first(has_nan, found);
}

// ------------------------------ core code

template <Pipe kFrom, Pipe kTo>
TILEKERNELS_CORE void wait_for() {
  set_flag<kFrom, kTo>(0);
  wait_flag<kFrom, kTo>(0);
}

struct Buffers {
  Ub<float> bias[2];   // of text and of image tokens
  int32 bias_step[2];  // 0: one register of zeros for all experts
  bool has_nan[2];
  Ub<float> scores;  // where no copy out takes them, and those that softmax has yet to divide
  Ub<int32> keys;
  Ub<int32> open_keys;  // without the experts of groups that are not chosen
  Ub<int32> group_of;
  Ub<int32> chosen;
  Ub<int32> places;
  Ub<int32> order;
  Ub<int32> best;       // the experts of every slot
  Ub<int32> positions;  // in a window
  Ub<uint32> given;     // by the scalar unit: ids, then weights
  Ub<float> largest_logit;
  Ub<float> sum;
  Ub<int32> faults;
};

enum class Route { kNone, kRandom, kFixed, kBest };

// A core and the rows that it routes, which are block_num() apart.
class Gate {
 public:
  TILEKERNELS_CORE Gate(const MoeTopkGateArgs& args, const MoeTopkGateShape& shape,
                        const Tile& tile)
      : args_(args),
        shape_(shape),
        num_slots_(shape.num_topk + shape.num_shared),
        is_resolved_(shape.has_map || shape.has_tp),
        in_(pool_, "logits", tile.stages, padded(shape) + kIdWords),
        out_(pool_, "out", tile.stages, out_words(shape)) {
    allocate();
    load_biases();
    make_tables();
    if (shape.has_random) count_copies();
  }

  TILEKERNELS_CORE void load(int64 row) {
    const Route route = route_of(row);
    if (route == Route::kNone || route == Route::kRandom) return;
    const Ub<float> slot = in_.fill();
    copy_in(slot, gm(args_.logits + row * shape_.num_experts), {1, shape_.num_experts * int64{4}});
    if (route == Route::kFixed) {
      copy_in(as_ub<uint32>(slot + padded(shape_)),
              gm(args_.unmapped_topk_idx + row * args_.unmapped_stride),
              {1, shape_.num_topk * int64{8}});
    }
    in_.filled();
  }

  TILEKERNELS_CORE void compute(int64 row) {
    turn_ = static_cast<int32>((row - block_idx()) / block_num());
    const Route route = route_of(row);
    int32 unmapped_at = kUnmappedAt;
    if (route == Route::kRandom) draw(row);
    const Ub<uint32> out = out_.fill();
    if (route == Route::kNone || route == Route::kRandom) {
      vf_call<clear_row>("clear_row", out, static_cast<uint32>(num_slots_));
      if (route == Route::kRandom) {
        take_ids(out);
        vf_call<take_given>("take_given", out + kWeightsAt, buffers_.given + kIdWords,
                            static_cast<uint32>(num_slots_));
      }
      if (shape_.has_scores) {
        vf_call<fill<float>>("fill", as_ub<float>(out + kScoresAt), 0.0f,
                             static_cast<uint32>(padded(shape_)));
      }
    } else {
      const Ub<float> saved = as_ub<float>(out + kScoresAt);
      const Ub<float> scores = score(row, route, shape_.has_scores ? saved : buffers_.scores);
      if (is_resolved_) resolve(row);
      if (!is_resolved_) unmapped_at = 0;
      finish(out + unmapped_at, as_ub<float>(out + kWeightsAt), scores);
      if (is_resolved_) take_ids(out);
    }
    out_.filled();
    store(row, route, unmapped_at);
  }

  TILEKERNELS_CORE void report() {
    report_fault_words(args_.fault, buffers_.faults, lowest_item_, [&](int32 item) {
      return numerics::fault_word(block_idx() + item / kMaxKinds * block_num(), args_.op_id,
                                  item % kMaxKinds);
    });
  }

 private:
  TILEKERNELS_CORE uint16 num_regs() const { return trips(regs_of(shape_)); }
  TILEKERNELS_CORE bool is_set(const uint8* flags, int64 row) const {
    return get_value(gm(flags), row) != 0;
  }
  TILEKERNELS_CORE Route route_of(int64 row) const {
    if (shape_.has_mask && !is_set(args_.mask, row)) return Route::kNone;
    if (shape_.has_random && is_set(args_.force_random, row)) return Route::kRandom;
    if (shape_.has_fixed && is_set(args_.fix_routing_mask, row)) return Route::kFixed;
    return Route::kBest;
  }
  TILEKERNELS_CORE void note(int32 kind) {
    lowest_item_ = numerics::min_of(lowest_item_, item_of(turn_, kind));
  }

  TILEKERNELS_CORE void allocate() {
    const int64 row = padded(shape_);
    Buffers& b = buffers_;
    b.scores = ub_alloc<float>("own scores", row, kRowSumTail);
    b.keys = ub_alloc<int32>("keys", num_keys(shape_));
    b.open_keys = b.keys;
    if (shape_.num_groups > 0) {
      b.open_keys = ub_alloc<int32>("open keys", num_keys(shape_));
      b.group_of = ub_alloc<int32>("groups of experts", row);
      b.chosen = ub_alloc<int32>("chosen groups", kF32Lanes);
    }
    const Ub<float> zeros = ub_alloc<float>("zeros", kF32Lanes);
    b.bias[0] = shape_.has_bias ? ub_alloc<float>("bias", row) : zeros;
    b.bias[1] = shape_.has_image_bias ? ub_alloc<float>("image_bias", row) : b.bias[0];
    b.bias_step[0] = shape_.has_bias ? kF32Lanes : 0;
    b.bias_step[1] = shape_.has_image_bias ? kF32Lanes : b.bias_step[0];
    vf_call<fill<float>>("fill", zeros, 0.0f, static_cast<uint32>(kF32Lanes));
    b.places = ub_alloc<int32>("places", kWhole);
    b.order = ub_alloc<int32>("order", kF32Lanes);
    b.best = ub_alloc<int32>("best", kF32Lanes);
    // Selection, then the scalar unit write here.
    b.given = ub_alloc<uint32>("given", kIdWords + kF32Lanes);
    b.positions = as_ub<int32>(b.given + kIdWords);
    b.largest_logit = ub_alloc<float>("largest logit", 1);
    b.sum = ub_alloc<float>("sum", 1);
    b.faults = alloc_faults();
  }

  TILEKERNELS_CORE void load_biases() {
    Buffers& b = buffers_;
    const bool is_there[2] = {shape_.has_bias != 0, shape_.has_image_bias != 0};
    const float* const from[2] = {args_.bias, args_.image_bias};
    const Ub<int32> has_nan[2] = {as_ub<int32>(b.sum), as_ub<int32>(b.largest_logit)};
    b.has_nan[0] = b.has_nan[1] = false;
    if (!is_there[0] && !is_there[1]) return;
    for (int32 i = 0; i < 2; ++i) {
      if (is_there[i]) copy_in(b.bias[i], gm(from[i]), {1, shape_.num_experts * int64{4}});
    }
    wait_for<Pipe::kMte2, Pipe::kV>();
    for (int32 i = 0; i < 2; ++i) {
      if (!is_there[i]) continue;
      vf_call<clean_bias>("clean_bias", b.bias[i], has_nan[i],
                          static_cast<uint32>(shape_.num_experts));
    }
    wait_for<Pipe::kV, Pipe::kS>();
    for (int32 i = 0; i < 2; ++i) {
      b.has_nan[i] = is_there[i] ? get_value(has_nan[i], 0) != 0 : i == 1 && b.has_nan[0];
    }
  }

  TILEKERNELS_CORE void make_tables() {
    const Buffers& b = buffers_;
    const int32 regs = regs_of(shape_);
    vf_call<number_places>("number_places", b.places, regs <= kMaxTopkRegs ? regs : kChunkRegs);
    vf_call<fill<int32>>("fill", b.keys + padded(shape_), numerics::kTopkTaken,
                         static_cast<uint32>(kWindow));
    if (shape_.num_groups > 0) {
      vf_call<fill<int32>>("fill", b.open_keys + padded(shape_), numerics::kTopkTaken,
                           static_cast<uint32>(kWindow));
      const float group_size = static_cast<float>(shape_.num_experts / shape_.num_groups);
      vf_call<number_groups>("number_groups", b.group_of, 1.0f / group_size, num_regs());
    }
    for (int32 lane = 0; lane < kF32Lanes; ++lane) {
      int32 slot = 0;
      for (int32 bit = 1; bit < kWeightSlots; bit *= 2) {
        slot = 2 * slot + (lane & bit ? 1 : 0);
      }
      // The last lane is of no slot.
      set_value(b.order, lane, lane < kWeightSlots ? slot : kF32Lanes - 1);
    }
    for (int32 i = 0; i < shape_.num_shared; ++i) {
      set_value(b.best, shape_.num_topk + i, shape_.num_experts + i);
    }
    wait_for<Pipe::kS, Pipe::kV>();
  }

  // How many physical experts there are to draw from.
  TILEKERNELS_CORE void count_copies() {
    const int32 num_logical = shape_.num_experts + shape_.num_shared;
    num_physical_ = num_logical;
    if (shape_.has_map) {
      num_physical_ = 0;
      for (int32 i = 0; i < num_logical; ++i) {
        const int32 count = get_value(gm(args_.logical_count), i);
        if (count < 1 || count > shape_.num_copies) is_count_bad_ = true;
        num_physical_ += numerics::max_of(0, numerics::min_of(count, shape_.num_copies));
      }
    }
    if (num_physical_ < num_slots_) is_count_bad_ = true;
  }

  // Scores and the experts of a row, to UB; the scores for copying out to `saved`. Returns where
  // those of the experts are looked up.
  TILEKERNELS_CORE Ub<float> score(int64 row, Route route, Ub<float> saved) {
    const Buffers& b = buffers_;
    const int32 kind = shape_.has_image_bias && is_set(args_.image_token_mask, row) ? 1 : 0;
    const auto num_experts = static_cast<uint32>(shape_.num_experts);
    const bool is_softmax = shape_.scoring == kScoringSoftmax;
    const Ub<float> logits = in_.empty();
    const Ub<float> scores = is_softmax ? b.scores : saved;
    const auto with = [&](auto function) {
      function(scores, b.keys, b.faults, logits, b.bias[kind], b.bias_step[kind], b.largest_logit,
               num_experts, turn_);
    };
    if (is_softmax) {
      vf_call<find_largest>("find_largest", b.largest_logit, logits, num_experts);
      with([](auto... a) { vf_call<score_row<kScoringSoftmax, false>>("score_row", a...); });
    } else if (shape_.scoring == kScoringSigmoid) {
      if (shape_.has_scores) {
        with([](auto... a) { vf_call<score_row<kScoringSigmoid, true>>("score_row", a...); });
      } else {
        with([](auto... a) { vf_call<score_row<kScoringSigmoid, false>>("score_row", a...); });
      }
    } else if (shape_.has_scores) {
      with([](auto... a) { vf_call<score_row<kScoringSqrtSoftplus, true>>("score_row", a...); });
    } else {
      with([](auto... a) { vf_call<score_row<kScoringSqrtSoftplus, false>>("score_row", a...); });
    }
    if (route == Route::kFixed) {
      vf_call<take_fixed>("take_fixed", b.best, b.faults, as_ub<uint32>(logits + padded(shape_)),
                          static_cast<uint32>(shape_.num_topk), shape_.num_experts, turn_);
    }
    in_.emptied();
    if (is_softmax) {
      if (shape_.num_experts <= 4 * kF32Lanes) {
        vf_call<sum_scores<4>>("sum_scores", b.sum, scores, num_experts);
      } else {
        vf_call<sum_scores<kRowSumRegs>>("sum_scores", b.sum, scores, num_experts);
      }
      if (shape_.has_scores) {
        vf_call<divide_scores>("divide_scores", saved, scores, b.sum, num_experts);
      }
    }
    if (route == Route::kBest) {
      if (b.has_nan[kind]) note(numerics::kFaultNan);
      select();
    }
    return scores;
  }

  TILEKERNELS_CORE void select() {
    constexpr int32 kChunk = chunk_of(kChunkRegs);
    const Buffers& b = buffers_;
    const auto num_topk = static_cast<uint16>(shape_.num_topk);
    if (shape_.num_groups > 0) {
      const int32 group_size = shape_.num_experts / shape_.num_groups;
      const int32 parts = parts_of(shape_.num_groups, group_size);
      int32 levels = 0;
      while (1 << levels < parts) ++levels;
      vf_call<choose_groups>(
          "choose_groups", b.chosen, b.keys, static_cast<uint32>(shape_.num_groups),
          static_cast<uint32>(shape_.num_groups * parts), group_size / parts,
          static_cast<uint16>(levels), static_cast<uint16>(shape_.num_topk_groups));
      vf_call<close_groups>("close_groups", b.open_keys, b.keys, b.group_of, b.chosen, num_regs());
    }
    if (regs_of(shape_) <= kMaxTopkRegs) {
      return with_regs(regs_of(shape_), [&](auto regs) {
        vf_call<select_whole<decltype(regs)::value>>("select_whole", b.best, b.open_keys, b.places,
                                                     num_topk);
      });
    }
    // The first window has nothing before it and takes more experts.
    vf_call<select_window<true, false>>("select_window", b.best, b.open_keys, b.places, b.positions,
                                        0, num_topk);
    int32 first = kChunk;
    for (; first + kChunk + kCarry < shape_.num_experts; first += kChunk) {
      vf_call<select_window<false, false>>("select_window", b.best, b.open_keys + first, b.places,
                                           b.positions, first, num_topk);
    }
    vf_call<select_window<false, true>>("select_window", b.best, b.open_keys + first, b.places,
                                        b.positions, first, num_topk);
  }

  // The ids of all slots, by the scalar unit.
  TILEKERNELS_CORE void resolve(int64 row) {
    wait_for<Pipe::kV, Pipe::kS>();
    for (int32 slot = 0; slot < num_slots_; ++slot) {
      give_id(slot, physical(row, get_value(buffers_.best, slot)));
    }
    wait_for<Pipe::kS, Pipe::kV>();
  }

  TILEKERNELS_CORE int64 physical(int64 row, int32 expert) {
    int64 id = expert;
    if (shape_.has_map && expert >= 0) {
      const int32 count = get_value(gm(args_.logical_count), expert);
      if (count < 1 || count > shape_.num_copies) {
        note(numerics::kFaultCountOutOfRange);
        id = -1;
      } else {
        id = get_value(gm(args_.to_physical_map),
                       int64{expert} * shape_.num_copies + choose_copy(args_.ep_rank, row, count));
        if (id < 0) {
          note(numerics::kFaultPositionOutOfRange);
          id = -1;
        }
      }
    }
    if (!shape_.has_tp) return id;
    return mask_by_tp(id, args_.experts_per_rank, args_.tp_rank, args_.num_tp_ranks);
  }

  // Random ids and weights, by the scalar unit.
  TILEKERNELS_CORE void draw(int64 row) {
    if (is_count_bad_) note(numerics::kFaultCountOutOfRange);
    wait_for<Pipe::kV, Pipe::kS>();
    int64 taken[kWeightSlots];  // rising
    for (int32 slot = 0; slot < num_slots_; ++slot) {
      int64 id = -1;
      float weight = 0;
      if (slot < num_physical_) {
        const RandomDraw drawn = random_draw(args_.ep_rank, row, slot);
        id = drawn.number % static_cast<uint32>(num_physical_ - slot);
        weight = drawn.weight;
        int32 place = 0;
        for (; place < slot && taken[place] <= id; ++place) ++id;
        for (int32 i = slot; i > place; --i) taken[i] = taken[i - 1];
        taken[place] = id;
      }
      give_id(slot, id);
      set_value(buffers_.given, kIdWords + slot, numerics::bit_cast<uint32>(weight));
    }
    wait_for<Pipe::kS, Pipe::kV>();
  }

  TILEKERNELS_CORE void give_id(int32 slot, int64 id) {
    set_value(buffers_.given, 2 * slot, static_cast<uint32>(id));
    set_value(buffers_.given, 2 * slot + 1, static_cast<uint32>(id >> 32));
  }
  TILEKERNELS_CORE void take_ids(Ub<uint32> out) {
    vf_call<take_given>("take_given", out, buffers_.given, static_cast<uint32>(2 * num_slots_));
  }

  TILEKERNELS_CORE void finish(Ub<uint32> out_ids, Ub<float> out_weights, Ub<float> scores) {
    const Buffers& b = buffers_;
    const auto with = [&](auto function) {
      function(out_ids, out_weights, b.best, scores, b.sum, b.order,
               static_cast<uint32>(shape_.num_topk), static_cast<uint32>(num_slots_),
               args_.routed_scaling_factor);
    };
    if (shape_.scoring == kScoringSoftmax) {
      if (shape_.norm_topk_prob) {
        with([](auto... a) { vf_call<finish_row<true, true>>("finish_row", a...); });
      } else {
        with([](auto... a) { vf_call<finish_row<true, false>>("finish_row", a...); });
      }
    } else if (shape_.norm_topk_prob) {
      with([](auto... a) { vf_call<finish_row<false, true>>("finish_row", a...); });
    } else {
      with([](auto... a) { vf_call<finish_row<false, false>>("finish_row", a...); });
    }
  }

  TILEKERNELS_CORE void store(int64 row, Route route, int32 unmapped_at) {
    const Ub<uint32> out = out_.empty();
    copy_out(gm(args_.topk_idx + row * num_slots_), out, {1, num_slots_ * int64{8}});
    copy_out(gm(args_.topk_weights + row * num_slots_), as_ub<float>(out + kWeightsAt),
             {1, num_slots_ * int64{4}});
    if (shape_.has_unmapped && route != Route::kFixed) {
      copy_out(gm(args_.unmapped_topk_idx + row * args_.unmapped_stride), out + unmapped_at,
               {1, shape_.num_topk * int64{8}});
    }
    if (shape_.has_scores) {
      copy_out(gm(args_.scores + row * shape_.num_experts), as_ub<float>(out + kScoresAt),
               {1, shape_.num_experts * int64{4}});
    }
    out_.emptied();
  }

  const MoeTopkGateArgs& args_;
  const MoeTopkGateShape& shape_;
  const int32 num_slots_;
  const bool is_resolved_;  // ids come from the scalar unit
  MutexPool pool_;
  InRing<float> in_;  // logits, and a fixed row's experts behind them
  OutRing<uint32> out_;
  Buffers buffers_;
  int32 turn_ = 0;
  int32 lowest_item_ = kNoFaultItem;
  int64 num_physical_ = 0;
  bool is_count_bad_ = false;
};

TILEKERNELS_CORE void run(const MoeTopkGateArgs& args, const MoeTopkGateShape& shape,
                          const Tile& tile) {
  prologue();
  Gate gate(args, shape, tile);
  pipeline(
      tile.stages, block_idx(), args.num_tokens, block_num(), [&](int64 row) { gate.load(row); },
      [&](int64 row) { gate.compute(row); });
  gate.report();
  barrier_all();
}

}  // namespace tilekernels::ascend::moe_topk_gate_kernel
