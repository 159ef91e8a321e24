// Casts to FP8 and FP4 with block scaling factors, and back.
#pragma once

#include <optional>

#include "tilekernels/stream.h"
#include "tilekernels/tensor.h"

namespace tilekernels {

/// What a scaling factor is. It always dequantizes: real ≈ code · sf.
enum class SfKind : int32_t {
  kF32,         ///< f32, amax / Q
  kRoundedF32,  ///< f32, the same rounded up to a power of two
  kUE8M0,       ///< one exponent byte, rounded up to a power of two
  kE4M3,        ///< e4m3, rounded to nearest
};

/// How the scaling factors of an (M, K) tensor lie in memory. R x C is their logical matrix: one
/// for each block of rows and block of columns. A pack holds 4 bytes (i32) with CUDA pitches and
/// 2 bytes (i16) with Ascend pitches, lowest byte first.
enum class SfLayout : int32_t {
  kRow,          ///< (R, C) row-major; for `kUE8M0` plain e8m0 bytes
  kCol,          ///< (R, C) column-major, columns padded to 16 bytes (CUDA) or not (Ascend)
  kRowPacked,    ///< (R, ceil(C / pack)) row-major words, packed along columns
  kColPacked,    ///< (R, ceil(C / pack)) column-major words, packed along columns, padded like kCol
  kTokenPacked,  ///< (ceil(R / pack), C) row-major words, packed along rows; blocks one column wide
};

/// Whose pitches and pack width a layout follows.
enum class SfPitch : int32_t {
  kDevice,  ///< the device's own; host memory takes CUDA's
  kCuda,
  kAscend,
};

/// A scaling factor's number format and layout. `kUE8M0` goes with every layout, the other kinds
/// with `kRow` and `kCol`.
struct SfFormat {
  SfKind kind = SfKind::kF32;
  SfLayout layout = SfLayout::kRow;
  SfPitch pitch = SfPitch::kDevice;
};

/// A scaling block: rows (tokens) x columns (channels, in elements).
struct BlockSize {
  int rows = 1;
  int cols = 1;
};

/// How the scaling factors of a quantized input are to be read. Their kind follows from their
/// dtype: f32, e4m3, e8m0, i32 (four packed exponents) or i16 (two).
struct SfSource {
  BlockSize block;
  SfLayout layout = SfLayout::kRow;
};

/// A quantized tensor: codes (e4m3 or e2m1) and their scaling factors.
struct QuantSpec {
  TensorSpec data;
  TensorSpec sf;
};
struct QuantView {
  TensorView data;
  TensorView sf;
  operator QuantSpec() const { return {data, sf}; }  // NOLINT: a view is a spec with memory
};
struct QuantTensor {
  Tensor data;
  Tensor sf;
  operator QuantView() const { return {data, sf}; }  // NOLINT: a tensor is a view it owns
};

/// Options shared by the casts.
struct CastOptions {
  SfFormat sf;
  /// The smallest amax from which a scaling factor is computed; unset takes
  /// `get_amax_clamp_for_quant`. The same limits apply.
  std::optional<float> amax_clamp;
};

/// The scale tensor of `num_row_blocks` x `num_col_blocks` scaling factors.
/// Errors: std::invalid_argument for a kind that the layout cannot hold.
TensorSpec sf_spec(const SfFormat& format, int64_t num_row_blocks, int64_t num_col_blocks,
                   Device device = {});

/// Quantizes every row in groups of `num_per_channels` columns.
///
/// Args:
///   x: (num_tokens, hidden) f32, bf16 or f16, rows contiguous, any row stride >= hidden;
///      hidden a multiple of 16.
///   x (quantized form): e4m3 or e2m1 codes of that shape (e2m1 counts bytes: hidden / 2) with
///      scaling factors as `x_sf` says; block rows >= 1, block cols dividing num_per_channels or
///      a multiple of it.
///   fmt: kE4M3 or kE2M1x2.
///   num_per_channels: 16, 32, 64 or 128; the last group of a row may be shorter.
///   options: kind and layout of the scaling factors (not kTokenPacked), amax clamp.
/// Returns: data (num_tokens, hidden) e4m3, or (num_tokens, hidden / 2) e2m1, contiguous;
///   sf as `sf_spec(options.sf, num_tokens, ceil(hidden / num_per_channels))`. Padding of sf is 0.
/// Errors: std::invalid_argument for shape, dtype, stride or range. Casts raise no DataError: a
///   group with NaN or Inf has a NaN scale, e4m3 codes 0x7F, e2m1 codes 0.
/// Numerics: a = max(amax, clamp), Q = 448 or 6. kF32: sf = a / Q, codes of x · (Q / a).
///   Powers of two: sf = 2^ceil(log2(a / Q)) by exponent bits, codes of x / sf. kE4M3:
///   sf = e4m3(a / Q), codes of x · (1 / sf). Round to nearest even, saturating. Quantized input:
///   codes of x · min(sf_in · inverse, FLT_MAX). Same bits on every backend.
/// Source: TileKernels `per_token_cast`.
QuantTensor per_token_cast(const TensorView& x, DType fmt, int num_per_channels,
                           const CastOptions& options = {}, const Call& call = {});
QuantSpec per_token_cast_spec(const TensorSpec& x, DType fmt, int num_per_channels,
                              const CastOptions& options = {});
void per_token_cast_out(const QuantView& out, const TensorView& x, DType fmt, int num_per_channels,
                        const CastOptions& options = {}, const Call& call = {});
QuantTensor per_token_cast(const QuantView& x, const SfSource& x_sf, DType fmt,
                           int num_per_channels, const CastOptions& options = {},
                           const Call& call = {});
QuantSpec per_token_cast_spec(const QuantSpec& x, const SfSource& x_sf, DType fmt,
                              int num_per_channels, const CastOptions& options = {});
void per_token_cast_out(const QuantView& out, const QuantView& x, const SfSource& x_sf, DType fmt,
                        int num_per_channels, const CastOptions& options = {},
                        const Call& call = {});

/// The scaling factors of `per_token_cast` alone: the same bytes, no codes.
Tensor per_token_cast_with_sf_only(const TensorView& x, DType fmt, int num_per_channels,
                                   const CastOptions& options = {}, const Call& call = {});
TensorSpec per_token_cast_with_sf_only_spec(const TensorSpec& x, DType fmt, int num_per_channels,
                                            const CastOptions& options = {});
void per_token_cast_with_sf_only_out(const TensorView& out_sf, const TensorView& x, DType fmt,
                                     int num_per_channels, const CastOptions& options = {},
                                     const Call& call = {});

/// The codes of `per_token_cast` under given scaling factors.
///
/// Args: as `per_token_cast`, and sf: (num_tokens, ceil(hidden / num_per_channels)) f32 or e4m3,
///   columns contiguous, any row stride.
/// Returns: the codes.
/// Numerics: codes of x · (1 / sf) in f32. A NaN scale gives e4m3 0x7F, e2m1 code 0; a NaN product
///   gives e4m3 0x7F, e2m1 code 7 with the sign of x. With the scales that
///   `per_token_cast_with_sf_only` returns (powers of two or e4m3) the codes equal the full cast's.
Tensor per_token_cast_with_precomputed_sf(const TensorView& x, DType fmt, int num_per_channels,
                                          const TensorView& sf, const Call& call = {});
TensorSpec per_token_cast_with_precomputed_sf_spec(const TensorSpec& x, DType fmt,
                                                   int num_per_channels, const TensorSpec& sf);
void per_token_cast_with_precomputed_sf_out(const TensorView& out, const TensorView& x, DType fmt,
                                            int num_per_channels, const TensorView& sf,
                                            const Call& call = {});

/// Quantizes in blocks of rows x columns.
///
/// Args: as `per_token_cast`, with block_size 32 or 128 rows by 32 or 128 columns; blocks at the
///   lower and right edge may be partial; kE4M3 scales are refused. hidden: a multiple of 2
///   for e2m1, anything for e4m3.
/// Returns, Errors, Numerics: as `per_token_cast`;
///   sf as `sf_spec(options.sf, ceil(num_tokens / rows), ceil(hidden / cols))`.
/// Source: TileKernels `per_block_cast`; DeepSeek-V3 weights use 128 x 128, kF32.
QuantTensor per_block_cast(const TensorView& x, DType fmt, BlockSize block_size,
                           const CastOptions& options = {}, const Call& call = {});
QuantSpec per_block_cast_spec(const TensorSpec& x, DType fmt, BlockSize block_size,
                              const CastOptions& options = {});
void per_block_cast_out(const QuantView& out, const TensorView& x, DType fmt, BlockSize block_size,
                        const CastOptions& options = {}, const Call& call = {});
QuantTensor per_block_cast(const QuantView& x, const SfSource& x_sf, DType fmt,
                           BlockSize block_size, const CastOptions& options = {},
                           const Call& call = {});
QuantSpec per_block_cast_spec(const QuantSpec& x, const SfSource& x_sf, DType fmt,
                              BlockSize block_size, const CastOptions& options = {});
void per_block_cast_out(const QuantView& out, const QuantView& x, const SfSource& x_sf, DType fmt,
                        BlockSize block_size, const CastOptions& options = {},
                        const Call& call = {});

/// The scaling factors of `per_block_cast` alone: the same bytes, no codes.
Tensor per_block_cast_with_sf_only(const TensorView& x, DType fmt, BlockSize block_size,
                                   const CastOptions& options = {}, const Call& call = {});
TensorSpec per_block_cast_with_sf_only_spec(const TensorSpec& x, DType fmt, BlockSize block_size,
                                            const CastOptions& options = {});
void per_block_cast_with_sf_only_out(const TensorView& out_sf, const TensorView& x, DType fmt,
                                     BlockSize block_size, const CastOptions& options = {},
                                     const Call& call = {});

/// The codes of `per_block_cast` under given scaling factors: sf
/// (ceil(num_tokens / rows), ceil(hidden / cols)) f32; see `per_token_cast_with_precomputed_sf`.
Tensor per_block_cast_with_precomputed_sf(const TensorView& x, DType fmt, BlockSize block_size,
                                          const TensorView& sf, const Call& call = {});
TensorSpec per_block_cast_with_precomputed_sf_spec(const TensorSpec& x, DType fmt,
                                                   BlockSize block_size, const TensorSpec& sf);
void per_block_cast_with_precomputed_sf_out(const TensorView& out, const TensorView& x, DType fmt,
                                            BlockSize block_size, const TensorView& sf,
                                            const Call& call = {});

/// Dequantizes codes with their scaling factors.
///
/// Args:
///   x: e4m3 (num_tokens, hidden) or e2m1 (num_tokens, hidden / 2) codes, rows contiguous, any row
///      stride; scaling factors as `x_sf` says, of any kind, layout and block.
///   out_dtype: kBF16, kF16 or kF32.
/// Returns: (num_tokens, hidden) out_dtype, contiguous.
/// Errors: std::invalid_argument for shape, dtype, stride or range. No DataError: NaN codes and
///   NaN scales give NaN.
/// Numerics: code · sf in f32, rounded once to out_dtype (to nearest even, overflow to Inf). NaN is
///   canonical: f32 0x7FFFFFFF, bf16 and f16 0x7FFF. UE8M0 byte 0 is 2^-127, 255 is NaN.
/// Source: TileKernels `cast_back`; OCP Microscaling Formats v1.0 for UE8M0.
Tensor cast_back(const QuantView& x, const SfSource& x_sf, DType out_dtype, const Call& call = {});
TensorSpec cast_back_spec(const QuantSpec& x, const SfSource& x_sf, DType out_dtype);
void cast_back_out(const TensorView& out, const QuantView& x, const SfSource& x_sf,
                   const Call& call = {});

}  // namespace tilekernels
