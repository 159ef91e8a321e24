// What group_count and aux_fi share: how often each bin occurs among the indices. Device-safe.
//
// -1 stands for none and is not counted; any other index outside of the bins is a fault
// (kFaultIndexOutOfRange) and not counted either. Counts are exact, so no order shows in them.
#pragma once

#include "numerics/fault.h"
#include "numerics/kernel.h"
#include "numerics/types.h"

namespace tilekernels {

// In the error word
constexpr int32 kGroupCountId = 4;
constexpr int32 kAuxFiId = 5;

struct HistogramArgs {
  const int64* indices;  // num_tokens x num_topk, fewer than 2^31
  void* out;             // num_bins: counts, int32; or fractions, float
  int64 num_tokens;
  int64 num_chosen;  // of a fraction
  int32 num_topk;
  int32 num_bins;
  int32* counts;    // of the compiled kernels: by part, counts of the bins; or `out`, as one part
  int64 num_parts;  // of these
  uint64* fault;
};
static_assert(sizeof(HistogramArgs) == 64);

struct HistogramShape {
  int32 is_fraction;  // 1: fraction_of(count) is stored
};

constexpr int32 histogram_op_id(const HistogramShape& shape) {
  return shape.is_fraction != 0 ? kAuxFiId : kGroupCountId;
}

/// count · num_bins / num_chosen: product and num_chosen rounded once each, then the quotient; 0
/// where nothing was chosen.
inline float fraction_of(int64 count, const HistogramArgs& args) {
  if (args.num_chosen == 0) return 0.0f;
  return static_cast<float>(count * args.num_bins) / static_cast<float>(args.num_chosen);
}

using HistogramKernel = Kernel<HistogramArgs, HistogramShape>;
namespace reference {
HistogramKernel histogram;
}
namespace cpu {
HistogramKernel histogram;
}
namespace cuda {
struct Text;
/// `text` is the op's own, with the kernel that histogram.cuh makes.
void histogram(const HistogramArgs& args, const HistogramShape& shape, const Launch& launch,
               const Text& text);
}  // namespace cuda
namespace ascend {
struct Text;
void histogram(const HistogramArgs& args, const HistogramShape& shape, const Launch& launch,
               const Text& text);
}  // namespace ascend

}  // namespace tilekernels
