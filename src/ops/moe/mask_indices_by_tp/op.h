// mask_indices_by_tp: the contract that its kernels share. Device-safe.
//
// Experts are dealt out to ranks in runs of experts_per_rank, and ranks in turn to num_tp_ranks
// columns. An index of an expert in column tp_rank becomes the expert's number among that column's
// experts, any other one -1. Negative indices become -1; an index of num_experts or more too, and
// is a fault (kFaultIndexOutOfRange).
#pragma once

#include "numerics/divide.h"
#include "numerics/fault.h"
#include "numerics/ids.h"
#include "numerics/kernel.h"
#include "numerics/types.h"

namespace tilekernels {

constexpr int32 kMaskIndicesByTpId = 6;  // in the error word

struct MaskIndicesByTpArgs {
  const void* indices;
  void* out;
  int64 count;
  int64 row_length;   // indices of a row
  int32 num_experts;  // at least experts_per_rank
  int32 tp_rank;
  numerics::Divisor experts_per_rank;
  numerics::Divisor num_tp_ranks;
  uint64* fault;
};
static_assert(sizeof(MaskIndicesByTpArgs) == 72);

struct MaskIndicesByTpShape {
  int32 dtype;  // numerics::kDTypeI32 or kDTypeI64
};

/// The new index of 0 <= expert < num_experts.
inline int32 index_in_column(uint32 expert, const MaskIndicesByTpArgs& args) {
  const uint32 rank = numerics::quotient(expert, args.experts_per_rank);
  const uint32 turn = numerics::quotient(rank, args.num_tp_ranks);
  const auto column =
      static_cast<int32>(rank) - static_cast<int32>(turn) * args.num_tp_ranks.divisor;
  const int32 in_rank =
      static_cast<int32>(expert) - static_cast<int32>(rank) * args.experts_per_rank.divisor;
  if (column != args.tp_rank) return -1;
  return static_cast<int32>(turn) * args.experts_per_rank.divisor + in_rank;
}

using MaskIndicesByTpKernel = Kernel<MaskIndicesByTpArgs, MaskIndicesByTpShape>;
namespace reference {
MaskIndicesByTpKernel mask_indices_by_tp;
}
namespace cpu {
MaskIndicesByTpKernel mask_indices_by_tp;
}
namespace cuda {
MaskIndicesByTpKernel mask_indices_by_tp;
}
namespace ascend {
MaskIndicesByTpKernel mask_indices_by_tp;
}

}  // namespace tilekernels
