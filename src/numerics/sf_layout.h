// Where the scaling factor of block row m and block column k lies, for all layouts and pitches.
#pragma once

#include "numerics/ids.h"

namespace tilekernels::numerics {

/// Maps (m, k) to a byte offset. Packed words hold bytes, lowest first; unpacked ones have pack 1.
struct SfMap {
  int64 stride_m;  ///< bytes from one row, or pack of rows, to the next
  int64 stride_k;
  int32 pack_m;  ///< 1, 2 or 4
  int32 pack_k;

  constexpr int64 offset(int64 m, int64 k) const {
    // Shifts: a division of 64 bits takes a GPU a hundred instructions. log2(pack) = pack / 2.
    return (m >> (pack_m >> 1)) * stride_m + (m & (pack_m - 1)) + (k >> (pack_k >> 1)) * stride_k +
           (k & (pack_k - 1));
  }
};

constexpr bool is_packed(int32 layout) { return layout >= kSfRowPacked; }

/// Whether scales of that kind can lie so: packed words hold exponents only.
constexpr bool sf_layout_takes(int32 layout, int32 sf_kind) {
  return !is_packed(layout) || sf_kind == kSfUE8M0;
}

/// Exponents in a packed word: 4 (int32) with CUDA pitches, 2 (int16) with Ascend's.
constexpr int32 sf_pack(int32 pitch) { return pitch == kSfPitchAscend ? 2 : 4; }

/// Bytes of one scaling factor: 4 for fp32, else 1.
constexpr int32 sf_bytes(int32 sf_kind) {
  return sf_kind == kSfF32 || sf_kind == kSfRoundedF32 ? 4 : 1;
}

/// The map of a scale tensor with these strides, in words of `word_bytes`; takes any pitch.
constexpr SfMap sf_map(int32 layout, int32 word_bytes, int64 row_stride, int64 col_stride) {
  const bool token_packed = layout == kSfTokenPacked;
  return {row_stride * word_bytes, col_stride * word_bytes, token_packed ? word_bytes : 1,
          is_packed(layout) && !token_packed ? word_bytes : 1};
}

/// A whole scale buffer: the tensor of words that callers see, and the grid of scales it has room
/// for. Writing E(m, k) for m < padded_m, k < padded_k, zero outside R x C, touches every byte
/// once.
struct SfStorage {
  SfMap map;
  int32 sf_bytes;    ///< of one scaling factor
  int32 word_bytes;  ///< of one element of the tensor
  int64 rows;        ///< shape of the tensor
  int64 cols;
  int64 row_stride;  ///< strides of the tensor, in words
  int64 col_stride;
  int64 padded_m;
  int64 padded_k;
  int64 size_bytes;
};

/// The buffer of R x C scaling factors (num_rows x num_cols). `pitch`: Ascend's, anything else is
/// CUDA's. Columns are padded to 16 bytes with CUDA pitches, not with Ascend's.
constexpr SfStorage sf_storage(int32 sf_kind, int32 layout, int32 pitch, int64 num_rows,
                               int64 num_cols) {
  const int32 pack = is_packed(layout) ? sf_pack(pitch) : 1;
  const int32 sf_size = sf_bytes(sf_kind);
  const int32 word = is_packed(layout) ? pack : sf_size;
  const bool by_col = layout == kSfCol || layout == kSfColPacked;
  const bool by_token = layout == kSfTokenPacked;

  const int64 rows = by_token ? ceil_div(num_rows, pack) : num_rows;
  const int64 cols = by_token ? num_cols : ceil_div(num_cols, pack);
  const int64 col_pitch = pitch == kSfPitchAscend ? rows : align_up(rows, 16 / word);
  const int64 row_stride = by_col ? 1 : cols;
  const int64 col_stride = by_col ? col_pitch : 1;
  const int64 padded_m = by_col ? col_pitch : by_token ? rows * pack : rows;
  const int64 padded_k = by_token ? cols : cols * pack;
  return {sf_map(layout, word, row_stride, col_stride),
          sf_size,
          word,
          rows,
          cols,
          row_stride,
          col_stride,
          padded_m,
          padded_k,
          padded_m * padded_k * sf_size};
}

}  // namespace tilekernels::numerics
