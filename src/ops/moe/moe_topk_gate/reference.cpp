// moe_topk_gate: one token after the other, one pass over all experts for every slot.
#include <algorithm>
#include <cstddef>
#include <vector>

#include "ops/moe/moe_topk_gate/op.h"

namespace tilekernels::reference {
namespace {

using Floats = std::vector<float>;
using Flags = std::vector<char>;

float& at(Floats& values, int32 i) { return values[static_cast<std::size_t>(i)]; }
float at(const Floats& values, int32 i) { return values[static_cast<std::size_t>(i)]; }
char& at(Flags& values, int32 i) { return values[static_cast<std::size_t>(i)]; }

// The place of the largest key among the values that are still there; some are.
int32 best_of(const Floats& values, const Flags& is_there, int32 begin, int32 end) {
  const auto key = [&](int32 i) {
    return is_there[static_cast<std::size_t>(i)] ? numerics::topk_key(at(values, i))
                                                 : numerics::kTopkTaken;
  };
  int32 best = begin;
  for (int32 i = begin + 1; i < end; ++i) {
    if (key(i) > key(best)) best = i;
  }
  return best;
}

class Token {
 public:
  Token(const MoeTopkGateArgs& args, const MoeTopkGateShape& shape, int64 token)
      : args_(args),
        shape_(shape),
        token_(token),
        num_slots_(shape.num_topk + shape.num_shared),
        logits_(args.logits + token * shape.num_experts),
        topk_idx_(args.topk_idx + token * num_slots_),
        topk_weights_(args.topk_weights + token * num_slots_),
        unmapped_(shape.has_unmapped ? args.unmapped_topk_idx + token * args.unmapped_stride
                                     : nullptr) {}

  void route() {
    if (shape_.has_mask && !args_.mask[token_]) return leave_out();
    if (shape_.has_random && args_.force_random[token_]) return draw();
    const Floats scores = score();
    const bool is_fixed = shape_.has_fixed && args_.fix_routing_mask[token_];
    int64 experts[kWeightSlots];
    float weights[kWeightSlots] = {};
    if (is_fixed) {
      std::copy_n(unmapped_, shape_.num_topk, experts);
    } else {
      select(scores, experts);
    }
    for (int32 slot = 0; slot < shape_.num_topk; ++slot) {
      if (experts[slot] < 0 || experts[slot] >= shape_.num_experts) {
        report(numerics::kFaultIndexOutOfRange);
        experts[slot] = -1;
      } else {
        weights[slot] = at(scores, static_cast<int32>(experts[slot]));
      }
    }
    store_weights(weights);
    for (int32 slot = 0; slot < num_slots_; ++slot) {
      const int64 expert =
          slot < shape_.num_topk ? experts[slot] : shape_.num_experts + (slot - shape_.num_topk);
      topk_idx_[slot] = physical(expert);
    }
    if (shape_.has_unmapped && !is_fixed) std::copy_n(experts, shape_.num_topk, unmapped_);
    if (shape_.has_scores) {
      for (int32 e = 0; e < shape_.num_experts; ++e) {
        args_.scores[token_ * shape_.num_experts + e] = numerics::canonical(at(scores, e));
      }
    }
  }

 private:
  void report(int32 kind) { note_fault(args_.fault, token_, args_.op_id, kind); }

  // What a row without routed experts leaves in its other outputs.
  void clear() {
    if (shape_.has_unmapped) std::fill_n(unmapped_, shape_.num_topk, int64{-1});
    if (shape_.has_scores) {
      std::fill_n(args_.scores + token_ * shape_.num_experts, shape_.num_experts, 0.0f);
    }
  }

  void leave_out() {
    std::fill_n(topk_idx_, num_slots_, int64{-1});
    std::fill_n(topk_weights_, num_slots_, 0.0f);
    clear();
  }

  void draw() {
    const int32 num_logical = shape_.num_experts + shape_.num_shared;
    int64 num_physical = num_logical;
    if (shape_.has_map) {
      num_physical = 0;
      for (int32 i = 0; i < num_logical; ++i) {
        const int32 count = args_.logical_count[i];
        if (count < 1 || count > shape_.num_copies) report(numerics::kFaultCountOutOfRange);
        num_physical += std::clamp(count, int32{0}, shape_.num_copies);
      }
    }
    if (num_physical < num_slots_) report(numerics::kFaultCountOutOfRange);
    std::vector<int64> taken;  // rising
    for (int32 slot = 0; slot < num_slots_; ++slot) {
      if (slot >= num_physical) {
        topk_idx_[slot] = -1;
        topk_weights_[slot] = 0;
        continue;
      }
      const RandomDraw drawn = random_draw(args_.ep_rank, token_, slot);
      int64 id = drawn.number % static_cast<uint32>(num_physical - slot);
      for (int64 other : taken) id += id >= other ? 1 : 0;
      taken.insert(std::lower_bound(taken.begin(), taken.end(), id), id);
      topk_idx_[slot] = id;
      topk_weights_[slot] = drawn.weight;
    }
    clear();
  }

