"""Mixture-of-experts routing."""

from __future__ import annotations

import functools
from typing import Any, Optional, Tuple

from ._arguments import flag, integer, maybe_text, number, text
from ._arrays import InPlaceOp, Op

__all__ = [
    "topk_gate", "normalize_weight", "get_fused_mapping", "expand_to_fused",
    "expand_to_fused_with_sf", "reduce_fused", "moe_topk_gate_forward", "moe_topk_gate",
    "moe_topk_gate_backward", "top2_sum_gate", "group_count", "aux_fi", "mask_indices_by_tp",
    "inplace_unique_group_indices", "topk_sum_and_topk_group_idx",
]


def __dir__() -> list:
    return sorted(__all__)


_topk_gate = Op("topk_gate", "topk_gate", ["scores"], ["topk_idx"],
                parameters=[("num_topk", integer)])

_normalize_weight = Op("normalize_weight", "normalize_weight", ["topk_weights"],
                       ["denominator", "normalized_weights"])

_group_count = Op("group_count", "group_count", ["group_idx"], ["count"],
                  parameters=[("num_groups", integer)])
_aux_fi = Op("aux_fi", "aux_fi", ["topk_idx"], ["fi"],
             parameters=[("num_experts", integer), ("num_aux_topk", integer)])
_mask_indices_by_tp = Op("mask_indices_by_tp", "mask_indices_by_tp", ["indices"], ["masked"],
                         parameters=[("n", integer), ("num_ep_ranks", integer),
                                     ("tp_rank", integer), ("num_tp_ranks", integer)])
_topk_sum_and_topk_group_idx = Op(
    "topk_sum_and_topk_group_idx", "topk_sum_and_topk_group_idx", ["scores"], ["group_idx"],
    parameters=[("num_topk_sum", integer), ("num_topk_groups", integer)])
_inplace_unique_group_indices = InPlaceOp(
    "inplace_unique_group_indices", "inplace_unique_group_indices", ["group_indices"],
    parameters=[("num_groups", integer)])

# The optional arrays of the gates, in the order of the extension's bits.
_GATE_ARRAYS = ("mask", "bias", "image_bias", "image_token_mask", "fix_routing_mask",
                "to_physical_map", "logical_count", "unmapped_topk_idx", "force_random", "scores")
_TOP2_ARRAYS = ("mask", "fix_routing_mask", "to_physical_map", "logical_count",
                "unmapped_topk_idx")
_CHANGED = ("unmapped_topk_idx", "scores")


@functools.lru_cache(maxsize=None)
def _moe_topk_gate(given: int) -> Op:
    arrays = [name for bit, name in enumerate(_GATE_ARRAYS) if given >> bit & 1]
    parameters = [("given", integer), ("num_topk", integer), ("use_shared_as_routed", flag),
                  ("num_shared_experts", integer), ("routed_scaling_factor", number),
                  ("ep_rank", integer), ("scoring_func", text), ("norm_topk_prob", flag),
                  ("num_groups", integer), ("num_topk_groups", integer)]
    return Op("moe_topk_gate", "moe_topk_gate", ["logits", *arrays], ["topk_idx", "topk_weights"],
              parameters=parameters, changed=_CHANGED)


@functools.lru_cache(maxsize=None)
def _top2_sum_gate(given: int) -> Op:
    arrays = [name for bit, name in enumerate(_TOP2_ARRAYS) if given >> bit & 1]
    parameters = [("given", integer), ("num_topk", integer), ("num_topk_groups", integer),
                  ("num_groups", integer), ("use_shared_as_routed", flag),
                  ("num_shared_experts", integer), ("routed_scaling_factor", number),
                  ("ep_rank", integer), ("num_ep_ranks", integer), ("tp_rank", integer),
                  ("num_tp_ranks", integer), ("scoring_func", text)]
    return Op("top2_sum_gate", "top2_sum_gate", ["logits", "bias", *arrays],
              ["topk_idx", "topk_weights"], parameters=parameters, changed=_CHANGED)


