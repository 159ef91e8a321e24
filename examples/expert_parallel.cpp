// Expert parallelism on one machine: ranks, one thread each, hold a share of the tokens and of the
// experts. Every rank routes its tokens, sends rows to the ranks that hold the experts, computes
// what it received and sends the results back. The outcome is that of one rank with all experts,
// byte for byte.
#include <tilekernels/tilekernels.h>

#include <barrier>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

namespace tk = tilekernels;

namespace {

constexpr int kRanks = 4;
constexpr int kExperts = 16;
constexpr int kLocalExperts = kExperts / kRanks;
constexpr int kTopk = 4;
constexpr int kTokens = 48;  // of a rank
constexpr int kHidden = 64;
constexpr int kAlignment = 8;  // rows that an expert's matrix product takes at once

template <class T>
T* data(const tk::Tensor& tensor) {
  return static_cast<T*>(tensor.data());
}
tk::TensorView f32(float* values, int64_t rows, int64_t cols) {
  return {values, {{rows, cols}, tk::DType::kF32}};
}
tk::TensorView i32(int32_t* values, const tk::Dims& shape) {
  return {values, {shape, tk::DType::kI32}};
}

// A number in [-1, 1) that depends on its place alone.
float number(uint64_t place) {
  place = (place + 1) * 0x9E3779B97F4A7C15u;
  place = (place ^ (place >> 29)) * 0xBF58476D1CE4E5B9u;
  return static_cast<float>(place >> 40) * 0x1p-23f - 1.0f;
}

// Tokens [first, first + count) of the batch, and the scores that a router gave them.
struct Batch {
  std::vector<float> x;
  std::vector<float> scores;
};
Batch make_batch(int first, int count) {
  Batch batch;
  for (int i = first * kHidden; i < (first + count) * kHidden; ++i) batch.x.push_back(number(i));
  for (int i = first * kExperts; i < (first + count) * kExperts; ++i) {
    batch.scores.push_back(std::fabs(number(1000000 + i)));
  }
  return batch;
}

// The chosen experts of every token and their weights.
struct Route {
  tk::Tensor topk_idx;
  tk::Tensor topk_weights;
};
Route route(Batch& batch, int tokens) {
  tk::Tensor topk_idx = tk::topk_gate(f32(batch.scores.data(), tokens, kExperts), kTopk);
  std::vector<float> chosen;
  for (int i = 0; i < tokens * kTopk; ++i) {
    const int64_t expert = data<int64_t>(topk_idx)[i];
    chosen.push_back(batch.scores[static_cast<size_t>(i / kTopk * kExperts + expert)]);
  }
  return {topk_idx, tk::normalize_weight(f32(chosen.data(), tokens, kTopk)).normalized_weights};
}

// A toy expert: every row times a matrix of the expert's own, negative results cut to a tenth.
void compute_expert(int expert, const float* x, float* y, int rows) {
  for (int row = 0; row < rows; ++row) {
    for (int col = 0; col < kHidden; ++col) {
      float sum = 0;
      for (int k = 0; k < kHidden; ++k) {
        const auto place = static_cast<uint64_t>((expert * kHidden + k) * kHidden + col);
        sum = std::fma(x[row * kHidden + k], number(2000000 + place), sum);
      }
      y[row * kHidden + col] = sum < 0 ? 0.1f * sum : sum;
    }
  }
}

// Rows sorted by expert, `mapping` says where, through the experts from `first_expert` on.
std::vector<float> compute_experts(const tk::FusedMapping& mapping, const tk::Tensor& fused,
                                   int first_expert) {
  std::vector<float> y(static_cast<size_t>(fused.spec().numel()));
  const auto experts = static_cast<int>(mapping.expert_start.spec().size(0));
  for (int expert = 0; expert < experts; ++expert) {
    const int begin = data<int32_t>(mapping.expert_start)[expert];
    const int end = data<int32_t>(mapping.expert_end)[expert];
    compute_expert(first_expert + expert, data<float>(fused) + begin * kHidden,
                   y.data() + begin * kHidden, end - begin);
  }
  return y;
}

// All experts on one rank.
std::vector<float> single_rank() {
  constexpr int kAll = kRanks * kTokens;
  Batch batch = make_batch(0, kAll);
  const Route routed = route(batch, kAll);
  const tk::FusedMapping mapping = tk::get_fused_mapping(routed.topk_idx, kExperts, 0, kAlignment);
  const tk::Tensor fused = tk::expand_to_fused(f32(batch.x.data(), kAll, kHidden),
                                               mapping.token_topk_to_pos, mapping.pos_to_expert);
  std::vector<float> y = compute_experts(mapping, fused, 0);
  const tk::Tensor out =
      tk::reduce_fused(f32(y.data(), fused.spec().size(0), kHidden), mapping.token_topk_to_pos,
                       {.topk_weights = routed.topk_weights});
  return {data<float>(out), data<float>(out) + kAll * kHidden};
}

// What a network does between ranks: everybody posts rows and how many go to whom, then fetches.
class Exchange {
 public:
  // Rows for rank 0, then for rank 1, …; `counts` of them. Returns the rows that came, by sender.
  template <class T>
  std::vector<T> all_to_all(int rank, const std::vector<T>& rows, const std::vector<int>& counts,
                            int row_elements, std::vector<int>* received = nullptr) {
    posts_[rank] = {rows.data(), &counts};
    barrier_.arrive_and_wait();
    std::vector<T> mine;
    if (received != nullptr) received->clear();
    for (const Post& post : posts_) {
      const std::vector<int>& of = *post.counts;
      const int before = std::accumulate(of.begin(), of.begin() + rank, 0);
      const T* from = static_cast<const T*>(post.rows) + before * row_elements;
      mine.insert(mine.end(), from, from + of[static_cast<size_t>(rank)] * row_elements);
      if (received != nullptr) received->push_back(of[static_cast<size_t>(rank)]);
    }
    barrier_.arrive_and_wait();
    return mine;
  }

