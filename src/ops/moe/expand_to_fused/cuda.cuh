// expand_to_fused on CUDA. A warp takes a span of a row: of a token, which it reads once and
// writes to the positions that the token owns, or of some positions, of which it zeroes those that
// nobody owns.
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
constexpr int32 kTopk = kShape.num_topk;
constexpr int32 kSpans = static_cast<int32>(expand_spans(kShape.row_bytes, kUnit));
constexpr bool kIsWhole = kShape.row_bytes % expand_span(kUnit) == 0;

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
using Unit = UnitOf<kUnit>;

// The bytes of a span that this lane takes: kExpandLoads of them, a warp's width apart.
struct Span {
  Unit units[kExpandLoads];
};

inline int32 offset_of(int32 span, int32 i) {
  return span * expand_span(kUnit) +
         (i * device::kWarpLanes + static_cast<int32>(device::lane_id())) * kUnit;
}
inline bool exists(int32 offset) { return kIsWhole || offset < kShape.row_bytes; }

inline void load_span(Span& to, const uint8* row, int32 span) {
#pragma unroll
  for (int32 i = 0; i < kExpandLoads; ++i) {
    const int32 offset = offset_of(span, i);
    if (exists(offset)) to.units[i].load(row + offset);
  }
}

inline void store_span(uint8* row, const Span& from, int32 span) {
#pragma unroll
  for (int32 i = 0; i < kExpandLoads; ++i) {
    const int32 offset = offset_of(span, i);
    if (exists(offset)) from.units[i].store(row + offset);
  }
}

inline void zero_span(uint8* row, int32 span) { store_span(row, Span{}, span); }

inline void report(const ExpandToFusedArgs& args, int64 token) {
  device::note_fault(args.fault, token, expand_op_id(kShape), numerics::kFaultPositionOutOfRange);
}

inline uint8* row_of(const ExpandToFusedArgs& args, int64 pos) {
  return args.out + pos * kShape.row_bytes;
}

// The warp of this thread in the whole grid, as a row of work and a span.
inline device::GridPlace warp_place() {
  constexpr int32 kWarps = kExpandThreads / device::kWarpLanes;
  const int64 warp = int64{blockIdx.x} * kWarps + threadIdx.x / device::kWarpLanes;
  return {warp / kSpans, static_cast<int32>(warp % kSpans)};
}

// Few entries: the warp of a position finds its owner, and copies or zeroes.
inline void expand_small(const ExpandToFusedArgs& args) {
  const device::GridPlace place = warp_place();
  const auto entries = static_cast<int32>(args.num_tokens * kTopk);
  const int64 pos = place.row;
  if (pos == 0 && place.column == 0) {
    for (int32 i = static_cast<int32>(device::lane_id()); i < entries; i += device::kWarpLanes) {
      if (args.token_topk_to_pos[i] >= args.num_expanded) report(args, i / kTopk);
    }
  }
  if (pos >= args.num_expanded) return;
  int32 owner = -1;
  if (args.pos_to_expert[pos] >= 0) {
#pragma unroll 4
    for (int32 i = static_cast<int32>(device::lane_id()); i < entries; i += device::kWarpLanes) {
      if (args.token_topk_to_pos[i] == pos) owner = i;
    }
    owner =
        static_cast<int32>(__reduce_max_sync(device::kAllLanes, static_cast<uint32>(owner + 1))) -
        1;
  }
  if (owner < 0) return zero_span(row_of(args, pos), place.column);
  Span span;
  load_span(span, args.x + owner / kTopk * args.x_stride, place.column);
  store_span(row_of(args, pos), span, place.column);
}

inline void claim(const ExpandToFusedArgs& args) {
  const int64 i = int64{blockIdx.x} * kExpandThreads + threadIdx.x;
  if (i >= args.num_tokens * kTopk) return;
  const int32 pos = args.token_topk_to_pos[i];
  if (pos < 0) return;
  if (pos >= args.num_expanded) return report(args, i / kTopk);
  if (args.pos_to_expert[pos] >= 0) atomicMax(args.owner + pos, static_cast<int32>(i));
}

