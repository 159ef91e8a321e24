// expand_to_fused on CUDA. A block takes a span of a row, most often all of it, or of several rows
// where it zeroes what is free. Of few entries the blocks of all positions look for theirs. Of
// many, entries claim positions first; then the block of a token reads its row once and writes it
// to the positions that the token owns, and others zero what nobody owns. Words of scaling factors
// have blocks of their own in front.
#include "ops/moe/expand_to_fused/op.h"
#include "ops/moe/expand_to_fused/tile.h"
#include "runtime/cuda/device/fault.cuh"
#include "runtime/cuda/device/grid.cuh"
#include "runtime/cuda/device/memory.cuh"
#include "runtime/cuda/device/warp.cuh"

namespace tilekernels {

constexpr ExpandToFusedShape kShape = TILEKERNELS_SHAPE;
constexpr ExpandToFusedTile kTile = TILEKERNELS_TILE;

constexpr int32 kUnit = kTile.unit;
constexpr int32 kThreads = kTile.threads;
constexpr int32 kTopk = kShape.num_topk;
constexpr int32 kRows = expand_rows(kTile.phase, kShape.row_bytes);
constexpr int32 kLoads = expand_loads(kShape.row_bytes, kTile);
constexpr int32 kSpan = expand_span(kShape.row_bytes, kTile);
constexpr int32 kSpans = static_cast<int32>(expand_spans(kShape.row_bytes, kTile));
constexpr bool kIsWhole = kShape.row_bytes % kSpan == 0;

// One unit of a row; a single byte lies in a word of two.
template <int32 kBytes>
struct UnitOf {
  device::Words<numerics::max_of(kBytes, 2)> words;

