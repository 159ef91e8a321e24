"""quant: hand-worked blocks, layouts, strides, given outputs, refusals."""

from __future__ import annotations

import inspect

import ml_dtypes
import numpy
import pytest
from conftest import bits, element_strides, same_bytes, with_strides

from tilekernels import moe, quant

E4M3 = numpy.dtype(ml_dtypes.float8_e4m3fn)
E8M0 = numpy.dtype(ml_dtypes.float8_e8m0fnu)
BF16 = numpy.dtype(ml_dtypes.bfloat16)

ROW_A = [0.3, -0.7, 1.1, 5.0, -2.2, 0.01, -3.3, 4.4]
ROW_B = [0.1, -0.25, 0.5, 1, -1.5, 2, 3, -7]

# (fmt, flags): the codes of ROW_A, its scaling factor; worked out by hand.
WORKED_A = [
    ("e4m3", {}, "5D E8 6C 7E F4 36 F9 7C", 0x3C36DB6E),
    ("e4m3", {"round_sf": True}, "5A E3 69 7A F1 32 F5 79", 0x3C800000),
    ("e4m3", {"use_e4m3_sf": True}, "5D E7 6C 7D F4 36 F9 7C", 0x06),
    ("e2m1", {}, "A1 73 0D 7E", 0x3F555555),
    ("e2m1", {"round_sf": True}, "91 62 0C 6D", 0x3F800000),
    ("e2m1", {"use_e4m3_sf": True}, "A1 73 0D 7E", 0x35),
]
# The kinds of scaling factors that per_token_cast writes.
KINDS = [
    {},
    {"round_sf": True},
    {"round_sf": True, "use_packed_ue8m0": True},
    {"use_e4m3_sf": True},
]


def data(rows: int, cols: int, dtype=numpy.float32, seed: int = 0) -> numpy.ndarray:
    rng = numpy.random.default_rng(seed)
    scale = numpy.exp2(rng.integers(-4, 8, (rows, 1)))
    return (rng.standard_normal((rows, cols)) * scale).astype(dtype)


def logical_bytes(sf: numpy.ndarray, cols: int) -> numpy.ndarray:
    """The exponent bytes (rows, cols) in words packed along columns."""
    return numpy.ascontiguousarray(sf).view(numpy.uint8)[:, :cols]


def storage(array: numpy.ndarray) -> numpy.ndarray:
    """All memory that an output view lies in, padding included."""
    while isinstance(array.base, numpy.ndarray):
        array = array.base
    return array


@pytest.mark.parametrize("fmt,flags,codes,sf_bits", WORKED_A)
def test_worked_row(fmt, flags, codes, sf_bits, backend):
    x = numpy.zeros((1, 16), numpy.float32)
    x[0, :8] = ROW_A
    out, out_sf = quant.per_token_cast(x, fmt, 16, backend=backend, **flags)
    expected = bytes.fromhex(codes)
    assert out.tobytes()[:len(expected)] == expected
    assert int.from_bytes(out_sf.tobytes(), "little") == sf_bits
    assert out.dtype == (E4M3 if fmt == "e4m3" else numpy.int8)
    assert out_sf.dtype == (E4M3 if "use_e4m3_sf" in flags else numpy.float32)


def test_worked_row_in_bf16(backend):
    x = numpy.zeros((1, 32), BF16)
    x[0, :8] = numpy.array(ROW_B, BF16)
    out, out_sf = quant.per_token_cast(
        x, "e4m3", 32, round_sf=True, use_packed_ue8m0=True, backend=backend)
    assert out.tobytes()[:8].hex(" ").upper() == "4D D8 60 68 EC 70 74 FE"
    assert out_sf.dtype == numpy.int32 and out_sf.tolist() == [[121]]


