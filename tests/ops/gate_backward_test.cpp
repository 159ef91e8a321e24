// moe_topk_gate_backward beside its cases: what has no kernel, and that results do not depend on
// threads.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "errors.h"
#include "tilekernels/config.h"
#include "tilekernels/error.h"
#include "tilekernels/moe.h"

namespace tilekernels {
namespace {

constexpr int64_t kTokens = 3000;
constexpr int64_t kExperts = 64;
constexpr int64_t kTopk = 6;

struct Inputs {
  std::vector<float> scores = std::vector<float>(kTokens * kExperts);
  std::vector<int64_t> indices = std::vector<int64_t>(kTokens * kTopk);
  std::vector<float> weights = std::vector<float>(kTokens * kTopk, 0.25f);
  std::vector<float> grads = std::vector<float>(kTokens * kTopk);
  std::vector<uint8_t> mask = std::vector<uint8_t>(kTokens, 1);
  std::vector<float> sums = std::vector<float>(3 * kExperts);

  Inputs() {
    for (size_t i = 0; i < scores.size(); ++i) scores[i] = 0.01f * static_cast<float>(i % 311);
    for (size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<int64_t>(i * 37 % 64);
    for (size_t i = 0; i < grads.size(); ++i) grads[i] = 0.1f * static_cast<float>(i % 23) - 1;
    for (size_t i = 0; i < sums.size(); ++i) sums[i] = 0.1f * static_cast<float>(i % 19) - 1;
  }

  Tensor run(MoeTopkGateBackwardOptions options) {
    const Dims slots{kTokens, kTopk};
    options.mask = TensorView{mask.data(), {{kTokens}, DType::kBool}};
    options.grad_scores_sum = TensorView{sums.data(), {{3, kExperts}, DType::kF32}};
    return moe_topk_gate_backward({scores.data(), {{kTokens, kExperts}, DType::kF32}},
                                  {indices.data(), {slots, DType::kI64}},
                                  {weights.data(), {slots, DType::kF32}},
                                  {grads.data(), {slots, DType::kF32}}, 2.5f, options);
  }
};

TEST(GateBackward, SoftmaxIsRefusedByName) {
  Inputs inputs;
  EXPECT_EQ(error_of<Unsupported>([&] { inputs.run({.scoring_func = ScoringFunc::kSoftmax}); }),
            "[moe_topk_gate_backward] scoring_func must be one with kernels, sqrtsoftplus or "
            "sigmoid, got softmax");
}

TEST(GateBackward, ThreadsDoNotShow) {
  Inputs inputs;
  inputs.indices[2000 * kTopk] = -7;
  inputs.indices[2500 * kTopk] = kExperts;
  std::vector<std::vector<uint8_t>> results;
  for (int threads : {1, 4}) {
    set_num_threads(threads);
    EXPECT_THROW(
        try { inputs.run({}); } catch (const DataError& error) {
          EXPECT_EQ(error.row(), 2000);
          throw;
        },
        DataError);
    inputs.indices[2000 * kTopk] = inputs.indices[2500 * kTopk] = -1;
    const Tensor grads = inputs.run({});
    const auto* bytes = static_cast<const uint8_t*>(grads.data());
    results.emplace_back(bytes, bytes + grads.spec().storage_bytes());
    inputs.indices[2000 * kTopk] = -7;
    inputs.indices[2500 * kTopk] = kExperts;
  }
  reset_runtime_config();
  EXPECT_EQ(results[0], results[1]);
}

}  // namespace
}  // namespace tilekernels
