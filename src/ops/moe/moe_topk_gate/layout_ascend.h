// moe_topk_gate on the vector core: how rows, outputs and the rest lie in UB.
#pragma once

#include "ops/moe/moe_topk_gate/op.h"
#include "ops/moe/topk_ascend.h"
#include "runtime/ascend/faults.h"
#include "runtime/ascend/row_sum.h"

namespace tilekernels::ascend::moe_topk_gate_kernel {

/// Tile constants.
struct Tile {
  int32 stages;  // rows in flight
};

// Experts with the lanes behind them.
constexpr int64 padded(const MoeTopkGateShape& shape) {
  return numerics::align_up(int64{shape.num_experts}, kF32Lanes);
}
constexpr int32 regs_of(const MoeTopkGateShape& shape) {
  return static_cast<int32>(padded(shape) / kF32Lanes);
}
// Windows of rows that go by chunks reach beyond the row.
constexpr int32 kWindow = kChunkRegs * kF32Lanes;
constexpr int64 num_keys(const MoeTopkGateShape& shape) { return padded(shape) + kWindow; }

// A slot of the outputs: ids, weights, the ids of unmapped, scores
constexpr int32 kIdWords = 2 * kWeightSlots;
constexpr int32 kWeightsAt = kIdWords;
constexpr int32 kUnmappedAt = 2 * kIdWords;
constexpr int32 kScoresAt = 3 * kIdWords;
constexpr int64 out_words(const MoeTopkGateShape& shape) {
  return kScoresAt + (shape.has_scores ? padded(shape) : 0);
}

constexpr int64 bytes_of(int64 words, int64 tail = kVectorBytes) {
  return numerics::align_up(words * 4 + tail, kBlockBytes);
}

// Bytes of UB that a kernel takes, readable tails included.
constexpr int64 ub_bytes(const MoeTopkGateShape& shape, const Tile& tile) {
  const int64 row = padded(shape);
  const int64 num_biases = (shape.has_bias ? 1 : 0) + (shape.has_image_bias ? 1 : 0);
  int64 bytes = tile.stages * (bytes_of(row + kIdWords) + bytes_of(out_words(shape)));
  bytes += bytes_of(row, kRowSumTail) + bytes_of(num_keys(shape));
  bytes += num_biases * bytes_of(row) + bytes_of(kF32Lanes);
  if (shape.num_groups > 0) {
    bytes += bytes_of(num_keys(shape)) + bytes_of(row) + bytes_of(kF32Lanes);
  }
  bytes += bytes_of(kWhole) + 2 * bytes_of(kF32Lanes) + bytes_of(kIdWords + kF32Lanes);
  return bytes + 2 * bytes_of(1) + kFaultUbBytes;
}

// A fault is an item: the row's turn and the kind.
constexpr int32 kMaxKinds = 8;
constexpr int32 item_of(int32 turn, int32 kind) { return turn * kMaxKinds + kind; }

}  // namespace tilekernels::ascend::moe_topk_gate_kernel
