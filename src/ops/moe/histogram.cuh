// group_count and aux_fi on CUDA. One block counts in shared memory and is done; or each of several
// keeps its counts for a second launch that adds them up, and divides; or adds them to zeros. With
// more bins than shared memory holds, every index adds to those at once.
#include "ops/moe/histogram.h"
#include "ops/moe/histogram_tile.h"
#include "runtime/cuda/device/fault.cuh"
#include "runtime/cuda/device/grid.cuh"
#include "runtime/cuda/device/warp.cuh"

namespace tilekernels {

constexpr HistogramShape kShape = TILEKERNELS_SHAPE;
constexpr HistogramTile kTile = TILEKERNELS_TILE;

constexpr uint32 kIndicesOfBlock = kTile.threads * kTile.loads;

// Indices of a thread, a block's width apart; those behind the last one are -1. All are fewer than
// 2^31.
struct Batch {
  int64 indices[kTile.loads];
};

inline uint32 place_of(uint32 first, int32 i) { return first + i * kTile.threads + threadIdx.x; }

inline Batch load_batch(const HistogramArgs& args, uint32 first, uint32 num_indices) {
  Batch batch;
#pragma unroll
  for (int32 i = 0; i < kTile.loads; ++i) {
    const uint32 place = place_of(first, i);
    batch.indices[i] = place < num_indices ? args.indices[place] : -1;
  }
  return batch;
}

// Lowers `bad` to the place of an index that is neither a bin nor -1.
inline void count_batch(const HistogramArgs& args, int32* counts, const Batch& batch, uint32 first,
                        uint32& bad) {
#pragma unroll
  for (int32 i = 0; i < kTile.loads; ++i) {
    const int64 index = batch.indices[i];
    if (static_cast<uint64>(index) < static_cast<uint64>(args.num_bins)) {
      atomicAdd(counts + index, 1);
    } else if (index != -1) {
      bad = numerics::min_of(bad, place_of(first, i));
    }
  }
}

inline void store_result(const HistogramArgs& args, int32 bin, int32 count) {
  if constexpr (kShape.is_fraction != 0) {
    static_cast<float*>(args.out)[bin] = fraction_of(count, args);
  } else {
    static_cast<int32*>(args.out)[bin] = count;
  }
}

// A block has a few bins, a sector of every part's counts; threads that are as many bins apart take
// parts in turn.
// `out` may take the place of counts that are one part: a block reads its bins before it writes
// them.
inline void add_parts(const HistogramArgs& args) {
  constexpr int32 kBins = kHistogramFinishBins;
  constexpr int32 kWarps = kTile.threads / device::kWarpLanes;
  __shared__ int32 of_warps[kWarps][kBins];
  const auto thread = static_cast<int32>(threadIdx.x);
  const int64 bin = int64{blockIdx.x} * kBins + thread % kBins;
  device::wait_for_predecessor();
  constexpr int32 kBatch = 8;  // loads in flight
  constexpr int32 kStep = kTile.threads / kBins;
  const auto num_parts = bin < args.num_bins ? static_cast<int32>(args.num_parts) : 0;
  int32 count = 0;
#pragma unroll 1
  for (int32 first = thread / kBins; first < num_parts; first += kBatch * kStep) {
    const int32* const counts = args.counts + first * args.num_bins + bin;  // some 2^22 at most
    int32 of_parts[kBatch];
#pragma unroll
    for (int32 k = 0; k < kBatch; ++k) {
      of_parts[k] = first + k * kStep < num_parts ? counts[k * kStep * args.num_bins] : 0;
    }
#pragma unroll
    for (int32 k = 0; k < kBatch; ++k) count += of_parts[k];
  }
#pragma unroll
  for (int32 step = kBins; step < device::kWarpLanes; step *= 2) {
    count += __shfl_xor_sync(device::kAllLanes, count, step);
  }
  if (thread % device::kWarpLanes < kBins) {
    of_warps[thread / device::kWarpLanes][thread % kBins] = count;
  }
  __syncthreads();
  if (thread >= kBins || bin >= args.num_bins) return;
  count = 0;
#pragma unroll
  for (int32 warp = 0; warp < kWarps; ++warp) count += of_warps[warp][thread];
  store_result(args, static_cast<int32>(bin), count);
}

inline void histogram(const HistogramArgs& args) {
  auto* const out = static_cast<int32*>(args.out);
  if constexpr (kTile.phase == kHistogramFinish) return add_parts(args);
  constexpr bool kIsShared = kTile.max_bins > 0;
  __shared__ int32 shared[kIsShared ? kTile.max_bins : 1];
  const auto thread = static_cast<int32>(threadIdx.x);
  device::wait_for_predecessor();
  const auto num_indices =
      static_cast<uint32>(args.num_tokens) * static_cast<uint32>(args.num_topk);
  uint32 first = blockIdx.x * kIndicesOfBlock;
  Batch batch = load_batch(args, first, num_indices);  // on its way while the counts are cleared
  if constexpr (kIsShared) {
#pragma unroll 1
    for (int32 bin = thread; bin < args.num_bins; bin += kTile.threads) shared[bin] = 0;
    __syncthreads();
  }
  uint32 bad = num_indices;
#pragma unroll 1
  while (first < num_indices) {
    count_batch(args, kIsShared ? shared : out, batch, first, bad);
    first += gridDim.x * kIndicesOfBlock;
    batch = load_batch(args, first, num_indices);
  }
  if (bad < num_indices) {
    device::note_fault(args.fault, bad / static_cast<uint32>(args.num_topk),
                       histogram_op_id(kShape), numerics::kFaultIndexOutOfRange);
  }
  if constexpr (kIsShared) {
    __syncthreads();
#pragma unroll 1
    for (int32 bin = thread; bin < args.num_bins; bin += kTile.threads) {
      if constexpr (kTile.phase == kHistogramWhole) {
        store_result(args, bin, shared[bin]);
      } else if constexpr (kTile.phase == kHistogramPart) {
        args.counts[int64{blockIdx.x} * args.num_bins + bin] = shared[bin];
      } else if (shared[bin] != 0) {
        atomicAdd(out + bin, shared[bin]);
      }
    }
  }
}

}  // namespace tilekernels
