// expand_to_fused on host threads: a thread reads a token's row once and copies it to all its
// positions, past the cache where the output is larger.
#include <algorithm>
#include <cstring>
#include <vector>

#include "ops/moe/expand_to_fused/op.h"
#include "runtime/cpu/cache.h"
#include "runtime/cpu/fault.h"
#include "runtime/cpu/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/moe/expand_to_fused/cpu.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/cpu/store-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tilekernels::cpu::HWY_NAMESPACE {
namespace {

void stream_zero(uint8* to, int64 num_bytes) {
  constexpr int64 kZeroBytes = 4096;
  alignas(64) static constexpr uint8 kZeros[kZeroBytes] = {};
  for (int64 i = 0; i < num_bytes; i += kZeroBytes) {
    stream_copy(to + i, kZeros, std::min(kZeroBytes, num_bytes - i));
  }
}

}  // namespace

// Copies the rows of the tokens [begin, end) to the positions that they own.
void expand_rows(const ExpandToFusedArgs& args, const ExpandToFusedShape& shape, const int32* owner,
                 bool stream, int64 begin, int64 end) {
  for (int64 token = begin; token < end; ++token) {
    const uint8* row = args.x + token * args.x_stride;
    for (int64 k = 0; k < shape.num_topk; ++k) {
      const int64 i = token * shape.num_topk + k;
      const int64 pos = args.token_topk_to_pos[i];
      if (pos < 0 || pos >= args.num_expanded || owner[pos] != i) continue;
      uint8* to = args.out + pos * shape.row_bytes;
      if (stream) {
        stream_copy(to, row, shape.row_bytes);
      } else {
        std::memcpy(to, row, static_cast<size_t>(shape.row_bytes));
      }
    }
  }
}

// Zeroes those of the positions [begin, end) that nothing owns.
void zero_rows(const ExpandToFusedArgs& args, const ExpandToFusedShape& shape, const int32* owner,
               bool stream, int64 begin, int64 end) {
  for (int64 pos = begin; pos < end;) {
    int64 last = pos;
    while (last < end && owner[last] < 0) ++last;
    uint8* to = args.out + pos * shape.row_bytes;
    if (stream) {
      stream_zero(to, (last - pos) * shape.row_bytes);
    } else {
      std::memset(to, 0, static_cast<size_t>((last - pos) * shape.row_bytes));
    }
    pos = last + 1;
  }
}

// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace tilekernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilekernels::cpu {
namespace {

HWY_EXPORT(expand_rows);
HWY_EXPORT(zero_rows);

// The entry that every position belongs to, or -1.
std::vector<int32> owners(const ExpandToFusedArgs& args, const ExpandToFusedShape& shape) {
  std::vector<int32> owner(static_cast<size_t>(args.padded_expanded), -1);
  const int64 entries = args.num_tokens * shape.num_topk;
  int64 bad = entries;
  for (int64 i = 0; i < entries; ++i) {
    const int64 pos = args.token_topk_to_pos[i];
    if (pos < 0) continue;
    if (pos >= args.num_expanded) {
      bad = std::min(bad, i);
    } else if (args.pos_to_expert[pos] >= 0) {
      owner[static_cast<size_t>(pos)] = static_cast<int32>(i);
    }
  }
  if (bad < entries) {
    note_fault(args.fault, bad / shape.num_topk, expand_op_id(shape),
               numerics::kFaultPositionOutOfRange);
  }
  return owner;
}

template <class Word>
void expand_sf(const ExpandToFusedArgs& args, const ExpandToFusedShape& shape, const int32* owner,
               int64 begin, int64 end) {
  // A cache line of a column at a time
  constexpr int64 kRows = 64 / sizeof(Word);
  static constexpr uint8 kZero[sizeof(Word)] = {};
  for (int64 first = begin; first < end; first += kRows) {
    const int64 num = std::min(end - first, kRows);
    // Where the words of a position come from: padding takes kZero, without a stride.
    const uint8* from[kRows];
    int64 strides[kRows];
    for (int64 i = 0; i < num; ++i) {
      const int64 entry = owner[first + i];
      const int64 token = entry / shape.num_topk;
      from[i] = entry < 0 ? kZero : args.sf.base + token * args.sf.row_stride;
      strides[i] = entry < 0 ? 0 : args.sf.col_stride;
    }
    uint8* const to = args.out_sf.base + first * args.out_sf.row_stride;
    const auto copy = [&](int64 i, int64 col) {
      std::memcpy(to + i * args.out_sf.row_stride + col * args.out_sf.col_stride,
                  from[i] + col * strides[i], sizeof(Word));
    };
    if (shape.sf_by_col != 0) {
      for (int64 col = 0; col < shape.sf_words; ++col) {
        for (int64 i = 0; i < num; ++i) copy(i, col);
      }
    } else {
      for (int64 i = 0; i < num; ++i) {
        for (int64 col = 0; col < shape.sf_words; ++col) copy(i, col);
      }
    }
  }
}

}  // namespace

void expand_to_fused(const ExpandToFusedArgs& args, const ExpandToFusedShape& shape,
                     const Launch&) {
  const auto expand = HWY_DYNAMIC_DISPATCH(expand_rows);
  const auto zero = HWY_DYNAMIC_DISPATCH(zero_rows);
  const std::vector<int32> owner = owners(args, shape);
  const bool stream = should_stream(args.num_expanded * shape.row_bytes);
  const double nanoseconds = 20.0 + 0.1 * shape.row_bytes;
  parallel_for(
      args.num_tokens, items_per_thread(nanoseconds * shape.num_topk),
      [&](int64 begin, int64 end) { expand(args, shape, owner.data(), stream, begin, end); });
  parallel_for(args.num_expanded, items_per_thread(nanoseconds), [&](int64 begin, int64 end) {
    zero(args, shape, owner.data(), stream, begin, end);
  });
  if (shape.sf_words == 0) return;
  const auto words = shape.sf_word_bytes == 4   ? expand_sf<uint32>
                     : shape.sf_word_bytes == 2 ? expand_sf<uint16>
                                                : expand_sf<uint8>;
  parallel_for(args.padded_expanded, items_per_thread(5.0 + 2.0 * shape.sf_words),
               [&](int64 begin, int64 end) { words(args, shape, owner.data(), begin, end); });
}

}  // namespace tilekernels::cpu
#endif