@functools.lru_cache(maxsize=None)
def _moe_topk_gate_backward(given: int) -> Op:
    arrays = [name for bit, name in enumerate(("mask", "grad_scores_sum")) if given >> bit & 1]
    return Op("moe_topk_gate_backward", "moe_topk_gate_backward",
              ["scores", "topk_idx", "topk_weights", "grad_topk_weights", *arrays],
              ["grad_logits"], parameters=[("given", integer), ("routed_scaling_factor", number),
                                           ("scoring_func", text)])


def _given(arrays: tuple) -> Tuple[int, tuple]:
    """The bit set of the arrays that are there, and these."""
    bits = 0
    there = []
    for bit, array in enumerate(arrays):
        if array is not None:
            bits |= 1 << bit
            there.append(array)
    return bits, tuple(there)


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


_get_fused_mapping = Op(
    "get_fused_mapping", "get_fused_mapping", ["topk_idx"],
    ["pos_to_expert", "pos_to_token", "pos_to_token_topk", "token_topk_to_pos", "expert_start",
     "expert_end", "num_tokens_per_expert", "psum_num_tokens_per_expert"],
    parameters=[("num_experts", integer), ("num_expanded_tokens", integer),
                ("alignment", integer)])

_MAPS = ["token_topk_to_pos", "pos_to_expert"]
_expand_to_fused = Op("expand_to_fused", "expand_to_fused", ["x", *_MAPS], ["out"])
_expand_to_fused_with_sf = Op(
    "expand_to_fused_with_sf", "expand_to_fused_with_sf", ["x", "x.sf", *_MAPS], ["out", "out_sf"],
    ["x", "out"], [("num_per_channels", integer), ("use_tma_aligned_col_major_sf", flag),
                   ("sf_pitch", maybe_text)])

# One function of the extension for every choice of optional arrays
_REDUCE_OPTIONS = ("topk_weights", "x_sf", "sf")
_reduce_fused = [
    Op(f"reduce_fused_{given}", "reduce_fused",
       ["x", "token_topk_to_pos",
        *(name for bit, name in enumerate(_REDUCE_OPTIONS) if given >> bit & 1)],
       ["out"], parameters=[("fp8_format", flag)])
    for given in range(8)]


def get_fused_mapping(topk_idx: Any, num_experts: int, num_expanded_tokens: int, alignment: int,
                      force_no_sync: bool = False, *, with_psum: bool = False,
                      backend: Optional[str] = None) -> tuple:
    """Sorts the routed tokens by expert into positions, segments padded to `alignment` rows.

    Args:
        topk_idx: (num_tokens, num_topk) int64, contiguous; -1 is none. num_tokens * num_topk must
            be below 2^31 - alignment.
        num_experts: In 1..8192.
        num_expanded_tokens: Positions that there are. 0 makes room for any routing, then waits for
            the counts and cuts the pos_ arrays to the positions in use.
        alignment: In 1..2^30.
        force_no_sync: With num_expanded_tokens = 0, neither wait nor cut.
        with_psum: Return psum_num_tokens_per_expert too, at the end.
        backend: The backend that must run it, by name; None takes that of the array's device.

    Returns:
        pos_to_expert, pos_to_token, pos_to_token_topk (num_expanded_tokens,), -1 where there is
        padding; token_topk_to_pos (num_tokens, num_topk), -1 for none; expert_start, expert_end,
        num_tokens_per_expert (num_experts,), the tokens rounded up to the alignment; all int32. And
        num_tokens_per_expert as a list, empty if the call did not wait. With with_psum
        psum_num_tokens_per_expert (num_experts,): the position behind an expert's last token.

    Raises:
        ValueError: Shape, dtype, stride or range.
        DataError: A token has an index outside of [-1, num_experts), which counts as -1, or its
            expert's segment does not fit: then segments are cut off at num_expanded_tokens and
            entries behind that have position -1.

    Numerics: none. Inside a segment ascending token * num_topk + k: stable, and the same on every
    backend and machine.

    Source: TileKernels `get_fused_mapping`, whose order depends on the number of SMs.
    """
    force_no_sync = flag("get_fused_mapping", "force_no_sync", force_no_sync)
    with_psum = flag("get_fused_mapping", "with_psum", with_psum)
    parameters = (num_experts, num_expanded_tokens, alignment)
    arrays = _get_fused_mapping((topk_idx,), parameters, backend)
    by_pos = arrays[:3]
    counts: list = []
    if num_expanded_tokens == 0 and not force_no_sync:
        counts = arrays[6].tolist()
        used = sum(counts)
        by_pos = [array[:used] for array in by_pos]
    result = (*by_pos, *arrays[3:7], counts)
    return (*result, arrays[7]) if with_psum else result


