"""Activations as layers, with torch's names and arguments."""

from __future__ import annotations

from anneal.errors import ShapeError
from anneal.nn import functional as F
from anneal.nn._module import Module, Resettable
from anneal.nn.init import constant
from anneal.ops import DTypeLike, checked
from anneal.tensor import Tensor

__all__ = [
    "CELU",
    "ELU",
    "GELU",
    "GLU",
    "SELU",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "LeakyReLU",
    "LogSigmoid",
    "LogSoftmax",
    "Mish",
    "PReLU",
    "RReLU",
    "ReLU",
    "ReLU6",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softmax2d",
    "Softmin",
    "Softplus",
    "Softshrink",
    "Softsign",
    "Tanh",
    "Tanhshrink",
    "Threshold",
]


def _axis(dim: int | None, x: Tensor) -> int:
    """The axis that torch takes where none was given."""
    return (0 if x.ndim in (0, 1, 3) else 1) if dim is None else dim


class _InPlace(Module):
    """An activation without settings; with `inplace` x itself shows the result."""

    @checked
    def __init__(self, inplace: bool = False) -> None:
        self.inplace = inplace


class ReLU(_InPlace):
    """max(x, 0), of any shape; with `inplace` x itself shows it.

    >>> ReLU()(Tensor([-1.0, 2.0]))
    Tensor([0., 2.], dtype=float32)
    """

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x, self.inplace)


class SiLU(_InPlace):
    """x * sigmoid(x), of any shape.

    >>> SiLU()(Tensor([0.0, 1.0])).round(3)
    Tensor([0.   , 0.731], dtype=float32)
    """

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.silu(x, self.inplace)


class Mish(_InPlace):
    """x * tanh(softplus(x)), of any shape.

    >>> Mish()(Tensor([0.0, 1.0])).round(3)
    Tensor([0.   , 0.865], dtype=float32)
    """

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.mish(x, self.inplace)


class Hardswish(_InPlace):
    """x * relu6(x + 3) / 6, of any shape.

    >>> Hardswish()(Tensor([3.0]))
    Tensor([3.], dtype=float32)
    """

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.hardswish(x, self.inplace)


class Hardsigmoid(_InPlace):
    """relu6(x + 3) / 6, of any shape.

    >>> Hardsigmoid()(Tensor([0.0]))
    Tensor([0.5], dtype=float32)
    """

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.hardsigmoid(x, self.inplace)


class SELU(_InPlace):
    """elu with the slopes of self-normalising networks.

    >>> SELU()(Tensor([0.0, 1.0])).round(3)
    Tensor([0.   , 1.051], dtype=float32)
    """

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.selu(x, self.inplace)


class ELU(Module):
    """x above 0, alpha * (exp(x) - 1) below.

    >>> ELU()(Tensor([-1.0, 2.0])).round(3)
    Tensor([-0.632,  2.   ], dtype=float32)
    """

    @checked
    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        self.alpha, self.inplace = alpha, inplace

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.elu(x, self.alpha, self.inplace)


class CELU(Module):
    """x above 0, alpha * (exp(x / alpha) - 1) below.

    >>> CELU()(Tensor([-1.0, 2.0])).round(3)
    Tensor([-0.632,  2.   ], dtype=float32)
    """

    @checked
    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        self.alpha, self.inplace = alpha, inplace

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.celu(x, self.alpha, self.inplace)


class LeakyReLU(Module):
    """x above 0, negative_slope * x below.

    >>> LeakyReLU(0.5)(Tensor([-1.0, 2.0]))
    Tensor([-0.5,  2. ], dtype=float32)
    """

    @checked
    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        self.negative_slope, self.inplace = negative_slope, inplace

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.leaky_relu(x, self.negative_slope, self.inplace)


class RReLU(Module):
    """x above 0, below it x times a slope drawn from [lower, upper) in training, else times their mean.

    >>> RReLU(0.25, 0.75).eval()(Tensor([-2.0, 3.0]))
    Tensor([-1.,  3.], dtype=float32)
    """

    @checked
    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False) -> None:
        self.lower, self.upper, self.inplace = lower, upper, inplace

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.rrelu(x, self.lower, self.upper, self.training, self.inplace)


class Hardtanh(Module):
    """x moved into [min_val, max_val].

    >>> Hardtanh()(Tensor([-2.0, 0.5]))
    Tensor([-1. ,  0.5], dtype=float32)
    """

    @checked
    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        self.min_val, self.max_val, self.inplace = min_val, max_val, inplace

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.hardtanh(x, self.min_val, self.max_val, self.inplace)


class ReLU6(Hardtanh):
    """x in [0, 6], of any shape.

    >>> ReLU6()(Tensor([-1.0, 2.0, 8.0]))
    Tensor([0., 2., 6.], dtype=float32)
    """

    @checked
    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)


class Threshold(Module):
    """x above the threshold, `value` elsewhere.

    >>> Threshold(2.0, -7.0)(Tensor([1.0, 3.0]))
    Tensor([-7.,  3.], dtype=float32)
    """

    @checked
    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        self.threshold, self.value, self.inplace = threshold, value, inplace

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.threshold(x, self.threshold, self.value, self.inplace)


