// moe_topk_gate on SIMD lanes: scores of a few rows at a time into memory that stays in the cache,
// then the selection that the gates share. Rows that are masked, random or odd (a logit that is
// not finite, a NaN to be selected by, a wrong fixed expert) go the reference's way, one by one.
#include "ops/moe/moe_topk_gate/op.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "runtime/cpu/cache.h"
#include "runtime/cpu/fault.h"
#include "runtime/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/moe/moe_topk_gate/cpu.cpp"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "numerics/row_sum-inl.h"
#include "numerics/scoring-inl.h"
#include "ops/moe/top_two-inl.h"
#include "ops/moe/topk-inl.h"
#include "runtime/cpu/store-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tilekernels::cpu::HWY_NAMESPACE {
namespace {

namespace lanes = numerics::HWY_NAMESPACE;

// Where a row is worked on. Both have room for whole vectors.
struct Buffers {
  float* scores;  // u
  float* ranked;  // z, what selection sees; the same as scores where nothing is added to them
};

// What a pass over a row found.
struct Found {
  bool is_finite;  // the logits
  bool has_nan;    // in what is ranked; then, and where not all of that is finite:
  bool is_odd;
};

// Running maxima of magnitudes, as integers: NaN above Inf above numbers.
VI max_magnitude(VI so_far, VF x) {
  return hn::Max(so_far, hn::And(hn::BitCast(kI, x), hn::Set(kI, 0x7FFFFFFF)));
}

// Vectors that are worked on together.
constexpr int32 kTogether = 4;

// Calls visit(column, x) with the vectors of a row; the last one is filled up with its padding.
template <class Visit>
HWY_INLINE void for_each_vector(const float* row, int32 num, float padding, const Visit& visit) {
  int32 column = 0;
  for (; column + kLanes <= num; column += kLanes) visit(column, hn::LoadU(kF, row + column));
  if (column < num) visit(column, load_tail(row + column, num - column, padding));
}

// Calls visit(column, x) with kTogether vectors x[], then with single ones.
template <class Visit>
HWY_INLINE void for_each_few(const float* row, int32 num, const Visit& visit) {
  int32 column = 0;
  for (; column + kTogether * kLanes <= num; column += kTogether * kLanes) {
    VF x[kTogether];
    for (int32 v = 0; v < kTogether; ++v) x[v] = hn::LoadU(kF, row + column + v * kLanes);
    visit(column, x);
  }
  for (; column < num; column += kLanes) {
    VF x[1] = {column + kLanes <= num ? hn::LoadU(kF, row + column)
                                      : load_tail(row + column, num - column, 0.0f)};
    visit(column, x);
  }
}

Found found_in(VI largest_logit, VI largest_ranked) {
  const VI inf = hn::Set(kI, static_cast<int32>(numerics::kInfBits));
  return {hn::AllTrue(kI, hn::Lt(largest_logit, inf)),
          !hn::AllFalse(kI, hn::Gt(largest_ranked, inf)),
          !hn::AllTrue(kI, hn::Lt(largest_ranked, inf))};
}

// What is ranked: values and their bias. Their largest magnitude.
VI rank(const float* values, const float* bias, int32 num, float* ranked) {
  VI largest = hn::Zero(kI);
  for_each_vector(bias, num, 0.0f, [&](int32 column, VF b) HWY_ATTR {
    // Scores have room for whole vectors, and so do their copies.
    const VF z = hn::Add(hn::LoadU(kF, values + column), b);
    hn::StoreU(z, kF, ranked + column);
    largest = max_magnitude(largest, z);
  });
  return largest;
}

// Scores by an activation, the bias added: u and z of the row.
template <class Activate>
Found score(const float* logits, const float* bias, int32 num, const Buffers& to,
            const Activate& activate) {
  VI largest_logit = hn::Zero(kI);
  for_each_few(logits, num, [&](int32 column, auto& x) HWY_ATTR {
    constexpr int32 kCount = sizeof(x) / sizeof(x[0]);
    for (int32 v = 0; v < kCount; ++v) largest_logit = max_magnitude(largest_logit, x[v]);
    activate(x);
    for (int32 v = 0; v < kCount; ++v) hn::StoreU(x[v], kF, to.scores + column + v * kLanes);
  });
  return found_in(largest_logit,
                  bias == nullptr ? hn::Zero(kI) : rank(to.scores, bias, num, to.ranked));
}

// The softmax: u of the row into to.scores.
void softmax(const float* logits, int32 num, const Buffers& to) {
  VF maxima = hn::Set(kF, -numerics::kFloatMax);
  for_each_vector(logits, num, -numerics::kFloatMax,
                  [&](int32, VF x) HWY_ATTR { maxima = hn::Max(maxima, x); });
  const VF largest = hn::MaxOfLanes(kF, maxima);
  int32 num_partials = 2 * kLanes;
  while (num_partials < std::min(num, numerics::kRowPartials)) num_partials *= 2;
  alignas(64) float partials[numerics::kRowPartials];
  for (int32 k = 0; k < num_partials; k += kLanes) hn::Store(hn::Zero(kF), kF, partials + k);
  for_each_few(logits, num, [&](int32 column, auto& x) HWY_ATTR {
    constexpr int32 kCount = sizeof(x) / sizeof(x[0]);
    for (int32 v = 0; v < kCount; ++v) x[v] = hn::Sub(x[v], largest);
    lanes::exp_of_negative(kF, x);
    if (column + kCount * kLanes > num) {
      x[0] = hn::IfThenElseZero(hn::FirstN(kF, static_cast<size_t>(num - column)), x[0]);
    }
    for (int32 v = 0; v < kCount; ++v) {
      const int32 at = column + v * kLanes;
      hn::StoreU(x[v], kF, to.scores + at);
      float* partial = partials + at % numerics::kRowPartials;
      hn::Store(hn::Add(hn::Load(kF, partial), x[v]), kF, partial);
    }
  });
  const VF sum = hn::Set(kF, lanes::sum_partials(kF, partials, num_partials));
  for (int32 column = 0; column < num; column += kLanes) {
    float* at = to.scores + column;
    hn::StoreU(hn::Div(hn::LoadU(kF, at), sum), kF, at);
  }
}

// Scores that are softmaxes; what is ranked are the logits with their bias.
Found score_softmax(const float* logits, const float* bias, int32 num, const Buffers& to) {
  VI largest_logit = hn::Zero(kI);
  for_each_vector(logits, num, 0.0f, [&](int32 column, VF x) HWY_ATTR {
    largest_logit = max_magnitude(largest_logit, x);
    hn::StoreU(x, kF, to.ranked + column);
  });
  const Found found = found_in(
      largest_logit, bias == nullptr ? hn::Zero(kI) : rank(to.ranked, bias, num, to.ranked));
  if (found.is_finite) softmax(logits, num, to);
  return found;
}

// The sum of the two largest of num >= 2 finite numbers.
float top_two_sum(const float* values, int32 num) {
  if (num < kLanes) {
    float first = std::max(values[0], values[1]);
    float second = std::min(values[0], values[1]);
    for (int32 i = 2; i < num; ++i) {
      second = std::max(second, std::min(first, values[i]));
      first = std::max(first, values[i]);
    }
    return first + second;
  }
  const VF lowest = hn::Set(kF, -std::numeric_limits<float>::infinity());
  TopTwo<VF> two{lowest, lowest};
  for_each_vector(values, num, -std::numeric_limits<float>::infinity(),
                  [&](int32, VF x) HWY_ATTR { two = merge(two, x, lowest); });
  two = top_two_of_lanes(kF, two);
  return hn::GetLane(hn::Add(two.first, two.second));
}

// Leaves -Inf to be ranked where a group of experts is not among the best. All numbers are finite.
void limit_groups(const MoeTopkGateShape& shape, float* ranked) {
  const int32 size = shape.num_experts / shape.num_groups;
  float sums[kMaxExpertGroups];
  for (int32 group = 0; group < shape.num_groups; ++group) {
    sums[group] = top_two_sum(ranked + group * size, size);
  }
  for (int32 group = 0; group < shape.num_groups; ++group) {
    int32 num_before = 0;
    for (int32 other = 0; other < shape.num_groups; ++other) {
      num_before += sums[other] > sums[group] || (sums[other] == sums[group] && other < group);
    }
    if (num_before < shape.num_topk_groups) continue;
    std::fill_n(ranked + group * size, size, -std::numeric_limits<float>::infinity());
  }
}

// The id of the copy of an expert that the token takes, for a row without faults so far.
struct Physical {
  int64 id;
  int32 fault;  // 0 for none
};
Physical physical(const MoeTopkGateArgs& args, const MoeTopkGateShape& shape, int64 token,
                  int64 expert) {
  int64 id = expert;
  int32 fault = 0;
  if (shape.has_map) {
    const int32 count = args.logical_count[expert];
    if (count < 1 || count > shape.num_copies) {
      id = -1;
      fault = numerics::kFaultCountOutOfRange;
    } else {
      const int32 copy = choose_copy(args.ep_rank, token, count);
      id = args.to_physical_map[expert * shape.num_copies + copy];
      if (id < 0) fault = numerics::kFaultPositionOutOfRange;
      id = std::max(id, int64{-1});
    }
  }
  if (shape.has_tp) {
    id = mask_by_tp(id, args.experts_per_rank, args.tp_rank, args.num_tp_ranks);
  }
  return {id, fault};
}

// Stores what belongs to the token's experts; all of them are in range.
void finish(const MoeTopkGateArgs& args, const MoeTopkGateShape& shape, int64 token,
            const float* scores, const int64* experts) {
  const int32 num_topk = shape.num_topk;
  const int32 num_slots = num_topk + shape.num_shared;
  float* const topk_weights = args.topk_weights + token * num_slots;
  int64* const topk_idx = args.topk_idx + token * num_slots;
  const auto report = [&](int32 fault) {
    tilekernels::note_fault(args.fault, token, args.op_id, fault);
  };
  float weights[kWeightSlots];
  for (int32 slot = 0; slot < num_topk; ++slot) weights[slot] = scores[experts[slot]];
  if (shape.norm_topk_prob) {
    // A tree of as many slots as there are gives the bits of the one of 32.
    float slots[kWeightSlots] = {};
    std::copy_n(weights, num_topk, slots);
    for (int32 half = power_of_two_from(num_topk) / 2; half > 0; half /= 2) {
      for (int32 i = 0; i < half; ++i) slots[i] = slots[i] + slots[i + half];
    }
    const float denominator = slots[0] + kWeightEpsilon;
    for (int32 slot = 0; slot < num_topk; ++slot) weights[slot] = weights[slot] / denominator;
  }
  for (int32 slot = 0; slot < num_topk; ++slot) {
    topk_weights[slot] = weights[slot] * args.routed_scaling_factor;
  }
  for (int32 slot = num_topk; slot < num_slots; ++slot) topk_weights[slot] = 1.0f;
  if (shape.has_unmapped) {
    std::copy_n(experts, num_topk, args.unmapped_topk_idx + token * args.unmapped_stride);
  }
  if (shape.has_map == 0 && shape.has_tp == 0) {
    std::copy_n(experts, num_topk, topk_idx);
    for (int32 slot = num_topk; slot < num_slots; ++slot) {
      topk_idx[slot] = shape.num_experts + slot - num_topk;
    }
    return;
  }
  for (int32 slot = 0; slot < num_slots; ++slot) {
    const int64 expert =
        slot < num_topk ? experts[slot] : int64{shape.num_experts} + slot - num_topk;
    const Physical to = physical(args, shape, token, expert);
    topk_idx[slot] = to.id;
    if (to.fault != 0) report(to.fault);
  }
}

// The reference on one row: it may do anything with it.
void route_by_reference(const MoeTopkGateArgs& args, const MoeTopkGateShape& shape, int64 token) {
  reference::moe_topk_gate_rows(args, shape, token, token + 1);
}

Found score_row(const MoeTopkGateShape& shape, const float* logits, const float* bias,
                const Buffers& to) {
  if (shape.scoring == kScoringSoftmax) {
    return score_softmax(logits, bias, shape.num_experts, to);
  }
  if (shape.scoring == kScoringSigmoid) {
    return score(logits, bias, shape.num_experts, to,
                 [](auto& x) HWY_ATTR { lanes::sigmoid(kF, x); });
  }
  return score(logits, bias, shape.num_experts, to,
               [](auto& x) HWY_ATTR { lanes::sqrt_softplus(kF, x); });
}

}  // namespace

