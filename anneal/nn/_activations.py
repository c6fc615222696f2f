"""Activations as layers, with torch's names and arguments."""

from __future__ import annotations

from anneal.errors import ShapeError
from anneal.nn import functional as F
from anneal.nn._module import Resettable
from anneal.nn._rows import Row, Unary
from anneal.nn.init import constant
from anneal.ops import DTypeLike, checked
from anneal.tensor import Tensor


class _InPlace(Unary):
    """An activation without settings; with `inplace` the result is written to x."""

    inplace: bool = False


class ReLU(_InPlace):
    """max(x, 0), of any shape; with `inplace` the result is written to x.

    >>> ReLU()(Tensor([-1.0, 2.0]))
    Tensor([0., 2.], dtype=float32)
    """


class SiLU(_InPlace):
    """x * sigmoid(x), of any shape.

    >>> SiLU()(Tensor([0.0, 1.0])).round(3)
    Tensor([0.   , 0.731], dtype=float32)
    """


class Mish(_InPlace):
    """x * tanh(softplus(x)), of any shape.

    >>> Mish()(Tensor([0.0, 1.0])).round(3)
    Tensor([0.   , 0.865], dtype=float32)
    """


class Hardswish(_InPlace):
    """x * relu6(x + 3) / 6, of any shape.

    >>> Hardswish()(Tensor([3.0]))
    Tensor([3.], dtype=float32)
    """


class Hardsigmoid(_InPlace):
    """relu6(x + 3) / 6, of any shape.

    >>> Hardsigmoid()(Tensor([0.0]))
    Tensor([0.5], dtype=float32)
    """


class SELU(_InPlace):
    """elu with the slopes of self-normalising networks.

    >>> SELU()(Tensor([0.0, 1.0])).round(3)
    Tensor([0.   , 1.051], dtype=float32)
    """


class ELU(Unary):
    """x above 0, alpha * (exp(x) - 1) below.

    >>> ELU()(Tensor([-1.0, 2.0])).round(3)
    Tensor([-0.632,  2.   ], dtype=float32)
    """

    alpha: float = 1.0
    inplace: bool = False


class CELU(Unary):
    """x above 0, alpha * (exp(x / alpha) - 1) below.

    >>> CELU()(Tensor([-1.0, 2.0])).round(3)
    Tensor([-0.632,  2.   ], dtype=float32)
    """

    alpha: float = 1.0
    inplace: bool = False


class LeakyReLU(Unary):
    """x above 0, negative_slope * x below.

    >>> LeakyReLU(0.5)(Tensor([-1.0, 2.0]))
    Tensor([-0.5,  2. ], dtype=float32)
    """

    negative_slope: float = 0.01
    inplace: bool = False


class RReLU(Unary, of="lower upper training inplace"):
    """x above 0, below it x times a slope drawn from [lower, upper) in training, else times their mean.

    >>> RReLU(0.25, 0.75).eval()(Tensor([-2.0, 3.0]))
    Tensor([-1.,  3.], dtype=float32)
    """

    lower: float = 1 / 8
    upper: float = 1 / 3
    inplace: bool = False


class Hardtanh(Unary):
    """x clamped to [min_val, max_val].

    >>> Hardtanh()(Tensor([-2.0, 0.5]))
    Tensor([-1. ,  0.5], dtype=float32)
    """

    min_val: float = -1.0
    max_val: float = 1.0
    inplace: bool = False


class ReLU6(Hardtanh):
    """x clamped to [0, 6], of any shape.

    >>> ReLU6()(Tensor([-1.0, 2.0, 8.0]))
    Tensor([0., 2., 6.], dtype=float32)
    """

    @checked
    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)


class Threshold(Unary):
    """x above the threshold, `value` elsewhere.

    >>> Threshold(2.0, -7.0)(Tensor([1.0, 3.0]))
    Tensor([-7.,  3.], dtype=float32)
    """

    threshold: float
    value: float
    inplace: bool = False


class Softplus(Unary):
    """log(1 + exp(beta * x)) / beta; x itself where beta * x is above the threshold.

    >>> Softplus()(Tensor([0.0, 30.0])).round(3)
    Tensor([ 0.693, 30.   ], dtype=float32)
    """

    beta: float = 1.0
    threshold: float = 20.0


