"""Mixture-of-experts routing."""

from __future__ import annotations

from typing import Any, Optional, Tuple

from ._arguments import integer
from ._arrays import Op

_topk_gate = Op("topk_gate", "topk_gate", ["scores"], ["topk_idx"],
                parameters=[("num_topk", integer)])

_normalize_weight = Op("normalize_weight", "normalize_weight", ["topk_weights"],
                       ["denominator", "normalized_weights"])


def topk_gate(scores: Any, num_topk: int, *, backend: Optional[str] = None) -> Any:
    """The `num_topk` best experts of every token.

    Args:
        scores: (num_tokens, num_experts) f32, contiguous, finite; num_experts >= 1.
        num_topk: Experts per token, in 1..min(num_experts, 32).
        backend: The backend that must run it, by name; None takes that of the array's device.

    Returns:
        topk_idx (num_tokens, num_topk) int64, contiguous (JAX: int32 unless jax_enable_x64).

    Raises:
        ValueError: Shape, dtype, stride or range.
        DataError: A row holds a score that is not finite (its ids are still distinct and in range,
            other rows are right).

    Numerics: ids by descending score, equal scores by ascending index, -0 equal to +0; NaN ranks
    below every number. No arithmetic on values, so every backend gives the same ids.

    Source: stable descending sort of the scores, cut to num_topk; TileKernels `topk_gate`.
    """
    return _topk_gate((scores,), (num_topk,), backend)[0]


def normalize_weight(topk_weights: Any, *, backend: Optional[str] = None) -> Tuple[Any, Any]:
    """Divides the weights of every token by their sum.

    Args:
        topk_weights: (num_tokens, num_topk) float32, contiguous; num_topk in 1..32.
        backend: The backend that must run it, by name; None takes that of the array's device.

    Returns:
        denominator (num_tokens) and normalized_weights (num_tokens, num_topk), float32, contiguous.

    Raises:
        ValueError: Shape, dtype, stride or range. No DataError: NaN and Inf follow IEEE.

    Numerics: the sum of 32 slots, absent ones +0, by the tree in which slot i takes slot i + 16,
    then i + 8, 4, 2, 1; then + 1e-20, so a row of zeros stays one; division correctly rounded. The
    denominator has the bits of the gate's. NaN is canonical. Same bits on every backend.

    Source: TileKernels `normalize_weight`.
    """
    denominator, normalized_weights = _normalize_weight((topk_weights,), (), backend)
    return denominator, normalized_weights
