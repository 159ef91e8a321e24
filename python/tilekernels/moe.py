"""Mixture-of-experts routing."""

from __future__ import annotations

from typing import Any, Optional

from ._arguments import integer
from ._arrays import Op

_topk_gate = Op("topk_gate", "topk_gate", ["scores"], ["topk_idx"],
                parameters=[("num_topk", integer)])


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