inline void copy_token(const ExpandToFusedArgs& args, int64 token, int32 column) {
  // A lane an entry
  int32 mine = -1;
  const int64 i = token * kTopk + device::lane_id();
  if (device::lane_id() < kTopk) {
    const int32 pos = args.token_topk_to_pos[i];
    if (pos >= 0 && pos < args.num_expanded && args.owner[pos] == i) mine = pos;
  }
  uint32 owned = __ballot_sync(device::kAllLanes, mine >= 0);
  if (owned == 0) return;
  Span span;
  load_span(span, args.x + token * args.x_stride, column);
  while (owned != 0) {
    const int32 lane = __ffs(static_cast<int32>(owned)) - 1;
    owned &= owned - 1;
    store_span(row_of(args, __shfl_sync(device::kAllLanes, mine, lane)), span, column);
  }
}

inline void zero_positions(const ExpandToFusedArgs& args, int64 first, int32 column) {
  const int64 pos = first + device::lane_id();
  const bool is_free =
      device::lane_id() < kExpandZeroRows && pos < args.num_expanded && args.owner[pos] < 0;
  uint32 free = __ballot_sync(device::kAllLanes, is_free);
  while (free != 0) {
    zero_span(row_of(args, first + __ffs(static_cast<int32>(free)) - 1), column);
    free &= free - 1;
  }
}

inline void expand_copy(const ExpandToFusedArgs& args) {
  const device::GridPlace place = warp_place();
  if (place.row < args.num_tokens) return copy_token(args, place.row, place.column);
  const int64 first = (place.row - args.num_tokens) * kExpandZeroRows;
  if (first < args.num_expanded) zero_positions(args, first, place.column);
}

template <class Word>
inline void expand_sf(const ExpandToFusedArgs& args) {
  constexpr int32 kWords = numerics::max_of(kShape.sf_words, 1);
  int64 pos;
  int64 col;
  const uint64 i = uint64{blockIdx.x} * kExpandThreads + threadIdx.x;
  if constexpr (kShape.sf_by_col != 0) {
    // Blocks run down a column.
    const auto rows =
        static_cast<uint64>(numerics::align_up(args.padded_expanded, int64{kExpandThreads}));
    const uint64 first = uint64{blockIdx.x} * kExpandThreads;
    col = static_cast<int64>(first / rows);
    pos = static_cast<int64>(first % rows) + threadIdx.x;
  } else {
    pos = static_cast<int64>(i / kWords);
    col = static_cast<int64>(i % kWords);
  }
  if (pos >= args.padded_expanded || col >= kWords) return;
  const int32 owner = pos < args.num_expanded ? args.owner[pos] : -1;
  Word word = 0;
  if (owner >= 0) {
    const int64 token = owner / kTopk;
    word = *reinterpret_cast<const Word*>(args.sf.base + token * args.sf.row_stride +
                                          col * args.sf.col_stride);
  }
  *reinterpret_cast<Word*>(args.out_sf.base + pos * args.out_sf.row_stride +
                           col * args.out_sf.col_stride) = word;
}

inline void expand_to_fused(const ExpandToFusedArgs& args) {
  device::wait_for_predecessor();
  if constexpr (kTile.phase == kExpandSmall) {
    expand_small(args);
  } else if constexpr (kTile.phase == kExpandClaim) {
    claim(args);
  } else if constexpr (kTile.phase == kExpandCopy) {
    expand_copy(args);
  } else if constexpr (kShape.sf_word_bytes == 4) {
    expand_sf<uint32>(args);
  } else if constexpr (kShape.sf_word_bytes == 2) {
    expand_sf<uint16>(args);
  } else {
    expand_sf<uint8>(args);
  }
}

}  // namespace tilekernels

extern "C" __global__ void __launch_bounds__(tilekernels::kExpandThreads)
    expand_to_fused_kernel(const __grid_constant__ tilekernels::ExpandToFusedArgs args) {
  tilekernels::expand_to_fused(args);
}
