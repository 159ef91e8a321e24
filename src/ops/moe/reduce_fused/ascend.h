// reduce_fused on the vector core: every core has a range of tokens. The scalar unit reads the
// positions of a few tokens, then the rows stream through the buffer and are added to sums that
// stay there.
#pragma once

#include "ops/moe/reduce_fused/op.h"
#include "runtime/ascend/composites.h"
#include "runtime/ascend/faults.h"

namespace tilekernels::ascend::reduce_fused_kernel {

constexpr int32 kTokens = 32;  // whose positions are read at a time
constexpr int32 kSpan = 4096;  // columns at a time
constexpr int32 kStages = 4;   // rows in flight
constexpr int32 kOutStages = 2;
constexpr int32 kEntries = kTokens * kWeightSlots;
constexpr int32 kBlockWords = kBlockBytes / 4;

// Bytes of UB that the kernel takes, readable tails included.
constexpr int64 ub_bytes() {
  constexpr int64 kTail = kVectorBytes;
  constexpr int64 kRow = kSpan * 4 + kTail;
  return (kStages + kOutStages + 1) * kRow + 2 * (kEntries * 4 + kTail) + kEntries * kBlockBytes +
         kTail + 2 * (kBlockBytes + kTail);
}

// sums += x · (weight · sf)
template <int32 kDType>
TILEKERNELS_VF void accumulate(Ub<float> sums, Ub<uint8> x, float weight, float sf, uint32 cols) {
  const Mask all = pset<float>();
  Reg<float> factor;
  Reg<float> a;
  Reg<float> b;
  Reg<float> sum_a;
  Reg<float> sum_b;
  vdup(factor, weight, all);
  vmuls(factor, factor, sf, all);
  constexpr int32 kStepBytes = static_cast<int32>(bytes_of(kDType, kPair));
  const auto turns = static_cast<uint16>((cols + kPair - 1) / kPair);
  for (uint16 i = 0; i < turns; ++i) {
    const Mask valid_a = plt<float>(cols);
    const Mask valid_b = plt<float>(cols);
    load_pair<kDType>(a, b, x + i * kStepBytes);
    vlds(sum_a, sums + i * kPair);
    vlds(sum_b, sums + (i * kPair + kF32Lanes));
    vmula(sum_a, a, factor, valid_a);
    vmula(sum_b, b, factor, valid_b);
    mem_bar<Bar::kVldVst>();
    vsts(sums + i * kPair, sum_a, valid_a);
    vsts(sums + (i * kPair + kF32Lanes), sum_b, valid_b);
  }
}

template <int32 kOut>
TILEKERNELS_VF void finish(Ub<uint8> out, Ub<float> sums, float sf, uint32 cols) {
  Reg<float> y;
  constexpr int32 kStepBytes = static_cast<int32>(bytes_of(kOut, kF32Lanes));
  const auto turns = static_cast<uint16>((cols + kF32Lanes - 1) / kF32Lanes);
  for (uint16 i = 0; i < turns; ++i) {
    const Mask valid = plt<float>(cols);
    vlds(y, sums + i * kF32Lanes);
    vmuls(y, y, sf, valid);
    store_values<kOut>(out + i * kStepBytes, y, valid);
  }
}

TILEKERNELS_CORE void call_accumulate(int32 dtype, Ub<float> sums, Ub<uint8> x, float weight,
                                      float sf, uint32 cols) {
  switch (dtype) {
    case numerics::kDTypeF32:
      return vf_call<accumulate<numerics::kDTypeF32>>("accumulate", sums, x, weight, sf, cols);
    case numerics::kDTypeBF16:
      return vf_call<accumulate<numerics::kDTypeBF16>>("accumulate", sums, x, weight, sf, cols);
    case numerics::kDTypeF16:
      return vf_call<accumulate<numerics::kDTypeF16>>("accumulate", sums, x, weight, sf, cols);
    default:
      return vf_call<accumulate<numerics::kDTypeE4M3>>("accumulate", sums, x, weight, sf, cols);
  }
}

TILEKERNELS_CORE void call_finish(int32 dtype, Ub<uint8> out, Ub<float> sums, float sf,
                                  uint32 cols) {
  switch (dtype) {
    case numerics::kDTypeF32:
      return vf_call<finish<numerics::kDTypeF32>>("finish", out, sums, sf, cols);
    case numerics::kDTypeBF16:
      return vf_call<finish<numerics::kDTypeBF16>>("finish", out, sums, sf, cols);
    case numerics::kDTypeF16:
      return vf_call<finish<numerics::kDTypeF16>>("finish", out, sums, sf, cols);
    default:
      return vf_call<finish<numerics::kDTypeE4M3>>("finish", out, sums, sf, cols);
  }
}

struct Reduction {
  const ReduceFusedArgs& args;
  const ReduceFusedShape& shape;
  InRing<uint8>& rows;
  OutRing<uint8>& out;
  Ub<float> sums;
  Ub<int32> positions;  // of the tokens at hand
  Ub<float> weights;
  Ub<float> scales;  // x_sf of every position, a data block each
  float sf;
  uint64 fault = numerics::kNoFault;

