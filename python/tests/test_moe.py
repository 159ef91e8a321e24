"""The other ops of moe: results against NumPy, faults and refusals."""

from __future__ import annotations

import numpy
import pytest
from conftest import same_bytes

import tilekernels
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


def routed(scores: numpy.ndarray, ranked: numpy.ndarray, num_topk: int) -> tuple:
    """Ids and unscaled weights in double, from scores and what selection sees."""
    topk_idx = numpy.argsort(-ranked, axis=1, kind="stable")[:, :num_topk]
    chosen = numpy.take_along_axis(scores, topk_idx, axis=1)
    return topk_idx, chosen / chosen.sum(axis=1, keepdims=True)


def scores_of(scoring_func: str, logits: numpy.ndarray) -> numpy.ndarray:
    wide = logits.astype(numpy.float64)
    if scoring_func == "sqrtsoftplus":
        return numpy.sqrt(numpy.logaddexp(0, wide))
    if scoring_func == "sigmoid":
        return 1 / (1 + numpy.exp(-wide))
    powers = numpy.exp(wide - wide.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("scoring_func", ["sqrtsoftplus", "sigmoid", "softmax"])
@pytest.mark.parametrize("num_experts", [8, 72, 256])
def test_moe_topk_gate(scoring_func, num_experts, backend):
    rng = numpy.random.default_rng(num_experts)
    logits = rng.standard_normal((37, num_experts), numpy.float32)
    bias = rng.standard_normal(num_experts, numpy.float32)
    saved = numpy.empty_like(logits)
    unmapped = numpy.full((37, 6), 99, numpy.int64)
    topk_idx, topk_weights = moe.moe_topk_gate_forward(
        logits, 6, routed_scaling_factor=2.5, scoring_func=scoring_func, bias=bias,
        unmapped_topk_idx=unmapped, scores=saved, backend=backend)
    scores = scores_of(scoring_func, logits)
    ranked = (logits if scoring_func == "softmax" else scores) + bias
    expected_idx, expected_weights = routed(scores, ranked, 6)
    numpy.testing.assert_array_equal(topk_idx, expected_idx)
    numpy.testing.assert_array_equal(unmapped, expected_idx)
    numpy.testing.assert_allclose(topk_weights, 2.5 * expected_weights, rtol=2e-6)
    numpy.testing.assert_allclose(saved, scores, rtol=2e-6)
    assert topk_idx.dtype == numpy.int64 and topk_weights.dtype == numpy.float32


def test_moe_topk_gate_of_groups_and_without_normalisation(backend):
    rng = numpy.random.default_rng(1)
    logits = rng.standard_normal((29, 64), numpy.float32)
    bias = rng.standard_normal(64, numpy.float32)
    topk_idx, topk_weights = moe.moe_topk_gate(
        logits, 8, scoring_func="sigmoid", bias=bias, norm_topk_prob=False, num_groups=8,
        num_topk_groups=3, backend=backend)
    scores = scores_of("sigmoid", logits)
    grouped = (scores + bias).reshape(29, 8, 8)
    sums = numpy.sort(grouped, axis=2)[:, :, -2:].sum(axis=2)
    best = numpy.argsort(-sums, axis=1, kind="stable")[:, :3]
    ranked = numpy.full_like(grouped, -numpy.inf)
    for row, groups in enumerate(best):
        ranked[row, groups] = grouped[row, groups]
    expected_idx, _ = routed(scores, ranked.reshape(29, 64), 8)
    numpy.testing.assert_array_equal(topk_idx, expected_idx)
    numpy.testing.assert_allclose(
        topk_weights, numpy.take_along_axis(scores, expected_idx, axis=1), rtol=1e-6)


def test_moe_topk_gate_masks_fixes_and_maps(backend):
    logits = numpy.zeros((4, 4), numpy.float32)
    mask = numpy.array([True, False, True, True])
    fixed = numpy.array([False, False, True, False])
    unmapped = numpy.array([[7, 7], [7, 7], [3, 1], [7, 7]])
    to_physical_map = numpy.arange(10, dtype=numpy.int32).reshape(5, 2)
    logical_count = numpy.array([2, 1, 1, 1, 1], numpy.int32)
    out = numpy.empty((4, 3), numpy.int64), numpy.empty((4, 3), numpy.float32)
    topk_idx, topk_weights = moe.moe_topk_gate_forward(
        logits, 2, True, 1, 2.0, 1, mask=mask, fix_routing_mask=fixed, unmapped_topk_idx=unmapped,
        to_physical_map=to_physical_map, logical_count=logical_count, out=out, backend=backend)
    assert topk_idx is out[0] and topk_weights is out[1]
    # Token t takes copy (1 + 23333 t) mod 2 of expert 0.
    numpy.testing.assert_array_equal(topk_idx, [[1, 2, 8], [-1, -1, -1], [6, 2, 8], [0, 2, 8]])
    numpy.testing.assert_array_equal(topk_weights, [[1, 1, 1], [0, 0, 0], [1, 1, 1], [1, 1, 1]])
    numpy.testing.assert_array_equal(unmapped, [[0, 1], [-1, -1], [3, 1], [0, 1]])


def test_moe_topk_gate_draws_distinct_experts(backend):
    logits = numpy.full((50, 16), numpy.nan, numpy.float32)
    draws = [moe.moe_topk_gate(logits, 8, ep_rank=rank, force_random=numpy.ones(50, bool),
                               backend=backend)[0] for rank in (0, 0, 1)]
    numpy.testing.assert_array_equal(draws[0], draws[1])
    assert (draws[0] != draws[2]).any()
    assert all(len(set(row)) == 8 for row in draws[0].tolist())
    assert draws[0].min() >= 0 and draws[0].max() < 16


def test_top2_sum_gate(backend):
    rng = numpy.random.default_rng(5)
    logits = rng.standard_normal((31, 64), numpy.float32)
    bias = rng.standard_normal(64, numpy.float32)
    plain, weights = moe.moe_topk_gate(logits, 6, routed_scaling_factor=1.5, scoring_func="sigmoid",
                                       bias=bias, backend=backend)
    for tp_rank in (0, 1):
        masked, same_weights = moe.top2_sum_gate(
            logits, bias, 6, 0, 0, False, 0, 1.5, 0, 4, tp_rank, 2, "sigmoid", backend=backend)
        # 16 experts a rank; ranks 0 and 2 are tensor-parallel rank 0's, 1 and 3 rank 1's.
        mine = plain // 16 % 2 == tp_rank
        expected = numpy.where(mine, plain // 32 * 16 + plain % 16, -1)
        numpy.testing.assert_array_equal(masked, expected)
        same_bytes(same_weights, weights)


def test_moe_topk_gate_refuses(backend):
    logits = numpy.zeros((4, 16), numpy.float32)
    with pytest.raises(ValueError, match=r"^\[moe_topk_gate\] scoring_func must be 'sqrtsoftplus', "
                                         r"'sigmoid' or 'softmax', got 'identity'$"):
        moe.moe_topk_gate(logits, 2, scoring_func="identity", backend=backend)
    with pytest.raises(ValueError, match=r"unmapped_topk_idx must be writable"):
        unmapped = numpy.zeros((4, 2), numpy.int64)
        unmapped.flags.writeable = False
        moe.moe_topk_gate(logits, 2, unmapped_topk_idx=unmapped, backend=backend)
    with pytest.raises(ValueError, match=r"scores must be f32 \(4, 16\)"):
        moe.moe_topk_gate(logits, 2, scores=numpy.zeros((4, 15), numpy.float32), backend=backend)
    two = (numpy.zeros((4, 2), numpy.int64), numpy.zeros((4, 2), numpy.float32))
    for out in ((), two[:1], (*two, two[1]), two[0]):
        with pytest.raises(ValueError, match=r"^\[moe_topk_gate\] out must be a tuple \(topk_idx, "
                                             r"topk_weights\), got (\d arrays|ndarray)$"):
            moe.moe_topk_gate(logits, 2, out=out, backend=backend)
    with pytest.raises(ValueError, match=r"must be given together, got image_bias alone"):
        moe.moe_topk_gate(logits, 2, image_bias=numpy.zeros(16, numpy.float32), backend=backend)
    with pytest.raises(ValueError, match=r"num_topk must be in 1\.\.16, got 17"):
        moe.moe_topk_gate(logits, 17, backend=backend)


def test_moe_topk_gate_reports_bad_logits(backend):
    logits = numpy.zeros((4, 16), numpy.float32)
    logits[2, 3] = numpy.inf
    with pytest.raises(tilekernels.DataError, match="logits must be finite.*row 2"):
        moe.moe_topk_gate(logits, 2, backend=backend)
    moe.moe_topk_gate(logits, 2, mask=numpy.arange(4) != 2, backend=backend)


def some_indices(num_tokens: int, num_topk: int, bound: int) -> numpy.ndarray:
    rng = numpy.random.default_rng(bound)
    return rng.integers(-1, bound, (num_tokens, num_topk))


@pytest.mark.parametrize("num_tokens", [0, 1, 700])
@pytest.mark.parametrize("num_topk,bound", [(1, 1), (6, 72), (8, 256), (8, 5000)])
def test_counts(num_tokens, num_topk, bound, backend):
    indices = some_indices(num_tokens, num_topk, bound)
    counts = numpy.bincount(indices[indices >= 0], minlength=bound)
    same_bytes(moe.group_count(indices, bound, backend=backend), counts.astype(numpy.int32))
    fi = moe.aux_fi(indices, bound, num_topk, backend=backend)
    expected = numpy.zeros(bound, numpy.float32)
    if num_tokens > 0:
        expected = (counts * bound).astype(numpy.float32) / numpy.float32(num_tokens * num_topk)
    same_bytes(fi, expected)


@pytest.mark.parametrize("index", [5, -2, 2**40])
def test_counts_name_the_faulty_row(index, backend):
    indices = numpy.zeros((4, 2), numpy.int64)
    indices[2, 1] = index
    for op in (lambda: moe.group_count(indices, 5, backend=backend),
               lambda: moe.aux_fi(indices, 5, 2, backend=backend)):
        with pytest.raises(tilekernels.DataError, match="must name an element") as caught:
            op()
        assert caught.value.row == 2
    tilekernels.set_check_data(False)
    assert moe.group_count(indices, 5, backend=backend).tolist() == [7, 0, 0, 0, 0]


@pytest.mark.parametrize("dtype", [numpy.int64, numpy.int32])
@pytest.mark.parametrize("n,num_ep_ranks,num_tp_ranks", [(72, 8, 2), (256, 64, 4), (7, 3, 2)])
def test_mask_indices_by_tp(dtype, n, num_ep_ranks, num_tp_ranks, backend):
    indices = some_indices(65, 8, n).astype(dtype)
    per_rank = n // num_ep_ranks
    for tp_rank in range(num_tp_ranks):
        rank = indices // per_rank
        column = rank // num_tp_ranks * per_rank + indices % per_rank
        is_here = (indices >= 0) & (rank % num_tp_ranks == tp_rank)
        got = moe.mask_indices_by_tp(indices, n, num_ep_ranks, tp_rank, num_tp_ranks,
                                     backend=backend)
        same_bytes(got, numpy.where(is_here, column, -1).astype(dtype))


def test_mask_indices_by_tp_refuses(backend):
    indices = numpy.zeros((2, 4), numpy.int64)
    with pytest.raises(ValueError, match=r"num_ep_ranks must be in 1\.\.8, got 9$"):
        moe.mask_indices_by_tp(indices, 8, 9, 0, 1, backend=backend)
    indices[1, 0] = 8
    with pytest.raises(tilekernels.DataError) as caught:
        moe.mask_indices_by_tp(indices, 8, 2, 0, 1, backend=backend)
    assert caught.value.row == 1


@pytest.mark.parametrize("num_tokens", [0, 1, 300])
@pytest.mark.parametrize("num_topk,num_groups", [(1, 1), (8, 8), (6, 72), (32, 128)])
def test_inplace_unique_group_indices(num_tokens, num_topk, num_groups, backend):
    indices = some_indices(num_tokens, num_topk, num_groups)
    expected = indices.copy()
    for row in expected:
        seen: set = set()
        for k, group in enumerate(row):
            if group in seen:
                row[k] = -1
            seen.add(group)
    got = moe.inplace_unique_group_indices(indices, num_groups, backend=backend)
    assert got is None
    same_bytes(indices, expected)


def test_inplace_unique_group_indices_refuses(backend):
    indices = numpy.zeros((2, 4), numpy.int64)
    with pytest.raises(ValueError, match=r"num_groups must be in 1\.\.128, got 129$"):
        moe.inplace_unique_group_indices(indices, 129, backend=backend)
    with pytest.raises(ValueError, match="num_groups must be an integer"):
        moe.inplace_unique_group_indices(indices, "8", backend=backend)
    with pytest.raises(TypeError, match="group_indices must be an array"):
        moe.inplace_unique_group_indices([[0, 0]], 8, backend=backend)
    frozen = indices.copy()
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="group_indices must be writable"):
        moe.inplace_unique_group_indices(frozen, 8, backend=backend)
    assert frozen.tolist() == [[0] * 4] * 2
    jax = pytest.importorskip("jax")
    with pytest.raises(ValueError, match="group_indices must be an array that can be written"):
        moe.inplace_unique_group_indices(jax.numpy.asarray(indices), 8, backend=backend)
    indices[1, 3] = 8
    with pytest.raises(tilekernels.DataError) as caught:
        moe.inplace_unique_group_indices(indices, 8, backend=backend)
    assert caught.value.row == 1
    assert indices.tolist() == [[0, -1, -1, -1], [0, -1, -1, 8]]


@pytest.mark.parametrize("num_tokens", [0, 1, 65])
@pytest.mark.parametrize("num_groups,group_size", [(8, 32), (12, 6), (32, 3)])
@pytest.mark.parametrize("num_topk_sum", [1, 2])
def test_topk_sum_and_topk_group_idx(num_tokens, num_groups, group_size, num_topk_sum, backend):
    rng = numpy.random.default_rng(num_groups)
    scores = rng.standard_normal((num_tokens, num_groups, group_size), numpy.float32)
    scores[::3] = numpy.round(scores[::3])  # ties
    best = -numpy.sort(-scores, axis=2)
    values = best[:, :, 0] if num_topk_sum == 1 else best[:, :, 0] + best[:, :, 1]
    expected = numpy.argsort(-(values + 0.0), axis=1, kind="stable")[:, :4].astype(numpy.int64)
    got = moe.topk_sum_and_topk_group_idx(scores, num_topk_sum, 4, backend=backend)
    same_bytes(got, numpy.ascontiguousarray(expected))
    if num_tokens == 65:
        scores[41, 1, 0] = numpy.nan
        with pytest.raises(tilekernels.DataError, match="scores must be finite.*row 41"):
            moe.topk_sum_and_topk_group_idx(scores, num_topk_sum, 4, backend=backend)


def numerical_gradient(loss, logits: numpy.ndarray, step: float = 1e-5) -> numpy.ndarray:
    gradient = numpy.empty_like(logits)
    for place in numpy.ndindex(*logits.shape):
        around = []
        for sign in (1, -1):
            moved = logits.copy()
            moved[place] += sign * step
            around.append(loss(moved))
        gradient[place] = (around[0] - around[1]) / (2 * step)
    return gradient


@pytest.mark.parametrize("scoring_func", ["sqrtsoftplus", "sigmoid"])
def test_gate_backward_is_the_gradient(scoring_func, backend):
    """Against differences of the forward formula in double."""
    rng = numpy.random.default_rng(5)
    num_tokens, num_experts, num_topk, scale = 6, 12, 3, 2.5
    logits = rng.normal(size=(num_tokens, num_experts))
    topk_idx = numpy.argsort(-logits, axis=1, kind="stable")[:, :num_topk].copy()
    topk_idx[1, 2] = -1
    grad = rng.normal(size=topk_idx.shape)
    sums = rng.normal(size=(2, num_experts))
    mask = numpy.array([True, True, False, True, True, True])
    valid = topk_idx >= 0

    def activate(x):
        if scoring_func == "sigmoid":
            return 1 / (1 + numpy.exp(-x))
        return numpy.sqrt(numpy.log1p(numpy.exp(x)))

    def weights_of(scores):
        chosen = numpy.take_along_axis(scores, numpy.where(valid, topk_idx, 0), 1) * valid
        return chosen / chosen.sum(1, keepdims=True) * scale

    def loss(x):
        scores = activate(x)
        relative = scores / scores.sum(1, keepdims=True) * mask[:, None]
        return (weights_of(scores) * grad).sum() + (relative.reshape(2, 3, -1).sum(1) * sums).sum()

    scores = activate(logits)
    f32 = numpy.float32
    got = moe.moe_topk_gate_backward(
        scores.astype(f32), topk_idx, weights_of(scores).astype(f32), grad.astype(f32), scale,
        scoring_func, mask, sums.astype(f32), backend=backend)
    numpy.testing.assert_allclose(got, numerical_gradient(loss, logits), rtol=2e-4, atol=2e-6)


def test_gate_backward_of_the_forward_pass(backend):
    """Scores, ids and weights as the forward pass leaves them, masked and random tokens too."""
    rng = numpy.random.default_rng(6)
    logits = rng.normal(size=(9, 64)).astype(numpy.float32)
    mask = numpy.arange(9) != 4
    force_random = numpy.arange(9) == 2
    scores = numpy.empty_like(logits)
    unmapped = numpy.empty((9, 6), numpy.int64)
    _, topk_weights = moe.moe_topk_gate(
        logits, 6, routed_scaling_factor=2.5, mask=mask, unmapped_topk_idx=unmapped,
        force_random=force_random, scores=scores, backend=backend)
    grad = rng.normal(size=(9, 6)).astype(numpy.float32)
    sums = rng.normal(size=(3, 64)).astype(numpy.float32)
    out = numpy.full_like(logits, 7)
    everyone = numpy.ones(9, bool)
    assert moe.moe_topk_gate_backward(scores, unmapped, topk_weights, grad, 2.5, mask=everyone,
                                      grad_scores_sum=sums, out=out, backend=backend) is out
    assert numpy.isfinite(out).all()
    same_bytes(out[[2, 4]], numpy.zeros((2, 64), numpy.float32))
    assert (out[[0, 1, 3, 5, 6, 7, 8]] != 0).all()
    alone = moe.moe_topk_gate_backward(scores, unmapped, topk_weights, grad, 2.5, backend=backend)
    assert ((alone != 0).sum(1) == numpy.where(mask & ~force_random, 6, 0)).all()


def test_gate_backward_refuses(backend):
    scores = numpy.ones((4, 8), numpy.float32)
    topk_idx = numpy.zeros((4, 2), numpy.int64)
    weights = numpy.ones((4, 2), numpy.float32)
    arrays = (scores, topk_idx, weights, weights)
    with pytest.raises(NotImplementedError, match=r"^\[moe_topk_gate_backward\] scoring_func .*"
                                                  "sqrtsoftplus or sigmoid, got softmax$"):
        moe.moe_topk_gate_backward(*arrays, 1.0, "softmax", backend=backend)
    with pytest.raises(ValueError, match=r"^\[moe_topk_gate_backward\] scoring_func .*'tanh'"):
        moe.moe_topk_gate_backward(*arrays, 1.0, "tanh", backend=backend)
    with pytest.raises(ValueError, match="mask and grad_scores_sum must .*, got mask alone$"):
        moe.moe_topk_gate_backward(*arrays, 1.0, mask=numpy.ones(4, bool), backend=backend)
    topk_idx[2, 1] = 8
    with pytest.raises(tilekernels.DataError) as caught:
        moe.moe_topk_gate_backward(*arrays, 1.0, backend=backend)
    assert caught.value.row == 2
