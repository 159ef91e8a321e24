// Stores that bypass the cache, for outputs that `should_stream` names.
//
// parallel_for orders them before it returns. Outputs shorter than the cache are better stored
// plainly: their reader finds them there.
#include <cstdint>
#include <cstring>

#if defined(TILEKERNELS_RUNTIME_CPU_STORE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TILEKERNELS_RUNTIME_CPU_STORE_INL_H_
#undef TILEKERNELS_RUNTIME_CPU_STORE_INL_H_
#else
#define TILEKERNELS_RUNTIME_CPU_STORE_INL_H_
#endif

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tilekernels::cpu::HWY_NAMESPACE {
namespace {

// A whole line at a time is what the write-combining buffers pass on without reading memory.
constexpr int64_t kLineBytes = 64;

/// Whether rows that start at `row` and follow each other at `pitch_bytes` can be written by
/// `store<true>` throughout: `row_bytes` is then whole lines, and so is every row's address.
inline bool is_streamable(const void* row, int64_t pitch_bytes, int64_t row_bytes) {
  const auto address = reinterpret_cast<uintptr_t>(row);
  return (address | static_cast<uintptr_t>(pitch_bytes) | static_cast<uintptr_t>(row_bytes)) %
             kLineBytes ==
         0;
}

/// Stores a vector. kStream: past the cache; `to` is then a multiple of the vector's bytes.
template <bool kStream, class D>
HWY_INLINE void store(hwy::HWY_NAMESPACE::Vec<D> v, D d, hwy::HWY_NAMESPACE::TFromD<D>* to) {
  // Sanitizers do not see streaming stores.
  if constexpr (kStream && !HWY_IS_ASAN && !HWY_IS_MSAN && !HWY_IS_TSAN) {
    hwy::HWY_NAMESPACE::Stream(v, d, to);
  } else {
    hwy::HWY_NAMESPACE::StoreU(v, d, to);
  }
}

/// The same, where only the call knows.
template <class D>
HWY_INLINE void store(bool stream, hwy::HWY_NAMESPACE::Vec<D> v, D d,
                      hwy::HWY_NAMESPACE::TFromD<D>* to) {
  if (stream) {
    store<true>(v, d, to);
  } else {
    store<false>(v, d, to);
  }
}

/// Copies bytes from a buffer in the cache past the cache, at any alignment and length: whole
/// lines by streaming stores, the first and the last piece by plain ones.
inline void stream_copy(void* to, const void* from, int64_t num_bytes) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::CappedTag<uint8_t, kLineBytes> d;
  const int64_t num_lanes = static_cast<int64_t>(hn::Lanes(d));
  auto* out = static_cast<uint8_t*>(to);
  const auto* in = static_cast<const uint8_t*>(from);

  int64_t head = -static_cast<int64_t>(reinterpret_cast<uintptr_t>(out) % kLineBytes);
  if (head != 0) head += kLineBytes;
  if (head > num_bytes) head = num_bytes;
  const int64_t end = head + (num_bytes - head) / kLineBytes * kLineBytes;

  std::memcpy(out, in, static_cast<size_t>(head));
  for (int64_t i = head; i < end; i += num_lanes) {
    store<true>(hn::LoadU(d, in + i), d, out + i);
  }
  std::memcpy(out + end, in + end, static_cast<size_t>(num_bytes - end));
}

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace tilekernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
