"""The fused ops of moe against NumPy: mapping, expansion, reduction."""

from __future__ import annotations

import ml_dtypes
import numpy
import pytest
from conftest import same_bytes

import tilekernels
from tilekernels import moe


def random_routing(num_tokens: int, num_topk: int, num_experts: int) -> numpy.ndarray:
    rng = numpy.random.default_rng(num_tokens)
    return rng.integers(-1, num_experts, (num_tokens, num_topk), numpy.int64)


@pytest.mark.parametrize("num_tokens,num_topk", [(0, 2), (1, 1), (100, 6), (1500, 3)])
@pytest.mark.parametrize("num_experts,alignment", [(1, 1), (8, 16), (72, 64)])
def test_mapping(num_tokens, num_topk, num_experts, alignment, backend):
    topk_idx = random_routing(num_tokens, num_topk, num_experts)
    *arrays, counts, psum = moe.get_fused_mapping(topk_idx, num_experts, 0, alignment,
                                                  with_psum=True, backend=backend)
    pos_to_expert, pos_to_token, pos_to_token_topk, token_topk_to_pos, start, end, aligned = arrays
    flat = topk_idx.reshape(-1)
    real = numpy.array([numpy.sum(flat == expert) for expert in range(num_experts)])
    expected = -(-real // alignment) * alignment
    assert counts == expected.tolist() == aligned.tolist()
    assert end.tolist() == numpy.cumsum(expected).tolist()
    assert start.tolist() == (end - aligned).tolist()
    assert psum.tolist() == (start + real).tolist()
    assert len(pos_to_expert) == len(pos_to_token) == len(pos_to_token_topk) == sum(counts)
    want = numpy.full(sum(counts), -1, numpy.int32)
    for expert in range(num_experts):
        want[start[expert]:psum[expert]] = numpy.flatnonzero(flat == expert)
    same_bytes(pos_to_token_topk, want)
    same_bytes(pos_to_token, numpy.where(want < 0, -1, want // num_topk).astype(numpy.int32))
    inverse = numpy.full(flat.size, -1, numpy.int32)
    inverse[want[want >= 0]] = numpy.flatnonzero(want >= 0)
    same_bytes(token_topk_to_pos, inverse.reshape(num_tokens, num_topk))


def test_mapping_without_waiting(backend):
    topk_idx = random_routing(20, 2, 4)
    assert moe.get_fused_mapping(topk_idx, 4, 100, 8, backend=backend)[0].shape == (100,)
    mapping = moe.get_fused_mapping(topk_idx, 4, 0, 8, True, backend=backend)
    assert mapping[0].shape == ((40 + 7 * 4) // 8 * 8,) and mapping[7] == []
    assert len(mapping) == 8


def test_mapping_faults(backend):
    topk_idx = numpy.zeros((4, 2), numpy.int64)
    topk_idx[2, 1] = 5
    with pytest.raises(tilekernels.DataError, match=r"^\[get_fused_mapping\] topk_idx ") as caught:
        moe.get_fused_mapping(topk_idx, 4, 64, 1, backend=backend)
    assert caught.value.row == 2
    with pytest.raises(tilekernels.DataError, match=r"^\[get_fused_mapping\] token_topk_to_pos "):
        moe.get_fused_mapping(numpy.zeros((4, 2), numpy.int64), 4, 7, 1, backend=backend)


@pytest.mark.parametrize("dtype", [numpy.float32, ml_dtypes.bfloat16, numpy.uint8, numpy.int64])
def test_expand(dtype, backend):
    topk_idx = random_routing(50, 3, 8)
    mapping = moe.get_fused_mapping(topk_idx, 8, 0, 16, backend=backend)
    x = numpy.arange(50 * 24).reshape(50, 24).astype(dtype)
    out = moe.expand_to_fused(x, mapping[3], mapping[0], backend=backend)
    want = numpy.zeros((len(mapping[0]), 24), dtype)
    want[mapping[1] >= 0] = x[mapping[1][mapping[1] >= 0]]
    same_bytes(out, want)


@pytest.mark.parametrize("col_major", [False, True])
def test_expand_with_sf(col_major, backend):
    topk_idx = random_routing(21, 3, 4)
    mapping = moe.get_fused_mapping(topk_idx, 4, 0, 5, backend=backend)
    rng = numpy.random.default_rng(3)
    codes = rng.integers(0, 120, (21, 256), numpy.uint8).view(ml_dtypes.float8_e4m3fn)
    sf = rng.random((21, 2), numpy.float32)
    out, out_sf = moe.expand_to_fused_with_sf((codes, sf), 128, mapping[3], mapping[0], col_major,
                                              backend=backend)
    real = mapping[1] >= 0
    want = numpy.zeros((len(real), 256), numpy.uint8)
    want[real] = codes.view(numpy.uint8)[mapping[1][real]]
    same_bytes(out.view(numpy.uint8), want)
    want_sf = numpy.zeros((len(real), 2), numpy.float32)
    want_sf[real] = sf[mapping[1][real]]
    same_bytes(numpy.ascontiguousarray(out_sf), want_sf)
    pitch = -(-len(real) // 4) * 4
    assert out_sf.strides == ((4, 4 * pitch) if col_major else (8, 4))
    with pytest.raises(ValueError, match=r"^\[expand_to_fused_with_sf\] x must be a pair"):
        moe.expand_to_fused_with_sf(codes, 128, mapping[3], mapping[0])


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
def test_reduce(weighted, scaled, backend):
    num_tokens, num_topk, hidden = 33, 4, 100
    rng = numpy.random.default_rng(5)
    mapping = moe.get_fused_mapping(random_routing(num_tokens, num_topk, 8), 8, 0, 1,
                                    backend=backend)
    token_topk_to_pos = mapping[3]
    x = rng.standard_normal((len(mapping[0]), hidden), numpy.float32)
    weights = rng.random((num_tokens, num_topk), numpy.float32) if weighted else None
    x_sf = rng.random(len(mapping[0]), numpy.float32)
    want = numpy.zeros((num_tokens, hidden), numpy.float32)
    for k in range(num_topk):
        pos = token_topk_to_pos[:, k]
        factor = weights[:, k] if weighted else numpy.ones(num_tokens, numpy.float32)
        if scaled:
            factor = factor * x_sf[pos]
        # The product of two float32 is exact in float64; its sum is then rounded all but once.
        sums = (x[pos].astype(numpy.float64) * factor[:, None] + want).astype(numpy.float32)
        want = numpy.where(pos[:, None] >= 0, sums, want)
    got = moe.reduce_fused((x, x_sf) if scaled else x, weights, token_topk_to_pos, backend=backend)
    numpy.testing.assert_allclose(got, want, rtol=2e-7, atol=1e-7)
    out = numpy.empty_like(got)
    assert moe.reduce_fused((x, x_sf) if scaled else x, weights, token_topk_to_pos, out=out,
                            backend=backend) is out
    same_bytes(out, got)


def test_reduce_to_e4m3(backend):
    x = numpy.array([[1, 500], [-3, numpy.nan]], numpy.float32).astype(ml_dtypes.bfloat16)
    positions = numpy.array([[0, -1], [1, 0]], numpy.int32)
    sf = numpy.array([2], numpy.float32)
    out = moe.reduce_fused(x, None, positions, "e4m3", sf, backend=backend)
    assert out.dtype == ml_dtypes.float8_e4m3fn
    same_bytes(out.view(numpy.uint8), numpy.array([[0x40, 0x7E], [0xC8, 0x7F]], numpy.uint8))


def test_reduce_refuses(backend):
    x = numpy.zeros((4, 8), numpy.float32)
    positions = numpy.zeros((2, 2), numpy.int32)
    with pytest.raises(ValueError, match=r"^\[reduce_fused\] fp8_format must be .*, got e5m2$"):
        moe.reduce_fused(x, None, positions, "e5m2", backend=backend)
    with pytest.raises(ValueError, match=r"^\[reduce_fused\] sf must come with .*e4m3, got f32$"):
        moe.reduce_fused(x, None, positions, sf=numpy.ones(1, numpy.float32), backend=backend)
    with pytest.raises(tilekernels.DataError, match=r"^\[reduce_fused\] token_topk_to_pos "):
        moe.reduce_fused(x, None, positions + 4, backend=backend)


def test_flags_are_true_or_false(backend):
    topk_idx = numpy.zeros((2, 2), numpy.int64)
    for value in (2, "yes", None, 1.0):
        with pytest.raises(ValueError, match=r"^\[get_fused_mapping\] force_no_sync must be True or "
                                             rf"False, got {value!r}$"):
            moe.get_fused_mapping(topk_idx, 4, 0, 1, value, backend=backend)
        x = (numpy.zeros((2, 32), numpy.int8), numpy.zeros((2, 2), numpy.float32))
        maps = (numpy.zeros((2, 2), numpy.int32), numpy.zeros(4, numpy.int32))
        with pytest.raises(ValueError, match=r"use_tma_aligned_col_major_sf must be True or False, "
                                             rf"got {value!r}$"):
            moe.expand_to_fused_with_sf(x, 32, *maps, value, backend=backend)
