"""Activations and dropouts of `nn.functional` with torch's arguments: `inplace`, and whole channels at once.

In place, the tensor that was given shows the result from now on, under all of its names; see `anneal/ops/inplace.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from anneal.errors import ShapeError
from anneal.ops import DTypeLike, checked, in_place
from anneal.tensor import Tensor
from anneal.tensor import functional as F

__all__ = [
    "alpha_dropout",
    "celu",
    "celu_",
    "dropout",
    "dropout1d",
    "dropout2d",
    "dropout3d",
    "elu",
    "elu_",
    "feature_alpha_dropout",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "hardtanh_",
    "leaky_relu",
    "leaky_relu_",
    "mish",
    "relu",
    "relu6",
    "relu_",
    "rrelu",
    "rrelu_",
    "selu",
    "selu_",
    "silu",
    "softmin",
    "threshold",
    "threshold_",
]


def _given(x: Tensor, name: str, inplace: bool, function: Callable[[Tensor], Tensor]) -> Tensor:
    return in_place(x, f"{name}_", function) if inplace else function(x)


@checked
def relu(x: Tensor, inplace: bool = False) -> Tensor:
    """max(x, 0), elementwise; with `inplace` x itself shows it.

    Raises GradientError for a leaf that requires a gradient and is to change.

    >>> relu(Tensor([-1.0, 2.0]))
    Tensor([0., 2.], dtype=float32)
    """
    return _given(x, "relu", inplace, F.relu)


@checked
def relu_(x: Tensor) -> Tensor:
    """`relu(x, inplace=True)`.

    >>> x = Tensor([-1.0, 2.0])
    >>> y = relu_(x); x
    Tensor([0., 2.], dtype=float32)
    """
    return in_place(x, "relu_", F.relu)


@checked
def relu6(x: Tensor, inplace: bool = False) -> Tensor:
    """x in [0, 6], elementwise; `inplace` as for `relu`.

    >>> relu6(Tensor([-1.0, 2.0, 8.0]))
    Tensor([0., 2., 6.], dtype=float32)
    """
    return _given(x, "relu6", inplace, F.relu6)


@checked
def silu(x: Tensor, inplace: bool = False) -> Tensor:
    """x * sigmoid(x), elementwise; `inplace` as for `relu`.

    >>> silu(Tensor([0.0]))
    Tensor([0.], dtype=float32)
    """
    return _given(x, "silu", inplace, F.silu)


@checked
def mish(x: Tensor, inplace: bool = False) -> Tensor:
    """x * tanh(softplus(x)), elementwise; `inplace` as for `relu`.

    >>> mish(Tensor([0.0]))
    Tensor([0.], dtype=float32)
    """
    return _given(x, "mish", inplace, F.mish)


@checked
def hardswish(x: Tensor, inplace: bool = False) -> Tensor:
    """x * relu6(x + 3) / 6, elementwise; `inplace` as for `relu`.

    >>> hardswish(Tensor([3.0]))
    Tensor([3.], dtype=float32)
    """
    return _given(x, "hardswish", inplace, F.hardswish)


@checked
def hardsigmoid(x: Tensor, inplace: bool = False) -> Tensor:
    """relu6(x + 3) / 6, elementwise; `inplace` as for `relu`.

    >>> hardsigmoid(Tensor([0.0]))
    Tensor([0.5], dtype=float32)
    """
    return _given(x, "hardsigmoid", inplace, F.hardsigmoid)


@checked
def elu(x: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x above 0, alpha * (exp(x) - 1) below; `inplace` as for `relu`.

    >>> elu(Tensor([2.0]))
    Tensor([2.], dtype=float32)
    """
    return _given(x, "elu", inplace, lambda t: F.elu(t, alpha))


@checked
def elu_(x: Tensor, alpha: float = 1.0) -> Tensor:
    """`elu(x, alpha, inplace=True)`.

    >>> elu_(Tensor([2.0]))
    Tensor([2.], dtype=float32)
    """
    return elu(x, alpha, True)


@checked
def selu(x: Tensor, inplace: bool = False) -> Tensor:
    """elu with the slopes of self-normalising networks; `inplace` as for `relu`.

    >>> selu(Tensor([0.0]))
    Tensor([0.], dtype=float32)
    """
    return _given(x, "selu", inplace, F.selu)


@checked
def selu_(x: Tensor) -> Tensor:
    """`selu(x, inplace=True)`.

    >>> selu_(Tensor([0.0]))
    Tensor([0.], dtype=float32)
    """
    return selu(x, True)


