// mask_indices_by_tp on CUDA: a thread takes the indices of 16 bytes, or one where they are not
// aligned.
#include "ops/moe/mask_indices_by_tp/op.h"
#include "ops/moe/mask_indices_by_tp/tile.h"
#include "runtime/cuda/device/fault.cuh"
#include "runtime/cuda/device/grid.cuh"
#include "runtime/cuda/device/memory.cuh"

namespace tilekernels {

constexpr MaskIndicesByTpShape kShape = TILEKERNELS_SHAPE;
constexpr MaskIndicesByTpTile kTile = TILEKERNELS_TILE;

constexpr bool kIsLong = kShape.dtype == numerics::kDTypeI64;
constexpr int32 kIndexWords = kIsLong ? 2 : 1;
constexpr int32 kWidth = kTile.wide ? 4 / kIndexWords : 1;  // indices of a thread
template <bool kLong>
struct IndexOf {
  using T = int32;
};
template <>
struct IndexOf<true> {
  using T = int64;
};
using Index = typename IndexOf<kIsLong>::T;
using Indices = device::Words<kWidth * kIndexWords * 4>;

// For any index, without a branch.
inline int32 masked(const MaskIndicesByTpArgs& args, int64 index) {
  const bool is_expert = index >= 0 && index < args.num_experts;
  const int32 in_column = index_in_column(is_expert ? static_cast<uint32>(index) : 0, args);
  return is_expert ? in_column : -1;
}

// Of the index of number `place`.
inline void note_fault(const MaskIndicesByTpArgs& args, int64 place) {
  device::note_fault(args.fault, place / args.row_length, kMaskIndicesByTpId,
                     numerics::kFaultIndexOutOfRange);
}

inline int64 index_of(const Indices& indices, int32 i) {
  const auto low = static_cast<int32>(indices.words[i * kIndexWords]);
  if constexpr (!kIsLong) return low;
  const uint64 high = indices.words[i * kIndexWords + kIndexWords - 1];
  return static_cast<int64>(high << 32 | static_cast<uint32>(low));
}

inline void set_index(Indices& indices, int32 i, int32 index) {
  indices.words[i * kIndexWords] = static_cast<uint32>(index);
  if constexpr (kIsLong) indices.words[i * kIndexWords + 1] = static_cast<uint32>(index >> 31);
}

inline void mask_indices_by_tp(const MaskIndicesByTpArgs& args) {
  const int64 first = (int64{blockIdx.x} * kMaskIndicesThreads + threadIdx.x) * kWidth;
  if (first >= args.count) return;
  device::wait_for_predecessor();
  const auto* const from = static_cast<const Index*>(args.indices);
  auto* const to = static_cast<Index*>(args.out);
  if (first + kWidth <= args.count) {
    Indices indices = device::load<kWidth * kIndexWords * 4>(from + first);
    int32 bad = kWidth;  // the first one
#pragma unroll
    for (int32 i = kWidth - 1; i >= 0; --i) {
      const int64 index = index_of(indices, i);
      if (index >= args.num_experts) bad = i;
      set_index(indices, i, masked(args, index));
    }
    device::store(to + first, indices);
    if (bad != kWidth) note_fault(args, first + bad);
    return;
  }
#pragma unroll 1
  for (int64 i = first; i < args.count; ++i) {
    const int64 index = from[i];
    to[i] = masked(args, index);
    if (index >= args.num_experts) note_fault(args, i);
  }
}

}  // namespace tilekernels

extern "C" __global__ void __launch_bounds__(tilekernels::kMaskIndicesThreads)
    mask_indices_by_tp_kernel(const __grid_constant__ tilekernels::MaskIndicesByTpArgs args) {
  tilekernels::mask_indices_by_tp(args);
}
