"""Attention."""

from __future__ import annotations

import math
from typing import Any

from anneal.backend import get_device
from anneal.errors import DTypeError, PositionError, ShapeError
from anneal.names import Tensor
from anneal.ops.arguments import deferred, function, need_float, same_device
from anneal.ops.checks import axis_in, broadcast_shapes
from anneal.ops.indexing import check_places, out_of_range
from anneal.ops.inputs import wholes
from anneal.ops.joining import slice_axis
from anneal.ops.made import result

from anneal.ops.nodes import (  # isort: skip
    BOOL, INT32, broadcast, common_dtype, detached, expand, moved, named, numbered, reduce_axis, reshape, take_rows,
)  # fmt: skip
from anneal.ops.precision import no_grad, whole_product
from anneal.ops.random import key, words
from anneal.runtime import Loop, here, looped
from anneal.uop import Op, UOp, by_rule, const, promote

_NAME = "scaled_dot_product_attention"  # in messages


@function("functional autocast=low single")
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
    need_float("query", query, key, value, attn_mask)
    q, k, v = _fitting(query, key, value, enable_gqa)
    alike = attn_mask is None or math.prod(attn_mask.uop.shape[:-2]) == 1  # for all heads
    if alike and not dropout_p and not here.names and (turns := _turns(query.device, q, k)) > 1:
        out = _in_turns(turns, q, k, v, scale, attn_mask, is_causal)
    else:
        out = _attended((query, key, attn_mask), q, k, v, scale, is_causal, dropout_p)
    return result(out, query, key, value, attn_mask)


def _attended(
    given: tuple[Tensor, Tensor, Tensor | None],
    q: UOp,
    k: UOp,
    v: UOp,
    scale: float | None,
    is_causal: bool,
    dropout_p: float,
) -> UOp:
    """softmax(q @ k.T * scale + mask) @ v of nodes; `given` are the tensors query, key and mask."""
    weights, _, total, scores = _exponentials(q, k, scale, given[2], is_causal)
    # The values are weighted by the exponentials and divided once at the end: one division per output instead of one
    # per weight, and a backward that sums over the values' width instead of over the positions.
    if dropout_p:
        weights = dropout(result(weights, *given), dropout_p).uop
    whole = here.names and not dropout_p  # a softmax by its name divides before
    if whole:
        shares = weights / expand(total, weights.shape)
        weights = named("softmax", shares, scores, arguments=len(scores.shape) - 1)
    out = _weighted(weights, v)
    columns = k.shape[-2]
    out = reshape(out, (*v.shape[:-2], q.shape[-2], v.shape[-1]))
    if not whole and (columns.__class__ is not int or columns):  # nothing to attend to gives zeros
        out = out / expand(total, out.shape)
    return out


def _exponentials(
    q: UOp, k: UOp, scale: float | None, attn_mask: Tensor | None, is_causal: bool
) -> tuple[UOp, UOp, UOp, UOp]:
    """The exponentials of the scores less the greatest of each row, that, their sum, and the scores."""
    scores, later = _masked(_scores(q, k, scale), attn_mask, is_causal)
    axis = len(scores.shape) - 1
    top = reduce_axis(detached(scores), Op.MAX, (axis,))
    shifted = scores - expand(top, scores.shape)
    weights = Op.EXP(shifted)
    if later is not None:
        weights = by_rule("exp", weights, shifted, later)
    return weights, top, reduce_axis(weights, Op.ADD, (axis,)), scores


def _weighted(weights: UOp, v: UOp) -> UOp:
    """weights (..., l, s) and v (..., s, v) to (..., l, v, 1): the sums over s."""
    return _products(weights, moved(v, -1, -2))


def _products(a: UOp, b: UOp) -> UOp:
    """a (..., l, e) and b (..., s, e) to (..., l, s, 1): the sums of the products over e."""
    *lead, rows, e = a.shape
    full = (*lead, rows, b.shape[-2], e)
    left, right = reshape(a, (*lead, rows, 1, e)), reshape(b, (*b.shape[:-2], 1, *b.shape[-2:]))
    return reduce_axis(expand(left, full) * broadcast(right, full), Op.ADD, (len(lead) + 2,))


# -- in turns ---------------------------------------------------------------------------------------------------------
# Scores in float32 that are too large to be kept are computed for some heads after the others, in the same memory, and
# again by the gradient.
_NEVER = 1 << 20  # bytes of scores that every device keeps: no device is opened to know it


