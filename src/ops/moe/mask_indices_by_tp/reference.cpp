// mask_indices_by_tp: element by element, with the divisions of the definition.
#include "ops/moe/mask_indices_by_tp/op.h"

namespace tilekernels::reference {
namespace {

template <class T>
void mask(const MaskIndicesByTpArgs& args) {
  const int64 per_rank = args.experts_per_rank.divisor;
  const int64 ranks = args.num_tp_ranks.divisor;
  const int64 per_turn = per_rank * ranks;
  for (int64 i = 0; i < args.count; ++i) {
    int64 v = static_cast<const T*>(args.indices)[i];
    if (v >= args.num_experts) {
      const uint64 word = numerics::fault_word(i / args.row_length, kMaskIndicesByTpId,
                                               numerics::kFaultIndexOutOfRange);
      *args.fault = numerics::min_of(*args.fault, word);
      v = -1;
    }
    if (v < 0 || v / per_rank % ranks != args.tp_rank) {
      v = -1;
    } else {
      v -= args.tp_rank * per_rank;
      v -= v / per_turn * (per_turn - per_rank);
    }
    static_cast<T*>(args.out)[i] = static_cast<T>(v);
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
