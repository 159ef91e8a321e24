// reduce_fused on CUDA: a warp takes a span of a token's row. Lane k knows the k-th position and
// factor; the rows of a few positions are loaded at once, then added in order.
#include "ops/moe/reduce_fused/tile.h"
#include "runtime/cuda/device/convert.cuh"
#include "runtime/cuda/device/fault.cuh"
#include "runtime/cuda/device/grid.cuh"
#include "runtime/cuda/device/memory.cuh"
#include "runtime/cuda/device/warp.cuh"

namespace tilekernels {

constexpr ReduceFusedShape kShape = TILEKERNELS_SHAPE;
constexpr ReduceFusedTile kTile = TILEKERNELS_TILE;

constexpr int32 kTopk = kShape.num_topk;
constexpr int32 kChunk = reduce_chunk(kShape);
constexpr int32 kSpans = static_cast<int32>(reduce_spans(kShape));
constexpr int32 kXBytes = reduced_bytes(kShape.x_dtype);
constexpr int32 kOutBytes = reduced_bytes(kShape.out_dtype);
constexpr int32 kAtOnce = numerics::min_of(kTopk, 8);  // rows in flight

using Row = device::Words<16>;

template <int32 kDType>
inline void widen(const Row& row, float* x) {
#pragma unroll
  for (int32 i = 0; i < 4; ++i) {
    const uint32 word = row.words[i];
    if constexpr (kDType == numerics::kDTypeF32) {
      x[i] = numerics::bit_cast<float>(word);
    } else if constexpr (kDType == numerics::kDTypeE4M3) {
#pragma unroll
      for (int32 k = 0; k < 2; ++k) {
        const device::Pair pair = device::widen_f16x2(device::e4m3x2_to_f16x2(word >> (16 * k)));
        x[4 * i + 2 * k] = pair.even;
        x[4 * i + 2 * k + 1] = pair.odd;
      }
    } else {
      const device::Pair pair =
          kDType == numerics::kDTypeBF16 ? device::widen_bf16x2(word) : device::widen_f16x2(word);
      x[2 * i] = pair.even;
      x[2 * i + 1] = pair.odd;
    }
  }
}

template <int32 kDType>
inline device::Words<kChunk * kOutBytes> narrow(const float* y) {
  device::Words<kChunk * kOutBytes> out;
#pragma unroll
  for (int32 i = 0; i < kChunk * kOutBytes / 4; ++i) {
    if constexpr (kDType == numerics::kDTypeF32) {
      out.words[i] = numerics::bit_cast<uint32>(numerics::canonical(y[i]));
    } else if constexpr (kDType == numerics::kDTypeBF16) {
      out.words[i] = device::narrow_bf16x2(y[2 * i], y[2 * i + 1]);
    } else if constexpr (kDType == numerics::kDTypeF16) {
      out.words[i] = device::narrow_f16x2(y[2 * i], y[2 * i + 1]);
    } else {
      out.words[i] = device::narrow_e4m3x4(y + 4 * i);
    }
  }
  return out;
}

// Blocks of a multiprocessor. With e4m3 out the compiler would put loads behind sums if it had more
// registers a thread; other rows are faster with all that it takes.
constexpr int32 kMinBlocks = kShape.out_dtype == numerics::kDTypeE4M3 ? 6 : 1;

inline void reduce_fused(const ReduceFusedArgs& args) {
  constexpr int32 kWarps = kReduceThreads / device::kWarpLanes;
  const auto lane = static_cast<int32>(device::lane_id());
  const int64 warp = int64{blockIdx.x} * kWarps + threadIdx.x / device::kWarpLanes;
  const int64 token = warp / kSpans;
  const auto span = static_cast<int32>(warp % kSpans);
  if (token >= args.num_tokens) return;
  device::wait_for_predecessor();

  int32 my_pos = -1;
  float my_factor = 1.0f;
  float my_sf = 1.0f;
  float sf = 1.0f;
  if constexpr (kShape.has_sf != 0) sf = *args.sf;
  if (lane < kTopk) {
    const int64 i = token * kTopk + lane;
    my_pos = args.token_topk_to_pos[i];
    if (my_pos >= args.num_expanded) {
      my_pos = -1;
      if (span == 0) {
        device::note_fault(args.fault, token, kReduceFusedId, numerics::kFaultPositionOutOfRange);
      }
    }
    if constexpr (kShape.has_weights != 0) my_factor = args.topk_weights[i];
    if constexpr (kShape.has_x_sf != 0) {
      if (my_pos >= 0) my_sf = args.x_sf[my_pos];
    }
  }

  const int32 col = (span * device::kWarpLanes + lane) * kChunk;
  const int32 count = kShape.hidden - col;  // columns from here on; none below 1
  float sum[kChunk];
#pragma unroll
  for (int32 i = 0; i < kChunk; ++i) sum[i] = 0.0f;
#pragma unroll
  for (int32 first = 0; first < kTopk; first += kAtOnce) {
    Row rows[kAtOnce];
    int32 pos[kAtOnce];
#pragma unroll
    for (int32 k = 0; k < kAtOnce; ++k) {
      if (first + k >= kTopk) break;
      pos[k] = __shfl_sync(device::kAllLanes, my_pos, first + k);
      if (pos[k] < 0 || count <= 0) continue;
      const uint8* from = args.x + pos[k] * args.x_stride + int64{col} * kXBytes;
      if constexpr (kTile.wide != 0) {
        rows[k] = device::load<16>(from);
      } else {
        rows[k] = device::load_units<16, kXBytes>(from, count);
      }
    }
    // Not above, where it would hold up the rows
    if (kShape.has_x_sf != 0 && first == 0) my_factor *= my_sf;
#pragma unroll
    for (int32 k = 0; k < kAtOnce; ++k) {
      if (first + k >= kTopk) break;
      const float factor = __shfl_sync(device::kAllLanes, my_factor, first + k);
      if (pos[k] < 0 || count <= 0) continue;
      float x[kChunk];
      widen<kShape.x_dtype>(rows[k], x);
#pragma unroll
      for (int32 i = 0; i < kChunk; ++i) sum[i] = numerics::fma_rn(x[i], factor, sum[i]);
    }
  }
  if (count <= 0) return;
  if constexpr (kShape.has_sf != 0) {
#pragma unroll
    for (int32 i = 0; i < kChunk; ++i) sum[i] *= sf;
  }
  uint8* to = args.out + (token * kShape.hidden + col) * kOutBytes;
  const auto out = narrow<kShape.out_dtype>(sum);
  if constexpr (kTile.wide != 0) {
    device::store(to, out);
  } else {
    device::store_units<kChunk * kOutBytes, kOutBytes>(to, out, count);
  }
}

}  // namespace tilekernels

extern "C" __global__ void __launch_bounds__(tilekernels::kReduceThreads, tilekernels::kMinBlocks)
    reduce_fused_kernel(const __grid_constant__ tilekernels::ReduceFusedArgs args) {
  tilekernels::reduce_fused(args);
}
