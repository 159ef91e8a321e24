"""Casts to FP8 and FP4 with block scaling factors, and back.

A quantized tensor is a tuple (data, sf). Data are float8_e4m3fn, or FP4 as int8 with two codes a
byte, the even column in the low nibble; uint8 and float4 arrays are taken too. A scaling factor
always dequantizes: real = code * sf. Its format is said by four flags:

    none                        float32, amax / Q
    round_sf                    float32, the same rounded up to a power of two
    round_sf, use_packed_ue8m0  exponent bytes, four in an int32 (two in an int16 with Ascend
                                pitches), lowest byte first
    use_e4m3_sf                 float8_e4m3fn, rounded to nearest

They lie row-major, or column-major with use_tma_aligned_col_major_sf, columns padded to 16 bytes
(with Ascend pitches not). JAX arrays have no strides: there a column-major sf is the same matrix.
"""

from __future__ import annotations

from typing import Any, Optional, Tuple

from ._arguments import flag, integer, maybe_number, maybe_text
from ._arrays import Op, format_number

__all__ = [
    "per_token_cast", "per_token_cast_with_sf_only", "per_token_cast_with_precomputed_sf",
    "per_block_cast", "per_block_cast_with_sf_only", "per_block_cast_with_precomputed_sf",
    "cast_back", "per_token_cast_back",
]


def __dir__() -> list:
    return sorted(__all__)


_CODES = ("e4m3", "e2m1")
_REALS = ("bf16", "fp32", "fp16")

_FLAGS = (("use_tma_aligned_col_major_sf", flag), ("round_sf", flag), ("use_packed_ue8m0", flag),
          ("use_e4m3_sf", flag))
_OPTIONS = (*_FLAGS, ("sf_pitch", maybe_text), ("amax_clamp", maybe_number))
_SOURCE = (("x_block_size", integer), ("x_block_size", integer), ("x_sf_layout", maybe_text))


class _Casts:
    """The four forms of a cast, which differ between casts in their group's size alone."""

    def __init__(self, op: str, size: tuple) -> None:
        self.op = op
        group = (("fmt", integer), *size)
        self.plain = Op(op, op, ["x"], ["out", "out_sf"], ["out"], (*group, *_OPTIONS))
        self.quantized = Op(op + "_quantized", op, ["x", "x.sf"], ["out", "out_sf"], ["x", "out"],
                            (*_SOURCE, *group, *_OPTIONS))
        sf_only = op + "_with_sf_only"
        self.sf_only = Op(sf_only, sf_only, ["x"], ["out_sf"], (), (*group, *_OPTIONS))
        precomputed = op + "_with_precomputed_sf"
        self.precomputed = Op(precomputed, precomputed, ["x", "sf"], ["out"], ["out"],
                              (*group, *_FLAGS))


_per_token = _Casts("per_token_cast", (("num_per_channels", integer),))
_per_block = _Casts("per_block_cast", (("block_size", integer), ("block_size", integer)))
_cast_back = Op("cast_back", "cast_back", ["x", "x.sf"], ["out"], ["x"],
                (*_SOURCE, ("fmt", integer)))


def _pair(op: str, name: str, value: Any) -> tuple:
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise ValueError(f"[{op}] {name} must be a pair, got {value!r}")
    return tuple(value)


def _cast(casts: _Casts, x: Any, size: tuple, fmt: str, options: tuple,
          x_block_size: Optional[Tuple[int, int]], x_sf_layout: Optional[str],
          backend: Optional[str], out: Optional[tuple]) -> tuple:
    """The plain or the quantized form, by what `x` is."""
    op = casts.op
    number = format_number(op, fmt, _CODES)
    if out is not None and (not isinstance(out, (tuple, list)) or len(out) != 2):
        raise ValueError(f"[{op}] out must be a pair (out, out_sf), got {type(out).__name__}")
    if isinstance(x, tuple):
        if x_block_size is None:
            raise ValueError(f"[{op}] x_block_size must be given with a quantized x, got None")
        if len(x) != 2:
            raise ValueError(f"[{op}] x must be a pair (data, sf), got {len(x)} arrays")
        block = _pair(op, "x_block_size", x_block_size)
        parameters = (*block, x_sf_layout, number, *size, *options)
        result = casts.quantized(x, parameters, backend, out)
    else:
        if x_block_size is not None or x_sf_layout is not None:
            raise ValueError(f"[{op}] x must be a pair (data, sf) with x_block_size or "
                             f"x_sf_layout, got {type(x).__name__}")
        result = casts.plain((x,), (number, *size, *options), backend, out)
    return tuple(result)