def expand_to_fused(x: Any, token_topk_to_pos: Any, pos_to_expert: Any, *,
                    backend: Optional[str] = None) -> Any:
    """Copies every token's row to its positions.

    Args:
        x: (num_tokens, hidden) of any dtype, rows contiguous, any row stride >= hidden.
        token_topk_to_pos: (num_tokens, num_topk) int32, contiguous, num_topk <= 32; negative is
            none.
        pos_to_expert: (num_expanded_tokens,) int32, contiguous; negative is padding.
        backend: The backend that must run it, by name; None takes that of the array's device.

    Returns:
        out (num_expanded_tokens, hidden) of x's dtype, contiguous. Rows of padding, and rows that
        no token has, are zero. Of several tokens that name one position the last one, in order of
        token * num_topk + k, is there.

    Raises:
        ValueError: Shape, dtype, stride or range.
        DataError: A token has a position that is not below num_expanded_tokens; it counts as none.

    Numerics: none, bytes are copied.

    Source: TileKernels `expand_to_fused`.
    """
    return _expand_to_fused((x, token_topk_to_pos, pos_to_expert), (), backend)[0]


def expand_to_fused_with_sf(x: tuple, num_per_channels: int, token_topk_to_pos: Any,
                            pos_to_expert: Any, use_tma_aligned_col_major_sf: bool = False, *,
                            sf_pitch: Optional[str] = None,
                            backend: Optional[str] = None) -> Tuple[Any, Any]:
    """Copies the codes and scaling factors of every token to its positions.

    Args:
        x: A quantized tensor (data, sf): data (num_tokens, hidden) as in `expand_to_fused`, int8
            holding two FP4 codes; sf (num_tokens, ceil(hidden / num_per_channels)) float32,
            float8_e4m3fn or float8_e8m0fnu, or that divided by 4 (int32) or 2 (int16), rounded up,
            of packed exponents; rows or columns contiguous.
        num_per_channels: 16, 32, 64 or 128.
        token_topk_to_pos, pos_to_expert: As in `expand_to_fused`.
        use_tma_aligned_col_major_sf: Column-major scaling factors.
        sf_pitch: Whose pitches out_sf follows, "cuda" or "ascend"; None takes the device's own,
            CUDA's for host memory. Packed ones keep their own.
        backend: The backend that must run it, by name; None takes that of the array's device.

    Returns:
        out (num_expanded_tokens, hidden) and out_sf of as many rows. Scaling factors of rows that
        are zero are 0, and so is the padding of columns.

    Raises:
        ValueError: Shape, dtype, stride or range.
        DataError: A token has a position that is not below num_expanded_tokens; it counts as none.

    Numerics: none, bytes are copied.

    Source: TileKernels `expand_to_fused_with_sf`.
    """
    if not isinstance(x, tuple) or len(x) != 2:
        raise ValueError("[expand_to_fused_with_sf] x must be a pair (data, sf), got "
                         f"{type(x).__name__}")
    arrays = (*x, token_topk_to_pos, pos_to_expert)
    parameters = (num_per_channels, use_tma_aligned_col_major_sf, sf_pitch)
    out, out_sf = _expand_to_fused_with_sf(arrays, parameters, backend)
    return out, out_sf


