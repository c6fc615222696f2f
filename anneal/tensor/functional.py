"""The functions of neural networks, under torch's names and with torch's meaning: layers, attention, losses.

Each is a composition of movement, elementwise ops and reductions (a convolution is a sum of products over a view of the
windows), so gradients and fusion need nothing of their own here.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from anneal.errors import DTypeError, PositionError, ShapeError
from anneal.ops import axis_of, broadcast_shapes, checked, in_single, no_grad
from anneal.ops.nodes import broadcast, common_dtype, expand, permute, reciprocal, reduce_axis, reshape
from anneal.runtime import here
from anneal.tensor._base import TensorBase
from anneal.tensor._images import (
    affine_grid,
    bilinear,
    channel_shuffle,
    fold,
    grid_sample,
    gumbel_softmax,
    instance_norm,
    local_response_norm,
    lp_pool1d,
    lp_pool2d,
    pairwise_distance,
)
from anneal.tensor._indexing import check_places, out_of_range
from anneal.tensor._losses import (
    binary_cross_entropy,
    binary_cross_entropy_with_logits,
    cosine_embedding_loss,
    cross_entropy,
    gaussian_nll_loss,
    hinge_embedding_loss,
    huber_loss,
    kl_div,
    l1_loss,
    margin_ranking_loss,
    mse_loss,
    multi_margin_loss,
    multilabel_soft_margin_loss,
    nll_loss,
    poisson_nll_loss,
    smooth_l1_loss,
    soft_margin_loss,
    triplet_margin_loss,
)
from anneal.tensor._resize import interpolate, pixel_shuffle, pixel_unshuffle
from anneal.tensor._windows import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
    need_float,
    result,
    same_device,
    unfold,
)
from anneal.uop import Op, UOp, alu, const, dtypes
from anneal.uop.sizes import product as count_of

if TYPE_CHECKING:
    from anneal.tensor._tensor import Tensor

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "affine_grid",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "batch_norm",
    "bilinear",
    "binary_cross_entropy",
    "binary_cross_entropy_with_logits",
    "cdist",
    "channel_shuffle",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "cosine_embedding_loss",
    "cosine_similarity",
    "cross_entropy",
    "dropout",
    "embedding",
    "fold",
    "gaussian_nll_loss",
    "glu",
    "grid_sample",
    "group_norm",
    "gumbel_softmax",
    "hinge_embedding_loss",
    "huber_loss",
    "instance_norm",
    "interpolate",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "linear",
    "local_response_norm",
    "lp_pool1d",
    "lp_pool2d",
    "margin_ranking_loss",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "mse_loss",
    "multi_margin_loss",
    "multilabel_soft_margin_loss",
    "nll_loss",
    "normalize",
    "pairwise_distance",
    "pixel_shuffle",
    "pixel_unshuffle",
    "poisson_nll_loss",
    "rms_norm",
    "scaled_dot_product_attention",
    "smooth_l1_loss",
    "soft_margin_loss",
    "take_running_updates",
    "triplet_margin_loss",
    "unfold",
]

_INT32 = dtypes.int32
_BOOL = dtypes.bool_


def _node(x: Tensor | None) -> UOp | None:
    return None if x is None else x.uop


# -- linear maps ------------------------------------------------------------------------------------------------------


@checked
def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x @ weight.T + bias`: x of shape (..., in), weight (out, in), bias (out,); gives (..., out).

    Raises ShapeError if the sizes do not fit.

    >>> from anneal.tensor import Tensor
    >>> linear(Tensor([[1.0, 2.0]]), Tensor([[3.0, 4.0], [5.0, 6.0]]), Tensor([0.5, 0.0]))
    Tensor([[11.5, 17. ]], dtype=float32)
    """
    same_device("linear", x, weight, bias)
    xs, ws = x.uop.shape, weight.uop.shape
    if len(ws) != 2 or not xs or xs[-1] != ws[1]:
        raise ShapeError(f"linear: weight of shape {ws} is (out, in) and takes x of shape (..., in), not {xs}")
    if bias is not None and bias.uop.shape != (ws[0],):
        raise ShapeError(f"linear: bias has shape {bias.uop.shape}, but the weight {ws} makes {ws[0]} outputs")
    a, b = common_dtype(x.uop, weight.uop)
    u = _rows_times_rows(a, b)
    if bias is not None:
        u, c = common_dtype(u, bias.uop)
        u = u + broadcast(c, u.shape)
    return result(u, x, weight, bias)


