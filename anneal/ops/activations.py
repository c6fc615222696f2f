"""Activations: the functions between the layers of neural networks, element by element.

Where the slope is a short formula of its own, it stands beside the value (SPEC.md, section 4).
"""

from __future__ import annotations

import math

from anneal.errors import DTypeError, ShapeError
from anneal.names import Tensor
from anneal.ops.arguments import function
from anneal.ops.elementwise import binary, choose, clipped, real_node
from anneal.ops.functions import Operand
from anneal.ops.nodes import named, reshape, share
from anneal.ops.precision import in_single
from anneal.uop import Op, UOp, by_rule, dtypes

_BOOL = dtypes.bool_


@function(in_place=True, functional=True, special="expit")
@in_single()
def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x)).

    >>> from anneal.tensor import Tensor
    >>> Tensor([0.0, 1.0]).sigmoid()
    Tensor([0.5   , 0.7311], dtype=float32)
    """
    return x._new(_logistic(-real_node(x)))


@function(functional=True)
@in_single()
def logsigmoid(x: Tensor) -> Tensor:
    """log(sigmoid(x)), without overflow.

    >>> from anneal.tensor import Tensor
    >>> Tensor([0.0, 100.0]).logsigmoid()
    Tensor([-6.9315e-01, -3.9236e-44], dtype=float32)
    """
    return -((-x).softplus())


@function(in_place=True, functional=True, inplace="twin")
def relu(x: Tensor) -> Tensor:
    """max(x, 0); its slope at 0 is 0.

    >>> from anneal.tensor import Tensor
    >>> Tensor([-1.0, 2.0]).relu()
    Tensor([0., 2.], dtype=float32)
    """
    return x if x.uop.dtype is _BOOL else binary(x, "relu", Op.MAX, 0)


@function(functional=True, inplace=True)
def relu6(x: Tensor) -> Tensor:
    """min(max(x, 0), 6).

    >>> from anneal.tensor import Tensor
    >>> Tensor([-1.0, 3.0, 9.0]).relu6()
    Tensor([0., 3., 6.], dtype=float32)
    """
    return clipped(x, 0, 6)


@function(functional=True, inplace="twin")
def leaky_relu(x: Tensor, negative_slope: float = 0.01) -> Tensor:
    """x above 0, negative_slope * x elsewhere.

    >>> from anneal.tensor import Tensor
    >>> Tensor([-1.0, 2.0]).leaky_relu(0.1)
    Tensor([-0.1,  2. ], dtype=float32)
    """
    x = x._new(real_node(x))
    return choose(x > 0.0, x, x * negative_slope)


@function(functional=True, inplace="twin")
@in_single()
def elu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """x above 0, alpha * (exp(x) - 1) elsewhere.

    >>> from anneal.tensor import Tensor
    >>> Tensor([-1.0, 2.0]).elu()
    Tensor([-0.6321,  2.    ], dtype=float32)
    """
    x = x._new(real_node(x))
    below = x <= 0.0
    # where x is taken the other branch sees 0, so that it cannot overflow and spoil the gradient
    return choose(below, choose(below, x, 0.0).expm1() * alpha, x)


@function(functional=True, inplace="twin")
@in_single()
def celu(x: Tensor, alpha: float = 1.0) -> Tensor:
    """x above 0, alpha * (exp(x / alpha) - 1) elsewhere.

    >>> from anneal.tensor import Tensor
    >>> Tensor([-1.0, 2.0]).celu()
    Tensor([-0.6321,  2.    ], dtype=float32)
    """
    if not alpha:
        raise ShapeError("celu: alpha may not be 0")
    x = x._new(real_node(x))
    below = x <= 0.0
    return choose(below, (choose(below, x, 0.0) / alpha).expm1() * alpha, x)


@function(functional=True, inplace="twin")
@in_single()
def selu(x: Tensor) -> Tensor:
    """The x-normalising exponential unit (Klambauer et al., 2017).

    >>> from anneal.tensor import Tensor
    >>> Tensor([-1.0, 2.0]).selu()
    Tensor([-1.1113,  2.1014], dtype=float32)
    """
    return x.elu(1.6732632423543772) * 1.0507009873554805


@function(alias="swish", functional=True, inplace=True)
@in_single()
def silu(x: Tensor) -> Tensor:
    """x * sigmoid(x), also called swish.

    >>> from anneal.tensor import Tensor
    >>> Tensor([-1.0, 2.0]).silu()
    Tensor([-0.2689,  1.7616], dtype=float32)
    """
    x = x._new(real_node(x))
    return x * x.sigmoid()


@function(functional=True)
@in_single()
def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """x times the normal distribution function of x; approximate="tanh" for the usual approximation.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0]).gelu().round(4), Tensor([1.0]).gelu("tanh").round(4)
    (Tensor([0.8413], dtype=float32), Tensor([0.8412], dtype=float32))
    """
    # y = x * h; both slopes are written with h, which the backward pass then finds in memory
    u = real_node(x)
    if approximate == "none":
        h = Op.ERF(u * (1 / math.sqrt(2))) * 0.5 + 0.5
        slope = Op.EXP(u * u * -0.5) * u * (1 / math.sqrt(2 * math.pi)) + h
    elif approximate == "tanh":
        k0 = math.sqrt(2 / math.pi)
        k1 = 0.044715 * k0
        square = u * u
        # (1 + tanh(u)) / 2, as the sigmoid of 2u: exact far below 0 too, and cheaper than tanh
        h = Op.RECIP(Op.EXP(u * (square * (-2 * k1) - 2 * k0)) + 1.0)
        # (1 - h) * h is 0 long before the square, which may overflow, ends here
        slope = (1 - h) * h * u * (Op.MIN(square, square.const_like(1024)) * (6 * k1) + 2 * k0) + h
    else:
        raise DTypeError(f'gelu: approximate is "none" or "tanh", not {approximate!r}')
    return x._new(named("gelu", by_rule("slope", u * h, u, slope), u, arguments=approximate))


@function(functional=True, autocast="float32")
@in_single()
def softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta * x)) / beta; x itself where beta * x passes the threshold.

    >>> from anneal.tensor import Tensor
    >>> Tensor([0.0, 50.0]).softplus()
    Tensor([ 0.6931, 50.    ], dtype=float32)
    """
    floats = x._new(real_node(x))
    scaled = floats if beta == 1.0 else floats * beta
    bent, far = scaled.minimum(threshold), scaled > threshold
    e = bent.exp()
    value = choose(far, floats, e.log1p() if beta == 1.0 else e.log1p() / beta)
    inverse = by_rule("inverse", Op.RECIP(e.uop + 1.0), scaled.uop, e.uop, arguments=1.0)
    slope = choose(far, 1.0, x._new_plain(share(inverse, scaled.uop, e.uop, 1.0)))
    return x._new(by_rule("slope", value.uop, floats.uop, slope.uop))