def per_token_cast(
    x: Any,
    fmt: str,
    num_per_channels: int,
    x_block_size: Optional[Tuple[int, int]] = None,
    use_tma_aligned_col_major_sf: bool = False,
    round_sf: bool = False,
    use_packed_ue8m0: bool = False,
    use_e4m3_sf: bool = False,
    stochastic_cast: bool = False,
    out: Optional[tuple] = None,
    *,
    x_sf_layout: Optional[str] = None,
    sf_pitch: Optional[str] = None,
    amax_clamp: Optional[float] = None,
    backend: Optional[str] = None,
) -> tuple:
    """Quantizes every row in groups of `num_per_channels` columns.

    Args:
        x: (num_tokens, hidden) float32, bfloat16 or float16, rows contiguous, any row stride >=
            hidden; hidden a multiple of 16. Or a quantized tensor (data, sf) of that shape (FP4
            counts bytes: hidden / 2).
        fmt: "e4m3" or "e2m1".
        num_per_channels: 16, 32, 64 or 128; the last group of a row may be shorter.
        x_block_size: With a quantized x, its scaling block (rows, columns): rows >= 1, columns
            dividing num_per_channels or a multiple of it.
        use_tma_aligned_col_major_sf: Column-major scaling factors.
        round_sf: Scaling factors are powers of two.
        use_packed_ue8m0: Scaling factors are packed exponent bytes; needs round_sf.
        use_e4m3_sf: Scaling factors are e4m3; excludes round_sf.
        stochastic_cast: Must be False: no backend rounds stochastically.
        out: Memory (out, out_sf) for the results instead of new arrays.
        x_sf_layout: How the sf of a quantized x lie: "row", "col", "row_packed", "col_packed" or
            "token_packed". None reads it off their strides (column-major iff stride 0 is one
            element and stride 1 is not) and dtype (int32 and int16 are packed).
        sf_pitch: Whose pitches and pack width out_sf follows, "cuda" or "ascend"; None takes the
            device's own, CUDA's for host memory.
        amax_clamp: The smallest amax from which a scaling factor is computed; None takes
            `get_amax_clamp_for_quant`. The same limits apply.
        backend: The backend that must run it, by name; None takes that of the array's device.

    Returns:
        out (num_tokens, hidden) float8_e4m3fn, or (num_tokens, hidden / 2) int8 for e2m1,
        contiguous; out_sf (num_tokens, ceil(hidden / num_per_channels)), packed
        (num_tokens, that / 4 or / 2 rounded up). Padding of out_sf is 0.

    Raises:
        ValueError: Shape, dtype, stride or range. Casts raise no DataError: a group with NaN or
            Inf has a NaN scale, e4m3 codes 0x7F, e2m1 codes 0.
        NotImplementedError: stochastic_cast.

    Numerics: a = max(amax, clamp), Q = 448 or 6. Plain: sf = a / Q, codes of x * (Q / a). Powers of
    two: sf = 2^ceil(log2(a / Q)) by exponent bits, codes of x / sf. e4m3: sf = e4m3(a / Q), codes
    of x * (1 / sf). Round to nearest even, saturating. Quantized input: codes of
    x * min(sf_in * inverse, FLT_MAX). Same bits on every backend.

    Source: TileKernels `per_token_cast`.
    """
    if stochastic_cast:
        raise NotImplementedError(
            "[per_token_cast] stochastic_cast must be False: no backend rounds stochastically, "
            "got True")
    options = (use_tma_aligned_col_major_sf, round_sf, use_packed_ue8m0, use_e4m3_sf, sf_pitch,
               amax_clamp)
    return _cast(_per_token, x, (num_per_channels,), fmt, options, x_block_size, x_sf_layout,
                 backend, out)