def reduce_fused(x: Any, topk_weights: Any, token_topk_to_pos: Any, fp8_format: str = "",
                 sf: Any = None, out: Any = None, *, backend: Optional[str] = None) -> Any:
    """Adds up the rows of every token's positions.

    Args:
        x: (num_expanded_tokens, hidden) float32, bfloat16, float16 or float8_e4m3fn, rows
            contiguous, any row stride >= hidden; or a pair (x, x_sf) with x_sf
            (num_expanded_tokens,) float32, a factor of every row.
        topk_weights: (num_tokens, num_topk) float32, contiguous; None is all 1.
        token_topk_to_pos: (num_tokens, num_topk) int32, contiguous, num_topk <= 32; negative is
            none.
        fp8_format: "" or "e4m3", the dtype of the output; "" is that of x.
        sf: (1,) float32, a factor of all results, with an output of e4m3 only.
        out: Memory for the result instead of a new array.
        backend: The backend that must run it, by name; None takes that of the array's device.

    Returns:
        out (num_tokens, hidden), contiguous.

    Raises:
        ValueError: Shape, dtype, stride or range.
        DataError: A token has a position that is not below num_expanded_tokens; it counts as none.

    Numerics: float32 sum from +0, one fused multiply-add a position in the order of k, by the
    factor topk_weights or 1, times x_sf; then times sf; one rounding to the output, e4m3
    saturating. NaN is canonical. Same bits on every backend.

    Source: TileKernels `reduce_fused`, whose e4m3 output saturates on CUDA.
    """
    if fp8_format not in ("", "e4m3"):
        raise ValueError(f"[reduce_fused] fp8_format must be '' or 'e4m3', got {fp8_format}")
    x_sf = None
    if isinstance(x, tuple):
        if len(x) != 2:
            raise ValueError(f"[reduce_fused] x must be a pair (x, x_sf), got {len(x)} arrays")
        x, x_sf = x
    options = (topk_weights, x_sf, sf)
    given = sum(1 << bit for bit, array in enumerate(options) if array is not None)
    arrays = (x, token_topk_to_pos, *(array for array in options if array is not None))
    outputs = None if out is None else (out,)
    return _reduce_fused[given](arrays, (fp8_format == "e4m3",), backend, outputs)[0]

