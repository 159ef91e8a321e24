// get_fused_mapping on CUDA: a stable counting sort. Every block has a part of the entries, every
// warp a part of that, in order; counts by warp and expert become the warps' next positions, and
// lanes that hold the same expert rank by a comparison of its bits across the warp.
#include "ops/moe/get_fused_mapping/op.h"
#include "ops/moe/get_fused_mapping/tile.h"
#include "runtime/cuda/device/fault.cuh"
#include "runtime/cuda/device/grid.cuh"
#include "runtime/cuda/device/warp.cuh"

namespace tilekernels {

constexpr GetFusedMappingShape kShape = TILEKERNELS_SHAPE;
constexpr GetFusedMappingTile kTile = TILEKERNELS_TILE;

constexpr int32 kExperts = kShape.num_experts;
constexpr int32 kWarps = kTile.warps;
constexpr int32 kThreads = kWarps * device::kWarpLanes;

constexpr int32 bits_of(int32 count) {
  int32 bits = 0;
  while ((1 << bits) < count) ++bits;
  return bits;
}
constexpr int32 kExpertBits = bits_of(kExperts);

struct Span {
  int64 begin;
  int64 end;
};

// The entries of a warp of this block.
inline Span warp_entries(const GetFusedMappingArgs& args, int32 warp) {
  const int64 per_warp = args.part / kWarps;
  const int64 block = kTile.phase == kMapAtOnce ? 0 : blockIdx.x;
  const int64 begin = block * args.part + warp * per_warp;
  return {numerics::min_of(begin, args.num_entries),
          numerics::min_of(begin + per_warp, args.num_entries)};
}

inline void report(const GetFusedMappingArgs& args, int64 entry, int32 kind) {
  const auto token = static_cast<uint32>(entry) / static_cast<uint32>(kShape.num_topk);
  device::note_fault(args.fault, token, kGetFusedMappingId, kind);
}

// The warps' counts of their entries by expert; ends with a barrier.
inline void count_entries(const GetFusedMappingArgs& args, int32 (*counts)[kExperts]) {
  for (uint32 i = threadIdx.x; i < kWarps * kExperts; i += kThreads) (&counts[0][0])[i] = 0;
  __syncthreads();
  const auto warp = static_cast<int32>(threadIdx.x / device::kWarpLanes);
  const Span span = warp_entries(args, warp);
#pragma unroll 4
  for (int64 i = span.begin + device::lane_id(); i < span.end; i += device::kWarpLanes) {
    const int32 expert = routed_expert(args.topk_idx[i], kExperts);
    if (expert >= 0) atomicAdd(&counts[warp][expert], 1);
  }
  __syncthreads();
}

inline void pad(const GetFusedMappingArgs& args, int64 begin, int64 end, int64 step) {
  for (int64 pos = begin; pos < end; pos += step) {
    args.pos_to_expert[pos] = -1;
    args.pos_to_token[pos] = -1;
    args.pos_to_token_topk[pos] = -1;
  }
}

// Sum of `value` over the threads before this one; `total` of all.
inline int64 sum_before(int64 value, int64* sums, int64& total) {
  sums[threadIdx.x] = value;
  __syncthreads();
#pragma unroll 1
  for (uint32 step = 1; step < kThreads; step *= 2) {
    const int64 other = threadIdx.x >= step ? sums[threadIdx.x - step] : 0;
    __syncthreads();
    sums[threadIdx.x] += other;
    __syncthreads();
  }
  total = sums[kThreads - 1];
  const int64 before = sums[threadIdx.x] - value;
  __syncthreads();
  return before;
}

// Turns the warps' counts into their next positions, writes what belongs to experts and pads the
// segments that this block has to. Returns the first expert whose segment does not fit.
inline int32 lay_out(const GetFusedMappingArgs& args, int32 (*places)[kExperts], int64* sums,
                     int32* first_cut) {
  if (threadIdx.x == 0) *first_cut = kExperts;
  __syncthreads();
  int64 base = 0;
#pragma unroll 1
  for (int32 first = 0; first < kExperts; first += kThreads) {
    const int32 expert = first + static_cast<int32>(threadIdx.x);
    int32 count = 0;
    int32 before = 0;  // in blocks before this one
    if (expert < kExperts) {
      if constexpr (kTile.phase == kMapPlace) {
#pragma unroll 8
        for (uint32 block = 0; block < gridDim.x; ++block) {
          const int32 of_block = args.counts[int64{block} * kExperts + expert];
          if (block < blockIdx.x) before += of_block;
          count += of_block;
        }
      } else {
        for (int32 warp = 0; warp < kWarps; ++warp) count += places[warp][expert];
      }
    }
    const int64 aligned = numerics::align_up(count, args.alignment);
    int64 total;
    const int64 start = base + sum_before(aligned, sums, total);
    const int64 end = start + aligned;
    base += total;
    if (expert < kExperts) {
      int64 next = start + before;
      for (int32 warp = 0; warp < kWarps; ++warp) {
        const int32 of_warp = places[warp][expert];
        places[warp][expert] = clipped(next, args.num_expanded);
        next += of_warp;
      }
      if (end > args.num_expanded) atomicMin(first_cut, expert);
      if (blockIdx.x == 0) {
        args.expert_start[expert] = clipped(start, args.num_expanded);
        args.expert_end[expert] = clipped(end, args.num_expanded);
        args.num_tokens_per_expert[expert] = static_cast<int32>(aligned);
        args.psum_num_tokens_per_expert[expert] = clipped(start + count, args.num_expanded);
      }
    }
    // The lanes' experts in turn
    const int32 pad_from = clipped(start + count, args.num_expanded);
    const int32 pad_to = clipped(end, args.num_expanded);
#pragma unroll 1
    for (int32 lane = 0; lane < device::kWarpLanes; ++lane) {
      const int32 from = __shfl_sync(device::kAllLanes, pad_from, lane);
      const int32 to = __shfl_sync(device::kAllLanes, pad_to, lane);
      const uint32 of = threadIdx.x / device::kWarpLanes * device::kWarpLanes + lane;
      if ((static_cast<uint32>(first) + of) % gridDim.x != blockIdx.x) continue;
      pad(args, from + device::lane_id(), to, device::kWarpLanes);
    }
  }
  const int64 rest = clipped(base, args.num_expanded);
  pad(args, rest + int64{blockIdx.x} * kThreads + threadIdx.x, args.num_expanded,
      int64{gridDim.x} * kThreads);
  __syncthreads();
  return *first_cut;
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

inline void place_entries(const GetFusedMappingArgs& args, int32* next, int32 first_cut) {
  const Span span = warp_entries(args, static_cast<int32>(threadIdx.x / device::kWarpLanes));
  const uint32 lower_lanes = (1u << device::lane_id()) - 1;
#pragma unroll 1
  for (int64 first = span.begin; first < span.end; first += device::kWarpLanes) {
    const int64 i = first + device::lane_id();
    const int64 index = i < span.end ? args.topk_idx[i] : -1;
    const int32 expert = routed_expert(index, kExperts);
    const uint32 routed = __ballot_sync(device::kAllLanes, expert >= 0);
    const uint32 same = lanes_with_same(static_cast<uint32>(expert)) & routed;
    uint32 pos = 0;  // next positions and what is added stay below 2^32
    if (expert >= 0) {
      const auto base = static_cast<uint32>(next[expert]);
      pos = base + static_cast<uint32>(__popc(same & lower_lanes));
    }
    __syncwarp();
    if (expert >= 0 && (same & ~lower_lanes & ~(1u << device::lane_id())) == 0) {
      next[expert] = static_cast<int32>(pos + 1);
    }
    __syncwarp();
    if (i < span.end) {
      if (is_bad_index(index, kExperts)) report(args, i, numerics::kFaultIndexOutOfRange);
      if (expert >= first_cut) report(args, i, numerics::kFaultPositionOutOfRange);
      const bool has_place = expert >= 0 && int64{pos} < args.num_expanded;
      args.token_topk_to_pos[i] = has_place ? static_cast<int32>(pos) : -1;
      if (has_place) {
        args.pos_to_expert[pos] = expert;
        args.pos_to_token[pos] =
            static_cast<int32>(static_cast<uint32>(i) / static_cast<uint32>(kShape.num_topk));
        args.pos_to_token_topk[pos] = static_cast<int32>(i);
      }
    }
  }
}

inline void get_fused_mapping(const GetFusedMappingArgs& args) {
  __shared__ int32 places[kWarps][kExperts];
  __shared__ int64 sums[kThreads];
  __shared__ int32 first_cut;
  device::wait_for_predecessor();
  count_entries(args, places);
  if constexpr (kTile.phase == kMapCount) {
    for (int32 expert = threadIdx.x; expert < kExperts; expert += kThreads) {
      int32 count = 0;
      for (int32 warp = 0; warp < kWarps; ++warp) count += places[warp][expert];
      args.counts[int64{blockIdx.x} * kExperts + expert] = count;
    }
    return;
  }
  const int32 cut = lay_out(args, places, sums, &first_cut);
  if (kTile.phase == kMapAtOnce && blockIdx.x > 0) return;
  place_entries(args, places[threadIdx.x / device::kWarpLanes], cut);
}

}  // namespace tilekernels

extern "C" __global__ void __launch_bounds__(tilekernels::kThreads)
    get_fused_mapping_kernel(const __grid_constant__ tilekernels::GetFusedMappingArgs args) {
  tilekernels::get_fused_mapping(args);
}