def _rows_times_rows(x: UOp, w: UOp) -> UOp:
    """(..., k) and (n, k) to (..., n): the sum over k of the products."""
    *lead, k = x.shape
    n = w.shape[0]
    full = (*lead, n, k)
    product = expand(reshape(x, (*lead, 1, k)), full) * expand(reshape(w, (1,) * len(lead) + (n, k)), full)
    return reshape(reduce_axis(product, Op.ADD, (len(lead) + 1,)), (*lead, n))


@checked
def embedding(index: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """Rows of `weight` (count, width) at integer positions: shape `index.shape + (width,)`.

    The row `padding_idx` gets no gradient; -1 is the last. Raises PositionError for an index on the host that is not in
    0..count-1; one that is computed on a device reads zeros there.

    >>> from anneal.tensor import Tensor
    >>> embedding(Tensor([1, 0, 1]), Tensor([[1.0, 2.0], [3.0, 4.0]]))
    Tensor([[3., 4.],
            [1., 2.],
            [3., 4.]], dtype=float32)
    """
    same_device("embedding", weight, index)
    i, w = index.uop, weight.uop
    if not i.dtype.is_int:
        raise DTypeError(f"embedding: positions are integers, not {i.dtype.name}")
    if len(w.shape) != 2:
        raise ShapeError(f"embedding: weight has shape (count, width), not {w.shape}")
    check_places("embedding", i, 0, w.shape, 0)
    if padding_idx is not None and not -w.shape[0] <= padding_idx < w.shape[0]:
        raise PositionError(out_of_range("embedding", f"padding_idx {padding_idx}", 0, w.shape))
    n, d = i.size, w.shape[1]
    column = expand(reshape(i.cast(_INT32), (n, 1)), (n, d))
    rows = reshape(UOp(Op.GATHER, w.dtype, (w, column), 0), (*i.shape, d))
    if padding_idx is not None:
        skip = broadcast(reshape(i.eq(padding_idx % w.shape[0]), (*i.shape, 1)), rows.shape)
        rows = alu(Op.WHERE, (skip, UOp(Op.DETACH, rows.dtype, (rows,)), rows))
    return result(rows, weight)


# -- normalisation ----------------------------------------------------------------------------------------------------


def _centre_and_scale(u: UOp, axes: tuple[int, ...], eps: float) -> tuple[UOp, UOp, UOp]:
    """`(u - mean) / sqrt(variance + eps)` along `axes`, with mean and variance (their axes kept)."""
    share = reciprocal(u.dtype, [u.shape[a] for a in axes])
    mean = reduce_axis(u, Op.ADD, axes) * share
    centred = u - expand(mean, u.shape)
    variance = reduce_axis(centred * centred, Op.ADD, axes) * share
    r = alu(Op.RSQRT, (variance + eps,))
    y = centred * expand(r, u.shape)
    return UOp(Op.COMPOSITE, y.dtype, (y, u, r), ("standardize", axes)), mean, variance


def _affine(u: UOp, weight: UOp | None, bias: UOp | None) -> UOp:
    if weight is not None:
        u = u * broadcast(weight.cast(u.dtype), u.shape)
    return u if bias is None else u + broadcast(bias.cast(u.dtype), u.shape)


def _trailing(name: str, x: Tensor, shape: int | Sequence[int], *params: Tensor | None) -> tuple[int, ...]:
    """The axes that `shape` names at the end of x's; raises ShapeError if it does not match."""
    tail = (shape,) if isinstance(shape, int) else tuple(shape)
    if not tail or x.shape[-len(tail) :] != tail:
        raise ShapeError(f"{name}: normalized_shape {tail} must be the last axes of x, whose shape is {x.shape}")
    for p in params:
        if p is not None and p.shape != tail:
            raise ShapeError(f"{name}: weight and bias must have normalized_shape {tail}, not {p.shape}")
    return tuple(range(x.ndim - len(tail), x.ndim))


@checked
@in_single(keeps=True)
def layer_norm(
    x: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Mean 0 and variance 1 (biased, plus eps) over the last axes, then times weight plus bias.

    >>> from anneal.tensor import Tensor
    >>> layer_norm(Tensor([[1.0, 2.0, 3.0]]), 3).numpy().round(4)
    array([[-1.2247,  0.    ,  1.2247]], dtype=float32)
    """
    need_float("layer_norm", "x", x)
    same_device("layer_norm", x, weight, bias)
    axes = _trailing("layer_norm", x, normalized_shape, weight, bias)
    u, _, _ = _centre_and_scale(x.uop, axes, eps)
    return result(_affine(u, _node(weight), _node(bias)), x, weight, bias)


@checked
@in_single(keeps=True)
def rms_norm(
    x: Tensor, normalized_shape: int | Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """`x / sqrt(mean(x*x) + eps)` over the last axes, times weight; eps defaults to the dtype's precision.

    >>> from anneal.tensor import Tensor
    >>> rms_norm(Tensor([3.0, 4.0]), 2).numpy().round(4)
    array([0.8485, 1.1314], dtype=float32)
    """
    need_float("rms_norm", "x", x)
    same_device("rms_norm", x, weight)
    axes = _trailing("rms_norm", x, normalized_shape, weight)
    u = x.uop
    share = reciprocal(u.dtype, [u.shape[a] for a in axes])
    square = reduce_axis(u * u, Op.ADD, axes) * share + (2.0 ** (1 - u.dtype.digits) if eps is None else eps)
    return result(_affine(u * expand(alu(Op.RSQRT, (square,)), u.shape), _node(weight), None), x, weight)


@checked
@in_single(keeps=True)
def group_norm(
    x: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Mean 0 and variance 1 over each group of channels (axis 1) and all axes after it, then weight and bias
    (channels,).
    """
    need_float("group_norm", "x", x)
    same_device("group_norm", x, weight, bias)
    s = x.shape
    if len(s) < 2 or num_groups < 1 or s[1] % num_groups:
        raise ShapeError(f"group_norm: {num_groups} groups do not divide the channels (axis 1) of shape {s}")
    grouped = (s[0], num_groups, count_of(s[1:]) // num_groups)
    u, _, _ = _centre_and_scale(reshape(x.uop, grouped), (2,), eps)
    view = (1, s[1]) + (1,) * (len(s) - 2)
    for p in (weight, bias):
        if p is not None and p.shape != (s[1],):
            raise ShapeError(f"group_norm: weight and bias have shape ({s[1]},) for x of shape {s}, not {p.shape}")
    w, b = [None if p is None else reshape(p.uop, view) for p in (weight, bias)]
    return result(_affine(reshape(u, s), w, b), x, weight, bias)


def take_running_updates() -> list[Tensor]:
    """The running statistics that still have a lazy update, which is then no longer remembered here."""
    out = [t for r in here.statistics.values() if (t := r()) is not None]
    here.statistics.clear()
    return out


@checked
@in_single(keeps=True)
def batch_norm(
    x: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Mean 0 and variance 1 per channel (axis 1), then times weight plus bias, each of shape (channels,).

    Training uses the batch's own statistics and moves the running ones towards them by `momentum` (with the unbiased
    variance; a number, or a tensor of shape ()), by assignment. Otherwise the running statistics are used.

    Raises ShapeError for shapes that do not fit, or a single value per channel in training.
    """
    need_float("batch_norm", "x", x)
    same_device("batch_norm", x, running_mean, running_var, weight, bias)
    s = x.shape
    if len(s) < 2:
        raise ShapeError(f"batch_norm: x has shape (batch, channels, ...), not {s}")
    for name, p in (("running_mean", running_mean), ("running_var", running_var), ("weight", weight), ("bias", bias)):
        if p is not None and p.shape != (s[1],):
            raise ShapeError(f"batch_norm: {name} has shape {p.shape}, but x of shape {s} has {s[1]} channels (axis 1)")
    view = (1, s[1]) + (1,) * (len(s) - 2)
    w, b = [None if p is None else reshape(p.uop, view) for p in (weight, bias)]
    if not training:
        if running_mean is None or running_var is None:
            raise ShapeError("batch_norm: without running statistics it must be training=True")
        mean, var = reshape(running_mean.uop, view), reshape(running_var.uop, view)
        u = (x.uop - broadcast(mean, s)) * broadcast(alu(Op.RSQRT, (var + eps,)), s)
        return result(_affine(u, w, b), x, weight, bias)
    count = count_of([n for i, n in enumerate(s) if i != 1])
    if count == 1:
        raise ShapeError(f"batch_norm: training needs more than one value per channel, and x has shape {s}")
    u, mean, var = _centre_and_scale(x.uop, (0, *range(2, len(s))), eps)
    with no_grad():
        for running, value in ((running_mean, mean), (running_var, var * (count / (count - 1)))):
            if running is not None and count:  # an empty batch tells nothing
                old, new = running.uop, reshape(value, (s[1],)).cast(running.uop.dtype)
                m: Any = momentum.uop.cast(new.dtype) if isinstance(momentum, TensorBase) else momentum
                moved = UOp(Op.DETACH, new.dtype, (old * (1 - m) + new * m,))
                running.assign(running._new_plain(moved))
                here.statistics[id(running)] = weakref.ref(running)
    return result(_affine(u, w, b), x, weight, bias)


@checked
def dropout(x: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """Each element zero with probability `p`, the others divided by `1 - p`; `x` itself when not training.

    Raises ShapeError if p is not in [0, 1].

    >>> from anneal.tensor import Tensor
    >>> dropout(Tensor([1.0, 2.0]), 0.5, training=False)
    Tensor([1., 2.], dtype=float32)
    """
    from anneal.tensor.random import random_bits

    if not 0 <= p <= 1:
        raise ShapeError(f"dropout: p is a probability between 0 and 1, not {p}")
    if not training or p == 0:
        return x
    need_float("dropout", "x", x)
    u = x.uop
    if p == 1:
        return x._new(u * 0.0)
    keep = random_bits(*u.shape, device=x.device).uop < round((1 - p) * 2**32)
    return x._new(alu(Op.WHERE, (keep, u * (1 / (1 - p)), const(u.dtype, 0))))


@checked
@in_single()
def normalize(x: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """x divided by its p-norm along an axis, or by eps where that is larger.

    >>> from anneal.tensor import Tensor
    >>> normalize(Tensor([[3.0, 4.0]]))
    Tensor([[0.6, 0.8]], dtype=float32)
    """
    return x / x.norm(p, dim, True).clamp(min=eps)


@checked
@in_single()
def cosine_similarity(a: Tensor, b: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """The cosine of the angle between vectors along an axis; shapes broadcast first, norms below eps count as eps.

    >>> from anneal.tensor import Tensor
    >>> cosine_similarity(Tensor([[1.0, 0.0]]), Tensor([[1.0, 1.0]])).round(4)
    Tensor([0.7071], dtype=float32)
    """
    if a.shape != b.shape:
        shape = broadcast_shapes("cosine_similarity", a.shape, b.shape)
        a, b = a.expand(shape), b.expand(shape)
    x, y = a / a.norm(2.0, dim, True).clamp(min=eps), b / b.norm(2.0, dim, True).clamp(min=eps)
    return (x * y).sum(dim)


@checked
@in_single()
def cdist(a: Tensor, b: Tensor, p: float = 2.0) -> Tensor:
    """The p-norm distances between the rows of (..., m, d) and of (..., n, d): (..., m, n).

    >>> from anneal.tensor import Tensor
    >>> cdist(Tensor([[0.0, 0.0]]), Tensor([[3.0, 4.0], [0.0, 1.0]]))
    Tensor([[5., 1.]], dtype=float32)
    """
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-1]:
        raise ShapeError(f"cdist: takes (..., m, d) and (..., n, d), not {a.shape} and {b.shape}")
    return (a.unsqueeze(-2) - b.unsqueeze(-3)).norm(p, -1)


@checked
@in_single()
def glu(x: Tensor, dim: int = -1) -> Tensor:
    """The first half of an axis times the sigmoid of the second.

    >>> from anneal.tensor import Tensor
    >>> glu(Tensor([2.0, 0.0]))
    Tensor([1.], dtype=float32)
    """
    need_float("glu", "x", x)
    at = axis_of("glu", dim, x.ndim)
    n = x.shape[at] if x.ndim else 1
    if n % 2:
        raise ShapeError(f"glu: axis {dim} of shape {x.shape} must have an even size")
    a, b = x._slice(at, 0, n // 2), x._slice(at, n // 2, n)
    return a * b.sigmoid()


# -- attention --------------------------------------------------------------------------------------------------------


@checked
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
        query: (..., l, e); key: (..., s, e); value: (..., s, v).
        attn_mask: broadcastable to (..., l, s): a bool mask (True takes part), or a float added to the scores.
        is_causal: position i sees positions 0..i only.
        scale: 1/sqrt(e) by default.
        enable_gqa: repeat the heads (axis -3) of key and value to those of query.

    Returns:
        (..., l, v). A row whose every position is masked gives the mean of the values.

    Raises ShapeError if sizes do not fit or both a mask and is_causal are given.
    """
    name = "scaled_dot_product_attention"
    need_float(name, "query", query)
    same_device(name, query, key, value, attn_mask)
    if enable_gqa and query.ndim > 2 and query.shape[-3] != key.shape[-3]:
        if query.shape[-3] % key.shape[-3]:
            raise ShapeError(f"{name}: {query.shape[-3]} query heads are no multiple of {key.shape[-3]} key heads")
        times = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(times, dim=-3), value.repeat_interleave(times, dim=-3)
    q, k, v = query.uop, key.uop, value.uop
    if (
        min(len(q.shape), len(k.shape), len(v.shape)) < 2
        or q.shape[-1] != k.shape[-1]
        or k.shape[:-1] != v.shape[:-1]
        or q.shape[:-2] != k.shape[:-2]
    ):
        raise ShapeError(
            f"{name}: query (..., l, e), key (..., s, e) and value (..., s, v) do not fit: "
            f"{query.shape}, {key.shape}, {value.shape}"
        )
    *lead, rows, e = q.shape
    columns, n = k.shape[-2], len(lead)
    full = (*lead, rows, columns, e)
    product = expand(reshape(q, (*lead, rows, 1, e)), full) * expand(reshape(k, (*lead, 1, columns, e)), full)
    scores = reshape(reduce_axis(product, Op.ADD, (n + 2,)), (*lead, rows, columns))
    scores = scores * (1 / math.sqrt(max(1, e)) if scale is None else scale)
    low = const(scores.dtype, -1e30)
    later: UOp | None = None
    if is_causal:
        if attn_mask is not None:
            raise ShapeError(f"{name}: give attn_mask or is_causal=True, not both")
        ones = (1,) * n
        row = reshape(UOp(Op.IOTA, _INT32, (), (rows,)), (*ones, rows, 1))
        column = reshape(UOp(Op.IOTA, _INT32, (), (columns,)), (*ones, 1, columns))
        later = alu(Op.LT, (expand(row, scores.shape), expand(column, scores.shape)))
        scores = alu(Op.WHERE, (later, low, scores))
    elif attn_mask is not None:
        mask = attn_mask.uop
        padded = (1,) * (len(scores.shape) - len(mask.shape)) + mask.shape
        if any(m not in (1, s) for m, s in zip(padded, scores.shape, strict=False)) or len(padded) > len(scores.shape):
            raise ShapeError(f"{name}: attn_mask of shape {mask.shape} does not broadcast to {scores.shape}")
        mask = broadcast(mask, scores.shape)
        if mask.dtype is _BOOL:
            scores = alu(Op.WHERE, (mask, scores, low))
        else:
            scores = scores + mask.cast(scores.dtype)
    top = reduce_axis(UOp(Op.DETACH, scores.dtype, (scores,)), Op.MAX, (n + 1,))
    shifted = scores - expand(top, scores.shape)
    weights = alu(Op.EXP, (shifted,))
    if later is not None:
        weights = UOp(Op.COMPOSITE, weights.dtype, (weights, shifted, later), ("exp", ()))
    total = reduce_axis(weights, Op.ADD, (n + 1,))
    # The values are weighted by the exponentials and divided once at the end: one division per output instead of one
    # per weight, and a backward that sums over the values' width instead of over the positions.
    if dropout_p:
        weights = dropout(result(weights, query, key, attn_mask), dropout_p).uop
    d = v.shape[-1]
    full = (*lead, rows, d, columns)
    left = expand(reshape(weights, (*lead, rows, 1, columns)), full)
    right = expand(reshape(permute(v, (*range(n), n + 1, n)), (*lead, 1, d, columns)), full)
    out = reshape(reduce_axis(left * right, Op.ADD, (n + 2,)), (*lead, rows, d))
    if columns.__class__ is not int or columns:  # nothing to attend to gives zeros
        out = out / expand(total, out.shape)
    return result(out, query, key, value, attn_mask)
