// inplace_unique_group_indices on the cpu backend: a set of 64 or 128 bits.
#include "ops/moe/inplace_unique_group_indices/op.h"

#include <algorithm>

#include "runtime/cpu/fault.h"
#include "runtime/cpu/parallel.h"

namespace tilekernels::cpu {
namespace {

// Whether the row has an index that is out of range. Without branches, which nobody could predict.
// kWords: 64 groups each.
template <int kWords>
bool make_unique(int64* row, int32 num_topk, int64 num_groups) {
  uint64 seen[kWords] = {};
  int64 largest = -1;
  for (int32 k = 0; k < num_topk; ++k) {
    const int64 index = row[k];
    const bool is_group = static_cast<uint64>(index) < static_cast<uint64>(num_groups);
    largest = std::max(largest, index);
    const uint64 bit = static_cast<uint64>(is_group) << (index & 63);
    const uint64 upper =
        kWords == 1 ? 0 : bit & (uint64{0} - (static_cast<uint64>(index) >> 6 & 1));
    const uint64 of_words[2] = {bit ^ upper, upper};
    uint64 before = 0;
    for (int word = 0; word < kWords; ++word) {
      before |= seen[word] & of_words[word];
      seen[word] |= of_words[word];
    }
    // All bits of -1, or none
    row[k] = static_cast<int64>(static_cast<uint64>(index) | (uint64{0} - (before != 0)));
  }
  return largest >= num_groups;
}

}  // namespace

void inplace_unique_group_indices(const InplaceUniqueGroupIndicesArgs& args,
                                  const InplaceUniqueGroupIndicesShape& shape, const Launch&) {
  const int32 num_topk = shape.num_topk;
  const auto make_row = args.num_groups <= 64 ? make_unique<1> : make_unique<2>;
  parallel_for(args.num_tokens, items_per_thread(1.5 * num_topk), [&](int64 begin, int64 end) {
    int64 first_fault = end;
    for (int64 token = end; token-- > begin;) {
      if (make_row(args.group_indices + token * num_topk, num_topk, args.num_groups)) {
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
