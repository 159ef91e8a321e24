// moe_topk_gate on every SIMD target against the reference, over drawn calls.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "runtime/cpu/cache.h"
#include "tilekernels/config.h"
#include "tilekernels/error.h"
#include "tilekernels/moe.h"

namespace tilekernels {
namespace {

using Generator = std::mt19937;

int64_t draw(Generator& generator, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(generator);
}

bool one_in(Generator& generator, int64_t n) { return draw(generator, 0, n - 1) == 0; }

// One call with all that it may be given.
struct DrawnCall {
  int64_t num_tokens = 0;
  int64_t num_experts = 0;
  int num_topk = 0;
  MoeTopkGateOptions options{};
  std::vector<float> logits{}, bias{}, image_bias{};
  std::vector<uint8_t> mask{}, image_token_mask{}, fix_routing_mask{}, force_random{};
  std::vector<int32_t> to_physical_map{}, logical_count{};
  std::vector<int64_t> unmapped{};
};

float logit(Generator& generator, int64_t kind) {
  const float normal = std::normal_distribution<float>()(generator);
  switch (kind) {
    case 0:
      return normal;
    case 1:
      return std::round(2 * normal) / 2;  // ties
    case 2:
      return 60 * normal;  // tails
    default:
      return one_in(generator, 300) ? std::numeric_limits<float>::quiet_NaN() : normal;
  }
}

std::vector<float> draw_bias(Generator& generator, int64_t num_experts, int64_t kind) {
  std::vector<float> bias(static_cast<size_t>(num_experts));
  for (float& value : bias) {
    value = 0.3f * std::normal_distribution<float>()(generator);
    if (kind == 1 && one_in(generator, 2)) value = -std::numeric_limits<float>::infinity();
    if (kind == 2 && one_in(generator, 500)) value = std::numeric_limits<float>::quiet_NaN();
    if (kind == 3) value = std::round(2 * value);
  }
  return bias;
}

std::vector<uint8_t> draw_flags(Generator& generator, int64_t num_tokens, int64_t n) {
  std::vector<uint8_t> flags(static_cast<size_t>(num_tokens));
  for (uint8_t& flag : flags) flag = one_in(generator, n);
  return flags;
}

DrawnCall draw_call(Generator& generator) {
  constexpr int64_t kExperts[] = {1,   2,   7,   8,   16,  33,  64,   72,
                                  100, 128, 160, 256, 384, 512, 1025, 4200};
  DrawnCall call;
  call.num_experts = kExperts[draw(generator, 0, std::size(kExperts) - 1)];
  call.num_tokens = draw(generator, 1, call.num_experts > 600 ? 5 : 40);
  const int num_shared = static_cast<int>(draw(generator, 0, 2));
  const int64_t most = std::min<int64_t>(call.num_experts, 32 - num_shared);
  call.num_topk = static_cast<int>(
      draw(generator, 1, one_in(generator, 4) ? most : std::min<int64_t>(8, most)));
  MoeTopkGateOptions& options = call.options;
  options.use_shared_as_routed = num_shared > 0;
  options.num_shared_experts = num_shared;
  options.routed_scaling_factor = 2.5f;
  options.ep_rank = static_cast<int>(draw(generator, -9, 9));
  options.scoring_func = static_cast<ScoringFunc>(draw(generator, 0, 2));
  options.norm_topk_prob = !one_in(generator, 4);
  options.save_scores = one_in(generator, 2);
  if (one_in(generator, 2)) {
    const int64_t groups = draw(generator, 2, std::min<int64_t>(32, call.num_experts));
    const int64_t topk_groups = draw(generator, 1, groups);
    const int64_t size = call.num_experts / groups;
    if (call.num_experts % groups == 0 && size >= 2 && topk_groups * size >= call.num_topk) {
      options.num_groups = static_cast<int>(groups);
      options.num_topk_groups = static_cast<int>(topk_groups);
    }
  }
  const int64_t kind = draw(generator, 0, 3);
  for (int64_t i = 0; i < call.num_tokens * call.num_experts; ++i) {
    call.logits.push_back(logit(generator, kind));
  }
  const int64_t bias_kind = draw(generator, 0, 4);
  if (bias_kind < 4) call.bias = draw_bias(generator, call.num_experts, bias_kind);
  if (one_in(generator, 4)) {
    call.image_bias = draw_bias(generator, call.num_experts, 0);
    call.image_token_mask = draw_flags(generator, call.num_tokens, 2);
  }
  if (one_in(generator, 2))
    call.mask = draw_flags(generator, call.num_tokens, 1 + draw(generator, 0, 1));
  if (one_in(generator, 3)) call.force_random = draw_flags(generator, call.num_tokens, 3);
  if (one_in(generator, 2)) {
    for (int64_t i = 0; i < call.num_tokens * call.num_topk; ++i) {
      call.unmapped.push_back(
          draw(generator, 0, call.num_experts - (one_in(generator, 99) ? 0 : 1)));
    }
    if (one_in(generator, 2)) call.fix_routing_mask = draw_flags(generator, call.num_tokens, 2);
  }
  if (one_in(generator, 3)) {
    const int64_t num_logical = call.num_experts + num_shared;
    for (int64_t i = 0; i < num_logical; ++i) {
      call.logical_count.push_back(
          static_cast<int32_t>(one_in(generator, 500) ? 4 : draw(generator, 1, 3)));
      for (int64_t copy = 0; copy < 3; ++copy) {
        call.to_physical_map.push_back(
            static_cast<int32_t>(draw(generator, one_in(generator, 500) ? -1 : 0, 9999)));
      }
    }
  }
  return call;
}

struct Outcome {
  std::vector<int64_t> topk_idx, unmapped;
  std::vector<uint8_t> topk_weights, scores;  // bytes
  std::string fault;

