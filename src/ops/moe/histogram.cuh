// group_count and aux_fi on CUDA: counts in shared memory, then one addition a block and bin, or a
// second launch that adds the counts of blocks up before it divides.
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

// A warp a bin.
inline void add_parts(const HistogramArgs& args) {
  const int64 thread = int64{blockIdx.x} * kTile.threads + threadIdx.x;
  const auto bin = static_cast<int32>(thread / device::kWarpLanes);
  device::wait_for_predecessor();
  if (bin >= args.num_bins) return;
  int32 count = 0;
#pragma unroll 4
  for (int64 part = device::lane_id(); part < args.num_parts; part += device::kWarpLanes) {
    count += args.counts[bin * args.num_parts + part];
  }
  count = __reduce_add_sync(device::kAllLanes, count);
  if (device::lane_id() == 0) store_result(args, bin, count);
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
        args.counts[bin * int64{gridDim.x} + blockIdx.x] = shared[bin];
      } else if (shared[bin] != 0) {
        atomicAdd(out + bin, shared[bin]);
      }
    }
  }
}

}  // namespace tilekernels
