// reduce_fused: one element at a time.
#include "ops/moe/reduce_fused/op.h"

namespace tilekernels::reference {
namespace {

float load(int32 dtype, const uint8* row, int64 col) {
  switch (dtype) {
    case numerics::kDTypeF32:
      return reinterpret_cast<const float*>(row)[col];
    case numerics::kDTypeBF16:
      return numerics::load_bf16(reinterpret_cast<const uint16*>(row)[col]);
    case numerics::kDTypeF16:
      return numerics::load_f16(reinterpret_cast<const uint16*>(row)[col]);
    default:
      return numerics::e4m3_to_f32(row[col]);
  }
}

void store(int32 dtype, uint8* out, int64 i, float value) {
  switch (dtype) {
    case numerics::kDTypeF32:
      reinterpret_cast<float*>(out)[i] = numerics::canonical(value);
      return;
    case numerics::kDTypeBF16:
      reinterpret_cast<uint16*>(out)[i] = numerics::f32_to_bf16(value);
      return;
    case numerics::kDTypeF16:
      reinterpret_cast<uint16*>(out)[i] = numerics::f32_to_f16(value);
      return;
    default:
      out[i] = numerics::f32_to_e4m3(value);
  }
}

}  // namespace

void reduce_fused(const ReduceFusedArgs& args, const ReduceFusedShape& shape, const Launch&) {
  for (int64 token = 0; token < args.num_tokens; ++token) {
    for (int64 k = 0; k < shape.num_topk; ++k) {
      if (args.token_topk_to_pos[token * shape.num_topk + k] < args.num_expanded) continue;
      note_fault(args.fault, token, kReduceFusedId, numerics::kFaultPositionOutOfRange);
    }
    for (int64 col = 0; col < shape.hidden; ++col) {
      float sum = 0.0f;
      for (int64 k = 0; k < shape.num_topk; ++k) {
        const int64 i = token * shape.num_topk + k;
        const int64 pos = args.token_topk_to_pos[i];
        if (pos < 0 || pos >= args.num_expanded) continue;
        float factor = args.topk_weights != nullptr ? args.topk_weights[i] : 1.0f;
        if (args.x_sf != nullptr) factor *= args.x_sf[pos];
        sum = numerics::fma_rn(load(shape.x_dtype, args.x + pos * args.x_stride, col), factor, sum);
      }
      if (args.sf != nullptr) sum *= *args.sf;
      store(shape.out_dtype, args.out, token * shape.hidden + col, sum);
    }
  }
}

}  // namespace tilekernels::reference