  bool operator==(const Outcome&) const = default;
};

template <class T>
std::optional<TensorView> view(const std::vector<T>& values, const Dims& shape, DType dtype) {
  if (values.empty()) return std::nullopt;
  return TensorView(const_cast<T*>(values.data()), {shape, dtype});
}

Outcome run(const DrawnCall& call, Backend backend) {
  const int64_t num_slots =
      call.num_topk + (call.options.use_shared_as_routed ? call.options.num_shared_experts : 0);
  Outcome outcome;
  outcome.unmapped = call.unmapped;
  std::vector<float> weights(static_cast<size_t>(call.num_tokens * num_slots), -7);
  std::vector<float> scores(call.options.save_scores ? call.logits.size() : 0, -7);
  outcome.topk_idx.resize(weights.size(), -77);
  const Dims tokens{call.num_tokens};
  const Dims experts{call.num_experts};
  const int64_t num_logical = static_cast<int64_t>(call.logical_count.size());
  const MoeTopkGateInputs inputs{
      .mask = view(call.mask, tokens, DType::kBool),
      .bias = view(call.bias, experts, DType::kF32),
      .image_bias = view(call.image_bias, experts, DType::kF32),
      .image_token_mask = view(call.image_token_mask, tokens, DType::kBool),
      .fix_routing_mask = view(call.fix_routing_mask, tokens, DType::kBool),
      .to_physical_map = view(call.to_physical_map, {num_logical, 3}, DType::kI32),
      .logical_count = view(call.logical_count, {num_logical}, DType::kI32),
      .unmapped_topk_idx = view(outcome.unmapped, {call.num_tokens, call.num_topk}, DType::kI64),
      .force_random = view(call.force_random, tokens, DType::kBool)};
  const Dims slots{call.num_tokens, num_slots};
  const Dims rows{call.num_tokens, call.num_experts};
  const RoutingView out{*view(outcome.topk_idx, slots, DType::kI64),
                        *view(weights, slots, DType::kF32), view(scores, rows, DType::kF32)};
  try {
    moe_topk_gate_forward_out(out, *view(call.logits, rows, DType::kF32), call.num_topk,
                              call.options, inputs, Call{.backend = backend});
  } catch (const DataError& error) {
    outcome.fault = error.what();
  }
  outcome.topk_weights.resize(weights.size() * sizeof(float));
  std::memcpy(outcome.topk_weights.data(), weights.data(), outcome.topk_weights.size());
  outcome.scores.resize(scores.size() * sizeof(float));
  if (!scores.empty()) std::memcpy(outcome.scores.data(), scores.data(), outcome.scores.size());
  return outcome;
}

TEST(MoeTopkGate, DrawnCallsOnEveryTarget) {
  if (cpu_targets().empty()) GTEST_SKIP() << "no SIMD target on this machine";
  Generator generator(20260412);
  size_t num_faults = 0;
  for (int i = 0; i < 3000; ++i) {
    const DrawnCall call = draw_call(generator);
    const Outcome expected = run(call, Backend::kReference);
    num_faults += !expected.fault.empty();
    for (const std::string& target : cpu_targets()) {
      set_cpu_target(target);
      set_num_threads(1 + i % 3);
      const Outcome got = run(call, Backend::kCpu);
      ASSERT_EQ(got.fault, expected.fault) << "call " << i << " on " << target;
      ASSERT_EQ(got.topk_idx, expected.topk_idx) << "call " << i << " on " << target;
      ASSERT_TRUE(got == expected) << "call " << i << " on " << target << ": " << call.num_experts
                                   << " experts, top " << call.num_topk;
    }
  }
  EXPECT_GT(num_faults, 100u);
  EXPECT_LT(num_faults, 2500u);
  reset_runtime_config();
}

// Results that do not stay in the cache are stored past it: the same rows as in small calls.
TEST(MoeTopkGate, LargeCallsHaveTheRowsOfSmallOnes) {
  if (cpu_targets().empty()) GTEST_SKIP() << "no SIMD target on this machine";
  constexpr int64_t kExperts = 99;
  constexpr int64_t kTopk = 6;
  constexpr int64_t kParts = 8;
  const int64_t part = cpu::last_level_cache_bytes() / (4 * kExperts * 4) / (kParts - 1);
  const int64_t num_tokens = part * kParts;
  ASSERT_TRUE(cpu::should_stream(num_tokens * kExperts * 4));
  ASSERT_FALSE(cpu::should_stream(part * kExperts * 4));

  std::vector<float> logits(static_cast<size_t>(num_tokens * kExperts));
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = 0.01f * static_cast<float>(i * 7919 % 1013) - 5.0f;
  }
  const auto rows_of = [&](float* from, int64_t num) {
    return TensorView{from, {{num, kExperts}, DType::kF32}};
  };
  const auto expect_same = [](const Tensor& whole, const Tensor& of_part, int64_t index) {
    const size_t size = of_part.spec().storage_bytes();
    const auto* from =
        static_cast<const uint8_t*>(whole.data()) + static_cast<size_t>(index) * size;
    EXPECT_EQ(std::memcmp(from, of_part.data(), size), 0) << "part " << index;
  };
  const auto backward = [&](const RoutingTensor& of) {
    return moe_topk_gate_backward(*of.scores, of.topk_idx, of.topk_weights, of.topk_weights, 2.5f);
  };
  const MoeTopkGateOptions options{.routed_scaling_factor = 2.5f, .save_scores = true};
  for (const std::string& target : cpu_targets()) {
    set_cpu_target(target);
    const RoutingTensor whole =
        moe_topk_gate_forward(rows_of(logits.data(), num_tokens), kTopk, options);
    const Tensor grad_logits = backward(whole);
    for (int64_t i = 0; i < kParts; ++i) {
      const RoutingTensor of_part =
          moe_topk_gate_forward(rows_of(logits.data() + i * part * kExperts, part), kTopk, options);
      expect_same(whole.topk_idx, of_part.topk_idx, i);
      expect_same(whole.topk_weights, of_part.topk_weights, i);
      expect_same(*whole.scores, *of_part.scores, i);
      expect_same(grad_logits, backward(of_part), i);
    }
  }
  reset_runtime_config();
}

}  // namespace
}  // namespace tilekernels
