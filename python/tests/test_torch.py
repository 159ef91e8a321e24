"""Tensors of torch in host memory; needs torch."""

from __future__ import annotations

import numpy
import pytest

torch = pytest.importorskip("torch", reason="torch is absent")

import tilekernels  # noqa: E402
from tilekernels import _arrays, quant  # noqa: E402
from tilekernels.moe import topk_gate  # noqa: E402

KINDS = [
    {}, {"round_sf": True}, {"use_e4m3_sf": True}, {"use_tma_aligned_col_major_sf": True},
    {"use_e4m3_sf": True, "use_tma_aligned_col_major_sf": True},
    {"round_sf": True, "use_packed_ue8m0": True},
    {"round_sf": True, "use_packed_ue8m0": True, "use_tma_aligned_col_major_sf": True},
]


def scores(rows: int = 6, cols: int = 64) -> torch.Tensor:
    return torch.randn(rows, cols, generator=torch.Generator().manual_seed(1))


def as_bytes(tensor: torch.Tensor) -> numpy.ndarray:
    return tensor.clone(memory_format=torch.contiguous_format).view(torch.uint8).numpy()


def same(got: torch.Tensor, expected: numpy.ndarray) -> None:
    """Bytes, shape and strides."""
    assert isinstance(got, torch.Tensor)
    assert tuple(got.shape) == expected.shape
    size = expected.dtype.itemsize
    assert got.element_size() == size
    for dim, extent in enumerate(expected.shape if expected.size else ()):
        assert extent <= 1 or got.stride(dim) == expected.strides[dim] // size
    numpy.testing.assert_array_equal(
        as_bytes(got), numpy.ascontiguousarray(expected).view(numpy.uint8))


@pytest.mark.parametrize("rows", [0, 1, 33])
def test_topk_gate(rows, backend):
    x = scores(rows)
    got = topk_gate(x, 4, backend=backend)
    assert got.dtype == torch.int64 and got.is_contiguous()
    same(got, topk_gate(x.numpy(), 4))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fmt", ["e4m3", "e2m1"])