  TILEKERNELS_CORE bool is_term(int64 entry) {
    const int64 pos = get_value(positions, entry);
    return pos >= 0 && pos < args.num_expanded;
  }

  // Reads what `count` tokens from `first` on need besides their rows.
  TILEKERNELS_CORE void read_entries(int64 first, int64 count) {
    const int64 entries = count * shape.num_topk;
    const int64 at = first * shape.num_topk;
    copy_in(positions, gm(args.token_topk_to_pos + at), {1, entries * 4});
    if (args.topk_weights != nullptr)
      copy_in(weights, gm(args.topk_weights + at), {1, entries * 4});
    wait_for<Pipe::kMte2, Pipe::kS>();
    for (int64 i = 0; i < entries; ++i) {
      const int64 pos = get_value(positions, i);
      if (pos >= args.num_expanded) {
        note_fault(&fault, first + i / shape.num_topk, kReduceFusedId,
                   numerics::kFaultPositionOutOfRange);
      }
    }
    if (args.x_sf == nullptr) return;
    for (int64 i = 0; i < entries; ++i) {
      if (is_term(i)) {
        copy_in(scales + i * kBlockWords, gm(args.x_sf + get_value(positions, i)), {1, 4});
      }
    }
    wait_for<Pipe::kMte2, Pipe::kS>(1);
  }

  // Columns from `start` on of the token whose entries begin at `entry`.
  TILEKERNELS_CORE void reduce(int64 token, int64 entry, int64 start) {
    const int64 cols = numerics::min_of<int64>(kSpan, shape.hidden - start);
    const auto lanes = static_cast<uint32>(cols);
    vf_call<fill<float>>("fill", sums, 0.0f, lanes);
    for (int64 i = entry; i < entry + shape.num_topk; ++i) {
      if (!is_term(i)) continue;
      const int64 pos = get_value(positions, i);
      copy_in(rows.fill(), gm(args.x + pos * args.x_stride + bytes_of(shape.x_dtype, start)),
              {1, bytes_of(shape.x_dtype, cols)});
      rows.filled();
      const float weight = args.topk_weights != nullptr ? get_value(weights, i) : 1.0f;
      const float scale = args.x_sf != nullptr ? get_value(scales, i * kBlockWords) : 1.0f;
      call_accumulate(shape.x_dtype, sums, rows.empty(), weight, scale, lanes);
      rows.emptied();
    }
    call_finish(shape.out_dtype, out.fill(), sums, sf, lanes);
    out.filled();
    copy_out(gm(args.out + bytes_of(shape.out_dtype, token * shape.hidden + start)), out.empty(),
             {1, bytes_of(shape.out_dtype, cols)});
    out.emptied();
  }
};

// The factor of all sums.
TILEKERNELS_CORE float read_sf(const ReduceFusedArgs& args) {
  if (args.sf == nullptr) return 1.0f;
  const Ub<float> sf = ub_alloc<float>("sf", kBlockWords);
  copy_in(sf, gm(args.sf), {1, 4});
  wait_for<Pipe::kMte2, Pipe::kS>(2);
  return get_value(sf, 0);
}

TILEKERNELS_CORE void run(const ReduceFusedArgs& args, const ReduceFusedShape& shape) {
  prologue();
  MutexPool pool;
  InRing<uint8> rows(pool, "x", kStages, kSpan * 4);
  OutRing<uint8> out(pool, "out", kOutStages, kSpan * 4);
  const Ub<float> sums = ub_alloc<float>("sums", kSpan);
  const Ub<int32> positions = ub_alloc<int32>("token_topk_to_pos", kEntries);
  const Ub<float> weights = ub_alloc<float>("topk_weights", kEntries);
  const Ub<float> scales = ub_alloc<float>("x_sf", kEntries * kBlockWords);
  Reduction reduction{args, shape, rows, out, sums, positions, weights, scales, read_sf(args)};
  const int64 share = numerics::ceil_div(args.num_tokens, block_num());
  const int64 begin = numerics::min_of(args.num_tokens, block_idx() * share);
  const int64 end = numerics::min_of(args.num_tokens, begin + share);
  for (int64 first = begin; first < end; first += kTokens) {
    if (first != begin) {
      wait_for<Pipe::kS, Pipe::kMte2>();
    }
    const int64 count = numerics::min_of<int64>(kTokens, end - first);
    reduction.read_entries(first, count);
    for (int64 i = 0; i < count; ++i) {
      for (int64 start = 0; start < shape.hidden; start += kSpan) {
        reduction.reduce(first + i, i * shape.num_topk, start);
      }
    }
  }
  report_fault(args.fault, reduction.fault);
  barrier_all();
}

}  // namespace tilekernels::ascend::reduce_fused_kernel
