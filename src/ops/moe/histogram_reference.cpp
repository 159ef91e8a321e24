// group_count and aux_fi: one index after the other.
#include <cstddef>
#include <vector>

#include "ops/moe/common.h"
#include "ops/moe/histogram.h"

namespace tilekernels::reference {

void histogram(const HistogramArgs& args, const HistogramShape& shape, const Launch&) {
  std::vector<int64> counts(static_cast<std::size_t>(args.num_bins));
  for (int64 token = 0; token < args.num_tokens; ++token) {
    for (int32 k = 0; k < args.num_topk; ++k) {
      const int64 index = args.indices[token * args.num_topk + k];
      if (const int32 bin = routed_expert(index, args.num_bins); bin >= 0) {
        ++counts[static_cast<std::size_t>(bin)];
      } else if (is_bad_index(index, args.num_bins)) {
        note_fault(args.fault, token, histogram_op_id(shape), numerics::kFaultIndexOutOfRange);
      }
    }
  }
  for (int32 bin = 0; bin < args.num_bins; ++bin) {
    const int64 count = counts[static_cast<std::size_t>(bin)];
    if (shape.is_fraction != 0) {
      static_cast<float*>(args.out)[bin] = fraction_of(count, args);
    } else {
      static_cast<int32*>(args.out)[bin] = static_cast<int32>(count);
    }
  }
}

}  // namespace tilekernels::reference
