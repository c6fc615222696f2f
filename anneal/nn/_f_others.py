"""Further functions of `nn.functional`: losses over sequences, distances, resizing; dropouts; attention."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from anneal.backend import HOST
from anneal.errors import PositionError, ShapeError
from anneal.ops import DTypeLike, family, function, in_place, reduce_loss
from anneal.runtime import here, is_realized
from anneal.tensor import Tensor, functional as F
from anneal.transforms import scan
from anneal.uop import Ints, by_rule

Sizes = int | Sequence[int]


@function("autocast=float32 single")
def multilabel_margin_loss(input: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """The hinge loss between each target class and each other class: (batch, classes) or (classes,).

    `target` lists the classes of each row, and ends with -1. Raises ShapeError for shapes that differ.

    >>> multilabel_margin_loss(Tensor([[0.1, 0.2, 0.4, 0.8]]), Tensor([[3, 0, -1, 1]])).round(4)
    Tensor(0.85, dtype=float32)
    """
    if not input.ndim and not target.ndim:
        return multilabel_margin_loss(input.reshape(1), target.reshape(1), reduction)
    if input.shape != target.shape or input.ndim not in (1, 2):
        raise ShapeError(
            f"multilabel_margin_loss: (batch, classes) or (classes,) for both, not {input.shape} and {target.shape}"
        )
    x, t = (input, target) if input.ndim == 2 else (input.unsqueeze(0), target.unsqueeze(0))
    n = x.shape[1]
    listed = (t < 0).int().cumsum(1) == 0
    named = listed & (t >= 0)
    chosen = t.clamp(min=0)
    there = ((chosen.unsqueeze(2) == Tensor.arange(n, device=x.device)) & named.unsqueeze(2)).any(1)
    gaps = 1 - (x.gather(1, chosen).unsqueeze(2) - x.unsqueeze(1))
    kept = named.unsqueeze(2) & ~there.unsqueeze(1)
    loss = kept.where(gaps.relu(), 0.0).sum((1, 2)) / n
    return reduce_loss(loss if input.ndim == 2 else loss.squeeze(0), reduction)


@function
def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """max(d(anchor, positive) - d(anchor, negative) + margin, 0) for a distance d, `pairwise_distance` by default.

    `swap` takes the nearer of both distances to the negative. Shapes and reduction as for `triplet_margin_loss`.

    >>> triplet_margin_with_distance_loss(Tensor([[0.0]]), Tensor([[0.0]]), Tensor([[3.0]]))
    Tensor(0., dtype=float32)
    """
    if not margin > 0:
        raise ShapeError(f"triplet_margin_with_distance_loss: margin must be positive, not {margin}")
    d = F.pairwise_distance if distance_function is None else distance_function
    near, far = d(anchor, positive), d(anchor, negative)
    if swap:
        far = far.minimum(d(positive, negative))
    return reduce_loss((near - far + margin).clamp(min=0), reduction)


def _lengths(given: Any) -> list[int]:
    """Lengths as Python ints, since shapes depend on them."""
    return [int(n) for n in np.asarray(given).reshape(-1)]


_LOW = -1e30  # the logarithm of probability 0, finite so that its gradients are finite


@function("single")
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Connectionist temporal classification (Graves and others, 2006): the negative log-probability of a sequence.

    Args:
        log_probs: (time, batch, classes) or (time, classes), logarithms of chances.
        targets: (batch, longest), or all sequences one after the other, (total,). Without a batch (length,).
        input_lengths, target_lengths: numbers for each example, known on the host.
        reduction: "mean" divides each loss by its target's length first. zero_infinity: what is impossible counts 0.

    The gradient is, as in torch, that of logits of which `log_probs` is the log_softmax: the chances are added to it,
    which log_softmax takes away again. Raises ShapeError for lengths that do not fit, PositionError for a blank and
    labels on the host that are no classes.

    >>> even = Tensor.full((4, 1, 3), 1 / 3).log()
    >>> round(ctc_loss(even, Tensor([[1, 2]]), [4], [2], reduction="none").item(), 4)
    1.6864
    """
    single = log_probs.ndim == 2
    if log_probs.ndim not in (2, 3):
        raise ShapeError(f"ctc_loss: log_probs is (time, batch, classes), or without batch, not {log_probs.shape}")
    x = log_probs.unsqueeze(1) if single else log_probs
    time, batch, classes = x.shape
    long, short = _lengths(input_lengths), _lengths(target_lengths)
    fit = len(long) == len(short) == batch > 0 and min(long) >= 0 and max(long) <= time > 0 and min(short) >= 0
    if not fit:
        raise ShapeError(f"ctc_loss: {len(long)} and {len(short)} lengths for {batch} examples of at most {time} steps")
    rows = _padded(targets, short, batch)
    _check_labels(targets, rows, short, blank, classes)
    labels = F.pad(rows.cast("int32").unsqueeze(2), (1, 0), value=blank).flatten(1).pad((0, 1), value=blank)  # 2s + 1
    a = _chances(x, labels, long)
    ends = np.array(short)
    places = 2 * ends[:, None] - [0, 1]  # of the last blank and of the label before it, if there is one
    last = a.gather(1, Tensor(np.maximum(places, 0), device=x.device))
    loss = -Tensor(places >= 0, device=x.device).where(last, _LOW).logsumexp(1)
    impossible = loss > 1e28
    shown = impossible.where(0.0 if zero_infinity else math.inf, loss)
    if x.requires_grad:  # torch's gradient is that in logits, of which these are the log_softmax
        seen = Tensor(np.arange(time)[:, None, None] < np.array(long)[:, None], device=x.device)
        chances = seen.where(x.exp(), 0.0).sum((0, 2))
        total = impossible.where(0.0, loss) + chances * impossible.where(0.0 if zero_infinity else math.nan, 1.0)
        shown = shown._new(by_rule("equal", shown.uop, total.uop), total)
    if reduction == "mean":
        return (shown / Tensor(np.maximum(ends, 1), device=x.device).cast(shown.dtype)).mean()
    return reduce_loss(shown.squeeze(0) if single else shown, reduction)