def _turns(device: str, q: UOp, k: UOp) -> int:
    """The number of parts into which the heads are cut: 1 if all scores are kept, if those of one head are too large,
    or if kernels compute float16 scores again faster than they read them.
    """
    *lead, rows, _ = q.shape
    sizes = (*lead, rows, k.shape[-2])
    if any(n.__class__ is not int for n in sizes) or math.prod(sizes) * q.dtype.itemsize < _NEVER:
        return 1
    costs = get_device(device).cost_model
    if not costs.chained_bytes:
        return 1
    if costs.matrix_bytes and all(x.op is Op.CAST and x.src[0].dtype.is_narrow for x in (q, k)):
        return 1
    heads = math.prod(lead)
    least = math.prod(sizes) * q.dtype.itemsize / costs.chained_bytes  # more turns than that
    return next((n for n in range(1, heads + 1) if heads % n == 0 and n > least), 1)


def _in_turns(
    turns: int, q: UOp, k: UOp, v: UOp, scale: float | None, attn_mask: Tensor | None, is_causal: bool
) -> UOp:
    """Attention as a loop over parts of the heads. Its rows are what its reverse needs of each part."""
    mask = None if attn_mask is None else attn_mask.reshape(attn_mask.shape[-2:])
    heads = math.prod(q.shape[:-2]) // turns
    arrays = [reshape(u, (turns, heads, *u.shape[-2:])) for u in (q, k, v)]
    number = UOp(Op.PARAM, INT32, (), (-1, ()), "part")
    parts = [UOp(Op.PARAM, u.dtype, (), (n, u.shape[1:]), "part") for n, u in enumerate(arrays)]
    weights, top, total, _ = _exponentials(parts[0], parts[1], scale, mask, is_causal)
    rows = [_weighted(weights, parts[2]), top, total.then(Op.CONTIGUOUS)]
    like = Loop.named(_NAME, turns, again=True)
    (out, _, total) = looped(like, number, [], [], list(zip(parts, arrays)), rows)[1]
    here.tensors.host_calls = True
    shape = (*v.shape[:-2], q.shape[-2], v.shape[-1])
    return reshape(out, shape) / expand(reshape(total, (*shape[:-1], 1)), shape)


