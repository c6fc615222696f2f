"""Losses, under torch's names and with torch's meaning."""

from __future__ import annotations

import math
from typing import Any

from anneal.errors import DTypeError, ShapeError
from anneal.names import Tensor
from anneal.ops.arguments import function, need_float
from anneal.ops.checks import Shape, broadcast_shapes
from anneal.ops.elementwise import by_slopes, choose, sloped, standing_for
from anneal.ops.indexing import check_places
from anneal.ops.made import result

from anneal.ops.nodes import (  # isort: skip
    broadcast, detached, expand, numbered, reciprocal, reduce_axis, reshape, resized, row_shape,
)  # fmt: skip
from anneal.ops.precision import warn_user
from anneal.uop import DType, Op, UOp, by_rule, const, dtypes

_loss = function("functional autocast=float32 single")
_plain_loss = function("functional method=no autocast=float32 single")  # no method


def reduce_loss(x: Tensor, reduction: str) -> Tensor:
    """The mean of losses x, their sum, or themselves, as `reduction` says. Raises ShapeError for another word.

    >>> from anneal.tensor import Tensor
    >>> reduce_loss(Tensor([1.0, 3.0]), "mean").item()
    2.0
    """
    if reduction not in ("mean", "sum", "none"):
        raise ShapeError(f'reduction is "mean", "sum" or "none", not {reduction!r}')
    return x if reduction == "none" else x.mean() if reduction == "mean" else x.sum()


def _shared(losses: Tensor, weight: Tensor | None, input: Tensor, reduction: str) -> Tensor:
    """`reduce_loss` of losses that are weighted one by one: the mean is the sum over the weights' sum."""
    if weight is None:
        return reduce_loss(losses, reduction)
    if weight.shape != input.shape:
        raise ShapeError(f"weight must have the shape of the input {input.shape}, not {weight.shape}")
    total = reduce_loss(losses * weight, "sum" if reduction == "mean" else reduction)
    return total / weight.sum() if reduction == "mean" else total


def _ramps(x: Tensor) -> tuple[Tensor, Tensor]:
    """log(1 + exp(x)) and log(1 + exp(-x)), without overflow; their slopes are sigmoids, also at 0, where |x|
    has none.
    """
    e = (-(x.abs())).exp()
    if x.requires_grad:
        e = e.contiguous()  # both the value and its slope are made of it: one kernel
    tail, below, minus = e.log1p(), x < 0.0, (-x).uop
    up, down = choose(below, e, 1.0) / (1.0 + e), choose(below, 1.0, e) / (1.0 + e)
    rising = x._new(by_rule("inverse", up.uop, minus, Op.EXP(minus), arguments=1.0))
    falling = x._new(by_rule("share", down.uop, minus, rising.uop, arguments=1.0))
    return sloped(tail + x.maximum(0.0), x, rising), sloped(tail + (-x).maximum(0.0), x, -falling)


# Here and below, the loss that was called puts its name before a message (`checked`).
def _same_shape(x: Tensor, *others: Tensor) -> None:
    need_float("the input", x, *others)
    for target in others:
        if x.uop.shape != target.uop.shape:
            raise ShapeError(f"input and target must have one shape, not {x.shape} and {target.shape}")


def _like_shapes(x: Tensor, target: Tensor) -> None:
    """Warn of shapes that differ and broadcast, in torch's words and at the user's line. Raises ShapeError for those
    that do not broadcast."""
    need_float("the input", x, target)
    if x.shape != target.shape:
        broadcast_shapes(x.shape, target.shape, name="input and target")
        warn_user(
            f"Using a target size ({target.shape}) that is different to the input size ({x.shape}). This will likely "
            "lead to incorrect results due to broadcasting. Please ensure they have the same size."
        )


def _class_axis(x: Tensor) -> int:
    n = x.ndim
    if not n:
        raise ShapeError("the input has shape (classes,) or (batch, classes, ...), not ()")
    return int(n > 1)