def _chances(x: Tensor, labels: Tensor, long: list[int]) -> Tensor:
    """The logarithms of the chances of each beginning of the labels, with blanks between them, after the steps that an
    example has.
    """
    # from a label to the next one, unless they are equal
    skips = Tensor(np.arange(labels.shape[1]) % 2 == 1, device=x.device) & labels.ne(labels.pad((2, -2)))
    given = x.gather(2, labels.unsqueeze(0).expand(x.shape[0], *labels.shape))
    steps = Tensor(np.array(long), device=x.device).unsqueeze(1)

    def step(a: Tensor, now: tuple[Tensor, Tensor]) -> tuple[Tensor, None]:
        one, two = F.pad(a, (1, -1), value=_LOW), F.pad(a, (2, -2), value=_LOW)
        following = Tensor.stack([a, one, skips.where(two, _LOW)], dim=0).logsumexp(0) + now[0]
        return (steps > now[1]).where(following.clamp(min=_LOW), a), None

    turns = given[1:], Tensor(np.arange(1, x.shape[0]), device=x.device)
    ends: Tensor = scan(step, _begun(given[0], long, steps), turns)[0]
    return ends


def _begun(first: Tensor, long: list[int], steps: Tensor) -> Tensor:
    """The logarithms of chances after the first step, of a blank and of the first label; of no label before it."""
    begins = Tensor(np.arange(first.shape[1]) <= np.minimum(long, 1)[:, None], device=first.device)
    return begins.where(first if min(long) else (steps > 0).where(first, 0.0), _LOW)


def _check_labels(targets: Tensor, rows: Tensor, lengths: list[int], blank: int, classes: int) -> None:
    """Raise PositionError if the blank, or a label whose value is on the host, is not a class."""
    known = targets.device == HOST and is_realized(targets.uop) and not here.assigned
    used = rows.numpy()[np.arange(rows.shape[1]) < np.array(lengths)[:, None]].tolist() if known else []
    wrong = [n for n in used if n == blank or not 0 <= n < classes]
    if wrong or not 0 <= blank < classes:
        raise PositionError(
            f"ctc_loss: labels {wrong} and blank {blank}: all are classes of 0 to {classes - 1}, and no label is blank"
        )


