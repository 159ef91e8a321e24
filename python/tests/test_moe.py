"""The other ops of moe: results against NumPy, faults and refusals."""

from __future__ import annotations

import numpy
import pytest
from conftest import same_bytes

from tilekernels import moe


def weight_denominator(weights: numpy.ndarray) -> numpy.ndarray:
    slots = numpy.zeros((weights.shape[0], 32), numpy.float32)
    slots[:, :weights.shape[1]] = weights
    for half in (16, 8, 4, 2, 1):
        slots = slots[:, :half] + slots[:, half:2 * half]
    return slots[:, 0] + numpy.float32(1e-20)


@pytest.mark.parametrize("num_tokens", [0, 1, 65])
@pytest.mark.parametrize("num_topk", [1, 6, 8, 32])
def test_normalize_weight(num_tokens, num_topk, backend):
    rng = numpy.random.default_rng(num_topk)
    weights = rng.random((num_tokens, num_topk), numpy.float32)
    denominator, normalized_weights = moe.normalize_weight(weights, backend=backend)
    expected = weight_denominator(weights)
    same_bytes(denominator, expected)
    same_bytes(normalized_weights, weights / expected[:, None])


def test_normalize_weight_refuses(backend):
    with pytest.raises(ValueError, match=r"^\[normalize_weight\] num_topk .*1\.\.32, got 33$"):
        moe.normalize_weight(numpy.ones((2, 33), numpy.float32), backend=backend)
    with pytest.raises(ValueError, match=r"^\[normalize_weight\] topk_weights .*contiguous"):
        moe.normalize_weight(numpy.ones((8, 2), numpy.float32).T, backend=backend)
