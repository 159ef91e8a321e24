// mask_indices_by_tp: element by element, by the definition that the gates share.
#include "ops/moe/common.h"
#include "ops/moe/gate.h"
#include "ops/moe/mask_indices_by_tp/op.h"

namespace tilekernels::reference {
namespace {

template <class T>
void mask(const MaskIndicesByTpArgs& args) {
  for (int64 i = 0; i < args.count; ++i) {
    int64 expert = static_cast<const T*>(args.indices)[i];
    if (expert >= args.num_experts) {
      note_fault(args.fault, i / args.row_length, kMaskIndicesByTpId,
                 numerics::kFaultIndexOutOfRange);
      expert = -1;
    }
    static_cast<T*>(args.out)[i] = static_cast<T>(
        mask_by_tp(expert, args.experts_per_rank.divisor, args.tp_rank, args.num_tp_ranks.divisor));
  }
}

}  // namespace

void mask_indices_by_tp(const MaskIndicesByTpArgs& args, const MaskIndicesByTpShape& shape,
                        const Launch&) {
  if (shape.dtype == numerics::kDTypeI32) {
    mask<int32>(args);
  } else {
    mask<int64>(args);
  }
}

}  // namespace tilekernels::reference
