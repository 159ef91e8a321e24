// moe_topk_gate_backward on SIMD lanes. The deltas of a row's slots are put into a row of zeros
// that stays in the cache; without a dense term nothing else of a row is worked on.
#include "ops/moe/moe_topk_gate_backward/op.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "runtime/cpu/cache.h"
#include "runtime/cpu/fault.h"
#include "runtime/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/moe/moe_topk_gate_backward/cpu.cpp"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "numerics/row_sum-inl.h"
#include "numerics/scoring-inl.h"
#include "runtime/cpu/store-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tilekernels::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
namespace lanes = numerics::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;
constexpr DF kF;
using VF = hn::Vec<DF>;
constexpr int32 kLanes = static_cast<int32>(hn::MaxLanes(kF));
static_assert(kWeightSlots % kLanes == 0);

VF canonical(VF v) { return hn::IfThenElse(hn::IsNaN(v), hn::Set(kF, numerics::kCanonicalNan), v); }

// Replaces scores by their derivatives.
template <size_t kCount>
void derive(int32 scoring, VF (&scores)[kCount]) {
  if (scoring != kScoringSigmoid) return lanes::sqrt_softplus_derivative(kF, scores);
  for (size_t v = 0; v < kCount; ++v) {
    scores[v] = hn::Mul(scores[v], hn::Sub(hn::Set(kF, 1.0f), scores[v]));
  }
}

// The first `count` elements, zeros behind them; touches no others.
VF load_some(const float* from, int32 count) {
  if (count >= kLanes) return hn::LoadU(kF, from);
  alignas(64) float padded[kLanes] = {};
  std::copy_n(from, count, padded);
  return hn::Load(kF, padded);
}

void store_some(VF v, int32 count, float* to) {
  if (count >= kLanes) return hn::StoreU(v, kF, to);
  alignas(64) float padded[kLanes];
  hn::Store(v, kF, padded);
  std::copy_n(padded, count, to);
}

// The slots of a row that count, closed up, in rising k.
struct Slots {
  int32 num = 0;
  int32 experts[kWeightSlots];
  alignas(64) float scores[kWeightSlots];
  alignas(64) float deltas[kWeightSlots];
};

// The dense term of a row.
struct Aux {
  bool is_there = false;
  float inverse = 0.0f;
  float mean = 0.0f;
};

Aux aux_of(const float* scores, const float* sums, int32 num_experts) {
  int32 num_partials = 2 * kLanes;
  while (num_partials < std::min(num_experts, numerics::kRowPartials)) num_partials *= 2;
  alignas(64) float of_scores[numerics::kRowPartials];
  alignas(64) float of_products[numerics::kRowPartials];
  for (int32 k = 0; k < num_partials; k += kLanes) {
    hn::Store(hn::Zero(kF), kF, of_scores + k);
    hn::Store(hn::Zero(kF), kF, of_products + k);
  }
  for (int32 e = 0; e < num_experts; e += kLanes) {
    const VF score = load_some(scores + e, num_experts - e);
    const VF sum = load_some(sums + e, num_experts - e);
    float* const of_score = of_scores + e % numerics::kRowPartials;
    float* const of_product = of_products + e % numerics::kRowPartials;
    hn::Store(hn::Add(hn::Load(kF, of_score), score), kF, of_score);
    hn::Store(hn::MulAdd(sum, score, hn::Load(kF, of_product)), kF, of_product);
  }
  const float sum = lanes::sum_partials(kF, of_scores, num_partials);
  const float dot = lanes::sum_partials(kF, of_products, num_partials);
  if (sum == 0.0f) return {};
  const float inverse = 1.0f / sum;
  return {true, inverse, dot * inverse};
}

class Rows {
 public:
  Rows(const MoeTopkGateBackwardArgs& args, const MoeTopkGateBackwardShape& shape, bool stream)
      : args_(args),
        shape_(shape),
        stream_(stream),
        tree_slots_(power_of_two_from(shape.num_topk)),
        routed_(static_cast<size_t>(shape.num_experts), 0.0f),
        dense_(stream ? routed_.size() : 0) {}