def moe_topk_gate_forward(
        logits: Any, num_topk: int, use_shared_as_routed: bool = False,
        num_shared_experts: int = 0, routed_scaling_factor: float = 1.0, ep_rank: int = 0,
        scoring_func: str = "sqrtsoftplus", mask: Any = None, bias: Any = None,
        image_bias: Any = None, image_token_mask: Any = None, fix_routing_mask: Any = None,
        to_physical_map: Any = None, logical_count: Any = None, unmapped_topk_idx: Any = None,
        force_random: Any = None, out: Optional[Tuple[Any, Any]] = None, scores: Any = None, *,
        norm_topk_prob: bool = True, num_groups: int = 0, num_topk_groups: int = 0,
        backend: Optional[str] = None) -> Tuple[Any, Any]:
    """Routes every token to its experts: scores of the logits, a selection by score and bias,
    weights of the chosen scores, and where the experts lie.

    DeepSeek-V3 and V3.2: scoring_func "sigmoid", num_groups = n_group, num_topk_groups =
    topk_group, bias = e_score_correction_bias. V4: "sqrtsoftplus" without groups. Kimi K2, GLM-4.5:
    as V3, without groups. Qwen-MoE, Mixtral, gpt-oss, DeepSeek-V2-Lite: "softmax", norm_topk_prob
    as configured (True for Mixtral and gpt-oss).

    Args:
        logits: (num_tokens, num_experts) float32, contiguous, finite.
        num_topk: Routed experts per token, in 1..min(num_experts, 32); with shared ones at most 32.
        use_shared_as_routed: Append num_shared_experts (1 or 2) slots, of weight 1 and with the
            indices from num_experts on.
        num_shared_experts: Not looked at without use_shared_as_routed.
        routed_scaling_factor: What the weights of routed experts are multiplied by; finite.
        ep_rank: Chooses copies of experts, and seeds force_random.
        scoring_func: "sqrtsoftplus", "sigmoid" or "softmax" (over all experts of the token).
        mask: num_tokens bool; False for a padding token: ids -1, weights 0, logits not looked at.
        bias: (num_experts,) float32, added to the scores for the selection alone. -Inf forbids an
            expert while num_topk others are there.
        image_bias: (num_experts,) float32, instead of bias where image_token_mask holds.
        image_token_mask: (num_tokens,) bool; goes with image_bias.
        fix_routing_mask: (num_tokens,) bool; True takes the experts of unmapped_topk_idx.
        to_physical_map: (num_experts + shared, num_copies) int32: the physical experts of each.
        logical_count: (num_experts + shared,) int32; goes with to_physical_map. Token t takes copy
            (ep_rank + 23333 t) mod logical_count.
        unmapped_topk_idx: (num_tokens, num_topk) int64, any row stride, written to: the routed
            experts before the map, -1 for padding and random tokens.
        force_random: (num_tokens,) bool; True takes random physical experts and weights, the same
            ones at every call.
        out: (topk_idx, topk_weights) to write to instead of new arrays.
        scores: (num_tokens, num_experts) float32 to write the scores to, without bias; zeros for
            padding and random tokens.
        norm_topk_prob: Divide the weights of a token by their sum.
        num_groups: Into how many groups of neighbours the experts fall; 0 for none.
        num_topk_groups: How many of them, of the largest sums of their two best, take part.
        backend: The backend that must run it, by name; None takes that of the array's device.

    Returns:
        topk_idx int64 and topk_weights float32, (num_tokens, num_topk + shared), contiguous (JAX:
        int32 unless jax_enable_x64).

    Raises:
        ValueError: Shape, dtype, stride, range or name.
        DataError: A logit that is not finite, a bias that is NaN, a fixed expert that is none, or
            counts or a map that cannot be, for a token that needs them. Other tokens are right; a
            bad id is -1.

    Numerics: by falling score + bias (softmax: logit + bias), equal ones by ascending index. Weight
    = score / (tree sum of the scores + 1e-20) * routed_scaling_factor, each step rounded. Same bits
    on every backend.

    Source: TileKernels `moe_topk_gate_forward`; DeepSeek-V3 for groups.
    """
    given, arrays = _given((mask, bias, image_bias, image_token_mask, fix_routing_mask,
                            to_physical_map, logical_count, unmapped_topk_idx, force_random,
                            scores))
    topk_idx, topk_weights = _moe_topk_gate(given)(
        (logits, *arrays),
        (given, num_topk, use_shared_as_routed, num_shared_experts, routed_scaling_factor, ep_rank,
         scoring_func, norm_topk_prob, num_groups, num_topk_groups), backend, out)
    return topk_idx, topk_weights


moe_topk_gate = moe_topk_gate_forward


def moe_topk_gate_backward(
        scores: Any, topk_idx: Any, topk_weights: Any, grad_topk_weights: Any,
        routed_scaling_factor: float, scoring_func: str = "sqrtsoftplus", mask: Any = None,
        grad_scores_sum: Any = None, out: Any = None, *, backend: Optional[str] = None) -> Any:
    """The gradient of `moe_topk_gate_forward` by its logits, from the gradient of the normalized
    weights and, for a balance loss, from that of each sequence's summed relative scores.

    Args:
        scores: (num_tokens, num_experts) float32, contiguous, as the forward pass saved them.
        topk_idx: (num_tokens, num_topk) int64, contiguous: the logical routed experts, without
            shared ones and before any map (`unmapped_topk_idx`). -1 is none; an expert may be there
            twice. num_topk is in 1..min(num_experts, 32).
        topk_weights: (num_tokens, num_topk) float32, contiguous, without shared ones.
        grad_topk_weights: Their gradient. Of index -1 either may be anything.
        routed_scaling_factor: That of the forward pass; finite.
        scoring_func: That of the forward pass, "sqrtsoftplus" or "sigmoid".
        mask: (num_tokens,) bool; goes with grad_scores_sum. False for tokens that have no part in
            these sums; no effect on the other term.
        grad_scores_sum: (num_sequences, num_experts) float32, contiguous: the gradient by the sums
            over a sequence of scores / (sum of the token's scores). num_sequences divides
            num_tokens; sequences are rows one after the other.
        out: Memory for the result instead of a new array.
        backend: The backend that must run it, by name; None takes that of the array's device.

    Returns:
        grad_logits (num_tokens, num_experts) float32, contiguous.

    Raises:
        ValueError: Shape, dtype, stride, range or name.
        NotImplementedError: scoring_func is "softmax".
        DataError: A token has an index outside of [-1, num_experts), which counts as -1.

    Numerics: float32 with a rounding a step. delta = (s g - sum of g w) / (sum of the chosen scores
    + 1e-20), both sums by the gate's tree; those of an expert added in the order of the slots.
    Tokens of the mask add (H - dot(H, scores) r) r, r = 1 / sum of scores, unless all their scores
    are 0. Times the derivative of the score. NaN is canonical. Same bits on every backend.

    Source: TileKernels `moe_topk_gate_backward`, which adds repeated experts in any order.
    """
    given, arrays = _given((mask, grad_scores_sum))
    return _moe_topk_gate_backward(given)(
        (scores, topk_idx, topk_weights, grad_topk_weights, *arrays),
        (given, routed_scaling_factor, scoring_func), backend, None if out is None else (out,))[0]


