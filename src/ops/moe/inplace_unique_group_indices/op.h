// inplace_unique_group_indices: the contract that its kernels share. Device-safe.
//
// In every row, from left to right, a group that has occurred before becomes -1. Negative indices
// stay. So do indices of num_groups or more, which are a fault (kFaultIndexOutOfRange) and no
// group.
#pragma once

#include "numerics/fault.h"
#include "numerics/kernel.h"
#include "numerics/types.h"
#include "ops/moe/common.h"

namespace tilekernels {

constexpr int32 kInplaceUniqueGroupIndicesId = 7;  // in the error word
constexpr int32 kMaxUniqueGroups = 128;

struct InplaceUniqueGroupIndicesArgs {
  int64* group_indices;  // num_tokens x num_topk
  int64 num_tokens;
  int64 num_groups;  // 1..kMaxUniqueGroups
  uint64* fault;
};
static_assert(sizeof(InplaceUniqueGroupIndicesArgs) == 32);

struct InplaceUniqueGroupIndicesShape {
  int32 num_topk;  // 1..32
};

using InplaceUniqueGroupIndicesKernel =
    Kernel<InplaceUniqueGroupIndicesArgs, InplaceUniqueGroupIndicesShape>;
namespace reference {
InplaceUniqueGroupIndicesKernel inplace_unique_group_indices;
}
namespace cpu {
InplaceUniqueGroupIndicesKernel inplace_unique_group_indices;
}
namespace cuda {
InplaceUniqueGroupIndicesKernel inplace_unique_group_indices;
}
namespace ascend {
InplaceUniqueGroupIndicesKernel inplace_unique_group_indices;
}

}  // namespace tilekernels