  // Returns the lowest error word.
  uint64 run(int64 begin, int64 end) {
    for (int64 token = begin; token < end; ++token) {
      if (token + kAhead < end) prefetch(token + kAhead);
      row(token);
    }
    return word_;
  }

 private:
  static constexpr int64 kAhead = 4;
  static constexpr int32 kFloatsInLine = static_cast<int32>(kLineBytes / sizeof(float));
  static constexpr int32 kMostPerSlot = 4 * kFloatsInLine;

  bool is_expert(int64 index) const { return index >= 0 && index < shape_.num_experts; }

  // The scores that a later row looks up; of rows that are not much longer than that all, as
  // machines fetch lines in order several times faster.
  void prefetch(int64 token) const {
    const int64* experts = args_.topk_idx + token * shape_.num_topk;
    const float* scores = args_.scores + token * shape_.num_experts;
    if (shape_.num_experts <= kMostPerSlot * shape_.num_topk) {
      for (int32 e = 0; e < shape_.num_experts; e += kFloatsInLine) hwy::Prefetch(scores + e);
      return;
    }
    for (int32 k = 0; k < shape_.num_topk; ++k) {
      if (is_expert(experts[k])) hwy::Prefetch(scores + experts[k]);
    }
  }

  void find_slots(int64 token) {
    const int32 num_topk = shape_.num_topk;
    const int64* experts = args_.topk_idx + token * num_topk;
    const float* scores = args_.scores + token * shape_.num_experts;
    const float* weights = args_.topk_weights + token * num_topk;
    const float* grads = args_.grad_topk_weights + token * num_topk;
    // Both trees have every slot at its own place.
    float chosen[kWeightSlots];
    float products[kWeightSlots];
    slots_.num = 0;
    for (int32 k = 0; k < tree_slots_; ++k) {
      chosen[k] = 0.0f;
      products[k] = 0.0f;
      if (k >= num_topk) continue;
      if (!is_expert(experts[k])) {
        if (experts[k] != -1) {
          tilekernels::note_fault(&word_, token, kMoeTopkGateBackwardId,
                                  numerics::kFaultIndexOutOfRange);
        }
        continue;
      }
      chosen[k] = scores[experts[k]];
      products[k] = grads[k] * weights[k];
      slots_.experts[slots_.num] = static_cast<int32>(experts[k]);
      slots_.scores[slots_.num] = chosen[k];
      slots_.deltas[slots_.num] = grads[k];
      ++slots_.num;
    }
    for (int32 half = tree_slots_ / 2; half > 0; half /= 2) {
      for (int32 i = 0; i < half; ++i) {
        chosen[i] = chosen[i] + chosen[i + half];
        products[i] = products[i] + products[i + half];
      }
    }
    const VF factor = hn::Set(kF, args_.routed_scaling_factor);
    const VF denominator = hn::Set(kF, chosen[0] + kWeightEpsilon);
    const VF dot = hn::Set(kF, products[0]);
    for (int32 k = 0; k < slots_.num; k += kLanes) {
      const VF scaled = hn::Mul(factor, hn::Load(kF, slots_.deltas + k));
      hn::Store(hn::Div(hn::Sub(scaled, dot), denominator), kF, slots_.deltas + k);
    }
  }

  void row(int64 token) {
    const int32 num_experts = shape_.num_experts;
    const float* scores = args_.scores + token * num_experts;
    float* const grad_logits = args_.grad_logits + token * num_experts;
    float* const routed = routed_.data();
    find_slots(token);
    for (int32 k = 0; k < slots_.num; ++k) {
      float& sum = routed[slots_.experts[k]];
      sum = sum + slots_.deltas[k];
    }
    Aux aux;
    const float* sums = nullptr;
    if (shape_.has_aux && args_.mask[token] != 0) {
      sums = args_.grad_scores_sum + token / args_.tokens_per_sequence * num_experts;
      aux = aux_of(scores, sums, num_experts);
    }
    if (aux.is_there) {
      float* const to = stream_ ? dense_.data() : grad_logits;
      add_dense(scores, sums, aux, to);
      if (stream_) stream_copy(grad_logits, to, int64{num_experts} * 4);
    } else {
      finish_slots();
      if (stream_) {
        stream_copy(grad_logits, routed, int64{num_experts} * 4);
      } else {
        std::copy_n(routed, num_experts, grad_logits);
      }
    }
    for (int32 k = 0; k < slots_.num; ++k) routed[slots_.experts[k]] = 0.0f;
  }