def _padded(targets: Tensor, lengths: list[int], batch: int) -> Tensor:
    """Target sequences as rows of the longest one's length, (batch, longest)."""
    longest = max([*lengths, 1])
    wide = targets if targets.shape[-1] else F.pad(targets, (0, 1))  # a row has a place
    if targets.ndim == 2:
        if targets.shape[0] != batch or targets.shape[1] < max(lengths):
            raise ShapeError(f"ctc_loss: targets of shape {targets.shape} for lengths {lengths}")
        return wide[:, :longest]
    if targets.shape != (sum(lengths),):
        raise ShapeError(f"ctc_loss: targets are (batch, longest) or (total,), not {targets.shape}")
    starts = np.cumsum([0, *lengths[:-1]])
    at = np.minimum(starts[:, None] + np.arange(longest)[None], max(sum(lengths) - 1, 0))
    return wide[Tensor(at.astype(np.int32), device=targets.device)]


@function
def conv_tbc(x: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """1-D convolution of (time, batch, channels), with `pad` zeros at both ends, with a weight (size, in, out).

    >>> conv_tbc(Tensor.ones(5, 1, 2), Tensor.ones(3, 2, 4), Tensor.zeros(4)).shape
    (3, 1, 4)
    """
    return F.conv1d(x.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad).permute(2, 0, 1)


@function("single")
def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: Any = None,
) -> Tensor:
    """`cross_entropy(linear(input, linear_weight, linear_bias), target)`: rows (batch, width) and classes (batch,).

    A weight (classes, ..., width) of more axes gives logits (batch, classes, ...), for targets (batch, ...).

    `options` are torch's, of how its memory is saved: they change nothing here.

    >>> linear_cross_entropy(Tensor([[0.0]]), Tensor([[1.0], [2.0]]), Tensor([1])).round(4)
    Tensor(0.6931, dtype=float32)
    """
    wide = linear_weight.shape[:-1]
    flat = linear_weight if linear_weight.ndim < 3 else linear_weight.flatten(0, -2)
    logits = F.linear(input, flat, None if linear_bias is None else linear_bias.reshape(-1))
    logits = logits.reshape(*input.shape[:-1], *wide)
    ignored = -100 if ignore_index is None else ignore_index
    return F.cross_entropy(logits, target, weight, ignored, reduction, label_smoothing)


@function
def upsample(
    x: Tensor,
    size: Sizes | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
) -> Tensor:
    """`interpolate` under its older name.

    >>> upsample(Tensor.ones(1, 1, 2, 2), scale_factor=2.0).shape
    (1, 1, 4, 4)
    """
    return F.interpolate(x, size, scale_factor, mode, align_corners)


@function
def upsample_nearest(
    x: Tensor, size: Sizes | None = None, scale_factor: float | Sequence[float] | None = None
) -> Tensor:
    """`interpolate` with mode "nearest".

    >>> upsample_nearest(Tensor.ones(1, 1, 2, 2), size=3).shape
    (1, 1, 3, 3)
    """
    return F.interpolate(x, size, scale_factor, "nearest")


@function
def upsample_bilinear(
    x: Tensor, size: Sizes | None = None, scale_factor: float | Sequence[float] | None = None
) -> Tensor:
    """`interpolate` with mode "bilinear" whose corners stay corners.

    >>> upsample_bilinear(Tensor.ones(1, 1, 2, 2), size=3).shape
    (1, 1, 3, 3)
    """
    return F.interpolate(x, size, scale_factor, "bilinear", True)


# -- activations ------------------------------------------------------------------------------------------------------
# Activations and dropouts of `nn.functional` with torch's arguments: `inplace`, and whole channels at once.
#
# In place, the tensor that was given shows the result from now on, under all of its names; see `anneal/ops/inplace.py`.