  Floats score() {
    const int32 num_experts = shape_.num_experts;
    Floats scores(static_cast<std::size_t>(num_experts));
    for (int32 e = 0; e < num_experts; ++e) {
      const float logit = logits_[e];
      if (!numerics::is_finite(logit)) report(numerics::kFaultNotFinite);
      at(scores, e) = shape_.scoring == kScoringSigmoid ? numerics::sigmoid(logit)
                                                        : numerics::sqrt_softplus(logit);
    }
    if (shape_.scoring != kScoringSoftmax) return scores;
    float largest = logits_[0];
    for (int32 e = 1; e < num_experts; ++e) {
      if (numerics::topk_key(logits_[e]) > numerics::topk_key(largest)) largest = logits_[e];
    }
    Floats partials(numerics::kRowPartials, 0.0f);
    for (int32 e = 0; e < num_experts; ++e) {
      at(scores, e) = numerics::exp_f32(logits_[e] - largest);
      float& partial = at(partials, e % numerics::kRowPartials);
      partial = partial + at(scores, e);
    }
    const float sum = numerics::sum_partials(partials.data());
    for (float& score : scores) score = score / sum;
    return scores;
  }

  void select(const Floats& scores, int64* experts) {
    const int32 num_experts = shape_.num_experts;
    const bool is_image = shape_.has_image_bias && args_.image_token_mask[token_];
    const float* bias = is_image ? args_.image_bias : shape_.has_bias ? args_.bias : nullptr;
    Floats ranked(static_cast<std::size_t>(num_experts));
    for (int32 e = 0; e < num_experts; ++e) {
      const float value = shape_.scoring == kScoringSoftmax ? logits_[e] : at(scores, e);
      at(ranked, e) = bias == nullptr ? value : value + bias[e];
      if (numerics::is_nan(at(ranked, e))) report(numerics::kFaultNan);
    }
    Flags is_there(static_cast<std::size_t>(num_experts), 1);
    if (shape_.num_groups > 0) is_there = experts_of_best_groups(ranked);
    for (int32 slot = 0; slot < shape_.num_topk; ++slot) {
      const int32 best = best_of(ranked, is_there, 0, num_experts);
      at(is_there, best) = 0;
      experts[slot] = best;
    }
  }

  Flags experts_of_best_groups(const Floats& ranked) {
    const int32 group_size = shape_.num_experts / shape_.num_groups;
    Flags all(static_cast<std::size_t>(shape_.num_experts), 1);
    Floats sums(static_cast<std::size_t>(shape_.num_groups));
    for (int32 group = 0; group < shape_.num_groups; ++group) {
      const int32 begin = group * group_size;
      const int32 first = best_of(ranked, all, begin, begin + group_size);
      at(all, first) = 0;
      const int32 second = best_of(ranked, all, begin, begin + group_size);
      at(sums, group) = at(ranked, first) + at(ranked, second);
    }
    Flags is_there(static_cast<std::size_t>(shape_.num_experts), 0);
    Flags groups(static_cast<std::size_t>(shape_.num_groups), 1);
    for (int32 i = 0; i < shape_.num_topk_groups; ++i) {
      const int32 best = best_of(sums, groups, 0, shape_.num_groups);
      at(groups, best) = 0;
      std::fill_n(is_there.begin() + best * group_size, group_size, char{1});
    }
    return is_there;
  }

  void store_weights(const float* weights) {
    const float denominator = weight_denominator(weights, shape_.num_topk);
    for (int32 slot = 0; slot < num_slots_; ++slot) {
      float weight = 1.0f;
      if (slot < shape_.num_topk) {
        weight = shape_.norm_topk_prob ? weights[slot] / denominator : weights[slot];
        weight = weight * args_.routed_scaling_factor;
      }
      topk_weights_[slot] = numerics::canonical(weight);
    }
  }

  int64 physical(int64 expert) {
    int64 id = expert;
    if (shape_.has_map && expert >= 0) {
      const int32 count = args_.logical_count[expert];
      if (count < 1 || count > shape_.num_copies) {
        report(numerics::kFaultCountOutOfRange);
        id = -1;
      } else {
        const int32 copy = choose_copy(args_.ep_rank, token_, count);
        id = args_.to_physical_map[expert * shape_.num_copies + copy];
        if (id < 0) {
          report(numerics::kFaultPositionOutOfRange);
          id = -1;
        }
      }
    }
    if (!shape_.has_tp) return id;
    return mask_by_tp(id, args_.experts_per_rank, args_.tp_rank, args_.num_tp_ranks);
  }

  const MoeTopkGateArgs& args_;
  const MoeTopkGateShape& shape_;
  const int64 token_;
  const int32 num_slots_;
  const float* logits_;
  int64* topk_idx_;
  float* topk_weights_;
  int64* unmapped_;
};

}  // namespace

void moe_topk_gate_rows(const MoeTopkGateArgs& args, const MoeTopkGateShape& shape, int64 begin,
                        int64 end) {
  for (int64 token = begin; token < end; ++token) Token(args, shape, token).route();
}

void moe_topk_gate(const MoeTopkGateArgs& args, const MoeTopkGateShape& shape, const Launch&) {
  moe_topk_gate_rows(args, shape, 0, args.num_tokens);
}

}  // namespace tilekernels::reference
