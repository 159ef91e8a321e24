// topk_gate on every SIMD target against a stable sort, over shapes, kinds of rows and threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "tilekernels/config.h"
#include "tilekernels/error.h"
#include "tilekernels/moe.h"

namespace tilekernels {
namespace {

constexpr int64_t kGuard = -0x5A5A5A5A;

using Generator = std::mt19937;
struct Fill {
  const char* name;
  std::function<float(Generator&, int64_t)> score;  // by column
};

float normal(Generator& generator) { return std::normal_distribution<float>()(generator); }

const std::vector<Fill>& finite_fills() {
  static const std::vector<Fill> fills = {
      {"normal", [](Generator& g, int64_t) { return normal(g); }},
      {"coarse", [](Generator& g, int64_t) { return std::trunc(2 * normal(g)); }},
      {"equal", [](Generator&, int64_t) { return 0.25f; }},
      {"zeros of both signs", [](Generator& g, int64_t) { return g() % 2 == 0 ? 0.0f : -0.0f; }},
      {"rising", [](Generator&, int64_t column) { return static_cast<float>(column); }},
      {"falling", [](Generator&, int64_t column) { return static_cast<float>(-column); }},
      {"mostly masked", [](Generator& g, int64_t) { return g() % 20 == 0 ? normal(g) : -1e30f; }},
      {"best in one group of columns",
       [](Generator& g, int64_t column) { return column % 64 == 5 ? 9 + normal(g) : normal(g); }},
      {"any finite bits",
       [](Generator& g, int64_t) {
         for (;;) {
           const auto bits = static_cast<uint32_t>(g());
           float score;
           std::memcpy(&score, &bits, sizeof(score));
           if (std::isfinite(score)) return score;
         }
       }},
  };
  return fills;
}

// Numbers before NaN, larger ones first, then by column.
std::vector<int64_t> sorted_columns(const float* scores, int64_t num_experts, int64_t num_topk) {
  std::vector<int64_t> columns(static_cast<size_t>(num_experts));
  std::iota(columns.begin(), columns.end(), 0);
  std::stable_sort(columns.begin(), columns.end(), [scores](int64_t a, int64_t b) {
    if (std::isnan(scores[a]) || std::isnan(scores[b])) return !std::isnan(scores[a]);
    return scores[a] > scores[b];
  });
  columns.resize(static_cast<size_t>(num_topk));
  return columns;
}

class TopkGateTest : public testing::Test {
 protected:
  void TearDown() override { reset_runtime_config(); }

  // Runs the cpu backend on every target; the first faulty row, -1 for none.
  void expect_sorted(const std::vector<float>& scores, int64_t num_tokens, int64_t num_experts,
                     int num_topk, int64_t faulty_row, const std::string& what) {
    std::vector<int64_t> expected;
    for (int64_t token = 0; token < num_tokens; ++token) {
      const auto row = sorted_columns(scores.data() + token * num_experts, num_experts, num_topk);
      expected.insert(expected.end(), row.begin(), row.end());
    }
    const TensorView view(const_cast<float*>(scores.data()),
                          {{num_tokens, num_experts}, DType::kF32});
    Call call;
    call.backend = Backend::kCpu;
    for (const std::string& target : cpu_targets()) {
      set_cpu_target(target);
      std::vector<int64_t> out(expected.size() + 2, kGuard);
      const TensorView topk_idx(out.data() + 1, topk_gate_spec(view, num_topk));
      int64_t reported = -1;
      try {
        topk_gate_out(topk_idx, view, num_topk, call);
      } catch (const DataError& error) {
        reported = error.row();
      }
      const std::string where = what + ", " + std::to_string(num_experts) + " experts, top " +
                                std::to_string(num_topk) + " on " + target;
      ASSERT_EQ(reported, faulty_row) << where;
      ASSERT_EQ(out.front(), kGuard) << where;
      ASSERT_EQ(out.back(), kGuard) << where;
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_EQ(out[i + 1], expected[i])
            << where << ", token " << i / static_cast<size_t>(num_topk) << ", slot "
            << i % static_cast<size_t>(num_topk);
      }
    }
  }
};

TEST_F(TopkGateTest, EveryShapeAndKindOfRow) {
  if (cpu_targets().empty()) GTEST_SKIP() << "no SIMD target on this machine";
  Generator generator(20240229);
  for (const int64_t num_experts :
       {1,   2,   3,   5,   7,   8,   9,    15,   16,   17,   31,   32,
        33,  36,  63,  64,  65,  72,  96,   108,  127,  128,  129,  144,
        255, 256, 257, 384, 511, 513, 1000, 4095, 4096, 4097, 8192, 10001}) {
    const int64_t num_tokens = num_experts > 600 ? 3 : 19;
    for (const int num_topk : {1, 2, 3, 6, 7, 8, 9, 15, 16, 17, 24, 31, 32}) {
      if (num_topk > num_experts) continue;
      for (const Fill& fill : finite_fills()) {
        std::vector<float> scores(static_cast<size_t>(num_tokens * num_experts));
        for (size_t i = 0; i < scores.size(); ++i) {
          scores[i] = fill.score(generator, static_cast<int64_t>(i) % num_experts);
        }
        expect_sorted(scores, num_tokens, num_experts, num_topk, -1, fill.name);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(TopkGateTest, RowsThatAreNotFiniteAreReportedAndSorted) {
  if (cpu_targets().empty()) GTEST_SKIP() << "no SIMD target on this machine";
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  Generator generator(7);
  for (const int64_t num_experts : {1, 8, 13, 64, 100, 256, 4100}) {
    for (const float bad : {kNan, -kNan, kInf, -kInf}) {
      for (const int64_t num_bad : {int64_t{1}, num_experts / 2, num_experts}) {
        constexpr int64_t kTokens = 21;
        std::vector<float> scores(static_cast<size_t>(kTokens * num_experts));
        for (float& score : scores) score = normal(generator);
        // Rows 10 and 20: the lowest one is reported, and the rows between stay right.
        for (const int64_t row : {10, 20}) {
          for (int64_t i = 0; i < num_bad; ++i) {
            const auto column = static_cast<int64_t>(generator()) % num_experts;
            scores[static_cast<size_t>(row * num_experts + column)] = bad;
          }
          scores[static_cast<size_t>(row * num_experts + num_experts - 1)] = bad;
        }
        const int num_topk = static_cast<int>(std::min<int64_t>(num_experts, 8));
        expect_sorted(scores, kTokens, num_experts, num_topk, 10, std::to_string(bad));
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(TopkGateTest, ThreadsDoNotChangeAnything) {
  if (cpu_targets().empty()) GTEST_SKIP() << "no SIMD target on this machine";
  constexpr int64_t kTokens = 5000;
  constexpr int64_t kExperts = 72;
  Generator generator(11);
  std::vector<float> scores(static_cast<size_t>(kTokens * kExperts));
  for (float& score : scores) score = std::round(8 * normal(generator)) / 8;
  for (const int64_t faulty_row : {-1, 3217}) {
    if (faulty_row >= 0) {
      for (const int64_t row : {faulty_row, faulty_row + 1, int64_t{4999}}) {
        scores[static_cast<size_t>(row * kExperts + 71)] = std::numeric_limits<float>::quiet_NaN();
      }
    }
    for (const int threads : {1, 2, 5}) {
      set_num_threads(threads);
      expect_sorted(scores, kTokens, kExperts, 6, faulty_row, std::to_string(threads));
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace tilekernels