def per_token_cast_with_sf_only(
    x: Any,
    fmt: str,
    num_per_channels: int,
    use_tma_aligned_col_major_sf: bool = False,
    round_sf: bool = False,
    use_packed_ue8m0: bool = False,
    use_e4m3_sf: bool = False,
    out_sf: Any = None,
    *,
    sf_pitch: Optional[str] = None,
    amax_clamp: Optional[float] = None,
    backend: Optional[str] = None,
) -> Any:
    """The scaling factors of `per_token_cast` alone: the same bytes, no codes.

    Args: as `per_token_cast` for a plain x, and out_sf: memory for the result.

    Returns:
        out_sf.
    """
    op = "per_token_cast_with_sf_only"
    parameters = (format_number(op, fmt, _CODES), num_per_channels, use_tma_aligned_col_major_sf,
                  round_sf, use_packed_ue8m0, use_e4m3_sf, sf_pitch, amax_clamp)
    out = None if out_sf is None else (out_sf,)
    return _per_token.sf_only((x,), parameters, backend, out)[0]


def per_token_cast_with_precomputed_sf(
    x: Any,
    fmt: str,
    num_per_channels: int,
    sf: Any,
    use_tma_aligned_col_major_sf: bool = False,
    round_sf: bool = False,
    use_packed_ue8m0: bool = False,
    use_e4m3_sf: bool = False,
    out: Any = None,
    *,
    backend: Optional[str] = None,
) -> Any:
    """The codes of `per_token_cast` under given scaling factors.

    Args: as `per_token_cast` for a plain x, and sf: (num_tokens, ceil(hidden / num_per_channels))
        float32, or float8_e4m3fn with use_e4m3_sf, columns contiguous, any row stride. Column-major
        and packed factors are refused; round_sf makes no difference.

    Returns:
        The codes.

    Numerics: codes of x * (1 / sf) in float32. A NaN scale gives e4m3 0x7F, e2m1 code 0; a NaN
    product gives e4m3 0x7F, e2m1 code 7 with the sign of x. With the scales that
    `per_token_cast_with_sf_only` returns (powers of two or e4m3) the codes equal the full cast's.
    """
    op = "per_token_cast_with_precomputed_sf"
    parameters = (format_number(op, fmt, _CODES), num_per_channels, use_tma_aligned_col_major_sf,
                  round_sf, use_packed_ue8m0, use_e4m3_sf)
    return _per_token.precomputed((x, sf), parameters, backend, None if out is None else (out,))[0]


def per_block_cast(
    x: Any,
    fmt: str,
    block_size: Tuple[int, int],
    use_tma_aligned_col_major_sf: bool = False,
    round_sf: bool = False,
    use_packed_ue8m0: bool = False,
    out: Optional[tuple] = None,
    *,
    x_block_size: Optional[Tuple[int, int]] = None,
    x_sf_layout: Optional[str] = None,
    sf_pitch: Optional[str] = None,
    amax_clamp: Optional[float] = None,
    backend: Optional[str] = None,
) -> tuple:
    """Quantizes in blocks of rows x columns.

    Args: as `per_token_cast`, with block_size 32 or 128 rows by 32 or 128 columns; blocks at the
        lower and right edge may be partial; there are no e4m3 scales. hidden: a multiple of 2 for
        e2m1, anything for e4m3.

    Returns:
        (out, out_sf) as `per_token_cast`; out_sf for (ceil(num_tokens / rows),
        ceil(hidden / columns)) blocks.

    Errors and numerics: as `per_token_cast`.

    Source: TileKernels `per_block_cast`; DeepSeek-V3 weights use 128 x 128, float32.
    """
    options = (use_tma_aligned_col_major_sf, round_sf, use_packed_ue8m0, False, sf_pitch,
               amax_clamp)
    size = _pair("per_block_cast", "block_size", block_size)
    return _cast(_per_block, x, size, fmt, options, x_block_size, x_sf_layout, backend, out)


def per_block_cast_with_sf_only(
    x: Any,
    fmt: str,
    block_size: Tuple[int, int],
    use_tma_aligned_col_major_sf: bool = False,
    round_sf: bool = False,
    use_packed_ue8m0: bool = False,
    out_sf: Any = None,
    *,
    sf_pitch: Optional[str] = None,
    amax_clamp: Optional[float] = None,
    backend: Optional[str] = None,
) -> Any:
    """The scaling factors of `per_block_cast` alone: the same bytes, no codes.

    Args: as `per_block_cast` for a plain x, and out_sf: memory for the result.

    Returns:
        out_sf.
    """
    op = "per_block_cast_with_sf_only"
    parameters = (format_number(op, fmt, _CODES), *_pair(op, "block_size", block_size),
                  use_tma_aligned_col_major_sf, round_sf, use_packed_ue8m0, False, sf_pitch,
                  amax_clamp)
    out = None if out_sf is None else (out_sf,)
    return _per_block.sf_only((x,), parameters, backend, out)[0]