def top2_sum_gate(
        logits: Any, bias: Any, num_topk: int, num_topk_groups: int, num_groups: int,
        use_shared_as_routed: bool, num_shared_experts: int, routed_scaling_factor: float,
        ep_rank: int, num_ep_ranks: int, tp_rank: int, num_tp_ranks: int, scoring_func: str,
        mask: Any = None, fix_routing_mask: Any = None, to_physical_map: Any = None,
        logical_count: Any = None, unmapped_topk_idx: Any = None, *,
        backend: Optional[str] = None) -> Tuple[Any, Any]:
    """`moe_topk_gate_forward` with a bias always, limited to the best groups of experts, for
    experts that tensor-parallel ranks share.

    Args (the others as there):
        num_ep_ranks: A rank holds (num_experts + num_copies - 1) // num_ep_ranks experts, at least
            1; num_copies is 1 without a map.
        tp_rank: This tensor-parallel rank, in 0..num_tp_ranks - 1.
        num_tp_ranks: How many ranks share the experts of an expert-parallel rank.
        num_shared_experts: Divides num_topk, and num_topk / num_shared_experts divides num_experts.

    Returns:
        topk_idx int64 and topk_weights float32 as there; ids of another tensor-parallel rank are
        -1, the others count this rank's experts alone.

    Raises:
        ValueError, DataError: As there.

    Source: TileKernels `top2_sum_gate` (April 2025); its sum of weights was from left to right.
    """
    given, arrays = _given((mask, fix_routing_mask, to_physical_map, logical_count,
                            unmapped_topk_idx))
    topk_idx, topk_weights = _top2_sum_gate(given)(
        (logits, bias, *arrays),
        (given, num_topk, num_topk_groups, num_groups, use_shared_as_routed, num_shared_experts,
         routed_scaling_factor, ep_rank, num_ep_ranks, tp_rank, num_tp_ranks, scoring_func),
        backend)
    return topk_idx, topk_weights


def group_count(group_idx: Any, num_groups: int, *, backend: Optional[str] = None) -> Any:
    """How many indices name each group.

    Args:
        group_idx: (num_tokens, num_topk) int64, contiguous, fewer than 2**31 indices in all; -1
            names no group and is not counted.
        num_groups: At least 1.
        backend: The backend that must run it, by name; None takes that of the array's device.

    Returns:
        count (num_groups) int32; zeros for no tokens.

    Raises:
        ValueError: Shape, dtype, stride or range.
        DataError: A row holds an index below -1 or above num_groups - 1 (it is not counted, all
            else is).

    Numerics: exact.

    Source: TileKernels `group_count`.
    """
    return _group_count((group_idx,), (num_groups,), backend)[0]


