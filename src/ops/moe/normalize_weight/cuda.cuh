// normalize_weight on CUDA: a few neighbouring lanes a row, each with up to four of its weights, so
// that a warp's loads and stores are contiguous.
#include "ops/moe/normalize_weight/op.h"
#include "ops/moe/normalize_weight/tile.h"
#include "runtime/cuda/device/grid.cuh"
#include "runtime/cuda/device/math.cuh"
#include "runtime/cuda/device/memory.cuh"
#include "runtime/cuda/device/warp.cuh"

namespace tilekernels {

constexpr NormalizeWeightShape kShape = TILEKERNELS_SHAPE;
constexpr NormalizeWeightTile kTile = TILEKERNELS_TILE;

constexpr int32 kWidth = kTile.width;
constexpr int32 kParts = kShape.num_topk / kWidth;  // lanes that have weights
constexpr int32 kLanes = lanes_of_row(kShape, kTile);

inline void normalize_weight(const NormalizeWeightArgs& args) {
  const uint64 thread = uint64{blockIdx.x} * kNormalizeThreads + threadIdx.x;
  const auto token = static_cast<int64>(thread / kLanes);
  const uint32 part = threadIdx.x % kLanes;
  const auto place = static_cast<int64>(
      kParts == kLanes ? thread * kWidth : thread / kLanes * kShape.num_topk + part * kWidth);
  const bool has_weights = token < args.num_tokens && part < kParts;
  device::wait_for_predecessor();
  device::Words<kWidth * 4> words{};
  if (has_weights) words = device::load<kWidth * 4>(args.topk_weights + place);

  // The tree of weight_denominator: first across lanes, then within
  float weights[kWidth];
  float sums[kWidth];
  float lowest = numerics::bit_cast<float>(words.words[0]);
#pragma unroll
  for (int32 j = 0; j < kWidth; ++j) {
    weights[j] = sums[j] = numerics::bit_cast<float>(words.words[j]);
    lowest = fminf(lowest, weights[j]);
  }
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
  const auto store = [&](const float* quotients) {
#pragma unroll
    for (int32 j = 0; j < kWidth; ++j) words.words[j] = numerics::bit_cast<uint32>(quotients[j]);
    if (has_weights) device::store(args.normalized_weights + place, words);
  };
  const device::FloatDivisor divisor = device::divisor(denominator);
  float quotients[kWidth];
#pragma unroll
  for (int32 j = 0; j < kWidth; ++j) quotients[j] = device::divide(weights[j], divisor);
  store(quotients);
  if (has_weights && part == 0) args.denominator[token] = device::canonical(denominator);

  // Those of rare rows are stored again. Where all weights are above the lowest, none is above the
  // sum.
  const bool is_rare = has_weights && !(lowest >= device::kDivisionLowest &&
                                        denominator <= device::kDivisionHighest);
  if (!__any_sync(device::kAllLanes, is_rare)) return;
    // One division in the text; the quotients are in their places after all turns.
#pragma unroll 1
  for (int32 turn = 0; turn < kWidth; ++turn) {
    const float quotient = numerics::canonical(weights[0] / denominator);
#pragma unroll
    for (int32 j = 1; j < kWidth; ++j) weights[j - 1] = weights[j];
    weights[kWidth - 1] = quotient;
  }
  store(weights);
}

}  // namespace tilekernels

extern "C" __global__ void __launch_bounds__(tilekernels::kNormalizeThreads)
    normalize_weight_kernel(const __grid_constant__ tilekernels::NormalizeWeightArgs args) {
  tilekernels::normalize_weight(args);
}
