// reduce_fused on SIMD lanes: whole rows a thread; all rows of a token are read side by side, a
// stretch of columns at a time.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "ops/moe/reduce_fused/op.h"
#include "runtime/cpu/cache.h"
#include "runtime/cpu/fault.h"
#include "runtime/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/moe/reduce_fused/cpu.cpp"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "numerics/formats-inl.h"
#include "runtime/cpu/store-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tilekernels::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
namespace nm = numerics::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 8>;
using DU16 = nm::U16Of<DF>;
using DU8 = nm::U8Of<DF>;
constexpr DF kF;
constexpr DU16 kU16;
constexpr DU8 kU8;
using VF = hn::Vec<DF>;
using Pair = nm::Pair<DF>;
using Quad = nm::Quad<DF>;
constexpr int64 kLanes = static_cast<int64>(hn::MaxLanes(kF));
constexpr int64 kStep = 4 * kLanes;  // columns at a time

template <int32 kDType>
using Element =
    std::conditional_t<kDType == numerics::kDTypeF32, float,
                       std::conditional_t<kDType == numerics::kDTypeE4M3, uint8, uint16>>;

// Zipped, but for fp32 in memory order.
template <int32 kDType>
HWY_INLINE Quad load(const Element<kDType>* x) {
  if constexpr (kDType == numerics::kDTypeF32) {
    return {{hn::LoadU(kF, x), hn::LoadU(kF, x + kLanes)},
            {hn::LoadU(kF, x + 2 * kLanes), hn::LoadU(kF, x + 3 * kLanes)}};
  } else if constexpr (kDType == numerics::kDTypeBF16) {
    return {nm::widen_bf16(kF, hn::LoadU(kU16, x)),
            nm::widen_bf16(kF, hn::LoadU(kU16, x + 2 * kLanes))};
  } else if constexpr (kDType == numerics::kDTypeF16) {
    return {nm::widen_f16(kF, hn::LoadU(kU16, x)),
            nm::widen_f16(kF, hn::LoadU(kU16, x + 2 * kLanes))};
  } else {
    return nm::widen_e4m3(kF, hn::LoadU(kU8, x));
  }
}

template <int32 kXDtype, int32 kOutDtype>
HWY_INLINE void store_row(const Quad& y, bool stream, Element<kOutDtype>* out) {
  if constexpr (kOutDtype == numerics::kDTypeF32) {
    store(stream, nm::canonical(kF, y.lower.lo), kF, out);
    store(stream, nm::canonical(kF, y.lower.hi), kF, out + kLanes);
    store(stream, nm::canonical(kF, y.upper.lo), kF, out + 2 * kLanes);
    store(stream, nm::canonical(kF, y.upper.hi), kF, out + 3 * kLanes);
  } else if constexpr (kOutDtype == numerics::kDTypeBF16) {
    store(stream, nm::narrow_bf16(kF, y.lower), kU16, out);
    store(stream, nm::narrow_bf16(kF, y.upper), kU16, out + 2 * kLanes);
  } else if constexpr (kOutDtype == numerics::kDTypeF16) {
    store(stream, nm::narrow_f16(kF, y.lower), kU16, out);
    store(stream, nm::narrow_f16(kF, y.upper), kU16, out + 2 * kLanes);
  } else if constexpr (kXDtype == numerics::kDTypeF32) {
    const Quad zipped{nm::zip_f32(kF, y.lower.lo, y.lower.hi),
                      nm::zip_f32(kF, y.upper.lo, y.upper.hi)};
    store(stream, nm::narrow_e4m3(kF, zipped), kU8, out);
  } else {
    store(stream, nm::narrow_e4m3(kF, y), kU8, out);
  }
}

// The rows of a token that count, and their factors.
struct Terms {
  const uint8* rows[kWeightSlots];
  float factors[kWeightSlots];
  int32 count = 0;
  float sf = 1.0f;
};

HWY_INLINE void add(Quad& sum, const Quad& x, VF factor) {
  sum.lower.lo = hn::MulAdd(x.lower.lo, factor, sum.lower.lo);
  sum.lower.hi = hn::MulAdd(x.lower.hi, factor, sum.lower.hi);
  sum.upper.lo = hn::MulAdd(x.upper.lo, factor, sum.upper.lo);
  sum.upper.hi = hn::MulAdd(x.upper.hi, factor, sum.upper.hi);
}

HWY_INLINE Quad zero_sum() {
  const VF zero = hn::Zero(kF);
  return {{zero, zero}, {zero, zero}};
}

HWY_INLINE Quad scaled(const Quad& sum, float sf) {
  const VF factor = hn::Set(kF, sf);
  return nm::map(sum, [&](VF v) { return hn::Mul(v, factor); });
}

// Rows that are read side by side are more than hardware prefetchers follow well. What is ahead of
// all of them stays in a first-level cache.
constexpr int64 kBytesAhead = 16 << 10;
constexpr int64 kMostBytesAhead = 2048;  // of a row