def aux_fi(topk_idx: Any, num_experts: int, num_aux_topk: int, *,
           backend: Optional[str] = None) -> Any:
    """The share of the routes that each expert takes, times the number of experts: 1 for all when
    they are balanced. A factor of the auxiliary loss.

    Args:
        topk_idx: (num_tokens, num_topk) int64, contiguous, fewer than 2**31 indices in all; -1
            names no expert and is not counted.
        num_experts: At least 1.
        num_aux_topk: Routes of a token that make up the whole, at least 1.
        backend: The backend that must run it, by name; None takes that of the array's device.

    Returns:
        fi (num_experts) float32; zeros for no tokens.

    Raises:
        ValueError: Shape, dtype, stride or range.
        DataError: A row holds an index below -1 or above num_experts - 1 (it is not counted, all
            else is).

    Numerics: exact counts; count * num_experts and num_tokens * num_aux_topk, in 64 bits, are
    rounded to float32 once each, then their quotient. No order of sums shows.

    Source: TileKernels `aux_fi`.
    """
    return _aux_fi((topk_idx,), (num_experts, num_aux_topk), backend)[0]


def mask_indices_by_tp(indices: Any, n: int, num_ep_ranks: int, tp_rank: int, num_tp_ranks: int,
                       *, backend: Optional[str] = None) -> Any:
    """Keeps the indices of the experts in one tensor-parallel column and renumbers them.

    Experts are dealt out in runs of p = n // num_ep_ranks to ranks, and ranks in turn to
    num_tp_ranks columns.

    Args:
        indices: (num_tokens, num_topk) int64 or int32, contiguous.
        n: Number of experts, at least 1.
        num_ep_ranks: 1..n, so that p >= 1.
        tp_rank: The column, 0..num_tp_ranks - 1.
        num_tp_ranks: At least 1.
        backend: The backend that must run it, by name; None takes that of the array's device.

    Returns:
        masked, of the shape and dtype of indices, contiguous: for v >= 0 of rank r = v // p with
        r % num_tp_ranks == tp_rank, (r // num_tp_ranks) * p + v % p; else -1.

    Raises:
        ValueError: Shape, dtype, stride or range.
        DataError: A row holds an index of n or more (it becomes -1, other indices are right).

    Numerics: exact.

    Source: TileKernels `mask_indices_by_tp`.
    """
    return _mask_indices_by_tp((indices,), (n, num_ep_ranks, tp_rank, num_tp_ranks), backend)[0]


def inplace_unique_group_indices(group_indices: Any, num_groups: int, *,
                                 backend: Optional[str] = None) -> None:
    """Leaves every group in a row once, in place: from left to right, a group that has occurred
    before becomes -1.

    Args:
        group_indices: (num_tokens, num_topk) int64, contiguous; num_topk in 1..32. Changed, so not
            an array of JAX.
        num_groups: 1..128.
        backend: The backend that must run it, by name; None takes that of the array's device.

    Returns:
        Nothing.

    Raises:
        ValueError: Shape, dtype, stride or range.
        DataError: A row holds an index of num_groups or more. Such indices, and negative ones, stay
            as they are.

    Numerics: exact.

    Source: TileKernels `inplace_unique_group_indices`.
    """
    _inplace_unique_group_indices((group_indices,), (), (num_groups,), backend)


def topk_sum_and_topk_group_idx(scores: Any, num_topk_sum: int, num_topk_groups: int, *,
                                backend: Optional[str] = None) -> Any:
    """The groups of experts with the best scores.

    Args:
        scores: (num_tokens, num_groups, group_size) float32, contiguous, finite; num_groups in
            1..32.
        num_topk_sum: Best scores of a group that make up its value, 1 or 2, at most group_size.
        num_topk_groups: Groups per token, in 1..num_groups.
        backend: The backend that must run it, by name; None takes that of the array's device.

    Returns:
        group_idx (num_tokens, num_topk_groups) int64, contiguous.

    Raises:
        ValueError: Shape, dtype, stride or range.
        DataError: A row holds a score that is not finite (its ids are still distinct and in range,
            other rows are right).

    Numerics: a value is the best score, or the sum of the two best, rounded once; ids by descending
    value, equal values by ascending index, -0 equal to +0; NaN ranks below every number.

    Source: TileKernels `topk_sum_and_topk_group_idx`.
    """
    return _topk_sum_and_topk_group_idx((scores,), (num_topk_sum, num_topk_groups), backend)[0]