 private:
  struct Post {
    const void* rows;
    const std::vector<int>* counts;
  };
  Post posts_[kRanks];
  std::barrier<> barrier_{kRanks};
};

// One rank of several: its tokens' results to `out`.
void parallel_rank(int rank, Exchange& exchange, float* out) {
  Batch batch = make_batch(rank * kTokens, kTokens);
  const Route routed = route(batch, kTokens);

  // Dispatch: rows sorted by expert are sorted by rank.
  const tk::FusedMapping sending = tk::get_fused_mapping(routed.topk_idx, kExperts, 0, 1);
  const tk::Tensor to_send = tk::expand_to_fused(f32(batch.x.data(), kTokens, kHidden),
                                                 sending.token_topk_to_pos, sending.pos_to_expert);
  std::vector<int> counts(kRanks);
  for (int expert = 0; expert < kExperts; ++expert) {
    counts[static_cast<size_t>(expert / kLocalExperts)] +=
        sending.num_tokens_per_expert_list[static_cast<size_t>(expert)];
  }
  const int64_t sent = to_send.spec().size(0);
  std::vector<int> received;
  const std::vector<float> rows(data<float>(to_send), data<float>(to_send) + sent * kHidden);
  const std::vector<int32_t> ids(data<int32_t>(sending.pos_to_expert),
                                 data<int32_t>(sending.pos_to_expert) + sent);
  std::vector<float> x = exchange.all_to_all(rank, rows, counts, kHidden, &received);
  const std::vector<int32_t> experts = exchange.all_to_all(rank, ids, counts, 1);

  // Compute: sorted again, from all senders, each expert's rows aligned.
  const auto count = static_cast<int64_t>(experts.size());
  std::vector<int64_t> local(experts.begin(), experts.end());
  for (int64_t& expert : local) expert -= rank * kLocalExperts;
  const tk::FusedMapping computing = tk::get_fused_mapping(
      tk::TensorView(local.data(), {{count, 1}, tk::DType::kI64}), kLocalExperts, 0, kAlignment);
  const tk::Tensor fused = tk::expand_to_fused(
      f32(x.data(), count, kHidden), computing.token_topk_to_pos, computing.pos_to_expert);
  std::vector<float> y = compute_experts(computing, fused, rank * kLocalExperts);

  // Back in the order in which the rows came: the mapping read the other way round.
  const int64_t positions = fused.spec().size(0);
  std::vector<int32_t> everywhere(experts.size(), 0);
  const tk::Tensor results = tk::expand_to_fused(
      f32(y.data(), positions, kHidden), i32(data<int32_t>(computing.pos_to_token), {positions, 1}),
      i32(everywhere.data(), {count}));
  const std::vector<float> finished(data<float>(results), data<float>(results) + count * kHidden);
  std::vector<float> returned = exchange.all_to_all(rank, finished, received, kHidden);

  // Combine.
  const tk::Tensor sums =
      tk::reduce_fused(f32(returned.data(), sent, kHidden), sending.token_topk_to_pos,
                       {.topk_weights = routed.topk_weights});
  std::memcpy(out, sums.data(), kTokens * kHidden * sizeof(float));
}

}  // namespace

int main() {
  const std::vector<float> alone = single_rank();
  std::vector<float> together(alone.size());
  Exchange exchange;
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < kRanks; ++rank) {
      float* out = together.data() + rank * kTokens * kHidden;
      ranks.emplace_back([rank, &exchange, out] { parallel_rank(rank, exchange, out); });
    }
  }
  const bool equal = std::memcmp(alone.data(), together.data(), alone.size() * sizeof(float)) == 0;
  std::printf("%d tokens, %d experts on %d ranks: %s the result of one rank\n", kRanks * kTokens,
              kExperts, kRanks, equal ? "byte for byte" : "NOT");
  return equal ? 0 : 1;
}
