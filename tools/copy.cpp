// Copies on several threads.
#include "copy.h"

#include <algorithm>
#include <cstring>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace tilekernels::tool {
namespace {

Tensor filled(int64_t size_bytes, int byte) {
  const Tensor memory(TensorSpec({std::max<int64_t>(size_bytes, 1)}, DType::kU8));
  std::memset(memory.data(), byte, static_cast<size_t>(memory.view().storage_bytes()));
  return memory;
}

char* bytes(const Tensor& tensor) { return static_cast<char*>(tensor.data()); }

#ifdef __SSE2__
constexpr bool kHasStreaming = true;

// Both pointers are aligned to 64 bytes.
void stream_copy(char* to, const char* from, int64_t size) {
  constexpr int64_t kLine = 64;
  const int64_t whole = size / kLine * kLine;
  for (int64_t i = 0; i < whole; i += kLine) {
    const auto* source = reinterpret_cast<const __m128i*>(from + i);
    auto* const target = reinterpret_cast<__m128i*>(to + i);
    const __m128i a = _mm_load_si128(source);
    const __m128i b = _mm_load_si128(source + 1);
    const __m128i c = _mm_load_si128(source + 2);
    const __m128i d = _mm_load_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  _mm_sfence();
  std::memcpy(to + whole, from + whole, static_cast<size_t>(size - whole));
}
#else
constexpr bool kHasStreaming = false;

void stream_copy(char* to, const char* from, int64_t size) {
  std::memcpy(to, from, static_cast<size_t>(size));
}
#endif

// The begin of part i of n, at a multiple of 64 bytes.
int64_t part_begin(int64_t size, int i, int n) {
  if (i == n) return size;
  return size / n * i / 64 * 64;
}

}  // namespace

Team::Team(int num_threads) {
  for (int i = 1; i < num_threads; ++i) threads_.emplace_back([this, i] { work(i); });
}

Team::~Team() {
  stop_ = true;
  round_.fetch_add(1);
  round_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Team::run(int num_threads, const std::function<void(int)>& body) {
  if (num_threads == 1) {
    body(0);
    return;
  }
  body_ = &body;
  num_running_ = num_threads;
  unfinished_.store(size() - 1);
  round_.fetch_add(1);
  round_.notify_all();
  body(0);
  for (int left = unfinished_.load(); left != 0; left = unfinished_.load()) {
    unfinished_.wait(left);
  }
}

void Team::work(int i) {
  for (int seen = 0;;) {
    round_.wait(seen);
    ++seen;
    if (stop_) return;
    if (i < num_running_) (*body_)(i);
    if (unfinished_.fetch_sub(1) == 1) unfinished_.notify_all();
  }
}

CopyBench::CopyBench(int64_t bytes_moved, Team& team)
    : team_(team),
      size_bytes_(std::max<int64_t>(bytes_moved / 2, 1)),
      from_(filled(size_bytes_, 1)),
      to_(filled(size_bytes_, 2)) {}

std::vector<CopyMethod> CopyBench::methods() const {
  std::vector<CopyMethod> methods;
  for (bool streaming : {false, true}) {
    if (streaming && !kHasStreaming) continue;
    methods.push_back({streaming, 1});
    if (team_.size() > 1) methods.push_back({streaming, team_.size()});
  }
  return methods;
}

void CopyBench::run(const CopyMethod& method) {
  team_.run(method.num_threads, [&](int i) {
    const int64_t begin = part_begin(size_bytes_, i, method.num_threads);
    const int64_t size = part_begin(size_bytes_, i + 1, method.num_threads) - begin;
    char* const to = bytes(to_) + begin;
    const char* const from = bytes(from_) + begin;
    if (method.streaming) {
      stream_copy(to, from, size);
    } else {
      std::memcpy(to, from, static_cast<size_t>(size));
    }
  });
}

CacheFlush::CacheFlush(int64_t cache_bytes, Team& team)
    : team_(team), memory_(filled(std::max<int64_t>(2 * cache_bytes, 64 << 20), 1)) {}

void CacheFlush::run() {
  const int64_t size = memory_.view().storage_bytes();
  team_.run(team_.size(), [&](int i) {
    uint64_t sum = 0;
    for (int64_t at = part_begin(size, i, team_.size()); at < part_begin(size, i + 1, team_.size());
         at += 64) {
      sum += static_cast<uint8_t>(bytes(memory_)[at]);
    }
    sum_.fetch_add(sum);
  });
}

}  // namespace tilekernels::tool