class Softplus(Module):
    """log(1 + exp(beta * x)) / beta; x itself where beta * x is above the threshold.

    >>> Softplus()(Tensor([0.0, 30.0])).round(3)
    Tensor([ 0.693, 30.   ], dtype=float32)
    """

    @checked
    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        self.beta, self.threshold = beta, threshold

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.softplus(x, self.beta, self.threshold)


class Softshrink(Module):
    """x nearer to 0 by lambd, and 0 within that.

    >>> Softshrink()(Tensor([-1.0, 0.25]))
    Tensor([-0.5,  0. ], dtype=float32)
    """

    @checked
    def __init__(self, lambd: float = 0.5) -> None:
        self.lambd = lambd

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.softshrink(x, self.lambd)


class Hardshrink(Module):
    """x, and 0 within lambd of 0.

    >>> Hardshrink()(Tensor([-1.0, 0.25]))
    Tensor([-1.,  0.], dtype=float32)
    """

    @checked
    def __init__(self, lambd: float = 0.5) -> None:
        self.lambd = lambd

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.hardshrink(x, self.lambd)


class Tanhshrink(Module):
    """x - tanh(x).

    >>> Tanhshrink()(Tensor([0.0, 1.0])).round(3)
    Tensor([0.   , 0.238], dtype=float32)
    """

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.tanhshrink(x)


class Softsign(Module):
    """x / (1 + |x|).

    >>> Softsign()(Tensor([-1.0, 3.0]))
    Tensor([-0.5 ,  0.75], dtype=float32)
    """

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.softsign(x)


class Sigmoid(Module):
    """1 / (1 + exp(-x)), of any shape.

    >>> Sigmoid()(Tensor([0.0]))
    Tensor([0.5], dtype=float32)
    """

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.sigmoid(x)


class LogSigmoid(Module):
    """The logarithm of the sigmoid.

    >>> LogSigmoid()(Tensor([0.0])).round(3)
    Tensor([-0.693], dtype=float32)
    """

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.logsigmoid(x)


class Tanh(Module):
    """The hyperbolic tangent, of any shape.

    >>> Tanh()(Tensor([0.0, 1.0])).round(3)
    Tensor([0.   , 0.762], dtype=float32)
    """

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.tanh(x)


class GELU(Module):
    """x times the normal distribution function of x; approximate is "none" or "tanh".

    Raises ShapeError for another form.

    >>> GELU()(Tensor([0.0, 1.0])).round(3)
    Tensor([0.   , 0.841], dtype=float32)
    """

    @checked
    def __init__(self, approximate: str = "none") -> None:
        if approximate not in ("none", "tanh"):
            raise ShapeError(f'GELU: approximate is "none" or "tanh", not {approximate!r}')
        self.approximate = approximate

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(x, self.approximate)


class GLU(Module):
    """The first half of an axis times the sigmoid of the second.

    >>> GLU()(Tensor([2.0, 0.0]))
    Tensor([1.], dtype=float32)
    """

    @checked
    def __init__(self, dim: int = -1) -> None:
        self.dim = dim

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.glu(x, self.dim)


class PReLU(Resettable):
    """x above 0, below it x times a weight that trains: one for all, or one for each channel (axis 1).

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

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.prelu(x, self.weight)


class Softmax(Module):
    """Positive numbers along an axis that add up to 1. Without an axis: torch's guess, axis 0 of up to one, three; else
    1.

    >>> Softmax(0)(Tensor([0.0, 0.0]))
    Tensor([0.5, 0.5], dtype=float32)
    """

    @checked
    def __init__(self, dim: int | None = None) -> None:
        self.dim = dim

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.softmax(x, dim=_axis(self.dim, x))


class LogSoftmax(Module):
    """The logarithm of `Softmax`. Without an axis: torch's guess, axis 0 of up to one, three; else 1.

    >>> LogSoftmax(0)(Tensor([0.0, 0.0])).round(3)
    Tensor([-0.693, -0.693], dtype=float32)
    """

    @checked
    def __init__(self, dim: int | None = None) -> None:
        self.dim = dim

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.log_softmax(x, dim=_axis(self.dim, x))


class Softmin(Module):
    """`Softmax` of -x. Without an axis: torch's guess, axis 0 of up to one, three; else 1.

    >>> Softmin(0)(Tensor([1.0, 1.0]))
    Tensor([0.5, 0.5], dtype=float32)
    """

    @checked
    def __init__(self, dim: int | None = None) -> None:
        self.dim = dim

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.softmin(x, dim=_axis(self.dim, x))


class Softmax2d(Module):
    """`Softmax` over the channels of (batch, channels, h, w) or (channels, h, w).

    >>> Softmax2d()(Tensor.ones(1, 2, 1, 1)).flatten()
    Tensor([0.5, 0.5], dtype=float32)
    """

    @checked
    def forward(self, x: Tensor) -> Tensor:
        return F.softmax(x, dim=-3)