  inline void load(const uint8* from) {
    if constexpr (kBytes == 1) {
      words.words[0] = *from;
    } else {
      words = device::load<kBytes>(from);
    }
  }
  inline void store(uint8* to) const {
    if constexpr (kBytes == 1) {
      *to = static_cast<uint8>(words.words[0]);
    } else {
      device::store(to, words);
    }
  }
};

// The bytes of a span that this thread takes, a block's width apart.
struct Span {
  UnitOf<kUnit> units[kLoads];
};

inline int32 offset_of(int32 span, int32 i) {
  return span * kSpan + (i * kThreads + static_cast<int32>(threadIdx.x)) * kUnit;
}
inline bool exists(int32 offset) { return kIsWhole || offset < kShape.row_bytes; }

inline void load_span(Span& to, const uint8* row, int32 span) {
#pragma unroll
  for (int32 i = 0; i < kLoads; ++i) {
    const int32 offset = offset_of(span, i);
    if (exists(offset)) to.units[i].load(row + offset);
  }
}

inline void store_span(const ExpandToFusedArgs& args, int64 pos, const Span& from, int32 span) {
  uint8* const row = args.out + pos * kShape.row_bytes;
#pragma unroll
  for (int32 i = 0; i < kLoads; ++i) {
    const int32 offset = offset_of(span, i);
    if (exists(offset)) from.units[i].store(row + offset);
  }
}

// Zeros the positions first + i of the bits i.
inline void zero_rows(const ExpandToFusedArgs& args, int64 first, uint32 bits, int32 span) {
#pragma unroll 1
  for (; bits != 0; bits &= bits - 1) {
    store_span(args, first + __ffs(static_cast<int32>(bits)) - 1, Span{}, span);
  }
}

inline void report(const ExpandToFusedArgs& args, int64 token) {
  device::note_fault(args.fault, token, expand_op_id(kShape), numerics::kFaultPositionOutOfRange);
}

inline void claim(const ExpandToFusedArgs& args) {
  const int64 i = int64{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= args.num_tokens * kTopk) return;
  const int32 pos = args.token_topk_to_pos[i];
  if (pos >= args.num_expanded) return report(args, i / kTopk);
  if (pos >= 0) atomicMax(args.owner + pos, static_cast<int32>(i));
}

// The entry that a position below num_expanded belongs to, once all have claimed theirs, or -1.
inline int32 claimed_by(const ExpandToFusedArgs& args, int64 pos) {
  const int32 expert = args.pos_to_expert[pos];
  const int32 owner = args.owner[pos];
  return expert >= 0 ? owner : -1;
}

// Without claims: the last entries of the positions first, first + 1, …, in shared memory. Begins
// and ends with a barrier.
template <int32 kCount>
inline void find_entries(const ExpandToFusedArgs& args, int64 first, int32 (&found)[kThreads]) {
  static_assert(kCount <= kThreads);
  if (threadIdx.x < kCount) found[threadIdx.x] = -1;
  __syncthreads();
  const auto entries = static_cast<int32>(args.num_tokens * kTopk);
#pragma unroll 4
  for (int32 i = static_cast<int32>(threadIdx.x); i < entries; i += kThreads) {
    const auto at = static_cast<uint64>(args.token_topk_to_pos[i] - first);
    if (at < kCount) atomicMax(found + at, i);
  }
  __syncthreads();
}

inline void expand_positions(const ExpandToFusedArgs& args, int64 first, int32 span) {
  __shared__ int32 found[kThreads];
  const int64 mine = first + device::lane_id();
  const bool is_here = device::lane_id() < kRows && mine < args.num_expanded;
  const bool has_expert = is_here && args.pos_to_expert[mine] >= 0;
  uint32 routed = __ballot_sync(device::kAllLanes, has_expert);
  zero_rows(args, first, __ballot_sync(device::kAllLanes, is_here && !has_expert), span);
  if (routed == 0) return;  // so do all threads of the block
  find_entries<kRows>(args, first, found);
#pragma unroll 1
  for (; routed != 0; routed &= routed - 1) {
    const int32 i = __ffs(static_cast<int32>(routed)) - 1;
    Span row{};
    if (found[i] >= 0) load_span(row, args.x + found[i] / kTopk * args.x_stride, span);
    store_span(args, first + i, row, span);
  }
}

inline void report_entries(const ExpandToFusedArgs& args) {
  const auto entries = static_cast<int32>(args.num_tokens * kTopk);
#pragma unroll 1
  for (int32 i = static_cast<int32>(threadIdx.x); i < entries; i += kThreads) {
    if (args.token_topk_to_pos[i] >= args.num_expanded) report(args, i / kTopk);
  }
}

inline void zero_positions(const ExpandToFusedArgs& args, int64 first, int32 span) {
  const int64 mine = first + device::lane_id();
  const bool is_free =
      device::lane_id() < kRows && mine < args.num_expanded && claimed_by(args, mine) < 0;
  zero_rows(args, first, __ballot_sync(device::kAllLanes, is_free), span);
}

inline void copy_token(const ExpandToFusedArgs& args, int64 token, int32 span) {
  // A lane an entry
  const int64 i = token * kTopk + device::lane_id();
  const int32 pos = device::lane_id() < kTopk ? args.token_topk_to_pos[i] : -1;
  const bool names = pos >= 0 && pos < args.num_expanded;
  if (__ballot_sync(device::kAllLanes, names) == 0) return;
  Span row{};
  load_span(row, args.x + token * args.x_stride, span);
  uint32 owned = __ballot_sync(device::kAllLanes, names && claimed_by(args, pos) == i);
#pragma unroll 1
  for (; owned != 0; owned &= owned - 1) {
    const int32 lane = __ffs(static_cast<int32>(owned)) - 1;
    store_span(args, __shfl_sync(device::kAllLanes, pos, lane), row, span);
  }
}

// The scaling factors of as many positions as the block has threads.
template <class Word>
inline void expand_sf(const ExpandToFusedArgs& args, int64 first) {
  constexpr int32 kBatch = 8;  // loads of a thread in flight
  constexpr int32 kWords = numerics::max_of(kShape.sf_words, 1);
  __shared__ int32 owners[kThreads];
  const auto thread = static_cast<int32>(threadIdx.x);
  const int64 pos = first + thread;
  if constexpr (kTile.phase == kExpandSmall) {
    find_entries<kThreads>(args, first, owners);
    if (pos >= args.num_expanded || args.pos_to_expert[pos] < 0) owners[thread] = -1;
  } else {
    owners[thread] = pos < args.num_expanded ? claimed_by(args, pos) : -1;
  }
  __syncthreads();
  // A thread has a word of each column, or the block goes along the rows.
  const auto word_at = [&](const ExpandSf& of, int64 row, int32 col) {
    return reinterpret_cast<Word*>(of.base + row * of.row_stride + col * of.col_stride);
  };
  const auto flat = [&](int32 i) { return static_cast<uint64>(i) * kThreads + threadIdx.x; };
  const auto row_of = [&](int32 i) {
    return kShape.sf_by_col != 0 ? thread : static_cast<int32>(flat(i) / kWords);
  };
  const auto col_of = [&](int32 i) {
    return kShape.sf_by_col != 0 ? i : static_cast<int32>(flat(i) % kWords);
  };
#pragma unroll 1
  for (int32 i = 0; i < kWords; i += kBatch) {
    Word words[kBatch];
#pragma unroll
    for (int32 k = 0; k < kBatch; ++k) {
      const int32 owner = i + k < kWords ? owners[row_of(i + k)] : -1;
      words[k] = owner >= 0 ? *word_at(args.sf, owner / kTopk, col_of(i + k)) : 0;
    }
#pragma unroll
    for (int32 k = 0; k < kBatch; ++k) {
      const int64 to = first + row_of(i + k);
      if (i + k < kWords && to < args.padded_expanded) {
        *word_at(args.out_sf, to, col_of(i + k)) = words[k];
      }
    }
  }
}

inline void expand_to_fused(const ExpandToFusedArgs& args) {
  device::wait_for_predecessor();
  if constexpr (kTile.phase == kExpandClaim) return claim(args);
  int64 block = blockIdx.x;
  if constexpr (kShape.sf_words != 0) {
    const int64 sf_blocks = expand_sf_blocks(kShape.sf_words, args.padded_expanded, kTile);
    if (block < sf_blocks) {
      if constexpr (kShape.sf_word_bytes == 4) {
        return expand_sf<uint32>(args, block * kThreads);
      } else if constexpr (kShape.sf_word_bytes == 2) {
        return expand_sf<uint16>(args, block * kThreads);
      } else {
        return expand_sf<uint8>(args, block * kThreads);
      }
    }
    block -= sf_blocks;
  }
  int64 row = static_cast<int64>(static_cast<uint32>(block) / kSpans);
  const auto span = static_cast<int32>(static_cast<uint32>(block) % kSpans);
  if constexpr (kTile.phase == kExpandSmall) {
    if (block == 0) report_entries(args);
    expand_positions(args, row * kRows, span);
  } else {
    const int64 groups = numerics::ceil_div(args.num_expanded, int64{kRows});
    if (row < groups) {
      zero_positions(args, row * kRows, span);
    } else {
      copy_token(args, row - groups, span);
    }
  }
}

}  // namespace tilekernels

extern "C" __global__ void __launch_bounds__(tilekernels::kThreads)
    expand_to_fused_kernel(const __grid_constant__ tilekernels::ExpandToFusedArgs args) {
  tilekernels::expand_to_fused(args);
}
