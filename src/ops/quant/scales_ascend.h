// Scaling factors on the vector core, as the casts and cast_back share them: from any layout in
// memory to a table of fp32 numbers, and back out.
#pragma once

#include "ops/quant/common.h"
#include "runtime/ascend/composites.h"

namespace tilekernels::ascend {

// What a NaN of a decoded table is; kernels that show it make it canonical.
constexpr uint32 kScaleNanBits = 0x7FC00000;
constexpr uint32 kSubnormalScaleBits = 0x00400000;  // 2^-127

/// Bytes of one word of a map, and which rows of scaling factors share words.
struct SfWords {
  int32 word_bytes;
  int32 pack_m;
  int32 pack_k;
};
TILEKERNELS_CORE SfWords sf_words(const numerics::SfMap& map, int32 sf_kind) {
  const int32 bytes = numerics::sf_bytes(sf_kind);
  return {numerics::max_of(bytes, numerics::max_of(map.pack_m, map.pack_k)), map.pack_m,
          map.pack_k};
}

/// The scaling factors that a span of columns needs: words [first, first + count) of a row of
/// words.
struct SfSpan {
  int64 first;
  int64 count;
  Columns columns;
};
TILEKERNELS_CORE SfSpan sf_span(const SfWords& words, int64 start, int64 cols, int64 block_cols) {
  const int64 low = start / block_cols;
  const int64 high = (start + cols - 1) / block_cols;
  const int64 first = low / words.pack_k;
  return {first, high / words.pack_k - first + 1,
          columns(start, block_cols, low - first * words.pack_k)};
}
/// Words that any span of `cols` columns needs at most.
constexpr int64 most_sf_words(int64 cols, int64 block_cols, int64 pack_k) {
  return (cols / block_cols + 2) / pack_k + 2;
}

/// Copies `count` words of a row of words in, back to back.
TILEKERNELS_CORE void copy_in_words(Ub<uint8> bytes, const uint8* from, const SfWords& words,
                                    int64 stride_bytes, int64 count) {
  if (stride_bytes == words.word_bytes || count == 1) {
    copy_in(bytes, gm(from), {1, count * words.word_bytes});
    return;
  }
  constexpr int64 kMost = kMaxCopyRows / kBlockBytes * kBlockBytes;  // pieces end at blocks
  for (int64 done = 0; done < count; done += kMost) {
    const int64 rows = numerics::min_of(kMost, count - done);
    copy_in(bytes + done * words.word_bytes, gm(from + done * stride_bytes),
            {rows, words.word_bytes, stride_bytes, 0, true});
  }
}

// How a word holds scaling factors of one byte
constexpr int32 kBytesInRow = 0;   // one byte a column, or words of such bytes
constexpr int32 kByteOfWord2 = 1;  // of every 16-bit word the byte `shift` bits up
constexpr int32 kByteOfWord4 = 2;

/// A table of `count` scaling factors of one byte as fp32.
template <int32 kForm, bool kIsE4M3>
TILEKERNELS_VF void decode(Ub<float> table, Ub<uint8> raw, int32 shift, uint32 count) {
  const Mask all = pset<uint32>();
  const Mask bytes = pset<uint8>();
  Reg<uint32> code;
  Reg<uint32> value;
  Reg<uint32> special;
  Mask is_special;
  const auto turns = static_cast<uint16>((count + kF32Lanes - 1) / kF32Lanes);
  for (uint16 i = 0; i < turns; ++i) {
    const Mask valid = plt<uint32>(count);
    if constexpr (kForm == kBytesInRow) {
      vlds<Dist::kUnpack4>(as<uint8>(code), raw + i * kF32Lanes);
    } else if constexpr (kForm == kByteOfWord2) {
      vlds<Dist::kUnpack>(as<uint16>(code), as_ub<uint16>(raw) + i * kF32Lanes);
    } else {
      vlds(code, as_ub<uint32>(raw) + i * kF32Lanes);
    }
    if constexpr (kForm != kBytesInRow) {
      vshrs(code, code, shift, valid);
      vdup(value, 0xFFu, all);
      vand(code, code, value, valid);
    }
    if constexpr (kIsE4M3) {
      vcvt<0, Round::kNone, Saturate::kNo>(as<float>(value), as<E4M3>(code), bytes);
    } else {
      vshls(value, code, 23, valid);
      vdup(special, kSubnormalScaleBits, all);
      vcmps<Cmp::kEq>(is_special, code, 0u, valid);
      vsel(value, special, value, is_special);
      vdup(special, kScaleNanBits, all);
      vcmps<Cmp::kEq>(is_special, code, 255u, valid);
      vsel(value, special, value, is_special);
    }
    vsts(as_ub<uint32>(table) + i * kF32Lanes, value, valid);
  }
}

/// Queues the decoding of one row of raw words; `m` is the row of scaling factors. Not for fp32,
/// which is its own table.
TILEKERNELS_CORE void call_decode(Ub<float> table, Ub<uint8> raw, const SfWords& words,
                                  int32 sf_kind, int64 m, int64 num_words) {
  const auto shift = static_cast<int32>(8 * (m % words.pack_m));
  const auto count = static_cast<uint32>(num_words * words.pack_k);
  if (sf_kind == numerics::kSfE4M3) {
    vf_call<decode<kBytesInRow, true>>("decode", table, raw, 0, count);
  } else if (words.pack_m == 4) {
    vf_call<decode<kByteOfWord4, false>>("decode", table, raw, shift, count);
  } else if (words.pack_m == 2) {
    vf_call<decode<kByteOfWord2, false>>("decode", table, raw, shift, count);
  } else {
    vf_call<decode<kBytesInRow, false>>("decode", table, raw, 0, count);
  }
}

}  // namespace tilekernels::ascend
