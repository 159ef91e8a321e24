// The fused ops together: what the allocating form of the mapping returns, and that results do not
// depend on threads.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "errors.h"
#include "tilekernels/config.h"
#include "tilekernels/moe.h"

namespace tilekernels {
namespace {

std::vector<int64_t> routing(int64_t entries, int experts) {
  std::vector<int64_t> indices(static_cast<size_t>(entries));
  uint64_t state = 1;
  for (int64_t& index : indices) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    index = static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(experts + 1)) - 1;
  }
  return indices;
}

TensorView view_of(std::vector<int64_t>& indices, int64_t topk) {
  return {indices.data(), {{static_cast<int64_t>(indices.size()) / topk, topk}, DType::kI64}};
}

const int32_t* words(const Tensor& tensor) { return static_cast<const int32_t*>(tensor.data()); }

TEST(FusedMapping, TheListIsThereWhereTheCallWaited) {
  std::vector<int64_t> indices = routing(300, 8);
  const TensorView topk_idx = view_of(indices, 3);
  const FusedMapping cut = get_fused_mapping(topk_idx, 8, 0, 16);
  const std::vector<int32_t>& list = cut.num_tokens_per_expert_list;
  ASSERT_EQ(list.size(), 8u);
  EXPECT_EQ(std::memcmp(list.data(), words(cut.num_tokens_per_expert), 8 * 4), 0);
  const int64_t used = std::accumulate(list.begin(), list.end(), int64_t{0});
  EXPECT_EQ(used % 16, 0);
  for (const Tensor* by_pos : {&cut.pos_to_expert, &cut.pos_to_token, &cut.pos_to_token_topk}) {
    EXPECT_EQ(by_pos->spec().shape, Dims({used}));
  }

  const FusedMapping whole = get_fused_mapping(topk_idx, 8, 0, 16, true);
  EXPECT_TRUE(whole.num_tokens_per_expert_list.empty());
  EXPECT_EQ(whole.pos_to_expert.spec().shape, Dims({(300 + 15 * 8) / 16 * 16}));
  EXPECT_EQ(std::memcmp(words(whole.pos_to_token), words(cut.pos_to_token),
                        static_cast<size_t>(used) * 4),
            0);
  const FusedMapping given = get_fused_mapping(topk_idx, 8, used + 5, 16);
  EXPECT_TRUE(given.num_tokens_per_expert_list.empty());
  EXPECT_EQ(words(given.pos_to_token)[used + 4], -1);
}

TEST(FusedMapping, ASlicedTensorKeepsTheMemory) {
  std::vector<int64_t> indices = routing(64, 4);
  Tensor pos_to_token;
  {
    const FusedMapping mapping = get_fused_mapping(view_of(indices, 2), 4, 0, 8);
    pos_to_token = mapping.pos_to_token;
  }
  int32_t most = -1;
  for (int64_t i = 0; i < pos_to_token.spec().numel(); ++i) {
    most = std::max(most, words(pos_to_token)[i]);
  }
  EXPECT_LT(most, 32);
  EXPECT_GE(most, 0);
}

// Enough entries for several parts, rows for several threads.
// A single column's stride means nothing, but its padding is written all the same.
TEST(ExpandToFused, ThePaddingOfASingleColumnMayNotOverlap) {
  std::vector<int32_t> memory(5 + 5, -1);
  const TensorView sf(memory.data(), TensorSpec({5, 1}, DType::kF32));
  const TensorView pos_to_expert(memory.data() + 5, TensorSpec({5}, DType::kI32));
  std::vector<int32_t> positions(2);
  const TensorView token_topk_to_pos(positions.data(), TensorSpec({1, 2}, DType::kI32));
  const Tensor x(TensorSpec({1, 32}, DType::kE4M3));
  const Tensor x_sf(TensorSpec({1, 1}, DType::kF32));
  const Tensor data(TensorSpec({5, 32}, DType::kE4M3));
  EXPECT_EQ(error_of<std::invalid_argument>([&] {
              expand_to_fused_with_sf_out({data, sf}, {x, x_sf}, 32, token_topk_to_pos,
                                          pos_to_expert, {.col_major = true});
            }),
            "[expand_to_fused_with_sf] out.sf must not overlap pos_to_expert, got shared memory");
}

TEST(Fused, ThreadsDoNotShow) {
  constexpr int64_t kTokens = 20000;
  constexpr int64_t kHidden = 40;
  std::vector<int64_t> indices = routing(kTokens * 4, 16);
  const TensorView topk_idx = view_of(indices, 4);
  std::vector<float> x(kTokens * kHidden);
  std::iota(x.begin(), x.end(), 1.0f);
  const TensorView rows(x.data(), {{kTokens, kHidden}, DType::kF32});
  std::vector<std::vector<uint8_t>> results;
  for (int threads : {1, 4}) {
    set_num_threads(threads);
    const FusedMapping mapping = get_fused_mapping(topk_idx, 16, 0, 32);
    const Tensor fused = expand_to_fused(rows, mapping.token_topk_to_pos, mapping.pos_to_expert);
    const Tensor sums = reduce_fused(fused, mapping.token_topk_to_pos);
    std::vector<uint8_t> all;
    for (const Tensor* tensor : {&mapping.pos_to_token_topk, &fused, &sums}) {
      const auto* bytes = static_cast<const uint8_t*>(tensor->data());
      all.insert(all.end(), bytes, bytes + tensor->spec().storage_bytes());
    }
    results.push_back(std::move(all));
    // Every row comes back as often as it was routed.
    for (int64_t token = 0; token < kTokens; token += 777) {
      float times = 0;
      for (int k = 0; k < 4; ++k) {
        times += indices[static_cast<size_t>(token * 4 + k)] >= 0 ? 1.0f : 0.0f;
      }
      EXPECT_EQ(static_cast<const float*>(sums.data())[token * kHidden + 7],
                times * x[static_cast<size_t>(token * kHidden + 7)]);
    }
  }
  reset_runtime_config();
  EXPECT_EQ(results[0], results[1]);
}

}  // namespace
}  // namespace tilekernels