// `next`: the terms of the token that follows.
template <int32 kXDtype, int32 kOutDtype>
void reduce_token(const Terms& terms, const Terms& next, int64 hidden, bool stream,
                  Element<kOutDtype>* out) {
  using X = Element<kXDtype>;
  constexpr auto kBytes = static_cast<int64>(sizeof(X));
  const auto row = [&](int32 k) { return reinterpret_cast<const X*>(terms.rows[k]); };
  int64 col = 0;
  // Up to column `end`; `offset` is that of the bytes to prefetch.
  const auto add_steps = [&](int64 end, const Terms& ahead, int64 offset) {
    // Two steps share the factors.
    for (; col + 2 * kStep <= end; col += 2 * kStep) {
      for (int32 k = 0; k < ahead.count; ++k) {
        const uint8* const at = ahead.rows[k] + (offset + col * kBytes);
        for (int64 i = 0; i < 2 * kStep * kBytes; i += kLineBytes) hwy::Prefetch(at + i);
      }
      Quad first = zero_sum();
      Quad second = zero_sum();
      for (int32 k = 0; k < terms.count; ++k) {
        const VF factor = hn::Set(kF, terms.factors[k]);
        add(first, load<kXDtype>(row(k) + col), factor);
        add(second, load<kXDtype>(row(k) + col + kStep), factor);
      }
      store_row<kXDtype, kOutDtype>(scaled(first, terms.sf), stream, out + col);
      store_row<kXDtype, kOutDtype>(scaled(second, terms.sf), stream, out + col + kStep);
    }
  };
  const int64 bytes_ahead =
      std::min({kBytesAhead / std::max(terms.count, 1), kMostBytesAhead, hidden * kBytes});
  add_steps(hidden - bytes_ahead / kBytes, terms, bytes_ahead);
  add_steps(hidden, next, bytes_ahead - hidden * kBytes);
  for (; col < hidden; col += kStep) {
    const int64 left = std::min(kStep, hidden - col);
    Quad sum = zero_sum();
    for (int32 k = 0; k < terms.count; ++k) {
      X x[kStep] = {};
      std::memcpy(x, row(k) + col, static_cast<size_t>(left) * sizeof(X));
      add(sum, load<kXDtype>(x), hn::Set(kF, terms.factors[k]));
    }
    Element<kOutDtype> results[kStep];
    store_row<kXDtype, kOutDtype>(scaled(sum, terms.sf), false, results);
    std::memcpy(out + col, results, static_cast<size_t>(left) * sizeof(results[0]));
  }
}

using ReduceToken = void(const Terms& terms, const Terms& next, int64 hidden, bool stream,
                         uint8* out);
template <int32 kXDtype, int32 kOutDtype>
void reduce_bytes(const Terms& terms, const Terms& next, int64 hidden, bool stream, uint8* out) {
  reduce_token<kXDtype, kOutDtype>(terms, next, hidden, stream,
                                   reinterpret_cast<Element<kOutDtype>*>(out));
}

ReduceToken* choose(const ReduceFusedShape& shape) {
  using namespace numerics;
  const bool narrows = shape.out_dtype == kDTypeE4M3;
  switch (shape.x_dtype) {
    case kDTypeF32:
      return narrows ? reduce_bytes<kDTypeF32, kDTypeE4M3> : reduce_bytes<kDTypeF32, kDTypeF32>;
    case kDTypeBF16:
      return narrows ? reduce_bytes<kDTypeBF16, kDTypeE4M3> : reduce_bytes<kDTypeBF16, kDTypeBF16>;
    case kDTypeF16:
      return narrows ? reduce_bytes<kDTypeF16, kDTypeE4M3> : reduce_bytes<kDTypeF16, kDTypeF16>;
    default:
      return reduce_bytes<kDTypeE4M3, kDTypeE4M3>;
  }
}

}  // namespace

// Returns the first token of [begin, end) with a position out of range, or end.
int64 reduce_tokens(const ReduceFusedArgs& args, const ReduceFusedShape& shape, bool stream,
                    int64 begin, int64 end) {
  ReduceToken* const reduce = choose(shape);
  const int64 row_bytes = int64{shape.hidden} * reduced_bytes(shape.out_dtype);
  int64 bad = end;
  const auto read_terms = [&](int64 token, Terms& terms) {
    terms.count = 0;
    if (token == end) return;
    if (args.sf != nullptr) terms.sf = *args.sf;
    for (int64 k = 0; k < shape.num_topk; ++k) {
      const int64 i = token * shape.num_topk + k;
      const int64 pos = args.token_topk_to_pos[i];
      if (pos >= args.num_expanded) bad = std::min(bad, token);
      if (pos < 0 || pos >= args.num_expanded) continue;
      float factor = args.topk_weights != nullptr ? args.topk_weights[i] : 1.0f;
      if (args.x_sf != nullptr) factor *= args.x_sf[pos];
      terms.rows[terms.count] = args.x + pos * args.x_stride;
      terms.factors[terms.count++] = factor;
    }
  };
  Terms terms[2];  // of even and odd tokens
  read_terms(begin, terms[begin % 2]);
  for (int64 token = begin; token < end; ++token) {
    Terms& next = terms[(token + 1) % 2];
    read_terms(token + 1, next);
    reduce(terms[token % 2], next, shape.hidden, stream, args.out + token * row_bytes);
  }
  return bad;
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace tilekernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilekernels::cpu {
namespace {

HWY_EXPORT(reduce_tokens);

}  // namespace

void reduce_fused(const ReduceFusedArgs& args, const ReduceFusedShape& shape, const Launch&) {
  const auto reduce = HWY_DYNAMIC_DISPATCH(reduce_tokens);
  const int64 row_bytes = int64{shape.hidden} * reduced_bytes(shape.out_dtype);
  const bool stream = should_stream(args.num_tokens * row_bytes) &&
                      HWY_STATIC_DISPATCH(is_streamable)(args.out, row_bytes, row_bytes);
  const double nanoseconds = 20.0 + 0.1 * shape.hidden * shape.num_topk;
  parallel_for(args.num_tokens, items_per_thread(nanoseconds), [&](int64 begin, int64 end) {
    const int64 token = reduce(args, shape, stream, begin, end);
    if (token == end) return;
    note_fault(args.fault, token, kReduceFusedId, numerics::kFaultPositionOutOfRange);
  });
}

}  // namespace tilekernels::cpu
#endif