def _given(x: Tensor, name: str, inplace: bool, function: Callable[[Tensor], Tensor]) -> Tensor:
    return in_place(x, f"{name}_", function) if inplace else function(x)


@function
def rrelu(
    x: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """x above 0, below it x times a slope: drawn from [lower, upper) for each element in training, else their mean.

    >>> rrelu(Tensor([-2.0, 3.0]), 0.25, 0.75)
    Tensor([-1.,  3.], dtype=float32)
    """
    if lower > upper:
        raise ShapeError(f"rrelu: lower may not be above upper: {lower} and {upper}")

    def function(t: Tensor) -> Tensor:
        if not training:
            return F.leaky_relu(t, (lower + upper) / 2)
        slopes = Tensor.rand(*t.shape, device=t.device, dtype=t.dtype) * (upper - lower) + lower
        return (t >= 0).where(t, t * slopes)

    return _given(x, "rrelu", inplace, function)


@function
def rrelu_(x: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> Tensor:
    """`rrelu(x, lower, upper, training, inplace=True)`.

    >>> rrelu_(Tensor([-2.0, 3.0]), 0.25, 0.75)
    Tensor([-1.,  3.], dtype=float32)
    """
    return rrelu(x, lower, upper, training, True)


@function("autocast=float32")
def softmin(x: Tensor, dim: int = -1, dtype: DTypeLike | None = None) -> Tensor:
    """softmax of -x along an axis; computed in `dtype` if one is given.

    >>> softmin(Tensor([1.0, 1.0]))
    Tensor([0.5, 0.5], dtype=float32)
    """
    return F.softmax(-x, dim=dim, dtype=dtype)


# -- dropout ----------------------------------------------------------------------------------------------------------


def _check(name: str, p: float) -> None:
    if not 0 <= p <= 1:
        raise ShapeError(f"{name}: p is a probability between 0 and 1, not {p}")


@function
def dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """The elements, each set to zero with probability `p`, the others divided by `1 - p`; `x` itself when not training.

    `inplace` as for `relu`. Raises ShapeError if p is not in [0, 1].

    >>> dropout(Tensor([1.0, 2.0]), 0.5, training=False)
    Tensor([1., 2.], dtype=float32)
    """
    return _given(x, "dropout", inplace and training, lambda t: F.dropout(t, p, training))


def _kept(x: Tensor, channels: Ints, p: float) -> Tensor:
    """1 / (1 - p) where a channel is kept, 0 elsewhere; of a shape that broadcasts to x."""
    ones = Tensor.ones(*channels, *[1] * (x.ndim - len(channels)), device=x.device, dtype=x.dtype)
    return F.dropout(ones, p)


def _channels(name: str, axes: int, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    _check(name, p)
    if x.ndim not in (axes + 1, axes + 2):
        raise ShapeError(f"{name}: x has {axes + 1} or {axes + 2} axes, not shape {x.shape}")
    if not training or p == 0:
        return x
    lead = x.shape[:1] if x.ndim == axes + 1 and name != "dropout2d" else x.shape[:2]
    return _given(x, name, inplace, lambda t: t * _kept(t, lead, p))


dropout1d, dropout2d, dropout3d = family(
    _channels,
    "",
    """
    dropout1d:
    Whole channels of (batch, channels, n) or (channels, n) zero with probability `p`; as
    `dropout`.

    >>> sorted(set(dropout1d(Tensor.ones(1, 9, 2)).sum(2).flatten().tolist()) | {0.0, 4.0})
    [0.0, 4.0]

    dropout2d:
    Whole channels of (batch, channels, h, w) or (batch, channels, n) zero with probability `p`;
    as `dropout`.

    >>> dropout2d(Tensor.ones(1, 1, 2, 2), 1.0).sum().item()
    0.0

    dropout3d:
    Whole channels of (batch, channels, d, h, w) or (channels, d, h, w) zero with probability `p`;
    as `dropout`.

    >>> dropout3d(Tensor.ones(1, 1, 2, 2, 2), 1.0).sum().item()
    0.0
    """,
)


_SELU_LOW = -1.7580993408473766  # selu's value far below 0: -scale * alpha


def _alpha(name: str, x: Tensor, p: float, training: bool, inplace: bool, channels: Ints) -> Tensor:
    _check(name, p)
    if not training or p == 0:
        return x
    if p == 1:
        return _given(x, name, inplace, lambda t: t * 0.0)
    scale = 1 / math.sqrt((1 - p) * (1 + p * _SELU_LOW * _SELU_LOW))

    def function(t: Tensor) -> Tensor:
        keep = _kept(t, channels, p) * (1 - p)
        return (t * keep + (1 - keep) * _SELU_LOW) * scale - scale * _SELU_LOW * p

    return _given(x, name, inplace, function)


@function
def alpha_dropout(x: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout for selu: elements take its lowest value, and mean and deviation stay (Klambauer and others, 2017).

    >>> alpha_dropout(Tensor([1.0]), 0.5)
    Tensor([1.], dtype=float32)
    """
    return _alpha("alpha_dropout", x, p, training, inplace, x.shape)


@function
def feature_alpha_dropout(x: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """`alpha_dropout` of whole channels, axis 1.

    >>> feature_alpha_dropout(Tensor([[1.0]]), 0.5)
    Tensor([[1.]], dtype=float32)
    """
    return _alpha("feature_alpha_dropout", x, p, training, inplace, x.shape[:2])


# -- attention with several heads as torch computes it, from its weights ----------------------------------------------


def _projected(
    q: Tensor, k: Tensor, v: Tensor, weight: Tensor | None, bias: Tensor | None, own: tuple[Tensor | None, ...] | None
) -> list[Tensor]:
    """Queries, keys and values, projected by one weight for all three or by one each."""
    width = q.shape[-1]
    if own is None:
        assert weight is not None
        if q is k and k is v:
            return list(F.linear(q, weight, bias).split(width, -1))
        weights = list(weight.split(width))
    else:
        weights = [w for w in own if w is not None]
    biases = [None] * 3 if bias is None else bias.split(width)
    return [F.linear(x, w, b) for x, w, b in zip((q, k, v), weights, biases, strict=True)]


@function
def multi_head_attention_forward(
    query: Tensor, key: Tensor, value: Tensor, embed_dim_to_check: int, num_heads: int,
    in_proj_weight: Tensor | None, in_proj_bias: Tensor | None, bias_k: Tensor | None, bias_v: Tensor | None,
    add_zero_attn: bool, dropout_p: float, out_proj_weight: Tensor, out_proj_bias: Tensor | None,
    training: bool = True, key_padding_mask: Tensor | None = None, need_weights: bool = True,
    attn_mask: Tensor | None = None, use_separate_proj_weight: bool = False, q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None, v_proj_weight: Tensor | None = None, static_k: Tensor | None = None,
    static_v: Tensor | None = None, average_attn_weights: bool = True, is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """The result of `nn.MultiheadAttention`, computed from its weights: query (l, batch, e), key and value
    (s, batch, ...).

    Without a batch axis all three have two axes. Masks are bool (True leaves a position out) or are added to the
    scores: `attn_mask` (l, s) or (batch * num_heads, l, s), `key_padding_mask` (batch, s). `is_causal` is a hint in
    torch and needs `attn_mask`; here it makes one if there is none.

    Returns the result and, with `need_weights`, the weights (batch, l, s), or (batch, heads, l, s) not averaged. Raises
    ShapeError for sizes that do not fit.

    Args:
        embed_dim_to_check: the query's features. in_proj_weight, in_proj_bias: (3 * width, width) and (3 * width,), of
            queries, keys and values. bias_k, bias_v: added rows. add_zero_attn: whether a row of zeros is added.
        out_proj_weight, out_proj_bias: (width, width), (width,). static_k, static_v: projected keys and values.
        use_separate_proj_weight: whether to use `q_proj_weight`, `k_proj_weight` and `v_proj_weight`.

    >>> x, w = Tensor.ones(3, 1, 4), Tensor.ones(12, 4)
    >>> multi_head_attention_forward(x, x, x, 4, 2, w, None, None, None, False, 0.0, w[:4], None)[1].shape
    (1, 3, 3)
    """
    single = query.ndim == 2
    if query.ndim not in (2, 3) or query.shape[-1] != embed_dim_to_check or embed_dim_to_check % num_heads:
        raise ShapeError(
            f"multi_head_attention_forward: query is (time, batch, {embed_dim_to_check}) or (time, "
            f"{embed_dim_to_check}), and {num_heads} heads divide that width; it has shape {query.shape}"
        )
    if single:
        batched = {x: x.unsqueeze(1) for x in (query, key, value)}  # an argument that is given twice stays one tensor
        query, key, value = [batched[x] for x in (query, key, value)]
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    own = (q_proj_weight, k_proj_weight, v_proj_weight) if use_separate_proj_weight else None
    q, k, v = _projected(query, key, value, in_proj_weight, in_proj_bias, own)
    q = _heads(q, num_heads, None, None, False)
    k, v = _heads(k, num_heads, bias_k, static_k, add_zero_attn), _heads(v, num_heads, bias_v, static_v, add_zero_attn)
    mask = _mask(attn_mask, key_padding_mask, is_causal, q, k.shape[2])
    mixed, weights = _mixed(q, k, v, mask, dropout_p if training else 0.0, need_weights)
    out = F.linear(mixed.permute(2, 0, 1, 3).reshape(*query.shape), out_proj_weight, out_proj_bias)
    if weights is not None and average_attn_weights:
        weights = weights.mean(axis=1)
    if single:
        return out.squeeze(1), None if weights is None else weights.squeeze(0)
    return out, weights


def _heads(x: Tensor, count: int, row: Tensor | None, static: Tensor | None, zero: bool) -> Tensor:
    """Projected values, or `static` in their place, as heads, with a `row`, and one of zeros, behind them."""
    _, batch, width = x.shape
    if row is not None:
        x = Tensor.cat([x, row.expand(1, batch, width)], dim=0)
    if static is None:
        x = x.reshape(x.shape[0], batch, count, width // count).permute(1, 2, 0, 3)
    else:
        x = static.reshape(batch, count, static.shape[1], width // count)
    if zero:
        x = Tensor.cat([x, Tensor.zeros(batch, count, 1, width // count, dtype=x.dtype, device=x.device)], dim=2)
    return x


def _mixed(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, p: float, need_weights: bool
) -> tuple[Tensor, Tensor | None]:
    """The values of each head mixed, and the weights if they are asked for."""
    if not need_weights:
        return F.scaled_dot_product_attention(q, k, v, mask, p), None
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    weights = (scores if mask is None else scores + mask).softmax(-1)
    weights = F.dropout(weights, p) if p else weights
    return weights @ v, weights


def _mask(attn: Tensor | None, padding: Tensor | None, is_causal: bool, like: Tensor, s: int) -> Tensor | None:
    """The two masks as one that is added to the scores (batch, heads, l, s); True in a mask leaves a position out."""
    batch, heads, l, _ = like.shape
    if is_causal and attn is None:
        attn = Tensor.ones(l, s, dtype="bool", device=like.device).triu(1)
    found = []
    for name, mask, rows in (("attn_mask", attn, l), ("key_padding_mask", padding, batch)):
        if mask is None:
            continue
        if mask.dtype.name == "bool":
            mask = mask.where(Tensor(-math.inf, dtype=like.dtype, device=like.device), 0.0)
        mask = mask.cast(like.dtype)
        if mask.ndim == 3:
            mask = mask.reshape(batch, heads, *mask.shape[1:])
        if mask.shape[-2] != rows or mask.shape[-1] > s:
            raise ShapeError(
                f"multi_head_attention_forward: {name} of shape {mask.shape} does not fit scores of "
                f"{(batch, heads, l, s)}"
            )
        mask = F.pad(mask, (0, s - mask.shape[-1])) if mask.shape[-1] < s else mask
        found.append(mask if name == "attn_mask" else mask.reshape(batch, 1, 1, s))
    return sum(found[1:], found[0]) if found else None
