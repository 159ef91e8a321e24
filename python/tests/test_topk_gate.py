"""moe.topk_gate: results, faults and refusals."""

from __future__ import annotations

import pickle

import numpy
import pytest
from conftest import same_bytes

import tilekernels
from tilekernels.moe import topk_gate


def expected(scores: numpy.ndarray, num_topk: int) -> numpy.ndarray:
    return numpy.argsort(-(scores + 0.0), axis=1, kind="stable")[:, :num_topk].astype(numpy.int64)


@pytest.mark.parametrize("num_tokens", [0, 1, 33, 1000])
@pytest.mark.parametrize("num_experts,num_topk", [(1, 1), (7, 7), (72, 6), (256, 8), (300, 32)])
def test_stable_sort(num_tokens, num_experts, num_topk, backend):
    rng = numpy.random.default_rng(num_tokens + num_experts)
    scores = rng.standard_normal((num_tokens, num_experts), numpy.float32)
    scores[::3] = numpy.round(scores[::3])  # ties
    got = topk_gate(scores, num_topk, backend=backend)
    same_bytes(got, expected(scores, num_topk))
    assert got.flags.c_contiguous and got.flags.writeable


@pytest.mark.parametrize("row,ids", [
    ([0.0] * 384, list(range(8))),
    ([5, 1, 5, 5], [0, 2]),
    ([-0.0, 0.0, -1], [0, 1]),
])
def test_ties_take_the_lower_index(row, ids, backend):
    got = topk_gate(numpy.array([row], numpy.float32), len(ids), backend=backend)
    assert got.tolist() == [ids]


def test_a_fault_names_the_lowest_row_and_all_rows_are_complete(backend):
    scores = numpy.arange(40, dtype=numpy.float32).reshape(5, 8)
    scores[2, 3] = numpy.nan
    scores[4, 0] = numpy.inf
    with pytest.raises(tilekernels.DataError, match=r"^\[topk_gate\] scores ") as caught:
        topk_gate(scores, 3, backend=backend)
    assert caught.value.row == 2
    assert isinstance(caught.value, ValueError)
    assert pickle.loads(pickle.dumps(caught.value)).row == 2
    tilekernels.set_check_data(False)
    got = topk_gate(scores, 3, backend=backend)
    assert got[0].tolist() == [7, 6, 5]
    assert got[2].tolist() == [7, 6, 5]
    assert got[4].tolist() == [0, 7, 6]


@pytest.mark.parametrize("scores,num_topk,message", [
    (numpy.zeros((2, 16), numpy.float32), 17, r"^\[topk_gate\] num_topk .*1\.\..*16.*, got 17$"),
    (numpy.zeros((2, 64), numpy.float32), 33, r"^\[topk_gate\] num_topk .*32.*, got 33$"),
    (numpy.zeros((2, 16), numpy.float32), 0, r"^\[topk_gate\] num_topk .*, got 0$"),
    (numpy.zeros((2, 16), numpy.float32), 2**40, r"^\[topk_gate\] num_topk .*, got 1099511627776$"),
    (numpy.zeros((2, 0), numpy.float32), 1, r"^\[topk_gate\] num_experts "),
    (numpy.zeros((2, 16)), 1, r"^\[topk_gate\] scores must have dtype f32, got float64$"),
    (numpy.zeros((2, 16), ">f4"), 1, r"^\[topk_gate\] scores must have dtype f32, got >f4$"),
    (numpy.zeros((2, 16), numpy.float16), 1, r"^\[topk_gate\] scores .*f32, got f16"),
    (numpy.zeros(16, numpy.float32), 1, r"^\[topk_gate\] scores .*2"),
    (numpy.zeros((16, 2), numpy.float32).T, 1, r"^\[topk_gate\] scores .*strides? \(1, 2\)"),
    (numpy.zeros((2, 32), numpy.float32)[:, :16], 1, r"^\[topk_gate\] scores .*strides? \(32, 1\)"),
    (numpy.zeros((2, 32), numpy.float32)[:, ::-2], 1, r"^\[topk_gate\] scores .*-2"),
])
def test_refusals(scores, num_topk, message):
    with pytest.raises(ValueError, match=message):
        topk_gate(scores, num_topk)


@pytest.mark.parametrize("scores,num_topk", [
    ([[1.0, 2.0]], 1),
    (numpy.float32(1), 1),
    (None, 1),
])
def test_other_types(scores, num_topk):
    with pytest.raises(TypeError):
        topk_gate(scores, num_topk)


@pytest.mark.parametrize("num_topk", ["1", 1.5, None, [1], 2**31])
def test_num_topk_of_another_kind(num_topk):
    with pytest.raises(ValueError, match=r"^\[topk_gate\] num_topk must "):
        topk_gate(numpy.zeros((2, 16), numpy.float32), num_topk)


def test_a_backend_that_is_not_here():
    scores = numpy.zeros((2, 16), numpy.float32)
    with pytest.raises(ValueError, match="got tpu$"):
        topk_gate(scores, 1, backend="tpu")
    for status in tilekernels.backends():
        if not status.available:
            with pytest.raises((NotImplementedError, RuntimeError, ValueError),
                               match=r"^\[topk_gate\] "):
                topk_gate(scores, 1, backend=status.backend)
