"""Activations and dropouts of `nn.functional` with torch's arguments: `inplace`, and whole channels at once.

In place, the tensor that was given shows the result from now on, under all of its names; see `anneal/ops/inplace.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from anneal.errors import ShapeError
from anneal.ops import DTypeLike, function, in_place
from anneal.tensor import Tensor, functional as F


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


@function(autocast="float32")
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


def _kept(x: Tensor, channels: tuple[int, ...], p: float) -> Tensor:
    """1 / (1 - p) where a channel is kept, 0 elsewhere; of a shape that broadcasts to x."""
    ones = Tensor.ones(*channels, *[1] * (x.ndim - len(channels)), device=x.device, dtype=x.dtype)
    return F.dropout(ones, p)


def _channels(name: str, x: Tensor, p: float, training: bool, inplace: bool, axes: tuple[int, int]) -> Tensor:
    _check(name, p)
    if x.ndim not in axes:
        raise ShapeError(f"{name}: x has {axes[0]} or {axes[1]} axes, not shape {x.shape}")
    if not training or p == 0:
        return x
    lead = x.shape[:1] if x.ndim == axes[0] and name != "dropout2d" else x.shape[:2]
    return _given(x, name, inplace, lambda t: t * _kept(t, lead, p))


@function
def dropout1d(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Whole channels of (batch, channels, n) or (channels, n) zero with probability `p`; otherwise as `dropout`.

    >>> sorted(set(dropout1d(Tensor.ones(1, 9, 2)).sum(2).flatten().tolist()) | {0.0, 4.0})
    [0.0, 4.0]
    """
    return _channels("dropout1d", x, p, training, inplace, (2, 3))


@function
def dropout2d(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Whole channels of (batch, channels, h, w) or (batch, channels, n) zero with probability `p`; else as `dropout`.

    >>> dropout2d(Tensor.ones(1, 1, 2, 2), 1.0).sum().item()
    0.0
    """
    return _channels("dropout2d", x, p, training, inplace, (3, 4))


@function
def dropout3d(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Whole channels of (batch, channels, d, h, w) or (channels, d, h, w) zero with probability `p`; as `dropout`.

    >>> dropout3d(Tensor.ones(1, 1, 2, 2, 2), 1.0).sum().item()
    0.0
    """
    return _channels("dropout3d", x, p, training, inplace, (4, 5))


_LOW = -1.7580993408473766  # selu's value far below 0: -scale * alpha


def _alpha(name: str, x: Tensor, p: float, training: bool, inplace: bool, channels: tuple[int, ...]) -> Tensor:
    _check(name, p)
    if not training or p == 0:
        return x
    if p == 1:
        return _given(x, name, inplace, lambda t: t * 0.0)
    scale = 1 / math.sqrt((1 - p) * (1 + p * _LOW * _LOW))

    def function(t: Tensor) -> Tensor:
        keep = _kept(t, channels, p) * (1 - p)
        return (t * keep + (1 - keep) * _LOW) * scale - scale * _LOW * p

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
