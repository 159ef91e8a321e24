// inplace_unique_group_indices on the cpu backend: a set of 128 bits in two words.
#include "ops/moe/inplace_unique_group_indices/op.h"
#include "runtime/cpu/fault.h"
#include "runtime/cpu/parallel.h"

namespace tilekernels::cpu {
namespace {

// Whether the row has an index that is out of range. Without branches, which nobody could predict.
bool make_unique(int64* row, int32 num_topk, int64 num_groups) {
  uint64 seen_low = 0;
  uint64 seen_high = 0;
  bool has_fault = false;
  for (int32 k = 0; k < num_topk; ++k) {
    const int64 index = row[k];
    const bool is_group = static_cast<uint64>(index) < static_cast<uint64>(num_groups);
    has_fault |= index >= num_groups;
    const uint64 bit = static_cast<uint64>(is_group) << (index & 63);
    const uint64 high = bit & (uint64{0} - (static_cast<uint64>(index) >> 6 & 1));
    const uint64 low = bit ^ high;
    const bool is_repeated = ((seen_low & low) | (seen_high & high)) != 0;
    seen_low |= low;
    seen_high |= high;
    row[k] = is_repeated ? -1 : index;
  }
  return has_fault;
}

}  // namespace

void inplace_unique_group_indices(const InplaceUniqueGroupIndicesArgs& args,
                                  const InplaceUniqueGroupIndicesShape& shape, const Launch&) {
  const int32 num_topk = shape.num_topk;
  parallel_for(args.num_tokens, items_per_thread(1.5 * num_topk), [&](int64 begin, int64 end) {
    int64 first_fault = end;
    for (int64 token = end; token-- > begin;) {
      if (make_unique(args.group_indices + token * num_topk, num_topk, args.num_groups)) {
        first_fault = token;
      }
    }
    if (first_fault < end) {
      cpu::note_fault(args.fault, first_fault, kInplaceUniqueGroupIndicesId,
                      numerics::kFaultIndexOutOfRange);
    }
  });
}

}  // namespace tilekernels::cpu