@function(functional=True)
@in_single()
def softsign(x: Tensor) -> Tensor:
    """x / (1 + |x|).

    >>> from anneal.tensor import Tensor
    >>> Tensor([-1.0, 3.0]).softsign()
    Tensor([-0.5 ,  0.75], dtype=float32)
    """
    return x / (x.abs() + 1)


@function(functional=True, inplace=True)
@in_single()
def mish(x: Tensor) -> Tensor:
    """x * tanh(softplus(x)).

    >>> from anneal.tensor import Tensor
    >>> Tensor([-1.0, 2.0]).mish()
    Tensor([-0.3034,  1.944 ], dtype=float32)
    """
    return x * x.softplus().tanh()


@function(functional=True, inplace="twin")
def hardtanh(x: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """x clipped to [min_val, max_val].

    >>> from anneal.tensor import Tensor
    >>> Tensor([-2.0, 0.5, 2.0]).hardtanh()
    Tensor([-1. ,  0.5,  1. ], dtype=float32)
    """
    if min_val > max_val:
        raise ShapeError(f"hardtanh: min_val may not be above max_val: {min_val} and {max_val}")
    return clipped(x, min_val, max_val)


@function(functional=True, inplace=True)
@in_single()
def hardsigmoid(x: Tensor) -> Tensor:
    """relu6(x + 3) / 6.

    >>> from anneal.tensor import Tensor
    >>> Tensor([-4.0, 0.0, 1.5]).hardsigmoid()
    Tensor([0.  , 0.5 , 0.75], dtype=float32)
    """
    return (x + 3.0).clamp(0, 6) / 6.0


@function(functional=True, inplace=True)
@in_single()
def hardswish(x: Tensor) -> Tensor:
    """x * relu6(x + 3) / 6.

    >>> from anneal.tensor import Tensor
    >>> Tensor([-4.0, 1.0, 4.0]).hardswish()
    Tensor([-0.    ,  0.6667,  4.    ], dtype=float32)
    """
    return x * x.hardsigmoid()


@function(functional=True)
def softshrink(x: Tensor, lambd: float = 0.5) -> Tensor:
    """x moved towards 0 by `lambd`, 0 where it would pass it.

    >>> from anneal.tensor import Tensor
    >>> Tensor([-1.0, 0.25, 2.0]).softshrink()
    Tensor([-0.5,  0. ,  1.5], dtype=float32)
    """
    if not lambd >= 0:
        raise ShapeError(f"softshrink: lambd may not be negative: {lambd}")
    x = x._new(real_node(x))
    return choose(x.abs() <= lambd, x * 0.0, choose(x > 0.0, x - lambd, x + lambd))


@function(functional=True)
def hardshrink(x: Tensor, lambd: float = 0.5) -> Tensor:
    """x where |x| > lambd, 0 elsewhere.

    >>> from anneal.tensor import Tensor
    >>> Tensor([-1.0, 0.2, 2.0]).hardshrink()
    Tensor([-1.,  0.,  2.], dtype=float32)
    """
    return choose(x.abs() <= lambd, 0, x)


@function(functional=True)
@in_single()
def tanhshrink(x: Tensor) -> Tensor:
    """x - tanh(x).

    >>> from anneal.tensor import Tensor
    >>> Tensor([0.0, 2.0]).tanhshrink()
    Tensor([0.   , 1.036], dtype=float32)
    """
    return x - x.tanh()


@function(functional=True, inplace="twin")
def threshold(x: Tensor, threshold: float, value: float) -> Tensor:
    """x above `threshold`, `value` elsewhere.

    >>> from anneal.tensor import Tensor
    >>> Tensor([0.5, 2.0]).threshold(1.0, -1.0)
    Tensor([-1.,  2.], dtype=float32)
    """
    return choose(x <= threshold, value, x)


@function(functional=True, autocast="low")
def prelu(x: Tensor, weight: Operand) -> Tensor:
    """x above 0, weight * x elsewhere; a weight of several elements goes along axis 1.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[-2.0, -2.0]]).prelu(Tensor([0.5, 0.25]))
    Tensor([[-1. , -0.5]], dtype=float32)
    """
    floats = x._new(real_node(x))
    w = x._lift("prelu", weight)
    if w.shape == (1,):
        w = w._new(reshape(w.uop, ()))
    if w.ndim == 1:
        if floats.ndim < 2 or floats.shape[1] != w.shape[0]:
            raise ShapeError(f"prelu: a weight of shape {w.shape} needs axis 1 of {floats.shape} to be as long")
        w = w._new(reshape(w.uop, (w.shape[0], *[1] * (floats.ndim - 2))))
    return choose(floats > 0.0, floats, floats * w)


def _logistic(x: UOp) -> UOp:
    """1 / (1 + exp(x)): the sigmoid of -x."""
    e = Op.EXP(x)
    v = Op.RECIP(e + 1.0)
    return by_rule("inverse", v, x, e, arguments=1.0)