def per_block_cast_with_precomputed_sf(
    x: Any,
    fmt: str,
    block_size: Tuple[int, int],
    sf: Any,
    use_tma_aligned_col_major_sf: bool = False,
    round_sf: bool = False,
    use_packed_ue8m0: bool = False,
    out: Any = None,
    *,
    backend: Optional[str] = None,
) -> Any:
    """The codes of `per_block_cast` under given scaling factors.

    Args: as `per_block_cast` for a plain x, and sf: (ceil(num_tokens / rows),
        ceil(hidden / columns)) float32; see `per_token_cast_with_precomputed_sf`.

    Returns:
        The codes.
    """
    op = "per_block_cast_with_precomputed_sf"
    parameters = (format_number(op, fmt, _CODES), *_pair(op, "block_size", block_size),
                  use_tma_aligned_col_major_sf, round_sf, use_packed_ue8m0, False)
    return _per_block.precomputed((x, sf), parameters, backend, None if out is None else (out,))[0]


def cast_back(
    x: tuple,
    fmt: str,
    x_block_size: Tuple[int, int],
    x_special_fmt: Optional[str] = None,
    *,
    x_sf_layout: Optional[str] = None,
    backend: Optional[str] = None,
) -> Any:
    """Dequantizes codes with their scaling factors.

    Args:
        x: Quantized tensor (data, sf): data float8_e4m3fn (num_tokens, hidden) or FP4
            (num_tokens, hidden / 2), rows contiguous, any row stride; sf of any kind and layout:
            float32, float8_e4m3fn, float8_e8m0fnu, int32 (four packed exponents) or int16 (two).
        fmt: Format of the result: "bf16", "fp16" or "fp32".
        x_block_size: The scaling block (rows, columns) of x, of any size.
        x_special_fmt: Must be None; kept for callers' plumbing.
        x_sf_layout: How sf lie; see `per_token_cast`.
        backend: The backend that must run it, by name; None takes that of the array's device.

    Returns:
        (num_tokens, hidden), contiguous.

    Raises:
        ValueError: Shape, dtype, stride or range. No DataError: NaN codes and NaN scales give NaN.

    Numerics: code * sf in float32, rounded once to the result's format (to nearest even, overflow
    to Inf). NaN is canonical: float32 0x7FFFFFFF, bfloat16 and float16 0x7FFF. UE8M0 byte 0 is
    2^-127, 255 is NaN.

    Source: TileKernels `cast_back`; OCP Microscaling Formats v1.0 for UE8M0.
    """
    number = format_number("cast_back", fmt, _REALS)
    if x_special_fmt is not None:
        raise ValueError(f"[cast_back] x_special_fmt must be None, got {x_special_fmt!r}")
    if not isinstance(x, (tuple, list)) or len(x) != 2:
        raise ValueError(f"[cast_back] x must be a pair (data, sf), got {type(x).__name__}")
    parameters = (*_pair("cast_back", "x_block_size", x_block_size), x_sf_layout, number)
    return _cast_back(x, parameters, backend)[0]


def per_token_cast_back(
    x: tuple,
    fmt: str,
    num_per_channels: int,
    x_special_fmt: Optional[str] = None,
    *,
    x_sf_layout: Optional[str] = None,
    backend: Optional[str] = None,
) -> Any:
    """`cast_back` of rows quantized in groups of `num_per_channels` columns: block
    (1, num_per_channels)."""
    op = "per_token_cast_back"
    if integer(op, "num_per_channels", num_per_channels) < 1:
        raise ValueError(f"[{op}] num_per_channels must be at least 1, got {num_per_channels}")
    try:
        return cast_back(x, fmt, (1, num_per_channels), x_special_fmt, x_sf_layout=x_sf_layout,
                         backend=backend)
    except (ValueError, TypeError, NotImplementedError, RuntimeError) as error:
        if error.args and str(error.args[0]).startswith("[cast_back] "):
            error.args = (str(error.args[0]).replace("cast_back", op, 1), *error.args[1:])
        raise