@pytest.mark.parametrize("rows,cols", [(0, 64), (1, 16), (1, 80), (7, 16), (7, 80)])
def test_cast_there_and_back(rows, cols, fmt, kind, backend):
    x = scores(rows, cols)
    out, out_sf = quant.per_token_cast(x, fmt, 16, backend=backend, **kind)
    expected = quant.per_token_cast(x.numpy(), fmt, 16, **kind)
    assert out.dtype == (torch.float8_e4m3fn if fmt == "e4m3" else torch.int8)
    same(out, expected[0])
    same(out_sf, expected[1])
    back = quant.cast_back((out, out_sf), "bf16", (1, 16), backend=backend)
    assert back.dtype == torch.bfloat16
    same(back, quant.cast_back(expected, "bf16", (1, 16)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_inputs(dtype, backend):
    x = scores().to(dtype)
    out, out_sf = quant.per_token_cast(x, "e4m3", 32, backend=backend)
    expected = quant.per_token_cast(x.float(), "e4m3", 32, backend=backend)
    assert torch.equal(out.view(torch.uint8), expected[0].view(torch.uint8))
    assert torch.equal(out_sf, expected[1])


def test_strided_rows_and_sliced_factors(backend):
    x = scores(40, 256)[::2, 64:192]
    out, out_sf = quant.per_token_cast(
        x, "e4m3", 32, use_tma_aligned_col_major_sf=True, backend=backend)
    same(out, quant.per_token_cast(x.contiguous().numpy(), "e4m3", 32)[0])
    back = quant.cast_back((out[4:12], out_sf[4:12]), "fp32", (1, 32), backend=backend)
    whole = quant.cast_back((out, out_sf), "fp32", (1, 32), backend=backend)
    assert torch.equal(back, whole[4:12])
    with pytest.raises(ValueError, match=r"^\[per_token_cast\] x .*\(1, 256\)"):
        quant.per_token_cast(scores(40, 256).T, "e4m3", 16)


def test_given_outputs(backend):
    x = scores()
    expected = quant.per_token_cast(x, "e4m3", 32)
    out = (torch.empty(6, 64, dtype=torch.float8_e4m3fn), torch.empty(6, 2))
    got = quant.per_token_cast(x, "e4m3", 32, out=out, backend=backend)
    assert got[0] is out[0] and got[1] is out[1]
    assert torch.equal(out[0].view(torch.uint8), expected[0].view(torch.uint8))
    assert torch.equal(out[1], expected[1])


def test_quantized_input(backend):
    x = scores(32, 64)
    quantized = quant.per_block_cast(x, "e2m1", (32, 32), round_sf=True, backend=backend)
    out, _ = quant.per_token_cast(quantized, "e4m3", 32, (32, 32), backend=backend)
    dense = quant.cast_back(quantized, "fp32", (32, 32), backend=backend)
    expected, _ = quant.per_token_cast(dense, "e4m3", 32, backend=backend)
    assert torch.equal(out.view(torch.uint8), expected.view(torch.uint8))


@pytest.mark.parametrize("name", ["float4_e2m1fn_x2", "uint8", "int8"])
def test_fp4_codes(name, backend):
    dtype = getattr(torch, name, None)
    if dtype is None:
        pytest.skip(f"torch.{name} is absent")
    codes = torch.arange(0, 256, 32, dtype=torch.uint8).reshape(1, 8) + 0x10
    sf = torch.ones(1, 1)
    expected = quant.cast_back((codes.numpy(), sf.numpy()), "fp32", (1, 16))
    same(quant.cast_back((codes.view(dtype), sf), "fp32", (1, 16), backend=backend), expected)


def test_exponent_bytes(backend):
    dtype = getattr(torch, "float8_e8m0fnu", None)
    if dtype is None:
        pytest.skip("torch.float8_e8m0fnu is absent")
    codes = torch.full((1, 32), 1.0).to(torch.float8_e4m3fn)
    sf = torch.tensor([[128]], dtype=torch.uint8).view(dtype)
    back = quant.cast_back((codes, sf), "fp32", (1, 32), backend=backend)
    assert back.tolist() == [[2.0] * 32]


def test_tensors_that_need_a_gradient():
    x = scores().requires_grad_()
    got = topk_gate(x, 4)
    assert not got.requires_grad
    same(got, topk_gate(x.detach().numpy(), 4))


def test_dtypes_are_filled_in_as_a_whole():
    """Another thread, which makes its first call too, must not see some of them."""
    class ReadOnly(dict):
        def __setitem__(self, key, value):
            raise AssertionError(key)

    torches = _arrays._Torch()
    torches._outputs = ReadOnly()
    torches._dtypes = ReadOnly()
    torches._fill()
    assert torches._outputs[_arrays.NUMBERS["e2m1"]] == (torch.int8, None)


def test_flush_to_zero_of_torch_changes_nothing():
    codes = torch.full((1, 16), 2.0**-9).to(torch.float8_e4m3fn)
    sf = torch.full((1, 1), 2.0**-120)
    torch.set_flush_denormal(True)
    try:
        back = quant.cast_back((codes, sf), "fp32", (1, 16))
    finally:
        torch.set_flush_denormal(False)
    assert (back.view(torch.int32) == 1 << 20).all()  # 2^-129


def test_refusals():
    with pytest.raises(ValueError, match=r"^\[topk_gate\] scores .*f32, got i64"):
        topk_gate(torch.zeros(2, 16, dtype=torch.int64), 1)
    with pytest.raises(ValueError, match=r"^\[topk_gate\] scores must have dtype f32, got torch"):
        topk_gate(torch.zeros(2, 16, dtype=torch.float64), 1)
    with pytest.raises(ValueError, match=r"^\[topk_gate\] scores must lie in .*, got meta"):
        topk_gate(torch.zeros(2, 16, device="meta"), 1)
    with pytest.raises(TypeError, match=r"^\[cast_back\] x.sf must be an array of torch"):
        out, out_sf = quant.per_token_cast(scores(), "e4m3", 32)
        quant.cast_back((out, out_sf.numpy()), "bf16", (1, 32))
    with pytest.raises(tilekernels.DataError) as caught:
        topk_gate(torch.tensor([[0.0, 1.0], [numpy.nan, 0.0]]), 1)
    assert caught.value.row == 1
