"""Arrays of the frameworks on their way in and out."""

from __future__ import annotations

import ml_dtypes
import numpy
import pytest
from conftest import bits, same_bytes

import tilekernels
from tilekernels import quant
from tilekernels.moe import topk_gate


def scores(rows: int = 6) -> numpy.ndarray:
    return numpy.random.default_rng(1).standard_normal((rows, 64)).astype(numpy.float32)


class Rows(numpy.ndarray):
    """A subclass with nothing of its own."""


def test_numpy_subclass():
    x = scores().view(Rows)
    same_bytes(topk_gate(x, 4), topk_gate(scores(), 4))


def test_masked_arrays_are_refused():
    with pytest.raises(TypeError, match="got MaskedArray$"):
        topk_gate(numpy.ma.masked_less(scores(), 0), 4)


def test_memory_of_a_file():
    content = scores().tobytes()
    x = numpy.frombuffer(content, numpy.float32).reshape(6, 64)  # read-only
    same_bytes(topk_gate(x, 4), topk_gate(scores(), 4))


def test_inputs_of_different_frameworks():
    jax = pytest.importorskip("jax", reason="jax is absent")
    out, out_sf = quant.per_token_cast(scores(), "e4m3", 32)
    with pytest.raises(TypeError, match=r"^\[cast_back\] x.sf must be an array of NumPy"):
        quant.cast_back((out, jax.numpy.asarray(out_sf)), "bf16", (1, 32))


def test_outputs_are_the_callers():
    got = topk_gate(scores(), 4)
    assert type(got) is numpy.ndarray and got.flags.owndata
    out, out_sf = quant.per_token_cast(scores(), "e4m3", 32)
    assert out.dtype == ml_dtypes.float8_e4m3fn and out.flags.owndata
    assert out_sf.flags.owndata and out_sf.flags.writeable


def test_half_precision_inputs(backend):
    for dtype in (numpy.float16, ml_dtypes.bfloat16):
        x = scores().astype(dtype)
        out, out_sf = quant.per_token_cast(x, "e4m3", 32, backend=backend)
        wide = quant.per_token_cast(x.astype(numpy.float32), "e4m3", 32, backend=backend)
        same_bytes(out, wide[0])
        same_bytes(out_sf, wide[1])


class TestJax:
    @pytest.fixture(autouse=True)
    def jax(self):
        self.jax = pytest.importorskip("jax", reason="jax is absent")
        self.jnp = self.jax.numpy

    def test_topk_gate(self):
        got = topk_gate(self.jnp.asarray(scores()), 4)
        assert isinstance(got, self.jax.Array)
        assert numpy.asarray(got).tolist() == topk_gate(scores(), 4).tolist()

    @pytest.mark.parametrize("flags", [
        {}, {"round_sf": True}, {"use_e4m3_sf": True}, {"use_tma_aligned_col_major_sf": True},
        {"round_sf": True, "use_packed_ue8m0": True},
        {"round_sf": True, "use_packed_ue8m0": True, "use_tma_aligned_col_major_sf": True},
    ])
    @pytest.mark.parametrize("fmt", ["e4m3", "e2m1"])
    @pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
    def test_cast_there_and_back(self, dtype, fmt, flags):
        x = self.jnp.asarray(scores(), dtype)
        out, out_sf = quant.per_token_cast(x, fmt, 16, **flags)
        expected = quant.per_token_cast(numpy.asarray(x), fmt, 16, **flags)
        assert isinstance(out, self.jax.Array) and isinstance(out_sf, self.jax.Array)
        same_bytes(out, expected[0])
        same_bytes(out_sf, expected[1])
        back = quant.cast_back((out, out_sf), "bf16", (1, 16))
        assert isinstance(back, self.jax.Array)
        same_bytes(back, quant.cast_back(expected, "bf16", (1, 16)))

    def test_fp4_arrays(self):
        values = self.jnp.asarray([[0, 0.5, 1, 1.5, 2, 3, 4, 6] * 2], "float4_e2m1fn")
        back = quant.cast_back((values, self.jnp.ones((1, 1), "float32")), "fp32", (1, 16))
        assert back.tolist() == [[0, 0.5, 1, 1.5, 2, 3, 4, 6] * 2]

    def test_inputs_stay(self):
        x = self.jnp.asarray(scores())
        before = numpy.array(x)
        quant.per_token_cast(x, "e4m3", 32)
        same_bytes(x, before)

    def test_outputs_do_not_change_later(self):
        x = self.jnp.asarray(scores())
        first = quant.per_token_cast(x, "e4m3", 32)
        copy = [numpy.array(array) for array in first]
        for seed in range(20):
            quant.per_token_cast(x * (seed + 2), "e4m3", 32)
        same_bytes(first[0], copy[0])
        same_bytes(first[1], copy[1])

    def test_given_outputs_are_refused(self):
        x = self.jnp.asarray(scores())
        out = quant.per_token_cast(x, "e4m3", 32)
        with pytest.raises(ValueError, match=r"^\[per_token_cast\] out must be an array that can"):
            quant.per_token_cast(x, "e4m3", 32, out=out)

    def test_inside_jit(self):
        with pytest.raises(self.jax.errors.TracerArrayConversionError):
            self.jax.jit(lambda x: topk_gate(x, 4))(self.jnp.asarray(scores()))

    def test_faults(self):
        x = self.jnp.asarray(scores()).at[3, 0].set(numpy.nan)
        with pytest.raises(tilekernels.DataError) as caught:
            topk_gate(x, 4)
        assert caught.value.row == 3


def test_bits_of_the_helper():
    assert bits(numpy.array([[1, 256]], numpy.uint16)).tolist() == [[1, 0, 0, 1]]