def _fitting(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> tuple[UOp, UOp, UOp]:
    """The nodes of all three, with as many heads each. Raises ShapeError if their sizes do not fit."""
    if enable_gqa and query.ndim > 2 and (heads := query.shape[-3]) != (fewer := key.shape[-3]):
        if heads % fewer:
            raise ShapeError(f"{_NAME}: {heads} query heads are no multiple of {fewer} key heads")
        times = heads // fewer
        key, value = key.repeat_interleave(times, dim=-3), value.repeat_interleave(times, dim=-3)
    leads = {t.uop.shape[:-2] for t in (query, key, value)}
    if len(leads) > 1 and min(query.ndim, key.ndim, value.ndim) > 1:
        lead = broadcast_shapes(*leads)
        query, key, value = [t.expand((*lead, *t.shape[-2:])) for t in (query, key, value)]
    q, k, v = query.uop, key.uop, value.uop
    fits = k.shape[:-1] == v.shape[:-1] and (q.shape[:-2], q.shape[-1:]) == (k.shape[:-2], k.shape[-1:])
    if not fits or min(len(q.shape), len(k.shape), len(v.shape)) < 2:
        raise ShapeError(
            f"{_NAME}: query (..., l, e), key (..., s, e) and value (..., s, v) do not fit: "
            f"{query.shape}, {key.shape}, {value.shape}"
        )
    if not q.dtype is k.dtype is v.dtype:
        kind = promote(promote(q.dtype, k.dtype), v.dtype)
        return q.cast(kind), k.cast(kind), v.cast(kind)
    return q, k, v


def _scores(q: UOp, k: UOp, scale: float | None) -> UOp:
    """q (..., l, e) and k (..., s, e) to q @ k.T * scale, (..., l, s)."""
    scores = reshape(_products(q, k), (*q.shape[:-1], k.shape[-2]))
    return scores * (1 / math.sqrt(max(1, q.shape[-1])) if scale is None else scale)


def _masked(scores: UOp, attn_mask: Tensor | None, is_causal: bool) -> tuple[UOp, UOp | None]:
    """The scores under the mask, and which positions come later than their row, if that is the mask."""
    low = const(scores.dtype, -1e30)
    if is_causal:
        if attn_mask is not None:
            raise ShapeError(f"{_NAME}: give attn_mask or is_causal=True, not both")
        n = len(scores.shape)
        later = numbered(scores.shape, n - 2) < numbered(scores.shape, n - 1)
        return later.where(low, scores), later
    if attn_mask is None:
        return scores, None
    mask, full = attn_mask.uop, scores.shape
    if len(mask.shape) > len(full) or any(m not in (1, s) for m, s in zip(mask.shape[::-1], full[::-1])):
        raise ShapeError(f"{_NAME}: attn_mask of shape {mask.shape} does not broadcast to {full}")
    mask = broadcast(mask, full)
    return (mask.where(scores, low) if mask.dtype is BOOL else scores + mask.cast(scores.dtype)), None


# -- layers -----------------------------------------------------------------------------------------------------------
# Linear maps, look-up of embeddings, dropout, gates.


@function("functional autocast=low")
def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x @ weight.T + bias`: x of shape (..., in), weight (out, in), bias (out,); gives (..., out).

    Raises ShapeError if the sizes do not fit.

    >>> from anneal.tensor import Tensor
    >>> linear(Tensor([[1.0, 2.0]]), Tensor([[3.0, 4.0], [5.0, 6.0]]), Tensor([0.5, 0.0]))
    Tensor([[11.5, 17. ]], dtype=float32)
    """
    same_device(x, weight, bias)
    xs, ws = x.uop.shape, weight.uop.shape
    if len(ws) != 2 or not xs or xs[-1] != ws[1]:
        raise ShapeError(f"linear: weight of shape {ws} is (out, in) and takes x of shape (..., in), not {xs}")
    if bias is not None and bias.uop.shape != (ws[0],):
        raise ShapeError(f"linear: bias has shape {bias.uop.shape}, but the weight {ws} makes {ws[0]} outputs")
    a, b = common_dtype(x.uop, weight.uop)
    u = whole_product("linear", x.device, (a, b), ws[1], _rows_times_rows)
    if bias is not None:
        u, c = common_dtype(u, bias.uop)
        u = u + broadcast(c, u.shape)
    return result(u, x, weight, bias)


def _rows_times_rows(x: UOp, w: UOp) -> UOp:
    """(..., k) and (n, k) to (..., n): the sum over k of the products."""
    rows = x if len(x.shape) > 1 else reshape(x, (1, *x.shape))
    return reshape(_products(rows, w), (*x.shape[:-1], w.shape[0]))


@function("functional method=no")
def embedding(
    index: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of `weight` (count, width) at integer positions: shape `index.shape + (width,)`.

    The row `padding_idx` gets no gradient; -1 is the last. Raises PositionError for an index on the host that is not in
    0..count-1; one that is computed on a device reads zeros there.

    Args:
        max_norm: rows that are read and whose `norm_type` norm is larger are scaled down to it first, in `weight`
            itself, as under `no_grad`.
        scale_grad_by_freq: the gradient of a row is divided by how often it is read.
        sparse: changes nothing: gradients are dense.

    >>> from anneal.tensor import Tensor
    >>> embedding(Tensor([1, 0, 1]), Tensor([[1.0, 2.0], [3.0, 4.0]]))
    Tensor([[3., 4.],
            [1., 2.],
            [3., 4.]], dtype=float32)
    """
    same_device(weight, index)
    i, w = index.uop, weight.uop
    if not i.dtype.is_int:
        raise DTypeError(f"embedding: positions are integers, not {i.dtype.name}")
    if len(w.shape) != 2:
        raise ShapeError(f"embedding: weight has shape (count, width), not {w.shape}")
    count = w.shape[0]
    check_places("embedding", i, 0, w.shape, 0)
    if padding_idx is not None and not -count <= padding_idx < count:
        raise PositionError(out_of_range("embedding", f"padding_idx {padding_idx}", 0, w.shape))
    if max_norm is not None:
        _hold_rows(weight, index, max_norm, norm_type)
        w = weight.uop
    rows = take_rows(w, i.cast(INT32))
    if padding_idx is not None:
        skip = broadcast(reshape(i.eq(padding_idx % count), (*i.shape, 1)), rows.shape)
        rows = skip.where(detached(rows), rows)
    out = result(rows, weight)
    if not scale_grad_by_freq:
        return out
    share = 1.0 / _times_read(index, count).index_select(0, index.reshape(-1)).cast(w.dtype)
    return out.detach() + (out - out.detach()) * share.reshape(*i.shape, 1)


def _times_read(index: Tensor, count: int) -> Tensor:
    return index.reshape(-1).bincount(None, count) if count else index.reshape(-1)


def _hold_rows(weight: Tensor, index: Tensor, max_norm: float, norm_type: float) -> None:
    """Scale the rows at `index` that are longer than `max_norm` down to it."""
    here.effects += 1  # not remembered as a call: its gradient is the weight's as it is now
    with no_grad():
        norms = weight.norm(norm_type, 1, True)
        long = (norms > max_norm) & (_times_read(index, weight.shape[0]) > 0).unsqueeze(1)
        weight.assign(long.where(weight * (max_norm / (norms + 1e-7)), weight))


@function("functional")
def dropout(x: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """The elements, each set to zero with probability `p`, the others divided by `1 - p`; `x` itself when not training.

    Raises ShapeError if p is not in [0, 1].

    >>> from anneal.tensor import Tensor
    >>> dropout(Tensor([1.0, 2.0]), 0.5, training=False)
    Tensor([1., 2.], dtype=float32)
    """
    if not 0 <= p <= 1:
        raise ShapeError(f"dropout: p is a probability between 0 and 1, not {p}")
    if not training or p == 0:
        return x
    need_float("x", x)
    if p == 1:
        return x * 0.0
    return _dropped(x, *key(x.shape, x.device), min(round((1 - p) * 2**32), 2**32 - 1), 1 / (1 - p))


@deferred
@wholes("below")
def _dropped(x: Tensor, seed: Tensor, call: Tensor, below: Any, scale: Any) -> Tensor:
    """`x` times `scale` where the words of this key are below a number, 0 elsewhere."""
    return x._new((words(x.uop.shape, seed, call)[0] < below).where(x.uop * scale, 0))


@function("functional method=no single")
def glu(x: Tensor, dim: int = -1) -> Tensor:
    """The first half of an axis times the sigmoid of the second.

    >>> from anneal.tensor import Tensor
    >>> glu(Tensor([2.0, 0.0]))
    Tensor([1.], dtype=float32)
    """
    need_float("x", x)
    at = axis_in(dim, x)
    n = x.shape[at] if x.ndim else 1
    if n % 2:
        raise ShapeError(f"glu: axis {dim} of shape {x.shape} must have an even size")
    return slice_axis(x, at, 0, n // 2) * slice_axis(x, at, n // 2, n).sigmoid()


@function("functional method=no autocast=widest")
def bilinear(a: Tensor, b: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """The bilinear form a @ weight[o] @ b for each output o, plus a bias: (..., m), (..., n), (out, m, n) to (...,
    out).

    >>> from anneal.tensor import Tensor
    >>> bilinear(Tensor([[1.0, 2.0]]), Tensor([[3.0]]), Tensor([[[1.0], [10.0]]]))
    Tensor([[63.]], dtype=float32)
    """
    if weight.ndim != 3 or a.shape[-1:] != weight.shape[1:2] or b.shape[-1:] != weight.shape[2:]:
        raise ShapeError(f"bilinear: weight {weight.shape} does not fit {a.shape} and {b.shape}")
    left = (a.unsqueeze(-2) @ weight.permute(1, 0, 2).reshape(a.shape[-1], -1)).squeeze(-2)
    left = left.reshape(*a.shape[:-1], weight.shape[0], weight.shape[2])
    out = (left * b.unsqueeze(-2)).sum(-1)
    return out if bias is None else out + bias


@function("functional method=no")
def gumbel_softmax(logits: Tensor, tau: float = 1.0, hard: bool = False, dim: int = -1) -> Tensor:
    """Softmax of the logits plus Gumbel noise, over tau; with `hard` one-hot, its gradient that of the soft one.

    >>> from anneal.tensor import Tensor
    >>> gumbel_softmax(Tensor([[0.0, 50.0]]), hard=True)
    Tensor([[0., 1.]], dtype=float32)
    """
    noise = -(-(type(logits).rand(*logits.shape, device=logits.device) + 2.0**-25).log()).log()
    soft = ((logits + noise) / tau).softmax(dim)
    if not hard:
        return soft
    picked = soft.argmax(dim).one_hot(soft.shape[dim]).cast(soft.dtype).movedim(-1, dim)
    return picked + (soft - soft.detach())
