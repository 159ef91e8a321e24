// expand_to_fused: all zero, then one entry after the other.
#include <cstring>

#include "ops/moe/expand_to_fused/op.h"

namespace tilekernels::reference {

void expand_to_fused(const ExpandToFusedArgs& args, const ExpandToFusedShape& shape,
                     const Launch&) {
  const auto row_bytes = static_cast<size_t>(shape.row_bytes);
  const auto word_bytes = static_cast<size_t>(shape.sf_word_bytes);
  for (int64 pos = 0; pos < args.num_expanded; ++pos) {
    std::memset(args.out + pos * shape.row_bytes, 0, row_bytes);
  }
  const auto sf_word = [](const ExpandSf& of, int64 row, int64 col) {
    return of.base + row * of.row_stride + col * of.col_stride;
  };
  for (int64 pos = 0; pos < args.padded_expanded; ++pos) {
    for (int64 col = 0; col < shape.sf_words; ++col) {
      std::memset(sf_word(args.out_sf, pos, col), 0, word_bytes);
    }
  }
  for (int64 i = 0; i < args.num_tokens * shape.num_topk; ++i) {
    const int64 token = i / shape.num_topk;
    const int64 pos = args.token_topk_to_pos[i];
    if (pos < 0) continue;
    if (pos >= args.num_expanded) {
      note_fault(args.fault, token, expand_op_id(shape), numerics::kFaultPositionOutOfRange);
      continue;
    }
    if (args.pos_to_expert[pos] < 0) continue;
    std::memcpy(args.out + pos * shape.row_bytes, args.x + token * args.x_stride, row_bytes);
    for (int64 col = 0; col < shape.sf_words; ++col) {
      std::memcpy(sf_word(args.out_sf, pos, col), sf_word(args.sf, token, col), word_bytes);
    }
  }
}

}  // namespace tilekernels::reference
