// get_fused_mapping on CUDA: a stable counting sort. Every block has a part of the entries, every
// warp a part of that, in order; counts by warp and expert become the warps' next positions, and
// lanes that hold the same expert rank by a comparison of its bits across the warp. A store whose
// lanes write anywhere takes as long as one of each lane, so a block sorts its entries in shared
// memory first where they fit. Entries and positions are fewer than 2^31.
#include "ops/moe/get_fused_mapping/op.h"
#include "ops/moe/get_fused_mapping/tile.h"
#include "runtime/cuda/device/fault.cuh"
#include "runtime/cuda/device/grid.cuh"
#include "runtime/cuda/device/memory.cuh"
#include "runtime/cuda/device/warp.cuh"

namespace tilekernels {

constexpr GetFusedMappingShape kShape = TILEKERNELS_SHAPE;
constexpr GetFusedMappingTile kTile = TILEKERNELS_TILE;

constexpr int32 kExperts = kShape.num_experts;
constexpr int32 kThreads = kMapWarps * device::kWarpLanes;
constexpr int32 kParts = kTile.parts;
constexpr bool kIsSorted = kTile.sorted > 0 && kTile.phase != kMapCount;
constexpr uint32 kCountedParts = map_counted_parts(kExperts);

constexpr int32 kExpertBits = numerics::ceil_log2(kExperts);

template <bool kIsNarrow>
struct Count {
  using Type = uint32;
};
template <>
struct Count<true> {
  using Type = uint16;
};

struct Span {
  uint32 begin;
  uint32 end;
};

constexpr int32 kSortedExperts = kIsSorted ? kExperts : 1;
static_assert(!kIsSorted || kTile.loads <= kMostSortedLoads);

// Where the block sorts, counts in scratch have 16 bits and are read several at a time, some rows
// by every group of threads. As many as a group adds stay below 2^16.
using Stored = Count<(kTile.sorted > 0)>::Type;
constexpr bool kHasGroups = kIsSorted && kTile.phase == kMapPlace;
constexpr int32 kVector = kExperts % 8 == 0 ? 8 : 1;
constexpr int32 kGroupThreads = 1 << numerics::ceil_log2(kExperts / kVector);
constexpr int32 kGroups = kHasGroups ? numerics::min_of(kThreads / kGroupThreads, kMapGroups) : 1;

struct alignas(kVector > 1 ? 16 : 4) Counts {
  uint32 words[kVector > 1 ? kVector / 2 : 1];
};

// Sums over the rows of a group: all of them, and those before this block's.
struct GroupSums {
  Counts all[kHasGroups ? kGroupThreads : 1];
  Counts before[kHasGroups ? kGroupThreads : 1];
};

struct Shared {
  uint32 places[kParts][kExperts];     // counts of the parts, then where their next entries go
  uint32 sums[2][device::kWarpLanes];  // of the warps, while counts are added up
  uint32 first_cut;                    // the first expert whose segment does not fit
  // Of a block that sorts: its entries in order, the lower half a distance from its first one, the
  // upper half the expert; and what leads from their places to positions, by expert.
  union {
    uint32 sorted[kIsSorted ? kTile.sorted : 1];
    GroupSums groups[kGroups];  // done with before
  };
  uint32 shifts[kSortedExperts];
  uint32 ends[kTile.phase == kMapAtOnce ? kSortedExperts : 1];  // of segments
  uint32 filled[kTile.phase == kMapAtOnce ? kSortedExperts : 1];
};

static_assert(sizeof(Shared) <= device::kMaxStaticShared);

inline uint32 warp_id() { return threadIdx.x / device::kWarpLanes; }

// The first entry of this block.
inline uint32 first_entry(const GetFusedMappingArgs& args) {
  if (kTile.phase == kMapAtOnce) return 0;
  const uint32 parts = kTile.phase == kMapCount ? kCountedParts : 1;
  return blockIdx.x * parts * static_cast<uint32>(args.part);
}

// The entries of this warp.
inline Span warp_entries(const GetFusedMappingArgs& args) {
  constexpr uint32 kWarps = kTile.phase == kMapCount ? kMapWarps / kCountedParts : kParts;
  if (kTile.phase != kMapCount && kParts < kMapWarps && warp_id() >= kParts) return {0, 0};
  const uint32 share = static_cast<uint32>(args.part) / kWarps;
  const auto num_entries = static_cast<uint32>(args.num_entries);
  const uint32 begin = first_entry(args) + warp_id() * share;
  return {begin, numerics::min_of(begin + share, num_entries)};
}

// Entries of a lane, a warp's width apart; those behind the end are -1.
struct Batch {
  static constexpr uint32 kStep = kTile.loads * device::kWarpLanes;
  int64 indices[kTile.loads];
};

inline Batch load_batch(const GetFusedMappingArgs& args, const Span& span, uint32 first) {
  Batch batch;
#pragma unroll
  for (int32 k = 0; k < kTile.loads; ++k) {
    const uint32 i = first + k * device::kWarpLanes + device::lane_id();
    batch.indices[k] = i < span.end ? args.topk_idx[i] : -1;
  }
  return batch;
}

inline void report(const GetFusedMappingArgs& args, uint32 entry, int32 kind) {
  device::note_fault(args.fault, entry / static_cast<uint32>(kShape.num_topk), kGetFusedMappingId,
                     kind);
}

inline void clear_counts(Shared& shared) {
  constexpr int32 kCounts = sizeof(shared.places) / sizeof(uint32);
#pragma unroll 8
  for (int32 first = 0; first < kCounts; first += kThreads) {
    const int32 i = first + static_cast<int32>(threadIdx.x);
    if (kCounts % kThreads == 0 || i < kCounts) (&shared.places[0][0])[i] = 0;
  }
  if (threadIdx.x == 0) shared.first_cut = kExperts;
}

// Counts entries by expert, every part its own. `batch` has a lane's first ones, on their way since
// before anything else.
inline void count_entries(const GetFusedMappingArgs& args, const Span& span, Batch batch,
                          Shared& shared) {
  constexpr int32 kWarps = kTile.phase == kMapCount ? kMapWarps / kParts : 1;  // of a part
  uint32* const counts = shared.places[warp_id() / kWarps];
#pragma unroll 1
  for (uint32 first = span.begin; first < span.end; first += Batch::kStep) {
    if (first != span.begin) batch = load_batch(args, span, first);
#pragma unroll
    for (int32 k = 0; k < kTile.loads; ++k) {
      const int32 expert = routed_expert(batch.indices[k], kExperts);
      if (expert >= 0) atomicAdd(counts + expert, 1u);
    }
  }
}

// The lanes that hold the same number, this one among them.
inline uint32 lanes_with_same(uint32 number) {
  uint32 same = device::kAllLanes;
#pragma unroll
  for (int32 bit = 0; bit < kExpertBits; ++bit) {
    const uint32 mine = number >> bit & 1;
    const uint32 set = __ballot_sync(device::kAllLanes, mine != 0);
    same &= mine != 0 ? set : ~set;
  }
  return same;
}

// The next place of each lane's expert, which moves on; lanes without one have any.
inline uint32 take_place(uint32* next, int32 expert) {
  const uint32 lower_lanes = (1u << device::lane_id()) - 1;
  const uint32 routed = __ballot_sync(device::kAllLanes, expert >= 0);
  const uint32 same = lanes_with_same(static_cast<uint32>(expert)) & routed;
  uint32 place = 0;
  if (expert >= 0) place = next[expert] + static_cast<uint32>(__popc(same & lower_lanes));
  __syncwarp();
  // The last lane of an expert moves its next place on.
  if (expert >= 0 && same >> device::lane_id() == 1) next[expert] = place + 1;
  __syncwarp();
  return place;
}

// How many entries of the same expert the warp has before each of a lane's.
struct Ranks {
  uint32 ranks[kTile.loads];
};

// Where the block sorts, a lane's entries are loaded and ranked once: counts its warp's by expert.
inline Ranks rank_entries(const Span& span, const Batch& batch, Shared& shared) {
  Ranks ranks{};
  if (span.begin >= span.end) return ranks;
#pragma unroll
  for (int32 k = 0; k < kTile.loads; ++k) {
    const int32 expert = routed_expert(batch.indices[k], kExperts);
    ranks.ranks[k] = take_place(shared.places[warp_id()], expert);
  }
  return ranks;
}

inline void pad(const GetFusedMappingArgs& args, uint32 begin, uint32 end, uint32 step) {
#pragma unroll 1
  for (uint32 pos = begin; pos < end; pos += step) {
    args.pos_to_expert[pos] = -1;
    args.pos_to_token[pos] = -1;
    args.pos_to_token_topk[pos] = -1;
  }
}

// Pads the segments of lanes' experts, which are filled so far and end there.
inline void pad_segments(const GetFusedMappingArgs& args, uint32 lanes, int32 filled, int32 end) {
#pragma unroll 1
  while (lanes != 0) {
    const int32 lane = __ffs(static_cast<int32>(lanes)) - 1;
    lanes &= lanes - 1;
    const int32 from = __shfl_sync(device::kAllLanes, filled, lane);
    const int32 to = __shfl_sync(device::kAllLanes, end, lane);
    pad(args, from + device::lane_id(), to, device::kWarpLanes);
  }
}

// Pads what lies behind all segments.
inline void pad_rest(const GetFusedMappingArgs& args, uint32 rest) {
  pad(args, rest + blockIdx.x * kThreads + threadIdx.x, static_cast<uint32>(args.num_expanded),
      gridDim.x * kThreads);
}

// The block that pads an expert's segment. A block has one expert in each warp rather than several
// in one, which pads them in turn.
inline uint32 padding_block(uint32 expert) {
  constexpr uint32 kWarpsOfExperts = numerics::ceil_div(kExperts, device::kWarpLanes);
  const uint32 place = expert % device::kWarpLanes * kWarpsOfExperts + expert / device::kWarpLanes;
  return place * gridDim.x / (device::kWarpLanes * kWarpsOfExperts);
}

// Sum of `value` over the threads before this one; `total` of all. Has one barrier; `sums` was last
// read before the barrier before it.
inline uint32 sum_before(uint32 value, uint32* sums, uint32& total) {
  uint32 sum = value;
#pragma unroll
  for (uint32 step = 1; step < device::kWarpLanes; step *= 2) {
    const uint32 other = __shfl_up_sync(device::kAllLanes, sum, step);
    if (device::lane_id() >= step) sum += other;
  }
  if (device::lane_id() == device::kWarpLanes - 1) sums[warp_id()] = sum;
  __syncthreads();
  const uint32 of_warp = device::lane_id() < kMapWarps ? sums[device::lane_id()] : 0;
  total = __reduce_add_sync(device::kAllLanes, of_warp);
  const uint32 of_lower = device::lane_id() < warp_id() ? of_warp : 0;
  return __reduce_add_sync(device::kAllLanes, of_lower) + sum - value;
}

inline Stored* stored_counts(const GetFusedMappingArgs& args) {
  return reinterpret_cast<Stored*>(args.counts);
}

// Counts in scratch: of the parts that a block counted together, by block; then of those among
// them before each part.
inline void store_counts(const GetFusedMappingArgs& args, const Shared& shared) {
#pragma unroll 1
  for (uint32 expert = threadIdx.x; expert < kExperts; expert += kThreads) {
    Stored* const before =
        stored_counts(args) + (gridDim.x + blockIdx.x * kParts) * kExperts + expert;
    uint32 count = 0;
#pragma unroll
    for (int32 part = 0; part < kParts; ++part) {
      before[part * kExperts] = static_cast<Stored>(count);
      count += shared.places[part][expert];
    }
    stored_counts(args)[blockIdx.x * kExperts + expert] = static_cast<Stored>(count);
  }
}

// Rows of counts of a thread's group, of these some experts; those behind the last row are 0.
struct Rows {
  static constexpr int32 kCount = kHasGroups ? 4 : 1;  // in flight
  static constexpr uint32 kStep = kCount * kGroups;
  device::Words<kVector * 2> rows[kCount];
};

inline Rows load_rows(const GetFusedMappingArgs& args, uint32 first, uint32 num_rows) {
  const uint32 column = threadIdx.x % kGroupThreads * kVector;
  Rows rows{};
  if (threadIdx.x >= kGroups * kGroupThreads || column >= kExperts) return rows;
#pragma unroll
  for (int32 k = 0; k < Rows::kCount; ++k) {
    const uint32 row = first + k * kGroups;
    if (row < num_rows) {
      rows.rows[k] = device::load<kVector * 2>(stored_counts(args) + row * kExperts + column);
    }
  }
  return rows;
}

// Adds rows up in shared memory. `rows` has a thread's first ones.
inline void add_rows(const GetFusedMappingArgs& args, Rows rows, uint32 num_rows, Shared& shared) {
  const uint32 group = threadIdx.x / kGroupThreads;
  const uint32 own_row = blockIdx.x / kCountedParts;
  if (group >= kGroups) return;
  Counts all{};
  Counts before{};
#pragma unroll 1
  for (uint32 first = group; first < num_rows; first += Rows::kStep) {
    if (first != group) rows = load_rows(args, first, num_rows);
#pragma unroll
    for (int32 k = 0; k < Rows::kCount; ++k) {
      const bool is_before = first + k * kGroups < own_row;
#pragma unroll
      for (int32 i = 0; i < rows.rows[k].kCount; ++i) {
        all.words[i] += rows.rows[k].words[i];
        before.words[i] += is_before ? rows.rows[k].words[i] : 0;
      }
    }
  }
  shared.groups[group].all[threadIdx.x % kGroupThreads] = all;
  shared.groups[group].before[threadIdx.x % kGroupThreads] = before;
}

// An expert's entries, `before` more of those in the parts before this block's: what the groups
// have.
inline uint32 add_groups(const Shared& shared, uint32 expert, uint32& before) {
  const uint32 column = expert / kVector;
  const uint32 word = expert % kVector / 2;
  const uint32 shift = kVector > 1 ? expert % 2 * 16 : 0;
  constexpr uint32 kMask = kVector > 1 ? 0xFFFF : 0xFFFFFFFF;
  uint32 count = 0;
#pragma unroll
  for (int32 group = 0; group < kGroups; ++group) {
    count += shared.groups[group].all[column].words[word] >> shift & kMask;
    before += shared.groups[group].before[column].words[word] >> shift & kMask;
  }
  return count;
}

// The expert's entries in the parts that were counted with this block's, before it.
inline uint32 count_before(const GetFusedMappingArgs& args, uint32 expert, uint32 num_rows) {
  return stored_counts(args)[(num_rows + blockIdx.x) * kExperts + expert];
}

// An expert's entries, `before` more of those in the parts before this block's: from scratch.
inline uint32 add_parts(const GetFusedMappingArgs& args, uint32 expert, uint32 num_rows,
                        uint32& before) {
  constexpr uint32 kBatch = 32;  // loads in flight
  const uint32 own_row = blockIdx.x / kCountedParts;
  const Stored* counts = stored_counts(args) + expert;
  uint32 count = 0;
#pragma unroll 1
  for (uint32 first = 0; first < num_rows; first += kBatch, counts += kBatch * kExperts) {
    uint32 of_rows[kBatch];
#pragma unroll
    for (uint32 k = 0; k < kBatch; ++k) {
      of_rows[k] = first + k < num_rows ? counts[k * kExperts] : 0;
    }
#pragma unroll
    for (uint32 k = 0; k < kBatch; ++k) {
      count += of_rows[k];
      if (first + k < own_row) before += of_rows[k];
    }
  }
  return count;
}

// What is left to a block that sorts.
struct Layout {
  uint32 num_sorted;  // entries with an expert
  uint32 lanes;       // whose experts' segments it pads, and these
  int32 filled;
  int32 end;
  uint32 rest;  // behind all segments
};

// Counts the entries, lays the segments out, writes what belongs to experts and, unless the block
// sorts, pads what it has to. Leaves the warps' next positions in shared memory, or where the block
// sorts, their next places. Ends with a barrier.
inline Layout lay_out(const GetFusedMappingArgs& args, const Span& span, const Batch& batch,
                      Ranks& ranks, Shared& shared) {
  const uint32 num_rows = numerics::ceil_div(gridDim.x, kCountedParts);
  const auto alignment = static_cast<uint32>(args.alignment);
  uint32 units_before = 0;  // segments are so many alignments long; fewer than 2^32
  Layout layout{};
#pragma unroll 1
  for (uint32 first = 0; first < kExperts; first += kThreads) {
    const uint32 expert = first + threadIdx.x;
    const bool exists = expert < kExperts;
    uint32 count = 0;
    uint32 before = 0;  // in blocks before this one
    if (kTile.phase == kMapPlace && exists) {
      before = count_before(args, expert, num_rows);
      if (!kHasGroups) count = add_parts(args, expert, num_rows, before);
    }
    if (first == 0) {
      Rows rows{};
      if constexpr (kHasGroups) rows = load_rows(args, threadIdx.x / kGroupThreads, num_rows);
      clear_counts(shared);
      __syncthreads();
      if constexpr (kIsSorted) {
        ranks = rank_entries(span, batch, shared);
      } else {
        count_entries(args, span, batch, shared);
      }
      if constexpr (kHasGroups) add_rows(args, rows, num_rows, shared);
      __syncthreads();
    }
    if (kHasGroups && exists) count = add_groups(shared, expert, before);
    uint32 of_warps[kParts];
    uint32 in_block = 0;
#pragma unroll
    for (int32 warp = 0; warp < kParts; ++warp) {
      of_warps[warp] = exists ? shared.places[warp][expert] : 0;
      in_block += of_warps[warp];
    }
    if (kTile.phase == kMapAtOnce) count = in_block;
    const uint32 units = (count + (alignment - 1)) / alignment;
    uint32* const sums = shared.sums[first / kThreads % 2];
    uint32 unit;
    uint32 place = 0;
    uint32 total;
    if constexpr (kIsSorted) {  // both sums at once; all experts have a thread
      constexpr uint32 kEntries = (1u << kSortedEntryBits) - 1;
      const uint32 sum = sum_before(units << kSortedEntryBits | in_block, sums, total);
      unit = sum >> kSortedEntryBits;
      place = sum & kEntries;
      units_before = total >> kSortedEntryBits;
      layout.num_sorted = total & kEntries;
    } else {
      unit = units_before + sum_before(units, sums, total);
      units_before += total;
    }
    const int64 start = int64{unit} * alignment;
    const int64 end = int64{unit + units} * alignment;
    const int32 start_here = clipped(start, args.num_expanded);
    const int32 end_here = clipped(end, args.num_expanded);
    const int32 filled_here = clipped(start + count, args.num_expanded);
    if (exists) {
      uint32 next = static_cast<uint32>(start_here) + before;  // below 2^32 whatever is added
      if constexpr (kIsSorted) {
        shared.shifts[expert] = next - place;
        next = place;
        if constexpr (kTile.phase == kMapAtOnce) {
          shared.ends[expert] = static_cast<uint32>(end_here);
          shared.filled[expert] = static_cast<uint32>(filled_here);
        }
      }
#pragma unroll
      for (int32 warp = 0; warp < kParts; ++warp) {
        shared.places[warp][expert] = next;
        next += of_warps[warp];
      }
      if (end > args.num_expanded) atomicMin(&shared.first_cut, expert);
      if (blockIdx.x == 0) {
        args.expert_start[expert] = start_here;
        args.expert_end[expert] = end_here;
        args.num_tokens_per_expert[expert] = static_cast<int32>(units * alignment);
        args.psum_num_tokens_per_expert[expert] = filled_here;
      }
    }
    layout.lanes = __ballot_sync(device::kAllLanes, exists && padding_block(expert) == blockIdx.x);
    layout.filled = filled_here;
    layout.end = end_here;
    if constexpr (!kIsSorted) pad_segments(args, layout.lanes, filled_here, end_here);
  }
  layout.rest = static_cast<uint32>(clipped(int64{units_before} * alignment, args.num_expanded));
  if constexpr (!kIsSorted) pad_rest(args, layout.rest);
  __syncthreads();
  return layout;
}

inline void store_position(const GetFusedMappingArgs& args, uint32 pos, int32 expert, uint32 i) {
  args.pos_to_expert[pos] = expert;
  args.pos_to_token[pos] = static_cast<int32>(i / static_cast<uint32>(kShape.num_topk));
  args.pos_to_token_topk[pos] = static_cast<int32>(i);
}

// Writes the position of entry `i`, whose index is its expert unless that is -1; returns whether it
// has one.
inline bool store_entry(const GetFusedMappingArgs& args, uint32 i, int64 index, int32 expert,
                        uint32 pos, uint32 first_cut) {
  if (expert < 0 && index != -1) report(args, i, numerics::kFaultIndexOutOfRange);
  const bool has_place = expert >= 0 && pos < static_cast<uint32>(args.num_expanded);
  args.token_topk_to_pos[i] = has_place ? static_cast<int32>(pos) : -1;
  if (expert >= static_cast<int32>(first_cut)) {
    report(args, i, numerics::kFaultPositionOutOfRange);
  }
  return has_place;
}

// Writes what belongs to entries and to their positions.
inline void place_entries(const GetFusedMappingArgs& args, const Span& span, Shared& shared) {
#pragma unroll 1
  for (uint32 first = span.begin; first < span.end; first += device::kWarpLanes) {
    const uint32 i = first + device::lane_id();
    const int64 index = i < span.end ? args.topk_idx[i] : -1;
    const int32 expert = routed_expert(index, kExperts);
    const uint32 pos = take_place(shared.places[warp_id()], expert);
    if (i >= span.end) continue;
    if (store_entry(args, i, index, expert, pos, shared.first_cut)) {
      store_position(args, pos, expert, i);
    }
  }
}

// Sorts the block's entries and writes what belongs to them; of few entries, one block writes.
inline void sort_entries(const GetFusedMappingArgs& args, const Span& span, const Batch& batch,
                         const Ranks& ranks, Shared& shared) {
  const bool writes = kTile.phase != kMapAtOnce || blockIdx.x + 1 == gridDim.x;
#pragma unroll
  for (int32 k = 0; k < kTile.loads; ++k) {
    const uint32 i = span.begin + k * device::kWarpLanes + device::lane_id();
    if (i >= span.end) continue;
    const int32 expert = routed_expert(batch.indices[k], kExperts);
    uint32 pos = 0;
    if (expert >= 0) {
      const uint32 place = shared.places[warp_id()][expert] + ranks.ranks[k];
      shared.sorted[place] = static_cast<uint32>(expert) << 16 | (i - first_entry(args));
      pos = place + shared.shifts[expert];
    }
    if (writes) store_entry(args, i, batch.indices[k], expert, pos, shared.first_cut);
  }
}

// Writes the positions of the block's entries, those of an expert together.
inline void store_sorted(const GetFusedMappingArgs& args, const Shared& shared, uint32 num_sorted) {
  const uint32 first_of_block = first_entry(args);
#pragma unroll 1
  for (uint32 place = threadIdx.x; place < num_sorted; place += kThreads) {
    const uint32 sorted = shared.sorted[place];
    const uint32 expert = sorted >> 16;
    const uint32 pos = place + shared.shifts[expert];
    if (pos < static_cast<uint32>(args.num_expanded)) {
      store_position(args, pos, static_cast<int32>(expert), first_of_block + (sorted & 0xFFFF));
    }
  }
}

// Writes this block's positions, padding among them, of all entries.
inline void store_positions(const GetFusedMappingArgs& args, const Shared& shared) {
#pragma unroll 1
  for (uint32 pos = blockIdx.x * kThreads + threadIdx.x;
       pos < static_cast<uint32>(args.num_expanded); pos += gridDim.x * kThreads) {
    uint32 expert = 0;  // segments that end before the position
    if (pos < shared.ends[kExperts - 1]) {
#pragma unroll
      for (int32 step = 1 << kExpertBits >> 1; step > 0; step /= 2) {
        const uint32 other = expert + step;
        if (other < kExperts && shared.ends[other - 1] <= pos) expert = other;
      }
    } else {
      expert = kExperts;
    }
    if (expert < kExperts && pos < shared.filled[expert]) {
      const uint32 entry = shared.sorted[pos - shared.shifts[expert]] & 0xFFFF;
      store_position(args, pos, static_cast<int32>(expert), entry);
    } else {
      pad(args, pos, pos + 1, 1);
    }
  }
}

inline void get_fused_mapping(const GetFusedMappingArgs& args) {
  __shared__ Shared shared;
  device::wait_for_predecessor();
  const Span span = warp_entries(args);
  const Batch batch = load_batch(args, span, span.begin);
  if constexpr (kTile.phase == kMapCount) {
    clear_counts(shared);
    __syncthreads();
    count_entries(args, span, batch, shared);
    __syncthreads();
    store_counts(args, shared);
    return;
  }
  Ranks ranks{};
  const Layout layout = lay_out(args, span, batch, ranks, shared);
  if constexpr (!kIsSorted) {
    if (kTile.phase == kMapAtOnce && blockIdx.x > 0) return;
    place_entries(args, span, shared);
  } else {
    sort_entries(args, span, batch, ranks, shared);
    __syncthreads();
    if constexpr (kTile.phase == kMapAtOnce) {
      store_positions(args, shared);
    } else {
      store_sorted(args, shared, layout.num_sorted);
      pad_segments(args, layout.lanes, layout.filled, layout.end);
      pad_rest(args, layout.rest);
    }
  }
}

}  // namespace tilekernels

// Unless it is said that one block is enough, the compiler saves registers and spills some.
extern "C" __global__ void __launch_bounds__(tilekernels::kThreads, 1)
    get_fused_mapping_kernel(const __grid_constant__ tilekernels::GetFusedMappingArgs args) {
  tilekernels::get_fused_mapping(args);
}
