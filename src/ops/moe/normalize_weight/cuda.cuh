// normalize_weight on CUDA: a few neighbouring lanes a row, each with up to four of its weights, so
// that a warp's loads and stores are contiguous.
#include "ops/moe/normalize_weight/op.h"
#include "ops/moe/normalize_weight/tile.h"
#include "runtime/cuda/device/grid.cuh"
#include "runtime/cuda/device/memory.cuh"
#include "runtime/cuda/device/warp.cuh"

namespace tilekernels {

constexpr NormalizeWeightShape kShape = TILEKERNELS_SHAPE;
constexpr NormalizeWeightTile kTile = TILEKERNELS_TILE;

constexpr int32 kWidth = kTile.width;
constexpr int32 kParts = kShape.num_topk / kWidth;  // lanes that have weights
constexpr int32 kLanes = lanes_of_row(kShape, kTile);

inline void normalize_weight(const NormalizeWeightArgs& args) {
  const uint32 part = threadIdx.x % kLanes;
  const int64 token = int64{blockIdx.x} * (blockDim.x / kLanes) + threadIdx.x / kLanes;
  const int64 place = token * kShape.num_topk + part * kWidth;
  const bool has_weights = token < args.num_tokens && part < kParts;
  device::wait_for_predecessor();
  device::Words<kWidth * 4> weights{};
  if (has_weights) weights = device::load<kWidth * 4>(args.topk_weights + place);

  // The tree of weight_denominator: first across lanes, then within
  float sums[kWidth];
#pragma unroll
  for (int32 j = 0; j < kWidth; ++j) sums[j] = numerics::bit_cast<float>(weights.words[j]);
#pragma unroll
  for (int32 step = kLanes / 2; step > 0; step /= 2) {
#pragma unroll
    for (int32 j = 0; j < kWidth; ++j) {
      sums[j] += __shfl_xor_sync(device::kAllLanes, sums[j], step);
    }
  }
#pragma unroll
  for (int32 half = kWidth / 2; half > 0; half /= 2) {
#pragma unroll
    for (int32 j = 0; j < half; ++j) sums[j] += sums[j + half];
  }
  const float denominator = sums[0] + kWeightEpsilon;
  if (!has_weights) return;
#pragma unroll
  for (int32 j = 0; j < kWidth; ++j) {
    const float weight = numerics::bit_cast<float>(weights.words[j]);
    weights.words[j] = numerics::bit_cast<uint32>(numerics::canonical(weight / denominator));
  }
  device::store(args.normalized_weights + place, weights);
  if (part == 0) args.denominator[token] = numerics::canonical(denominator);
}

}  // namespace tilekernels

extern "C" __global__ void __launch_bounds__(128)
    normalize_weight_kernel(const __grid_constant__ tilekernels::NormalizeWeightArgs args) {
  tilekernels::normalize_weight(args);
}