// Returns the lowest error word of the rows [begin, end). is_large: logits, and scores that are
// saved, do not stay in the cache.
uint64 moe_topk_gate(const MoeTopkGateArgs& call, const MoeTopkGateShape& shape, bool is_large,
                     int64 begin, int64 end) {
  uint64 word = numerics::kNoFault;
  MoeTopkGateArgs args = call;
  args.fault = &word;
  const int32 num_experts = shape.num_experts;
  const int64 batch = std::min(rows_at_once(num_experts), end - begin);
  // What is ranked is not the scores: a bias is added to them, groups are struck out, or the
  // softmax is ranked by logits.
  const bool has_ranked = shape.has_bias || shape.has_image_bias || shape.num_groups > 0 ||
                          shape.scoring == kScoringSoftmax;
  constexpr int64 kLine = 16;
  constexpr int64 kRowsAhead = 4;
  const int64 pitch = numerics::align_up(num_experts, kLine) + kLine;
  std::vector<float> memory(static_cast<size_t>(batch * pitch * (has_ranked ? 2 : 1) + kLine));
  float* const aligned =
      memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64 / sizeof(float);
  int64 tokens[kMaxRows];
  int64 experts[kMaxRows][kWeightSlots];
  const float* scores[kMaxRows];
  Scratch scratch;
  for (int64 token = begin; token < end;) {
    // Collects rows that select.
    int32 num_rows = 0;
    for (; token < end && num_rows < batch; ++token) {
      if ((shape.has_mask && !args.mask[token]) || (shape.has_random && args.force_random[token])) {
        route_by_reference(args, shape, token);
        continue;
      }
      const float* logits = args.logits + token * num_experts;
      if (is_large) {
        const float* const later = logits + kRowsAhead * num_experts;
        for (int32 e = 0; e < num_experts; e += kLine) hwy::Prefetch(later + e);
      }
      const bool is_image = shape.has_image_bias && args.image_token_mask[token];
      const float* bias = is_image ? args.image_bias : args.bias;
      Buffers to{aligned + num_rows * pitch, aligned + num_rows * pitch};
      if (has_ranked) to.ranked += batch * pitch;
      const bool is_fixed = shape.has_fixed && args.fix_routing_mask[token];
      const Found found = score_row(shape, logits, is_fixed ? nullptr : bias, to);
      const int64* fixed =
          is_fixed ? args.unmapped_topk_idx + token * args.unmapped_stride : nullptr;
      const bool is_wrong =
          is_fixed && !std::all_of(fixed, fixed + shape.num_topk, [&](int64 expert) {
            return expert >= 0 && expert < num_experts;
          });
      if (!found.is_finite || is_wrong || found.has_nan || (shape.num_groups > 0 && found.is_odd)) {
        route_by_reference(args, shape, token);
        continue;
      }
      if (shape.has_scores) {
        float* const saved = args.scores + token * num_experts;
        if (is_large) {
          stream_copy(saved, to.scores, int64{num_experts} * 4);
        } else {
          std::copy_n(to.scores, num_experts, saved);
        }
      }
      if (is_fixed) {
        finish(args, shape, token, to.scores, fixed);
        continue;
      }
      if (has_ranked && shape.scoring != kScoringSoftmax && bias == nullptr) {
        std::copy_n(to.scores, num_experts, to.ranked);
      }
      if (shape.num_groups > 0) limit_groups(shape, to.ranked);
      tokens[num_rows] = token;
      scores[num_rows] = to.scores;
      scratch.rows[num_rows].scores = to.ranked;
      scratch.rows[num_rows].topk_idx = experts[num_rows];
      ++num_rows;
    }
    select_rows<false>(scratch, num_rows, num_experts, shape.num_topk, 0);
    for (int32 r = 0; r < num_rows; ++r) finish(args, shape, tokens[r], scores[r], experts[r]);
  }
  return word;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace tilekernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilekernels::cpu {
namespace {

HWY_EXPORT(moe_topk_gate);

}  // namespace

void moe_topk_gate(const MoeTopkGateArgs& args, const MoeTopkGateShape& shape, const Launch&) {
  const auto route = HWY_DYNAMIC_DISPATCH(moe_topk_gate);
  const bool is_large = should_stream(args.num_tokens * shape.num_experts * 4);
  const double nanoseconds = 100.0 + 0.75 * shape.num_experts;
  parallel_for(args.num_tokens, items_per_thread(nanoseconds), [&](int64 begin, int64 end) {
    const uint64 word = route(args, shape, is_large, begin, end);
    if (word == numerics::kNoFault) return;
    note_fault(args.fault, numerics::fault_row(word), numerics::fault_op(word),
               numerics::fault_kind(word));
  });
}

}  // namespace tilekernels::cpu
#endif
