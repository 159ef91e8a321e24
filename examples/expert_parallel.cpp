// Expert parallelism on one machine: ranks, one thread each, hold a share of the tokens and of the
// experts. Every rank routes its tokens, sends rows to the ranks that hold the experts, computes
// what it received and sends the results back. The outcome is that of one rank with all experts,
// byte for byte. First on host memory; then, where there are two GPUs or more and an NCCL, a rank a
// GPU.
#include <dlfcn.h>
#include <tilekernels/tilekernels.h>

#include <barrier>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

namespace tk = tilekernels;

namespace {

constexpr int kMaxRanks = 4;
constexpr int kExperts = 16;
constexpr int kTopk = 4;
constexpr int kTokens = 192;  // of all ranks
constexpr int kHidden = 64;
constexpr int kAlignment = 8;  // rows that an expert's matrix product takes at once

// ------------------------------ tensors in host or device memory

template <class T>
tk::Tensor to_device(const std::vector<T>& values, const tk::Dims& shape, tk::DType dtype,
                     tk::Device device) {
  tk::Tensor tensor(tk::TensorSpec(shape, dtype, device));
  tk::copy(tensor, {const_cast<T*>(values.data()), tk::TensorSpec(shape, dtype)});
  return tensor;
}
template <class T>
std::vector<T> to_host(const tk::Tensor& tensor) {
  std::vector<T> values(static_cast<size_t>(tensor.spec().numel()));
  tk::copy({values.data(), tk::TensorSpec(tensor.spec().shape, tensor.spec().dtype)}, tensor);
  return values;
}
tk::Tensor rows_of(const std::vector<float>& values, tk::Device device) {
  const auto rows = static_cast<int64_t>(values.size()) / kHidden;
  return to_device(values, {rows, kHidden}, tk::DType::kF32, device);
}

// ------------------------------ the model

// A number in [-1, 1) that depends on its place alone.
float number(uint64_t place) {
  place = (place + 1) * 0x9E3779B97F4A7C15u;
  place = (place ^ (place >> 29)) * 0xBF58476D1CE4E5B9u;
  return static_cast<float>(place >> 40) * 0x1p-23f - 1.0f;
}

// Tokens [first, first + count) of the batch, and the scores that a router gave them.
std::vector<float> make_tokens(int first, int count) {
  std::vector<float> x;
  for (int i = first * kHidden; i < (first + count) * kHidden; ++i) {
    x.push_back(number(static_cast<uint64_t>(i)));
  }
  return x;
}
std::vector<float> make_scores(int first, int count) {
  std::vector<float> scores;
  for (int i = first * kExperts; i < (first + count) * kExperts; ++i) {
    scores.push_back(std::fabs(number(static_cast<uint64_t>(1000000 + i))));
  }
  return scores;
}

// The chosen experts of every token and their weights.
struct Route {
  tk::Tensor topk_idx;
  tk::Tensor topk_weights;
};
Route route(int first, int count, tk::Device device) {
  const std::vector<float> scores = make_scores(first, count);
  tk::Tensor topk_idx =
      tk::topk_gate(to_device(scores, {count, kExperts}, tk::DType::kF32, device), kTopk);
  const std::vector<int64_t> idx = to_host<int64_t>(topk_idx);
  std::vector<float> chosen;
  for (size_t i = 0; i < idx.size(); ++i) {
    chosen.push_back(scores[i / kTopk * kExperts + static_cast<size_t>(idx[i])]);
  }
  return {topk_idx, tk::normalize_weight(to_device(chosen, {count, kTopk}, tk::DType::kF32, device))
                        .normalized_weights};
}

// A toy expert, on the host: every row times a matrix of the expert's own, negative results cut to
// a tenth.
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
tk::Tensor compute_experts(const tk::FusedMapping& mapping, const tk::Tensor& fused,
                           int first_expert) {
  const std::vector<int32_t> begin = to_host<int32_t>(mapping.expert_start);
  const std::vector<int32_t> end = to_host<int32_t>(mapping.psum_num_tokens_per_expert);
  const std::vector<float> x = to_host<float>(fused);
  std::vector<float> y(x.size());
  for (size_t expert = 0; expert < begin.size(); ++expert) {
    const int at = begin[expert] * kHidden;
    compute_expert(first_expert + static_cast<int>(expert), x.data() + at, y.data() + at,
                   end[expert] - begin[expert]);
  }
  return rows_of(y, fused.spec().device);
}

// All experts on one rank.
std::vector<float> single_rank() {
  const Route routed = route(0, kTokens, {});
  const tk::FusedMapping mapping = tk::get_fused_mapping(routed.topk_idx, kExperts, 0, kAlignment);
  const tk::Tensor fused = tk::expand_to_fused(rows_of(make_tokens(0, kTokens), {}),
                                               mapping.token_topk_to_pos, mapping.pos_to_expert);
  return to_host<float>(tk::reduce_fused(compute_experts(mapping, fused, 0),
                                         mapping.token_topk_to_pos,
                                         {.topk_weights = routed.topk_weights}));
}

// ------------------------------ what lies between ranks

// The NCCL of this machine, opened when the program runs.
struct Nccl {
  int (*comm_init_all)(void** comms, int count, const int* devices) = nullptr;
  int (*comm_destroy)(void* comm) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*send)(const void* from, size_t count, int type, int peer, void* comm,
              void* stream) = nullptr;
  int (*recv)(void* to, size_t count, int type, int peer, void* comm, void* stream) = nullptr;
  const char* (*get_error_string)(int result) = nullptr;

