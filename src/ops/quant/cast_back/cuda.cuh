// cast_back on CUDA.
#include "ops/quant/cast_back/tile.h"
#include "runtime/cuda/device/convert.cuh"
#include "runtime/cuda/device/grid.cuh"
#include "runtime/cuda/device/memory.cuh"

namespace tilekernels {

constexpr CastBackShape kShape = TILEKERNELS_SHAPE;
constexpr CastBackTile kTile = TILEKERNELS_TILE;

constexpr bool kIsE2M1 = kShape.x_dtype == numerics::kDTypeE2M1x2;
constexpr int32 kRows = kTile.rows;
constexpr int32 kChunk = chunk_of(kShape);
constexpr int32 kChunks = static_cast<int32>(numerics::ceil_div(kShape.hidden, kChunk));
constexpr int32 kUnits = elements_per_unit(kShape.x_dtype);
constexpr int32 kXBytes = kChunk / kUnits;
constexpr int32 kOutBytes = bytes_per_unit(kShape.out_dtype);
// The scaling factors of a thread's part, as few as cover it
constexpr int32 kScaleRows = kShape.block_rows % kRows == 0 ? 1 : kRows;
constexpr int32 kScaleCols = kShape.block_cols % kChunk == 0 ? 1 : kChunk;

using Codes = device::Words<kXBytes>;
using Out = device::Words<16>;

inline void widen(const Codes& codes, float* x) {
#pragma unroll
  for (int32 i = 0; i < Codes::kCount; ++i) {
    const uint32 word = codes.words[i];
    if constexpr (kIsE2M1) {
#pragma unroll
      for (int32 k = 0; k < 4; ++k) {
        const device::Pair pair = device::widen_f16x2(device::e2m1_pair_to_f16x2(word, k));
        x[8 * i + k] = pair.even;
        x[8 * i + k + 4] = pair.odd;
      }
    } else {
#pragma unroll
      for (int32 k = 0; k < 2; ++k) {
        const device::Pair pair = device::widen_f16x2(device::e4m3x2_to_f16x2(word >> (16 * k)));
        x[4 * i + 2 * k] = pair.even;
        x[4 * i + 2 * k + 1] = pair.odd;
      }
    }
  }
}

inline Out narrow(const float* y) {
  Out out;
#pragma unroll
  for (int32 i = 0; i < Out::kCount; ++i) {
    if constexpr (kShape.out_dtype == numerics::kDTypeBF16) {
      out.words[i] = device::narrow_bf16x2(y[2 * i], y[2 * i + 1]);
    } else if constexpr (kShape.out_dtype == numerics::kDTypeF16) {
      out.words[i] = device::narrow_f16x2(y[2 * i], y[2 * i + 1]);
    } else {
      out.words[i] = numerics::bit_cast<uint32>(numerics::canonical(y[i]));
    }
  }
  return out;
}

inline float scale_at(const CastBackArgs& args, int64 row, int32 col) {
  return load_scale(kShape.sf_kind, args.x_sf.at(row / kShape.block_rows, col / kShape.block_cols));
}

inline void cast_back(const CastBackArgs& args) {
  device::wait_for_predecessor();
  const device::GridPlace place = device::thread_place<kChunks, kTile.threads>();
  const int64 row = place.row * kRows;
  const int32 col = place.column * kChunk;
  const int32 count = kShape.hidden - col;
  if (row >= args.num_tokens) return;
  const auto num_rows = static_cast<int32>(numerics::min_of(args.num_tokens - row, int64{kRows}));

  Codes codes[kRows];
  const uint8* from = args.x + row * args.x_stride + col / kUnits;
#pragma unroll
  for (int32 j = 0; j < kRows; ++j) {
    if (j < num_rows) {
      if constexpr (kTile.wide) {
        codes[j] = device::load<kXBytes>(from);
      } else {
        codes[j] = device::load_units<kXBytes, 1>(from, count / kUnits);
      }
    }
    from += args.x_stride;
  }
  float scales[kScaleRows][kScaleCols];
#pragma unroll
  for (int32 j = 0; j < kScaleRows; ++j) {
#pragma unroll
    for (int32 i = 0; i < kScaleCols; ++i) {
      scales[j][i] = j < num_rows && i < count ? scale_at(args, row + j, col + i) : 0.0f;
    }
  }
  uint8* to = static_cast<uint8*>(args.out) + (row * kShape.hidden + col) * kOutBytes;
#pragma unroll
  for (int32 j = 0; j < kRows; ++j) {
    if (j >= num_rows) return;
    float y[kXBytes < 4 ? 8 : kChunk];  // a whole word of codes
    widen(codes[j], y);
#pragma unroll
    for (int32 i = 0; i < kChunk; ++i) y[i] *= scales[j % kScaleRows][i % kScaleCols];
    if constexpr (kTile.wide) {
      device::store(to, narrow(y));
    } else {
      device::store_units<16, kOutBytes>(to, narrow(y), count);
    }
    to += int64{kShape.hidden} * kOutBytes;
  }
}

}  // namespace tilekernels

extern "C" __global__ void __launch_bounds__(tilekernels::kTile.threads)
    cast_back_kernel(const __grid_constant__ tilekernels::CastBackArgs args) {
  tilekernels::cast_back(args);
}
