// topk_gate against what a C++ program would write: std::partial_sort over an array of indices,
// row by row, on the same number of threads.
//
// Prints one JSON line a shape, after comparing the ids: median and least microseconds of both and
// the ratio of the medians. On a machine that others use too, look at the least ones.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "tilekernels/config.h"
#include "tilekernels/moe.h"

namespace {

using tilekernels::DType;
using tilekernels::Tensor;

constexpr int kRepeats = 15;

struct Shape {
  int64_t num_tokens;
  int64_t num_experts;
  int num_topk;
};

constexpr Shape kShapes[] = {
    {1, 256, 8},    {128, 256, 8},  {4096, 256, 8},  {16384, 256, 8},
    {4096, 384, 8}, {4096, 128, 8}, {4096, 64, 6},   {4096, 32, 6},
    {4096, 16, 6},  {4096, 256, 1}, {4096, 512, 16}, {1024, 4096, 32},
};

void partial_sort_rows(const float* scores, int64_t* topk_idx, const Shape& shape, int64_t begin,
                       int64_t end) {
  std::vector<int32_t> columns(static_cast<size_t>(shape.num_experts));
  for (int64_t row = begin; row < end; ++row) {
    const float* const of_row = scores + row * shape.num_experts;
    std::iota(columns.begin(), columns.end(), 0);
    std::partial_sort(columns.begin(), columns.begin() + shape.num_topk, columns.end(),
                      [of_row](int32_t a, int32_t b) {
                        return of_row[a] > of_row[b] || (of_row[a] == of_row[b] && a < b);
                      });
    std::copy_n(columns.begin(), shape.num_topk, topk_idx + row * shape.num_topk);
  }
}

void partial_sort(const float* scores, int64_t* topk_idx, const Shape& shape, int num_threads) {
  std::vector<std::thread> threads;
  for (int t = 1; t < num_threads; ++t) {
    threads.emplace_back(partial_sort_rows, scores, topk_idx, shape,
                         shape.num_tokens * t / num_threads,
                         shape.num_tokens * (t + 1) / num_threads);
  }
  partial_sort_rows(scores, topk_idx, shape, 0, shape.num_tokens / num_threads);
  for (std::thread& thread : threads) thread.join();
}

template <class Call>
double microseconds(const Call& call) {
  const auto start = std::chrono::steady_clock::now();
  call();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) tilekernels::set_num_threads(std::atoi(argv[1]));
  const int num_threads = tilekernels::get_num_threads();
  std::mt19937 generator(1);
  std::normal_distribution<float> normal;
  for (const Shape& shape : kShapes) {
    const Tensor scores({{shape.num_tokens, shape.num_experts}, DType::kF32});
    auto* const values = static_cast<float*>(scores.data());
    std::generate_n(values, scores.spec().numel(), [&] { return normal(generator); });
    const Tensor topk_idx(tilekernels::topk_gate_spec(scores.spec(), shape.num_topk));
    auto* const ids = static_cast<int64_t*>(topk_idx.data());
    std::vector<int64_t> sorted(static_cast<size_t>(topk_idx.spec().numel()));

    // Threads of a small call cost more than its rows: the comparison starts none there.
    const int sort_threads = shape.num_tokens < 1024 ? 1 : num_threads;
    std::vector<double> ours;
    std::vector<double> theirs;
    for (int repeat = 0; repeat <= kRepeats; ++repeat) {
      const double us = microseconds([&] { topk_gate_out(topk_idx, scores, shape.num_topk); });
      const double sort_us =
          microseconds([&] { partial_sort(values, sorted.data(), shape, sort_threads); });
      if (!std::equal(sorted.begin(), sorted.end(), ids)) {
        std::fprintf(stderr, "the ids differ\n");
        return 1;
      }
      if (repeat == 0) continue;  // warm-up
      ours.push_back(us);
      theirs.push_back(sort_us);
    }
    std::sort(ours.begin(), ours.end());
    std::sort(theirs.begin(), theirs.end());
    const double us = ours[kRepeats / 2];
    const double sort_us = theirs[kRepeats / 2];
    std::printf(
        "{\"op\": \"topk_gate\", \"num_tokens\": %lld, \"num_experts\": %lld, \"num_topk\": %d, "
        "\"target\": \"%s\", \"threads\": %d, \"us\": %.2f, \"partial_sort_us\": %.2f, "
        "\"ratio\": %.2f, \"min_us\": %.2f, \"partial_sort_min_us\": %.2f}\n",
        static_cast<long long>(shape.num_tokens), static_cast<long long>(shape.num_experts),
        shape.num_topk, tilekernels::get_cpu_target().c_str(), num_threads, us, sort_us,
        sort_us / us, ours.front(), theirs.front());
  }
  return 0;
}