def test_bad_groups_have_a_nan_scale(backend):
    x = numpy.ones((2, 64), numpy.float32)
    x[0, 5] = numpy.nan
    x[1, 40] = -numpy.inf
    out, out_sf = quant.per_token_cast(x, "e4m3", 32, backend=backend)
    assert numpy.isnan(out_sf).tolist() == [[True, False], [False, True]]
    assert (bits(out)[0, :32] == 0x7F).all() and (bits(out)[1, 32:] == 0x7F).all()
    assert (bits(out)[0, 32:] == 0x7E).all() and (bits(out)[1, :32] == 0x7E).all()
    out, out_sf = quant.per_token_cast(
        x, "e2m1", 32, round_sf=True, use_packed_ue8m0=True, backend=backend)
    assert logical_bytes(out_sf, 2)[0, 0] == 255 and logical_bytes(out_sf, 2)[1, 1] == 255
    assert (bits(out)[0, :16] == 0).all() and (bits(out)[0, 16:] != 0).all()


@pytest.mark.parametrize("pitch", [None, "cuda", "ascend"])
@pytest.mark.parametrize("rows,cols", [(1, 16), (3, 80), (5, 16), (33, 160), (130, 144), (0, 64)])
@pytest.mark.parametrize("kind", KINDS)
def test_layouts_hold_the_same_factors(kind, rows, cols, pitch, backend):
    x = data(rows, cols)
    row_out, row_sf = quant.per_token_cast(x, "e4m3", 16, sf_pitch=pitch, backend=backend, **kind)
    col_out, col_sf = quant.per_token_cast(x, "e4m3", 16, use_tma_aligned_col_major_sf=True,
                                           sf_pitch=pitch, backend=backend, **kind)
    groups = -(-cols // 16)
    pack, align = 1, 16 // row_sf.dtype.itemsize
    if "use_packed_ue8m0" in kind:
        pack = 2 if pitch == "ascend" else 4
        assert row_sf.dtype == (numpy.int16 if pack == 2 else numpy.int32)
    if pitch == "ascend":
        align = 1
    assert row_sf.shape == col_sf.shape == (rows, -(-groups // pack))
    assert row_sf.flags.c_contiguous
    pitch_elements = -(-rows // align) * align
    if rows > 0 and row_sf.shape[1] > 1:
        assert element_strides(col_sf) == [1, pitch_elements]
    same_bytes(row_sf, col_sf)
    same_bytes(row_out, col_out)
    # Bytes that no factor addresses are 0.
    words = bits(row_sf)
    assert not words[:, groups * row_sf.dtype.itemsize // pack:].any()
    whole = storage(col_sf)
    assert whole.size == pitch_elements * row_sf.shape[1]
    lines = whole.reshape(row_sf.shape[1], pitch_elements)
    assert not bits(lines[:, rows:]).any()


@pytest.mark.parametrize("fmt", ["e4m3", "e2m1"])
@pytest.mark.parametrize("kind", KINDS)
def test_sf_only_and_precomputed_make_the_full_cast(kind, fmt, backend):
    x = data(37, 240, BF16)
    out, out_sf = quant.per_token_cast(x, fmt, 32, backend=backend, **kind)
    alone = quant.per_token_cast_with_sf_only(x, fmt, 32, backend=backend, **kind)
    same_bytes(alone, out_sf)
    if "round_sf" in kind and "use_packed_ue8m0" not in kind or "use_e4m3_sf" in kind:
        codes = quant.per_token_cast_with_precomputed_sf(x, fmt, 32, alone, backend=backend, **kind)
        same_bytes(codes, out)


@pytest.mark.parametrize("block", [(32, 32), (32, 128), (128, 32), (128, 128)])
@pytest.mark.parametrize("rows,cols", [(1, 2), (130, 258), (256, 128), (0, 96)])
def test_per_block_cast(rows, cols, block, backend):
    x = data(rows, cols)
    out, out_sf = quant.per_block_cast(x, "e4m3", block, round_sf=True, backend=backend)
    assert out.shape == x.shape
    assert out_sf.shape == (-(-rows // block[0]), -(-cols // block[1]))
    same_bytes(quant.per_block_cast_with_sf_only(x, "e4m3", block, round_sf=True, backend=backend),
               out_sf)
    same_bytes(quant.per_block_cast_with_precomputed_sf(x, "e4m3", block, out_sf, backend=backend),
               out)
    for i in range(out_sf.shape[0]):
        for j in range(out_sf.shape[1]):
            tile = x[i * block[0]:(i + 1) * block[0], j * block[1]:(j + 1) * block[1]]
            amax = max(float(abs(tile).max()), 1e-4)
            assert 224 < amax / float(out_sf[i, j]) <= 448


@pytest.mark.parametrize("fmt", ["e4m3", "e2m1"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("col_major", [False, True])
@pytest.mark.parametrize("pitch", ["cuda", "ascend"])
def test_cast_back_reads_every_layout(fmt, kind, col_major, pitch, backend):
    x = data(19, 96)
    quantized = quant.per_token_cast(x, fmt, 16, use_tma_aligned_col_major_sf=col_major,
                                     sf_pitch=pitch, backend=backend, **kind)
    back = quant.per_token_cast_back(quantized, "fp32", 16, backend=backend)
    plain = quant.per_token_cast(x, fmt, 16, backend=backend, **kind)
    same_bytes(back, quant.cast_back(plain, "fp32", (1, 16), backend=backend))
    if "use_e4m3_sf" not in kind:  # half the widest step between codes, against amax
        amax = numpy.repeat(abs(x).reshape(19, 6, 16).max(2), 16, 1)
        assert (abs(back - x) <= (2.0**-4 if fmt == "e4m3" else 0.25) * amax).all()
    named = ("col" if col_major else "row") + ("_packed" if "use_packed_ue8m0" in kind else "")
    same_bytes(quant.cast_back(quantized, "fp32", (1, 16), x_sf_layout=named, backend=backend),
               back)
    for fmt_out, dtype in (("bf16", BF16), ("fp16", numpy.float16)):
        with numpy.errstate(over="ignore"):
            same_bytes(quant.cast_back(quantized, fmt_out, (1, 16), backend=backend),
                       back.astype(dtype))


def test_cast_back_of_token_packed_factors(backend):
    codes = numpy.full((6, 32), 0x38, numpy.uint8).view(E4M3)  # all 1.0
    exponents = numpy.arange(100, 106, dtype=numpy.uint8)
    packed = numpy.zeros((2, 32, 4), numpy.uint8)
    for row, exponent in enumerate(exponents):
        packed[row // 4, :, row % 4] = exponent
    back = quant.cast_back((codes, packed.view(numpy.int32)[..., 0]), "fp32", (1, 1),
                           backend=backend)
    same_bytes(back, numpy.repeat(numpy.exp2(exponents.astype(numpy.float32) - 127)[:, None], 32, 1)
               .astype(numpy.float32))


def test_cast_back_of_exponent_bytes(backend):
    codes = numpy.full((2, 64), 0x38, numpy.uint8).view(E4M3)
    sf = numpy.array([[0, 127], [128, 255]], numpy.uint8).view(E8M0)
    back = quant.cast_back((codes, sf), "fp32", (1, 32), backend=backend)
    assert back[0, 0] == 2.0**-127 and back[0, 32] == 1.0 and back[1, 0] == 2.0
    assert back[1, 32:].view(numpy.uint32).tolist() == [0x7FFFFFFF] * 32


def test_deepseek_blocks_with_partial_edges(backend):
    codes = numpy.full((130, 200), 0x38, numpy.uint8).view(E4M3)
    sf = numpy.array([[1, 2], [4, 8]], numpy.float32)
    back = quant.cast_back((codes, sf), "bf16", (128, 128), backend=backend)
    picked = [back[127, 127], back[127, 128], back[128, 127], back[129, 199]]
    assert [float(value) for value in picked] == [1, 2, 4, 8]


@pytest.mark.parametrize("fmt", ["e4m3", "e2m1"])
def test_quantized_input(fmt, backend):
    x = data(40, 128, BF16)
    quantized = quant.per_block_cast(x, fmt, (32, 32), round_sf=True, backend=backend)
    dense = quant.cast_back(quantized, "fp32", (32, 32), backend=backend)
    # Powers of two move exactly, so this equals quantizing the dequantized tensor.
    for cast, size in ((quant.per_token_cast, 64), (quant.per_block_cast, (128, 32))):
        plain = cast(dense, "e4m3", size, round_sf=True, backend=backend)
        got = cast(quantized, "e4m3", size, x_block_size=(32, 32), round_sf=True, backend=backend)
        same_bytes(got[1], plain[1])
        same_bytes(got[0], plain[0])


def test_strided_rows(backend):
    wide = data(9, 256)
    view = wide[::2, 16:144]
    out, out_sf = quant.per_token_cast(view, "e4m3", 32, backend=backend)
    expected = quant.per_token_cast(view.copy(), "e4m3", 32, backend=backend)
    same_bytes(out, expected[0])
    same_bytes(out_sf, expected[1])
    repeated = numpy.broadcast_to(wide[:1, :64], (5, 64))  # stride 0, read-only
    with pytest.raises(ValueError, match=r"^\[per_token_cast\] x .*\(0, 1\)"):
        quant.per_token_cast(repeated, "e4m3", 32)
    for wrong, text in ((wide.T, r"\(1, 256\)"), (wide[:, ::2], r"\(256, 2\)"),
                        (wide[:, ::-1], "-1")):
        with pytest.raises(ValueError, match=rf"^\[per_token_cast\] x .*{text}"):
            quant.per_token_cast(wrong, "e4m3", 16)


def test_sliced_factors(backend):
    """A slice of rows of column-major factors keeps its pitch."""
    x = data(40, 128)
    out, out_sf = quant.per_token_cast(x, "e4m3", 32, use_tma_aligned_col_major_sf=True)
    back = quant.cast_back((out[8:24], out_sf[8:24]), "fp32", (1, 32), backend=backend)
    same_bytes(back, quant.cast_back((out, out_sf), "fp32", (1, 32), backend=backend)[8:24])


def test_read_only_inputs_stay(backend):
    x = data(8, 64)
    x.flags.writeable = False
    before = x.copy()
    out, out_sf = quant.per_token_cast(x, "e4m3", 32, backend=backend)
    for array in (out, out_sf):
        array.flags.writeable = False
    quant.cast_back((out, out_sf), "bf16", (1, 32), backend=backend)
    same_bytes(x, before)
    with pytest.raises(ValueError, match=r"^\[per_token_cast\] out must be writable"):
        quant.per_token_cast(x, "e4m3", 32, out=(out, out_sf))


@pytest.mark.parametrize("codes", [numpy.int8, numpy.uint8])
def test_fp4_codes_as_bytes(codes, backend):
    packed = numpy.array([[0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE]], numpy.uint8)
    sf = numpy.ones((1, 1), numpy.float32)
    back = quant.cast_back((packed.view(codes), sf), "fp32", (1, 16), backend=backend)
    assert back.tolist() == [[0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6]]
    assert numpy.signbit(back[0, 8])


def test_fp4_of_ml_dtypes(backend):
    values = numpy.array([[0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]],
                         numpy.float32)
    fp4 = values.astype(ml_dtypes.float4_e2m1fn)
    sf = numpy.ones((1, 1), numpy.float32)
    same_bytes(quant.cast_back((fp4, sf), "fp32", (1, 16), backend=backend), values)
    with pytest.raises(ValueError, match=r"^\[cast_back\] x must have an even number of columns"):
        quant.cast_back((fp4[:, :3], sf), "fp32", (1, 16))


def test_given_outputs(backend):
    x = data(6, 64)
    expected = quant.per_token_cast(x, "e2m1", 32, round_sf=True)
    out = (numpy.full((6, 32), 99, numpy.int8), numpy.full((6, 2), 99, numpy.float32))
    got = quant.per_token_cast(x, "e2m1", 32, round_sf=True, out=out, backend=backend)
    assert got[0] is out[0] and got[1] is out[1]
    same_bytes(out[0], expected[0])
    same_bytes(out[1], expected[1])
    out_sf = numpy.empty((6, 2), numpy.float32)
    assert quant.per_token_cast_with_sf_only(x, "e2m1", 32, out_sf=out_sf, round_sf=True,
                                             backend=backend) is out_sf
    same_bytes(out_sf, expected[1])
    codes = numpy.empty((6, 32), numpy.int8)
    assert quant.per_token_cast_with_precomputed_sf(x, "e2m1", 32, out_sf, out=codes,
                                                    backend=backend) is codes
    same_bytes(codes, expected[0])
    block = (numpy.empty((6, 64), E4M3), numpy.empty((1, 2), numpy.float32))
    quant.per_block_cast(x, "e4m3", (32, 32), out=block, backend=backend)
    same_bytes(block[0], quant.per_block_cast(x, "e4m3", (32, 32))[0])


@pytest.mark.parametrize("out,message", [
    ((numpy.empty((6, 64), E4M3), numpy.empty((6, 1), numpy.float32)), r"sf"),
    ((numpy.empty((6, 63), E4M3), numpy.empty((6, 2), numpy.float32)), r"out"),
    ((numpy.empty((6, 64), numpy.int8), numpy.empty((6, 2), numpy.float32)), r"out"),
    ((numpy.empty((6, 128), E4M3)[:, :64], numpy.empty((6, 2), numpy.float32)), r"out"),
    (numpy.empty((6, 64), E4M3), r"out must be a pair"),
    ((numpy.empty((6, 64), E4M3),), r"out must be a pair"),
])
def test_given_outputs_that_do_not_fit(out, message):
    with pytest.raises(ValueError, match=rf"^\[per_token_cast\] .*{message}"):
        quant.per_token_cast(data(6, 64), "e4m3", 32, out=out)


def test_given_outputs_may_not_overlap_an_input():
    x = data(6, 64)
    out = (x.view(E4M3)[:, :64], numpy.empty((6, 2), numpy.float32))
    with pytest.raises(ValueError, match=r"^\[per_token_cast\] "):
        quant.per_token_cast(x, "e4m3", 32, out=out)


X = data(4, 64)
Q = (numpy.zeros((4, 64), E4M3), numpy.ones((4, 2), numpy.float32))


@pytest.mark.parametrize("call,message", [
    (lambda: quant.per_token_cast(X, "e5m2", 32), r"fmt must be e4m3 or e2m1, got e5m2$"),
    (lambda: quant.per_token_cast(X, "bf16", 32), r"fmt must be e4m3 or e2m1, got bf16$"),
    (lambda: quant.per_token_cast(X, "e4m3", 48), r"num_per_channels .*, got 48$"),
    (lambda: quant.per_token_cast(X[:, :24], "e4m3", 16), r"hidden .*16.*, got 24$"),
    (lambda: quant.per_token_cast(X, "e4m3", 32, use_packed_ue8m0=True),
     r"use_packed_ue8m0 must come with round_sf=True, got round_sf=False$"),
    (lambda: quant.per_token_cast(X, "e4m3", 32, round_sf=True, use_e4m3_sf=True),
     r"use_e4m3_sf must come with round_sf=False, got round_sf=True$"),
    (lambda: quant.per_token_cast(X, "e4m3", 32, (1, 32)), r"x must be a pair"),
    (lambda: quant.per_token_cast(X, "e4m3", 32, x_sf_layout="col"), r"x must be a pair"),
    (lambda: quant.per_token_cast(Q, "e4m3", 32), r"x_block_size must be given"),
    (lambda: quant.per_token_cast(Q, "e4m3", 32, 32), r"x_block_size must be a pair"),
    (lambda: quant.per_token_cast(Q, "e4m3", 32, (1, 48)), r".*48"),
    (lambda: quant.per_token_cast(Q, "e4m3", 32, (1, 64)), r"x.sf "),
    (lambda: quant.per_token_cast(Q[0], "e4m3", 32), r"x .*e4m3"),
    (lambda: quant.per_token_cast((*Q, 1), "e4m3", 32, (1, 32)), r"x must be a pair"),
    (lambda: quant.per_token_cast(X, "e4m3", 32, sf_pitch="tpu"), r"sf_pitch .*, got tpu$"),
    (lambda: quant.per_token_cast(Q, "e4m3", 32, (1, 32), x_sf_layout="diagonal"),
     r"x_sf_layout .*, got diagonal$"),
    (lambda: quant.per_token_cast(Q, "e4m3", 32, (1, 32), x_sf_layout="col"), r"x.sf "),
    (lambda: quant.per_token_cast(numpy.zeros((4, 64), numpy.int32), "e4m3", 32), r"x .*i32$"),
    (lambda: quant.per_token_cast(numpy.zeros((2, 4, 64), numpy.float32), "e4m3", 32), r"x .*2"),
    (lambda: quant.per_token_cast_with_precomputed_sf(X, "e4m3", 32, Q[1], True),
     r"use_tma_aligned_col_major_sf must be False"),
    (lambda: quant.per_token_cast_with_precomputed_sf(
        X, "e4m3", 32, Q[1], round_sf=True, use_packed_ue8m0=True),
     r"use_packed_ue8m0 must be False"),
    (lambda: quant.per_token_cast_with_precomputed_sf(X, "e4m3", 32, Q[1], use_e4m3_sf=True),
     r"use_e4m3_sf must be"),
    (lambda: quant.per_token_cast_with_precomputed_sf(X, "e4m3", 32, Q[1].astype(E4M3)),
     r"use_e4m3_sf must be"),
    (lambda: quant.per_token_cast_with_precomputed_sf(X, "e4m3", 64, Q[1]), r"sf "),
    (lambda: quant.per_block_cast(X, "e4m3", (64, 64)), r".*64"),
    (lambda: quant.per_block_cast(X, "e4m3", 32), r"block_size must be a pair"),
    (lambda: quant.per_block_cast(X[:, :63], "e2m1", (32, 32)), r"hidden .*63$"),
    (lambda: quant.cast_back(Q, "e4m3", (1, 32)), r"fmt must be bf16, fp32 or fp16, got e4m3$"),
    (lambda: quant.cast_back(Q, "bf16", (1, 32), "e5m6"), r"x_special_fmt must be None"),
    (lambda: quant.cast_back(Q, "bf16", (0, 32)), r".*0"),
    (lambda: quant.cast_back(Q, "bf16", (1, 16)), r"x.sf "),
    (lambda: quant.cast_back(Q[0], "bf16", (1, 16)), r"x must be a pair"),
    (lambda: quant.cast_back((X, Q[1]), "bf16", (1, 32)), r"x .*f32$"),
    (lambda: quant.cast_back((Q[0], Q[1].astype(numpy.float16)), "bf16", (1, 32)), r"x.sf .*f16$"),
])
def test_refusals(call, message):
    with pytest.raises(ValueError, match=r"^\[\w+\] " + message):
        call()


@pytest.mark.parametrize("call,message", [
    (lambda x: quant.per_token_cast(x, "e4m3", 32), r"x must have dtype f32, bf16 or f16"),
    (lambda x: quant.per_token_cast(x[:, ::2], "e4m3", 32), r"x must have dtype f32, bf16 or f16"),
    (lambda x: quant.per_block_cast(x, "e4m3", (32, 32)), r"x must have dtype f32, bf16 or f16"),
    (lambda x: quant.cast_back((x, X), "fp32", (1, 32)), r"x must have dtype e4m3 or e2m1"),
    (lambda x: quant.cast_back((x, x), "fp32", (1, 32)), r"x must have dtype e4m3 or e2m1"),
    (lambda x: moe.mask_indices_by_tp(x, 8, 1, 0, 1), r"indices must have dtype i64 or i32"),
    (lambda x: moe.inplace_unique_group_indices(x, 8), r"group_indices must have dtype i64"),
    (lambda x: moe.expand_to_fused(x, x, x), r"x dtype must be one of float32, float16, int8"),
    # Where something else is wrong too, every dtype of the library is listed.
    (lambda x: quant.per_token_cast(x, "e4m3", 31), r"x dtype must be one of float32, float16"),
])
def test_a_dtype_that_the_library_lacks_is_refused_by_the_ops_own_rule(call, message):
    with pytest.raises(ValueError, match=r"^\[\w+\] " + message + r".*, got float64$"):
        call(numpy.zeros((4, 64)))


def test_stochastic_cast_is_refused():
    with pytest.raises(NotImplementedError,
                       match=r"^\[per_token_cast\] stochastic_cast must be False: .*, got True$"):
        quant.per_token_cast(X, "e4m3", 32, stochastic_cast=True)


def test_unaligned_and_odd_strides():
    raw = numpy.zeros(4 * 64 * 4 + 1, numpy.uint8)[1:].view(numpy.float32).reshape(4, 64)
    with pytest.raises(ValueError, match=r"^\[per_token_cast\] x .*align"):
        quant.per_token_cast(raw, "e4m3", 32)
    record = numpy.zeros((4, 64), [("a", numpy.float32), ("b", numpy.uint8)])["a"]
    with pytest.raises(ValueError, match=r"^\[per_token_cast\] x strides must be multiples"):
        quant.per_token_cast(record, "e4m3", 32)


def test_inputs_with_gaps_are_rebuilt():
    """The helper of the golden vectors keeps what is between rows."""
    view = with_strides(numpy.arange(6).reshape(2, 3), [5, 1])
    assert element_strides(view) == [5, 1] and view.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_arguments_have_docs():
    for name in quant.__all__:
        function = getattr(quant, name)
        text = inspect.getdoc(function)
        assert text
        if "Args:" in text and "Args: as" not in text:
            for argument in inspect.signature(function).parameters:
                assert f"{argument}:" in text, (name, argument)


def test_numpy_scalars_are_taken():
    x = numpy.random.default_rng(1).normal(size=(8, 64)).astype(numpy.float32)
    want = quant.per_token_cast(x, "e4m3", 32, round_sf=True, amax_clamp=1.0)
    got = quant.per_token_cast(x, "e4m3", numpy.int32(32), round_sf=numpy.bool_(True),
                               amax_clamp=numpy.float32(1.0))
    for a, b in zip(got, want):
        assert a.tobytes() == b.tobytes()
    block = (numpy.int64(32), numpy.uint8(32))
    assert quant.per_block_cast(x, "e4m3", block)[1].shape == (1, 2)
    got = quant.cast_back(want, "fp32", (numpy.int64(1), 32))
    assert got.tobytes() == quant.per_token_cast_back(want, "fp32", 32).tobytes()


@pytest.mark.parametrize("arguments,message", [
    ({"num_per_channels": 2**63}, "num_per_channels must fit in 32 bits, got 9223372036854775808"),
    ({"num_per_channels": 32.0}, "num_per_channels must be an integer, got 32.0"),
    ({"round_sf": "yes"}, "round_sf must be True or False, got 'yes'"),
    ({"sf_pitch": 3}, "sf_pitch must be a str or None, got 3"),
    ({"amax_clamp": "1"}, "amax_clamp must be a real number that a float holds, got '1'"),
    ({"backend": 3}, "backend must be a str or None, got 3"),
])
def test_arguments_of_a_wrong_kind_are_named(arguments, message):
    x = numpy.ones((8, 64), numpy.float32)
    for name in ("per_token_cast", "per_token_cast_with_sf_only"):
        with pytest.raises(ValueError) as caught:
            getattr(quant, name)(x, "e4m3", **{"num_per_channels": 32, **arguments})
        assert str(caught.value) == f"[{name}] {message}"


def test_per_token_cast_back_speaks_of_itself():
    pair = quant.per_token_cast(numpy.ones((8, 64), numpy.float32), "e4m3", 32)
    for arguments, message in [
            ((pair, "fp32", 0), "num_per_channels must be at least 1, got 0"),
            ((pair, "fp32", "32"), "num_per_channels must be an integer, got '32'"),
            ((pair, "fp32", 64), "x.sf must have shape (8, 1), got (8, 2)"),
            ((pair, "fp8", 32), "fmt must be bf16, fp32 or fp16, got fp8"),
            ((pair[0], "fp32", 32), "x must be a pair (data, sf), got ndarray")]:
        with pytest.raises(ValueError) as caught:
            quant.per_token_cast_back(*arguments)
        assert str(caught.value) == "[per_token_cast_back] " + message