class Softshrink(Unary):
    """x moved towards 0 by lambd; 0 where |x| is at most lambd.

    >>> Softshrink()(Tensor([-1.0, 0.25]))
    Tensor([-0.5,  0. ], dtype=float32)
    """

    lambd: float = 0.5


class Hardshrink(Unary):
    """x where |x| is above lambd, else 0.

    >>> Hardshrink()(Tensor([-1.0, 0.25]))
    Tensor([-1.,  0.], dtype=float32)
    """

    lambd: float = 0.5


class Tanhshrink(Unary):
    """x - tanh(x).

    >>> Tanhshrink()(Tensor([0.0, 1.0])).round(3)
    Tensor([0.   , 0.238], dtype=float32)
    """


class Softsign(Unary):
    """x / (1 + |x|).

    >>> Softsign()(Tensor([-1.0, 3.0]))
    Tensor([-0.5 ,  0.75], dtype=float32)
    """


class Sigmoid(Unary):
    """1 / (1 + exp(-x)), of any shape.

    >>> Sigmoid()(Tensor([0.0]))
    Tensor([0.5], dtype=float32)
    """


class LogSigmoid(Unary):
    """The logarithm of the sigmoid.

    >>> LogSigmoid()(Tensor([0.0])).round(3)
    Tensor([-0.693], dtype=float32)
    """


class Tanh(Unary):
    """The hyperbolic tangent, of any shape.

    >>> Tanh()(Tensor([0.0, 1.0])).round(3)
    Tensor([0.   , 0.762], dtype=float32)
    """


class GELU(Unary):
    """x times the normal distribution function of x; approximate is "none" or "tanh".

    Raises ShapeError for another form.

    >>> GELU()(Tensor([0.0, 1.0])).round(3)
    Tensor([0.   , 0.841], dtype=float32)
    """

    approximate: str = "none"

    def __post_init__(self) -> None:
        if self.approximate not in ("none", "tanh"):
            raise ShapeError(f'GELU: approximate is "none" or "tanh", not {self.approximate!r}')


class GLU(Unary):
    """The first half of an axis times the sigmoid of the second.

    >>> GLU()(Tensor([2.0, 0.0]))
    Tensor([1.], dtype=float32)
    """

    dim: int = -1


class PReLU(Unary, Resettable, of="weight"):
    """x above 0, below it x times a trained weight: one for all, or one for each channel (axis 1).

    >>> PReLU()(Tensor([-2.0, 3.0])).tolist()
    [-0.5, 3.0]
    """

    @checked
    def __init__(
        self,
        num_parameters: int = 1,
        init: float = 0.25,
        device: str | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        self.init = init
        self.weight: Tensor = constant((num_parameters,), init)
        self._place(device, dtype)

    def reset_parameters(self) -> None:
        """Set the weight to `init`."""
        self.weight.assign(self.init)


class _Softmax(Row):
    dim: int | None = None

    @checked
    def forward(self, x: Tensor) -> Tensor:
        guess = 0 if x.ndim in (0, 1, 3) else 1
        return self._function(x, dim=guess if self.dim is None else self.dim)


class Softmax(_Softmax):
    """Positive numbers along an axis that add up to 1. Without an axis: torch's guess, axis 0 of up to one, three; else
    1.

    >>> Softmax(0)(Tensor([0.0, 0.0]))
    Tensor([0.5, 0.5], dtype=float32)
    """


class LogSoftmax(_Softmax):
    """The logarithm of `Softmax`. Without an axis: torch's guess, axis 0 of up to one, three; else 1.

    >>> LogSoftmax(0)(Tensor([0.0, 0.0])).round(3)
    Tensor([-0.693, -0.693], dtype=float32)
    """


class Softmin(_Softmax):
    """`Softmax` of -x. Without an axis: torch's guess, axis 0 of up to one, three; else 1.

    >>> Softmin(0)(Tensor([1.0, 1.0]))
    Tensor([0.5, 0.5], dtype=float32)
    """


class Softmax2d(Row):
    """`Softmax` over the channels of (batch, channels, h, w) or (channels, h, w).

    >>> Softmax2d()(Tensor.ones(1, 2, 1, 1)).flatten()
    Tensor([0.5, 0.5], dtype=float32)
    """

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.softmax(x, dim=-3)