  // The gradients of the slots' experts, in place.
  void finish_slots() {
    for (int32 k = 0; k < slots_.num; ++k) {
      slots_.deltas[k] = routed_[static_cast<size_t>(slots_.experts[k])];
    }
    for (int32 k = 0; k < slots_.num; k += kLanes) {
      VF of_score[1] = {hn::Load(kF, slots_.scores + k)};
      derive(shape_.scoring, of_score);
      const VF grad = hn::Mul(hn::Load(kF, slots_.deltas + k), of_score[0]);
      hn::Store(canonical(grad), kF, slots_.deltas + k);
    }
    for (int32 k = 0; k < slots_.num; ++k) {
      routed_[static_cast<size_t>(slots_.experts[k])] = slots_.deltas[k];
    }
  }

  void add_dense(const float* scores, const float* sums, const Aux& aux, float* to) const {
    const int32 num_experts = shape_.num_experts;
    int32 e = 0;
    for (; e + 4 * kLanes <= num_experts; e += 4 * kLanes) {
      add_dense_part<4>(scores, sums, aux, e, to);
    }
    for (; e < num_experts; e += kLanes) add_dense_part<1>(scores, sums, aux, e, to);
  }

  template <int32 kCount>
  void add_dense_part(const float* scores, const float* sums, const Aux& aux, int32 begin,
                      float* to) const {
    VF of_score[kCount];
    for (int32 v = 0; v < kCount; ++v) {
      const int32 e = begin + v * kLanes;
      of_score[v] = load_some(scores + e, shape_.num_experts - e);
    }
    derive(shape_.scoring, of_score);
    for (int32 v = 0; v < kCount; ++v) {
      const int32 e = begin + v * kLanes;
      const int32 left = shape_.num_experts - e;
      const VF centred = hn::Sub(load_some(sums + e, left), hn::Set(kF, aux.mean));
      const VF term = hn::Mul(centred, hn::Set(kF, aux.inverse));
      const VF grad = hn::Add(load_some(routed_.data() + e, left), term);
      store_some(canonical(hn::Mul(grad, of_score[v])), left, to + e);
    }
  }

  const MoeTopkGateBackwardArgs& args_;
  const MoeTopkGateBackwardShape& shape_;
  const bool stream_;
  const int32 tree_slots_;
  std::vector<float> routed_;  // zeros between rows
  std::vector<float> dense_;
  Slots slots_{};
  uint64 word_ = numerics::kNoFault;
};

}  // namespace

uint64 moe_topk_gate_backward(const MoeTopkGateBackwardArgs& args,
                              const MoeTopkGateBackwardShape& shape, bool stream, int64 begin,
                              int64 end) {
  return Rows(args, shape, stream).run(begin, end);
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace tilekernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilekernels::cpu {
namespace {

HWY_EXPORT(moe_topk_gate_backward);

}  // namespace

void moe_topk_gate_backward(const MoeTopkGateBackwardArgs& args,
                            const MoeTopkGateBackwardShape& shape, const Launch&) {
  const auto of_target = HWY_DYNAMIC_DISPATCH(moe_topk_gate_backward);
  const bool stream = should_stream(args.num_tokens * shape.num_experts * 4);
  const double nanoseconds =
      20.0 + 4.0 * shape.num_topk + (shape.has_aux != 0 ? 1.5 : 0.1) * shape.num_experts;
  parallel_for(args.num_tokens, items_per_thread(nanoseconds), [&](int64 begin, int64 end) {
    const uint64 word = of_target(args, shape, stream, begin, end);
    if (word == numerics::kNoFault) return;
    note_fault(args.fault, numerics::fault_row(word), numerics::fault_op(word),
               numerics::fault_kind(word));
  });
}

}  // namespace tilekernels::cpu
#endif