def _target_shape(x: Tensor, target: Tensor, axis: int, ignored: int | None = None) -> None:
    expected = resized(x.shape, axis)
    if target.shape != expected:
        raise ShapeError(
            f"for an input of shape {x.shape} (classes on axis {axis}) class targets have shape {expected}, "
            f"not {target.shape}"
        )
    if not target.dtype.is_int:
        raise DTypeError(f"class targets are integers, not {target.dtype.name}")
    check_places("loss", target.uop, axis, x.shape, 0, ignored)


def _hits(target: UOp, shape: Shape, axis: int) -> UOp:
    """A mask that is true where the position along `axis` is the target's; its gradient is elementwise and exact."""
    index = reshape(target.cast(dtypes.int32), resized(shape, axis, 1))
    return numbered(shape, axis).eq(expand(index, shape))


def _pick(x: UOp, hits: UOp, axis: int) -> UOp:
    """The one element along `axis` where `hits` holds (axis kept); 0 if there is none."""
    return reduce_axis(hits.where(x, 0), Op.ADD, (axis,))


def _weighted(
    losses: UOp, hits: UOp, target: UOp, weight: Tensor | None, ignore_index: int | None, axis: int
) -> tuple[UOp, UOp | None]:
    """Losses (class axis kept) times their class's weight, ignored ones 0; and what a mean divides by, if no count."""
    shape = hits.shape
    share = None
    if weight is not None:
        if weight.shape != (shape[axis],):
            raise ShapeError(f"weight has shape {weight.shape}, but there are {shape[axis]} classes")
        share = _pick(_by_class(weight, losses.dtype, shape, axis), hits, axis)
        losses = losses * share
    # An unsigned target cannot hold a negative ignore_index.
    if ignore_index is not None and target.vmin <= ignore_index <= target.vmax:  # type: ignore[operator]
        kept = reshape(target.ne(ignore_index), losses.shape)
        zero = const(losses.dtype, 0)
        losses = kept.where(losses, zero)
        share = kept.cast(zero.dtype) if share is None else kept.where(share, zero)
    return losses, share


def _class_loss(x: Tensor, losses: UOp, share: UOp | None, axis: int, reduction: str, *others: Any) -> Tensor:
    flat = reshape(losses, resized(losses.shape, axis))
    out = result(flat, x, *others)
    if reduction == "mean" and share is not None:
        return out.sum() / out._new_plain(reshape(share, flat.shape)).sum()
    return reduce_loss(out, reduction)