  // Whether there is one.
  bool open() {
    void* library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return false;
    bool complete = true;
    const auto find = [&](const char* name, auto& entry) {
      entry = reinterpret_cast<std::remove_reference_t<decltype(entry)>>(dlsym(library, name));
      complete = complete && entry != nullptr;
    };
    find("ncclCommInitAll", comm_init_all);
    find("ncclCommDestroy", comm_destroy);
    find("ncclGroupStart", group_start);
    find("ncclGroupEnd", group_end);
    find("ncclSend", send);
    find("ncclRecv", recv);
    find("ncclGetErrorString", get_error_string);
    return complete;
  }
  void check(int result) const {
    if (result != 0) throw std::runtime_error(std::string("NCCL: ") + get_error_string(result));
  }
};
constexpr int kNcclInt8 = 0;

// Ranks meet here: through host memory, or through NCCL where there are communicators.
class Exchange {
 public:
  Exchange(int num_ranks, const Nccl* nccl) : num_ranks_(num_ranks), nccl_(nccl) {
    if (nccl == nullptr) return;
    std::vector<int> devices(static_cast<size_t>(num_ranks));
    std::iota(devices.begin(), devices.end(), 0);
    nccl->check(nccl->comm_init_all(comms_, num_ranks, devices.data()));
  }
  ~Exchange() {
    for (void* comm : comms_) {
      if (comm != nullptr) nccl_->comm_destroy(comm);
    }
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  int num_ranks() const { return num_ranks_; }
  tk::Device device(int rank) const {
    return nccl_ == nullptr ? tk::Device{} : tk::Device{tk::DeviceType::kCuda, rank};
  }

  // How many rows come from every rank, when `counts` go to them.
  std::vector<int> all_to_all(int rank, const std::vector<int>& counts) {
    posts_[rank].counts = &counts;
    barrier_.arrive_and_wait();
    std::vector<int> received;
    for (int from = 0; from < num_ranks_; ++from) {
      received.push_back((*posts_[from].counts)[static_cast<size_t>(rank)]);
    }
    barrier_.arrive_and_wait();
    return received;
  }

  // Rows for rank 0, then for rank 1, …; returns those that came, by sender.
  tk::Tensor all_to_all(int rank, const tk::Tensor& rows, const std::vector<int>& counts,
                        const std::vector<int>& received) {
    tk::TensorSpec spec = rows.spec();
    spec.shape[0] = std::accumulate(received.begin(), received.end(), 0);
    tk::Tensor mine(spec);
    const int64_t row_bytes =
        tk::size_bytes(spec.dtype) * (spec.rank() > 1 ? spec.size(1) : int64_t{1});
    if (nccl_ != nullptr) {
      send_rows(comms_[rank], rows, counts, mine, received, row_bytes);
      return mine;
    }
    posts_[rank] = {rows.data(), &counts};
    barrier_.arrive_and_wait();
    auto* to = static_cast<char*>(mine.data());
    for (int from = 0; from < num_ranks_; ++from) {
      const Post& post = posts_[from];
      const int before = std::accumulate(post.counts->begin(), post.counts->begin() + rank, 0);
      const auto bytes = static_cast<size_t>(received[static_cast<size_t>(from)] * row_bytes);
      if (bytes > 0)
        std::memcpy(to, static_cast<const char*>(post.rows) + before * row_bytes, bytes);
      to += bytes;
    }
    barrier_.arrive_and_wait();
    return mine;
  }

 private:
  struct Post {
    const void* rows = nullptr;
    const std::vector<int>* counts = nullptr;
  };

  // On the default stream, behind the kernels that made the rows.
  void send_rows(void* comm, const tk::Tensor& rows, const std::vector<int>& counts,
                 const tk::Tensor& mine, const std::vector<int>& received,
                 int64_t row_bytes) const {
    const auto* from = static_cast<const char*>(rows.data());
    auto* to = static_cast<char*>(mine.data());
    nccl_->check(nccl_->group_start());
    for (int peer = 0; peer < num_ranks_; ++peer) {
      const auto sent = static_cast<size_t>(counts[static_cast<size_t>(peer)] * row_bytes);
      const auto taken = static_cast<size_t>(received[static_cast<size_t>(peer)] * row_bytes);
      if (sent > 0) nccl_->check(nccl_->send(from, sent, kNcclInt8, peer, comm, nullptr));
      if (taken > 0) nccl_->check(nccl_->recv(to, taken, kNcclInt8, peer, comm, nullptr));
      from += sent;
      to += taken;
    }
    nccl_->check(nccl_->group_end());
  }

  int num_ranks_;
  const Nccl* nccl_;
  void* comms_[kMaxRanks] = {};
  Post posts_[kMaxRanks];
  std::barrier<> barrier_{num_ranks_};
};

// ------------------------------ one rank of several

// Returns the results of its tokens.
std::vector<float> parallel_rank(int rank, Exchange& exchange) {
  const int ranks = exchange.num_ranks();
  const int tokens = kTokens / ranks;
  const int local_experts = kExperts / ranks;
  const tk::Device device = exchange.device(rank);
  const Route routed = route(rank * tokens, tokens, device);

  // Dispatch: rows sorted by expert are sorted by rank.
  const tk::FusedMapping sending = tk::get_fused_mapping(routed.topk_idx, kExperts, 0, 1);
  const tk::Tensor to_send =
      tk::expand_to_fused(rows_of(make_tokens(rank * tokens, tokens), device),
                          sending.token_topk_to_pos, sending.pos_to_expert);
  std::vector<int> counts(static_cast<size_t>(ranks));
  for (int expert = 0; expert < kExperts; ++expert) {
    counts[static_cast<size_t>(expert / local_experts)] +=
        sending.num_tokens_per_expert_list[static_cast<size_t>(expert)];
  }
  const std::vector<int> received = exchange.all_to_all(rank, counts);
  const tk::Tensor x = exchange.all_to_all(rank, to_send, counts, received);
  const tk::Tensor experts = exchange.all_to_all(rank, sending.pos_to_expert, counts, received);

  // Compute: sorted again, from all senders, each expert's rows aligned.
  std::vector<int64_t> local;
  for (int32_t expert : to_host<int32_t>(experts)) local.push_back(expert - rank * local_experts);
  const auto count = static_cast<int64_t>(local.size());
  const tk::FusedMapping computing = tk::get_fused_mapping(
      to_device(local, {count, 1}, tk::DType::kI64, device), local_experts, 0, kAlignment);
  const tk::Tensor fused =
      tk::expand_to_fused(x, computing.token_topk_to_pos, computing.pos_to_expert);
  const tk::Tensor y = compute_experts(computing, fused, rank * local_experts);

  // Back in the order in which the rows came: the mapping read the other way round.
  const tk::TensorView back(computing.pos_to_token.data(),
                            {{fused.spec().size(0), 1}, tk::DType::kI32, device});
  const tk::Tensor results = tk::expand_to_fused(y, back, experts);
  const tk::Tensor returned = exchange.all_to_all(rank, results, received, counts);

  // Combine.
  return to_host<float>(
      tk::reduce_fused(returned, sending.token_topk_to_pos, {.topk_weights = routed.topk_weights}));
}

// All ranks; whether their results are `alone`.
bool run_ranks(int num_ranks, const Nccl* nccl, const std::vector<float>& alone) {
  Exchange exchange(num_ranks, nccl);
  std::vector<std::vector<float>> parts(static_cast<size_t>(num_ranks));
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < num_ranks; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          parts[static_cast<size_t>(rank)] = parallel_rank(rank, exchange);
        } catch (const std::exception& error) {
          std::printf("rank %d: %s\n", rank, error.what());
          std::_Exit(1);  // the others wait for this one
        }
      });
    }
  }
  std::vector<float> together;
  for (const std::vector<float>& part : parts) {
    together.insert(together.end(), part.begin(), part.end());
  }
  const bool equal = together.size() == alone.size() &&
                     std::memcmp(alone.data(), together.data(), alone.size() * sizeof(float)) == 0;
  std::printf("%d tokens, %d experts on %d ranks, %s: %s the result of one rank\n", kTokens,
              kExperts, num_ranks, nccl != nullptr ? "a GPU each" : "threads of the host",
              equal ? "byte for byte" : "NOT");
  return equal;
}

// GPUs that take part: 4, 2 or none.
int num_gpus() {
  int count = 0;
  try {
    while (count < kMaxRanks) {
      tk::Tensor(tk::TensorSpec({1}, tk::DType::kF32, {tk::DeviceType::kCuda, count}));
      ++count;
    }
  } catch (const std::exception&) {
  }
  return count >= 4 ? 4 : count >= 2 ? 2 : 0;
}

}  // namespace

int main() {
  const std::vector<float> alone = single_rank();
  bool equal = run_ranks(kMaxRanks, nullptr, alone);
  Nccl nccl;
  const int gpus = num_gpus();
  if (gpus == 0 || !nccl.open()) {
    std::printf("no ranks on GPUs: %s\n", gpus == 0 ? "fewer than two GPUs" : "no libnccl.so.2");
  } else {
    equal = run_ranks(gpus, &nccl, alone) && equal;
  }
  return equal ? 0 : 1;
}
