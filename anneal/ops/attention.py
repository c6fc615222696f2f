"""Attention."""

from __future__ import annotations

import math

from anneal.errors import ShapeError
from anneal.names import Tensor
from anneal.ops.arguments import function, need_float, same_device
from anneal.ops.checks import broadcast_shapes
from anneal.ops.layers import dropout
from anneal.ops.made import result
from anneal.ops.nodes import broadcast, expand, named, permute, reduce_axis, reshape
from anneal.ops.precision import in_single
from anneal.runtime import here
from anneal.uop import Op, UOp, alu, by_rule, const, dtypes

_BOOL = dtypes.bool_
_INT32 = dtypes.int32
_NAME = "scaled_dot_product_attention"  # in messages


@function(functional=True, autocast="low")
@in_single()
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(query @ key.T * scale + mask) @ value over the last two axes.

    Args:
        query: (..., l, e); key: (..., s, e); value: (..., s, v); the first axes broadcast.
        attn_mask: broadcastable to (..., l, s): a bool mask (True takes part), or a float added to the scores.
        is_causal: position i sees positions 0..i only.
        scale: 1/sqrt(e) by default.
        enable_gqa: repeat the heads (axis -3) of key and value to those of query.

    Returns:
        (..., l, v). A row whose every position is masked gives the mean of the values.

    Raises ShapeError if sizes do not fit or both a mask and is_causal are given.

    >>> from anneal.tensor import Tensor
    >>> q = Tensor.ones(1, 2, 4)
    >>> q.scaled_dot_product_attention(q, q, is_causal=True).shape
    (1, 2, 4)
    """
    need_float(_NAME, "query", query)
    same_device(_NAME, query, key, value, attn_mask)
    q, k, v = _fitting(query, key, value, enable_gqa)
    scores, later = _masked(_scores(q, k, scale), attn_mask, is_causal)
    *lead, rows, columns = scores.shape
    n = len(lead)
    top = reduce_axis(UOp(Op.DETACH, scores.dtype, (scores,)), Op.MAX, (n + 1,))
    shifted = scores - expand(top, scores.shape)
    weights = alu(Op.EXP, (shifted,))
    if later is not None:
        weights = by_rule("exp", weights, shifted, later)
    total = reduce_axis(weights, Op.ADD, (n + 1,))
    # The values are weighted by the exponentials and divided once at the end: one division per output instead of one
    # per weight, and a backward that sums over the values' width instead of over the positions.
    if dropout_p:
        weights = dropout(result(weights, query, key, attn_mask), dropout_p).uop
    whole = here.names and not dropout_p  # a softmax by its name divides before
    if whole:
        shares = weights / expand(total, weights.shape)
        weights = named("softmax", shares, scores, arguments=n + 1)
    d = v.shape[-1]
    full = (*lead, rows, d, columns)
    left = expand(reshape(weights, (*lead, rows, 1, columns)), full)
    right = expand(reshape(permute(v, (*range(n), n + 1, n)), (*lead, 1, d, columns)), full)
    out = reshape(reduce_axis(left * right, Op.ADD, (n + 2,)), (*lead, rows, d))
    if not whole and (columns.__class__ is not int or columns):  # nothing to attend to gives zeros
        out = out / expand(total, out.shape)
    return result(out, query, key, value, attn_mask)


def _fitting(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> tuple[UOp, UOp, UOp]:
    """The nodes of all three, with as many heads each. Raises ShapeError if their sizes do not fit."""
    if enable_gqa and query.ndim > 2 and query.shape[-3] != key.shape[-3]:
        if query.shape[-3] % key.shape[-3]:
            raise ShapeError(f"{_NAME}: {query.shape[-3]} query heads are no multiple of {key.shape[-3]} key heads")
        times = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(times, dim=-3), value.repeat_interleave(times, dim=-3)
    leads = {t.shape[:-2] for t in (query, key, value)}
    if len(leads) > 1 and min(query.ndim, key.ndim, value.ndim) > 1:
        lead = broadcast_shapes(_NAME, *leads)
        query, key, value = [t.expand((*lead, *t.shape[-2:])) for t in (query, key, value)]
    q, k, v = query.uop, key.uop, value.uop
    if (
        min(len(q.shape), len(k.shape), len(v.shape)) < 2
        or q.shape[-1] != k.shape[-1]
        or k.shape[:-1] != v.shape[:-1]
        or q.shape[:-2] != k.shape[:-2]
    ):
        raise ShapeError(
            f"{_NAME}: query (..., l, e), key (..., s, e) and value (..., s, v) do not fit: "
            f"{query.shape}, {key.shape}, {value.shape}"
        )
    return q, k, v


def _scores(q: UOp, k: UOp, scale: float | None) -> UOp:
    """q (..., l, e) and k (..., s, e) to q @ k.T * scale, (..., l, s)."""
    *lead, rows, e = q.shape
    columns = k.shape[-2]
    full = (*lead, rows, columns, e)
    product = expand(reshape(q, (*lead, rows, 1, e)), full) * expand(reshape(k, (*lead, 1, columns, e)), full)
    scores = reshape(reduce_axis(product, Op.ADD, (len(lead) + 2,)), (*lead, rows, columns))
    return scores * (1 / math.sqrt(max(1, e)) if scale is None else scale)


def _masked(scores: UOp, attn_mask: Tensor | None, is_causal: bool) -> tuple[UOp, UOp | None]:
    """The scores under the mask, and which positions come later than their row, if that is the mask."""
    low = const(scores.dtype, -1e30)
    if is_causal:
        if attn_mask is not None:
            raise ShapeError(f"{_NAME}: give attn_mask or is_causal=True, not both")
        *lead, rows, columns = scores.shape
        ones = (1,) * len(lead)
        row = reshape(UOp(Op.IOTA, _INT32, (), (rows,)), (*ones, rows, 1))
        column = reshape(UOp(Op.IOTA, _INT32, (), (columns,)), (*ones, 1, columns))
        later = expand(row, scores.shape) < expand(column, scores.shape)
        return later.where(low, scores), later
    if attn_mask is None:
        return scores, None
    mask = attn_mask.uop
    padded = (1,) * (len(scores.shape) - len(mask.shape)) + mask.shape
    if any(m not in (1, s) for m, s in zip(padded, scores.shape)) or len(padded) > len(scores.shape):
        raise ShapeError(f"{_NAME}: attn_mask of shape {mask.shape} does not broadcast to {scores.shape}")
    mask = broadcast(mask, scores.shape)
    return (mask.where(scores, low) if mask.dtype is _BOOL else scores + mask.cast(scores.dtype)), None
