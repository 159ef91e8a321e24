// group_count and aux_fi on CUDA: counts in shared memory, then one addition a block and bin, or a
// second launch that adds the counts of blocks up before it divides.
#include "ops/moe/histogram.h"
#include "ops/moe/histogram_tile.h"
#include "runtime/cuda/device/fault.cuh"
#include "runtime/cuda/device/grid.cuh"
#include "runtime/cuda/device/memory.cuh"
#include "runtime/cuda/device/warp.cuh"

namespace tilekernels {

constexpr HistogramShape kShape = TILEKERNELS_SHAPE;
constexpr HistogramTile kTile = TILEKERNELS_TILE;

constexpr int32 kWidth = kTile.wide ? 2 : 1;  // indices a load
constexpr int64 kIndicesOfBlock = int64{kTile.threads} * kWidth * kTile.loads;

inline void count_index(const HistogramArgs& args, int32* counts, int64 index, int64 place) {
  if (static_cast<uint64>(index) < static_cast<uint64>(args.num_bins)) {
    atomicAdd(counts + index, 1);
  } else if (index != -1) {
    device::note_fault(args.fault, place / args.num_topk, histogram_op_id(kShape),
                       numerics::kFaultIndexOutOfRange);
  }
}

inline int64 index_of(const device::Words<kWidth * 8>& words, int32 i) {
  return static_cast<int64>(static_cast<uint64>(words.words[2 * i + 1]) << 32 | words.words[2 * i]);
}

// The indices first, first + 1, … of this block's next part.
inline void count_part(const HistogramArgs& args, int32* counts, int64 first, int64 num_indices) {
  if (first + kIndicesOfBlock <= num_indices) {
    device::Words<kWidth * 8> loaded[kTile.loads];
    const int64 mine = first + int64{threadIdx.x} * kWidth;
    constexpr int64 kStep = int64{kTile.threads} * kWidth;
#pragma unroll
    for (int32 i = 0; i < kTile.loads; ++i) {
      loaded[i] = device::load<kWidth * 8>(args.indices + mine + i * kStep);
    }
#pragma unroll
    for (int32 i = 0; i < kTile.loads; ++i) {
#pragma unroll
      for (int32 j = 0; j < kWidth; ++j) {
        count_index(args, counts, index_of(loaded[i], j), mine + i * kStep + j);
      }
    }
    return;
  }
#pragma unroll 1
  for (int64 place = first + threadIdx.x; place < num_indices; place += kTile.threads) {
    count_index(args, counts, args.indices[place], place);
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
  if constexpr (kIsShared) {
#pragma unroll 1
    for (int32 bin = thread; bin < args.num_bins; bin += kTile.threads) shared[bin] = 0;
    __syncthreads();
  }
  device::wait_for_predecessor();
  const int64 num_indices = args.num_tokens * args.num_topk;
#pragma unroll 1
  for (int64 first = int64{blockIdx.x} * kIndicesOfBlock; first < num_indices;
       first += int64{gridDim.x} * kIndicesOfBlock) {
    count_part(args, kIsShared ? shared : out, first, num_indices);
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