@_loss
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int | None = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Minus the log-probability that softmax(input) gives to the target.

    Args:
        input: logits, (classes,), (batch, classes) or (batch, classes, ...).
        target: integer classes of input's shape without the class axis, or probabilities of input's shape.
        weight: (classes,), a factor per class; a mean divides by the sum of the factors.
        ignore_index: targets of this class count for nothing. None saves the test.
        label_smoothing: mix the target with the uniform distribution.

    Raises ShapeError or DTypeError if the target does not fit, PositionError for a target on the host that is no class.

    >>> from anneal.tensor import Tensor
    >>> round(cross_entropy(Tensor([[2.0, 1.0, 0.1]]), Tensor([0])).item(), 4)
    0.417
    """
    need_float("the input", input, target, weight)
    if not 0 <= label_smoothing <= 1:
        raise ShapeError(f"label_smoothing is between 0 and 1, not {label_smoothing}")
    axis = _class_axis(input)
    x, t = input.uop, target.uop
    share = reciprocal(x.dtype, [max(x.shape[axis], 1)])
    top = reduce_axis(detached(x), Op.MAX, (axis,))
    z = x - expand(top, x.shape)
    normaliser = Op.LOG(reduce_axis(Op.EXP(z), Op.ADD, (axis,)))
    if t.dtype.is_float:
        if ignore_index is not None and ignore_index >= 0:
            raise ShapeError(f"ignore_index {ignore_index} names a class, and the target has probabilities")
        if target.shape != input.shape:
            raise ShapeError(f"probabilities have the input's shape {input.shape}, not {target.shape}")
        t = t.cast(x.dtype)
        if label_smoothing:
            t = t * (1 - label_smoothing) + share * label_smoothing
        if weight is not None:
            t = t * _by_class(weight, x.dtype, x.shape, axis)
        losses = reduce_axis(t * (expand(normaliser, x.shape) - z), Op.ADD, (axis,))
        out = _class_loss(input, losses, None, axis, "none", target, weight)
        return out.sum() / out.numel() if reduction == "mean" else reduce_loss(out, reduction)
    _target_shape(input, target, axis, ignore_index)
    hits = _hits(t, x.shape, axis)
    losses, of_each = _weighted(normaliser - _pick(z, hits, axis), hits, t, weight, ignore_index, axis)
    if label_smoothing:
        spread = expand(normaliser, x.shape) - z
        if weight is not None:
            spread = spread * _by_class(weight, x.dtype, x.shape, axis)
        smooth = reduce_axis(spread, Op.ADD, (axis,)) * share
        smooth, _ = _weighted(smooth, hits, t, None, ignore_index, axis)
        losses = losses * (1 - label_smoothing) + smooth * label_smoothing
    return _class_loss(input, losses, of_each, axis, reduction, weight)


def _by_class(weight: Tensor, dtype: DType, shape: Shape, axis: int) -> UOp:
    return broadcast(reshape(weight.uop.cast(dtype), row_shape(shape[axis], axis, len(shape))), shape)


@_loss
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int | None = -100,
    reduction: str = "mean",
) -> Tensor:
    """Minus the input (log-probabilities, classes on axis 1) at the target class; arguments as for `cross_entropy`.

    >>> from anneal.tensor import Tensor
    >>> nll_loss(Tensor([[0.25, 0.75]]).log(), Tensor([1]))
    Tensor(0.2877, dtype=float32)
    """
    need_float("the input", input, target, weight)
    axis = _class_axis(input)
    _target_shape(input, target, axis, ignore_index)
    hits = _hits(target.uop, input.shape, axis)
    losses, share = _weighted(-_pick(input.uop, hits, axis), hits, target.uop, weight, ignore_index, axis)
    return _class_loss(input, losses, share, axis, reduction, weight)


@_loss
def mse_loss(input: Tensor, target: Tensor, reduction: str = "mean", weight: Tensor | None = None) -> Tensor:
    """The squared error, each times its weight. Shapes that broadcast are warned of, as in torch.

    >>> from anneal.tensor import Tensor
    >>> mse_loss(Tensor([1.0, 2.0]), Tensor([1.0, 4.0])).item()
    2.0
    """
    _like_shapes(input, target)
    d = input - target
    return _shared(d * d, weight, input, reduction)


@_loss
def l1_loss(input: Tensor, target: Tensor, reduction: str = "mean", weight: Tensor | None = None) -> Tensor:
    """The absolute error, each times its weight. Shapes that broadcast are warned of, as in torch.

    >>> from anneal.tensor import Tensor
    >>> l1_loss(Tensor([1.0, 2.0]), Tensor([1.0, 5.0]))
    Tensor(1.5, dtype=float32)
    """
    _like_shapes(input, target)
    return _shared((input - target).abs(), weight, input, reduction)


@_loss
def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None
) -> Tensor:
    """`d*d/2` where the absolute difference d is below delta, `delta*(d - delta/2)` elsewhere; each times its weight
    (the mean's divisor stays their number). Shapes that broadcast are warned of, as in torch.

    >>> from anneal.tensor import Tensor
    >>> huber_loss(Tensor([0.0, 0.0]), Tensor([0.5, 3.0]))
    Tensor(1.3125, dtype=float32)
    """
    if delta <= 0:
        raise ShapeError(f"huber_loss: delta must be positive, not {delta}")
    loss = _bent(input, target, delta, 1.0, delta)
    if weight is not None:
        loss = _shared(loss, weight, input, "none")
    return reduce_loss(loss, reduction)


@_loss
def smooth_l1_loss(input: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """`d*d/(2*beta)` where the absolute difference d is below beta, `d - beta/2` elsewhere. Shapes that
    broadcast are warned of, as in torch.

    >>> from anneal.tensor import Tensor
    >>> smooth_l1_loss(Tensor([0.0, 0.0]), Tensor([0.5, 3.0]))
    Tensor(1.3125, dtype=float32)
    """
    if beta == 0:
        return l1_loss(input, target, reduction)
    if beta < 0:
        raise ShapeError(f"smooth_l1_loss: beta may not be negative: {beta}")
    return reduce_loss(_bent(input, target, beta, 1.0 / beta, 1.0), reduction)


def _bent(input: Tensor, target: Tensor, edge: float, near: float, far: float) -> Tensor:
    """`near * d*d/2` where the absolute difference d is below the edge, `far * (d - edge/2)` elsewhere."""
    _like_shapes(input, target)
    signed = input - target  # its square, and not its size's, has a second derivative at 0
    d = signed.abs()
    below = d < edge
    loss = choose(below, signed * signed * (0.5 * near), (d - 0.5 * edge) * far)
    return by_slopes(loss, (signed, choose(below, signed * near, signed.sign() * far)))


@function("functional single")
def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """`-(t*log(x) + (1-t)*log(1-x))` for probabilities x; each logarithm is at least -100, as in torch.

    Of its slope, `(x - t) / (x*(1-x))`, the divisor is at least 1e-12, as in torch: it is finite at 0 and 1.

    >>> from anneal.tensor import Tensor
    >>> binary_cross_entropy(Tensor([0.9, 0.2]), Tensor([1.0, 0.0]))
    Tensor(0.1643, dtype=float32)
    """
    _same_shape(input, target)
    yes, no = input.log().maximum(-100.0), (1.0 - input).log().maximum(-100.0)
    losses = -(target * yes + (1.0 - target) * no)
    if losses.requires_grad:
        slope = (input - target) / ((1.0 - input) * input).maximum(1e-12)
        pairs = [(input, slope)]
        if target.requires_grad:
            up = sloped(yes, input, 1.0 / input.maximum(1e-12))
            down = sloped(no, input, -1.0 / (1.0 - input).maximum(1e-12))
            pairs.append((target, down - up))
        losses = by_slopes(losses, *pairs)
    return reduce_loss(losses if weight is None else losses * weight, reduction)


@_loss
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """`binary_cross_entropy(sigmoid(input), target)` without overflow; `pos_weight` multiplies the positive term.

    >>> from anneal.tensor import Tensor
    >>> round(binary_cross_entropy_with_logits(Tensor([0.0]), Tensor([1.0])).item(), 4)
    0.6931
    """
    _same_shape(input, target)
    ramp, away = _ramps(input)
    factor = 1.0 if pos_weight is None else target * (pos_weight - 1.0) + 1.0
    losses = (1.0 - target) * input + away * factor
    if losses.requires_grad:
        # (1 - t) * x and the ramp of -x have slopes that cancel far from 0
        losses = standing_for(
            losses, (1.0 - target) * ramp + target * away * (1.0 if pos_weight is None else pos_weight)
        )
    return reduce_loss(losses if weight is None else losses * weight, reduction)


@_loss
def kl_div(input: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """`target * (log(target) - input)` for log-probabilities `input`; "batchmean" divides the sum by the batch.

    With log_target the target is given as log-probabilities too. A target of 0 contributes 0.

    >>> from anneal.tensor import Tensor
    >>> kl_div(Tensor([0.5, 0.5]).log(), Tensor([0.25, 0.75]), reduction="sum")
    Tensor(0.1308, dtype=float32)
    """
    _same_shape(input, target)
    if log_target:
        losses = target.exp() * (target - input)
    else:
        zero = target == 0.0
        losses = target * (choose(zero, 1.0, target).log() - input)
    if reduction == "batchmean":
        return losses.sum() / (input.shape[0] if input.ndim else 1)
    return reduce_loss(losses, reduction)


@_plain_loss
def soft_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """`log(1 + exp(-t*x))` for targets t of 1 and -1, without overflow.

    >>> from anneal.tensor import Tensor
    >>> soft_margin_loss(Tensor([0.0, 2.0]), Tensor([1.0, 1.0]))
    Tensor(0.41, dtype=float32)
    """
    _same_shape(input, target)
    return reduce_loss(_ramps(input * -target)[0], reduction)


@_plain_loss
def hinge_embedding_loss(input: Tensor, target: Tensor, margin: float = 1.0, reduction: str = "mean") -> Tensor:
    """The input itself where the target is 1, `max(0, margin - input)` where it is -1; their sum where it is
    neither.

    >>> from anneal.tensor import Tensor
    >>> hinge_embedding_loss(Tensor([0.5, 0.2]), Tensor([1, -1]))
    Tensor(0.65, dtype=float32)
    """
    _same_shape(input, target)
    # a target that is neither has both terms, as in torch
    losses = choose(target == -1, 0.0, input) + choose(target == 1, 0.0, (margin - input).clamp(min=0.0))
    return reduce_loss(losses, reduction)


@_plain_loss
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """`max(0, -t*(x1 - x2) + margin)`: a target t of 1 asks for x1 above x2, -1 for x1 below x2.

    >>> from anneal.tensor import Tensor
    >>> margin_ranking_loss(Tensor([2.0]), Tensor([1.5]), Tensor([1.0]), margin=1.0).item()
    0.5
    """
    _same_shape(input1, input2, target)
    return reduce_loss((margin - target * (input1 - input2)).clamp(min=0.0), reduction)


@_plain_loss
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """`1 - cos` of rows (n, features) where the target (n,) is 1, `max(0, cos - margin)` where it is -1.

    >>> from anneal.tensor import Tensor
    >>> cosine_embedding_loss(Tensor([[1.0, 0.0]]), Tensor([[0.0, 1.0]]), Tensor([1]))
    Tensor(1., dtype=float32)
    """
    _same_shape(input1, input2)
    if target.shape != input1.shape[:-1]:
        raise ShapeError(
            f"cosine_embedding_loss: for inputs of shape {input1.shape} the target has shape {input1.shape[:-1]}, "
            f"not {target.shape}"
        )
    tiny = 1e-12
    sizes = [(x * x).sum(-1) + tiny for x in (input1, input2)]
    cos = (input1 * input2).sum(-1) / (sizes[0] * sizes[1]).sqrt()
    return reduce_loss(choose(target == 1, 1 - cos, (cos - margin).clamp(min=0.0)), reduction)


@_plain_loss
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """`max(0, d(anchor, positive) - d(anchor, negative) + margin)` of rows; d is the p-norm of the difference plus eps.

    With `swap` the negative's distance is the smaller one of those to the anchor and to the positive.

    >>> from anneal.tensor import Tensor
    >>> triplet_margin_loss(Tensor([[0.0]]), Tensor([[1.0]]), Tensor([[1.5]]))
    Tensor(0.5, dtype=float32)
    """
    if not margin > 0:
        raise ShapeError(f"triplet_margin_loss: margin must be positive, not {margin}")
    _same_shape(anchor, positive, negative)
    far = (anchor - negative + eps).norm(p, -1)
    if swap:
        far = far.minimum((positive - negative + eps).norm(p, -1))
    return reduce_loss(((anchor - positive + eps).norm(p, -1) - far + margin).clamp(min=0.0), reduction)


@_plain_loss
def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1.0,
    weight: Tensor | None = None,
    reduction: str = "mean",
) -> Tensor:
    """The mean over the other classes of `weight[target] * max(0, margin - x[target] + x[class])**p`; input
    (n, classes), target (n,), weight (classes,); or input (classes,) and a target of shape () or (1,).

    >>> from anneal.tensor import Tensor
    >>> multi_margin_loss(Tensor([[0.1, 0.9, 0.3]]), Tensor([1]))
    Tensor(0.2, dtype=float32)
    """
    need_float("the input", input, target, weight)
    if input.ndim < 2 and target.shape in ((), (1,)):
        row, place = input.reshape(1, -1), target.reshape(1)
        return multi_margin_loss(row, place, p, margin, weight, "mean" if reduction == "none" else reduction)
    if input.ndim != 2 or p not in (1, 2):
        raise ShapeError(f"the input has shape (n, classes) and p is 1 or 2, not {input.shape} and {p}")
    _target_shape(input, target, 1)
    hits = _hits(target.uop, input.shape, 1)
    mine = input._new(_pick(input.uop, hits, 1))
    room = (margin - mine + input).relu()
    lost = room * room if p == 2 else room
    if weight is not None:
        if weight.shape != input.shape[1:]:
            raise ShapeError(f"weight has a number for each of {input.shape[1]} classes, not shape {weight.shape}")
        lost = lost * weight.index_select(0, target).unsqueeze(1)
    losses = choose(input._new_plain(hits), 0.0, lost).sum(1) / input.shape[1]
    return reduce_loss(losses, reduction)


@function("functional method=no single")
def multilabel_soft_margin_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "mean"
) -> Tensor:
    """The mean over the last axis of `binary_cross_entropy_with_logits`, one yes or no for each class.

    >>> from anneal.tensor import Tensor
    >>> multilabel_soft_margin_loss(Tensor([[0.0, 2.0]]), Tensor([[0.0, 1.0]]))
    Tensor(0.41, dtype=float32)
    """
    return reduce_loss(binary_cross_entropy_with_logits(input, target, weight, "none").mean(-1), reduction)


@_plain_loss
def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: bool = True,
    full: bool = False,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Tensor:
    """`exp(x) - t*x` for x the log of a Poisson rate (`x - t*log(x + eps)` for the rate); `full` adds Stirling's
    log(t!).

    >>> from anneal.tensor import Tensor
    >>> poisson_nll_loss(Tensor([0.0]), Tensor([2.0]))
    Tensor(1., dtype=float32)
    """
    _same_shape(input, target)
    losses = input.exp() - target * input if log_input else input - target * (input + eps).log()
    if full:
        above = target > 1
        safe = choose(above, target, 1.0)
        losses = losses + choose(above, safe * safe.log() - safe + 0.5 * (2 * math.pi * safe).log(), 0.0)
    return reduce_loss(losses, reduction)


@function("functional method=no single")
def gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Tensor, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """`(log(var) + (x - t)**2 / var) / 2` with var at least eps; `full` adds log(2*pi)/2.

    var has the input's shape, perhaps with sizes of 1, or lacks its last axis: one variance for all along it. The
    gradient does not pass through the lower limit, as in torch. Input and target broadcast.

    >>> from anneal.tensor import Tensor
    >>> gaussian_nll_loss(Tensor([1.0]), Tensor([3.0]), Tensor([1.0]))
    Tensor(2., dtype=float32)
    """
    need_float("the input", input, target, var)
    broadcast_shapes(input.shape, target.shape)
    if var.shape != input.shape and var.shape == input.shape[:-1]:
        var = var.unsqueeze(-1)
    if var.ndim != input.ndim or any(m not in (1, n) for m, n in zip(var.shape, input.shape)):
        raise ShapeError(
            f"for an input of shape {input.shape} var has that shape, perhaps with sizes of 1, or shape "
            f"{input.shape[:-1]}, not {var.shape}"
        )
    var = var + (var.maximum(eps) - var).detach()
    d = input - target
    losses = (var.log() + d * d / var) * 0.5
    return reduce_loss(losses + 0.5 * math.log(2 * math.pi) if full else losses, reduction)