@checked
def celu(x: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x above 0, alpha * (exp(x / alpha) - 1) below; `inplace` as for `relu`.

    >>> celu(Tensor([2.0]))
    Tensor([2.], dtype=float32)
    """
    return _given(x, "celu", inplace, lambda t: F.celu(t, alpha))


@checked
def celu_(x: Tensor, alpha: float = 1.0) -> Tensor:
    """`celu(x, alpha, inplace=True)`.

    >>> celu_(Tensor([2.0]))
    Tensor([2.], dtype=float32)
    """
    return celu(x, alpha, True)


@checked
def leaky_relu(x: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """x above 0, negative_slope * x below; `inplace` as for `relu`.

    >>> leaky_relu(Tensor([-2.0]), 0.5)
    Tensor([-1.], dtype=float32)
    """
    return _given(x, "leaky_relu", inplace, lambda t: F.leaky_relu(t, negative_slope))


@checked
def leaky_relu_(x: Tensor, negative_slope: float = 0.01) -> Tensor:
    """`leaky_relu(x, negative_slope, inplace=True)`.

    >>> leaky_relu_(Tensor([-2.0]), 0.5)
    Tensor([-1.], dtype=float32)
    """
    return leaky_relu(x, negative_slope, True)


@checked
def hardtanh(x: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """x moved into [min_val, max_val]; `inplace` as for `relu`.

    >>> hardtanh(Tensor([-2.0, 0.5]))
    Tensor([-1. ,  0.5], dtype=float32)
    """
    return _given(x, "hardtanh", inplace, lambda t: F.hardtanh(t, min_val, max_val))


@checked
def hardtanh_(x: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """`hardtanh(x, min_val, max_val, inplace=True)`.

    >>> hardtanh_(Tensor([-2.0]))
    Tensor([-1.], dtype=float32)
    """
    return hardtanh(x, min_val, max_val, True)


@checked
def threshold(x: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """x above the threshold, `value` elsewhere; `inplace` as for `relu`.

    >>> threshold(Tensor([1.0, 3.0]), 2.0, -7.0)
    Tensor([-7.,  3.], dtype=float32)
    """
    return _given(x, "threshold", inplace, lambda t: F.threshold(t, threshold, value))


@checked
def threshold_(x: Tensor, threshold: float, value: float) -> Tensor:
    """x above the threshold, `value` elsewhere, in place.

    >>> threshold_(Tensor([1.0, 3.0]), 2.0, -7.0)
    Tensor([-7.,  3.], dtype=float32)
    """
    return in_place(x, "threshold_", lambda t: F.threshold(t, threshold, value))


@checked
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


@checked
def rrelu_(x: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> Tensor:
    """`rrelu(x, lower, upper, training, inplace=True)`.

    >>> rrelu_(Tensor([-2.0, 3.0]), 0.25, 0.75)
    Tensor([-1.,  3.], dtype=float32)
    """
    return rrelu(x, lower, upper, training, True)


@checked
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


@checked
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


@checked
def dropout1d(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Whole channels of (batch, channels, n) or (channels, n) zero with probability `p`; otherwise as `dropout`.

    >>> sorted(set(dropout1d(Tensor.ones(1, 9, 2)).sum(2).flatten().tolist()) | {0.0, 4.0})
    [0.0, 4.0]
    """
    return _channels("dropout1d", x, p, training, inplace, (2, 3))


@checked
def dropout2d(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Whole channels of (batch, channels, h, w) or (batch, channels, n) zero with probability `p`; else as `dropout`.

    >>> dropout2d(Tensor.ones(1, 1, 2, 2), 1.0).sum().item()
    0.0
    """
    return _channels("dropout2d", x, p, training, inplace, (3, 4))


@checked
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


@checked
def alpha_dropout(x: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout for selu: elements take its lowest value, and mean and deviation stay (Klambauer and others, 2017).

    >>> alpha_dropout(Tensor([1.0]), 0.5)
    Tensor([1.], dtype=float32)
    """
    return _alpha("alpha_dropout", x, p, training, inplace, x.shape)


@checked
def feature_alpha_dropout(x: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """`alpha_dropout` of whole channels, axis 1.

    >>> feature_alpha_dropout(Tensor([[1.0]]), 0.5)
    Tensor([[1.]], dtype=float32)
    """
    return _alpha("feature_alpha_dropout", x, p, training, inplace, x.shape[:2])
