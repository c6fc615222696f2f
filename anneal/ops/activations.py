"""Activations and normalisations: the functions between the layers of neural networks."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import Any

from anneal.errors import DTypeError, ShapeError
from anneal.names import Tensor
from anneal.ops.arguments import family, function, need_float
from anneal.ops.checks import is_tensor
from anneal.ops.elementwise import binary, choose, clipped, floats_of, real_node, sloped, unary
from anneal.ops.functions import Operand
from anneal.ops.made import result
from anneal.ops.nodes import BOOL, broadcast, expand, named, reciprocal, reduce_axis, reshape, row_shape, share
from anneal.ops.precision import no_grad
from anneal.runtime import here
from anneal.uop import Ints, Op, UOp, by_rule, dtypes, promote
from anneal.uop.sizes import product as count_of

_activation = function("functional")
_single = function("functional single")
_norm = function("functional autocast=float32 single=first")

# Where the slope is a short formula of its own, it stands beside the value (SPEC.md, section 4).


@_single("in_place special=expit")
def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + exp(-x)).

    >>> from anneal.tensor import Tensor
    >>> Tensor([0.0, 1.0]).sigmoid()
    Tensor([0.5   , 0.7311], dtype=float32)
    """
    below = -real_node(x)
    e = Op.EXP(below)
    return x._new(by_rule("inverse", Op.RECIP(e + 1.0), below, e, arguments=1.0))


@_single
def logsigmoid(x: Tensor) -> Tensor:
    """log(sigmoid(x)), without overflow.

    >>> from anneal.tensor import Tensor
    >>> Tensor([0.0, 100.0]).logsigmoid()
    Tensor([-6.9315e-01, -3.9236e-44], dtype=float32)
    """
    return -((-x).softplus())


@_activation("in_place inplace=twin")
def relu(x: Tensor) -> Tensor:
    """max(x, 0); its slope at 0 is 0.

    >>> from anneal.tensor import Tensor
    >>> Tensor([-1.0, 2.0]).relu()
    Tensor([0., 2.], dtype=float32)
    """
    return x if x.uop.dtype is BOOL else binary(Op.MAX, x, 0)


@_activation("inplace")
def relu6(x: Tensor) -> Tensor:
    """min(max(x, 0), 6).

    >>> from anneal.tensor import Tensor
    >>> Tensor([-1.0, 3.0, 9.0]).relu6()
    Tensor([0., 3., 6.], dtype=float32)
    """
    return clipped(x, 0, 6)


@_activation("inplace=twin")
def leaky_relu(x: Tensor, negative_slope: float = 0.01) -> Tensor:
    """x above 0, negative_slope * x elsewhere.

    >>> from anneal.tensor import Tensor
    >>> Tensor([-1.0, 2.0]).leaky_relu(0.1)
    Tensor([-0.1,  2. ], dtype=float32)
    """
    x = floats_of(x)
    return choose(x > 0.0, x, x * negative_slope)


def _exponential(name: str, scaled: bool, x: Tensor, alpha: float = 1.0) -> Tensor:
    if scaled and not alpha:
        raise ShapeError(f"{name}: alpha may not be 0")
    x = floats_of(x)
    below = x <= 0.0
    # where x is taken the other branch sees 0, so that it cannot overflow and spoil the gradient
    inner = choose(below, x, 0.0)
    return choose(below, (inner / alpha if scaled else inner).expm1() * alpha, x)


elu, celu = family(
    _exponential,
    "functional inplace=twin single",
    """
    elu:
    x above 0, alpha * (exp(x) - 1) elsewhere.

    >>> from anneal.tensor import Tensor
    >>> Tensor([-1.0, 2.0]).elu()
    Tensor([-0.6321,  2.    ], dtype=float32)

    celu:
    x above 0, alpha * (exp(x / alpha) - 1) elsewhere.

    >>> from anneal.tensor import Tensor
    >>> Tensor([-1.0, 2.0]).celu()
    Tensor([-0.6321,  2.    ], dtype=float32)
    """,
    {
        "elu": False,
        "celu": True,
    },
)


@_single("inplace=twin")
def selu(x: Tensor) -> Tensor:
    """The x-normalising exponential unit (Klambauer et al., 2017).

    >>> from anneal.tensor import Tensor
    >>> Tensor([-1.0, 2.0]).selu()
    Tensor([-1.1113,  2.1014], dtype=float32)
    """
    return x.elu(1.6732632423543772) * 1.0507009873554805


@_single("alias=swish inplace")
def silu(x: Tensor) -> Tensor:
    """x * sigmoid(x), also called swish.

    >>> from anneal.tensor import Tensor
    >>> Tensor([-1.0, 2.0]).silu()
    Tensor([-0.2689,  1.7616], dtype=float32)
    """
    x = floats_of(x)
    return x * x.sigmoid()


@_single
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


@_single("autocast=float32")
def softplus(x: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta * x)) / beta; x itself where beta * x passes the threshold.

    >>> from anneal.tensor import Tensor
    >>> Tensor([0.0, 50.0]).softplus()
    Tensor([ 0.6931, 50.    ], dtype=float32)
    """
    floats = floats_of(x)
    scaled = floats if beta == 1.0 else floats * beta
    bent, far = scaled.minimum(threshold), scaled > threshold
    e = unary(bent, Op.EXP)
    value = choose(far, floats, e.log1p() if beta == 1.0 else e.log1p() / beta)
    inverse = by_rule("inverse", Op.RECIP(e.uop + 1.0), scaled.uop, e.uop, arguments=1.0)
    slope = choose(far, 1.0, x._new_plain(share(inverse, scaled.uop, e.uop, 1.0)))
    return sloped(value, floats, slope)


@_single
def softsign(x: Tensor) -> Tensor:
    """x / (1 + |x|).

    >>> from anneal.tensor import Tensor
    >>> Tensor([-1.0, 3.0]).softsign()
    Tensor([-0.5 ,  0.75], dtype=float32)
    """
    return x / (x.abs() + 1)


@_single("inplace")
def mish(x: Tensor) -> Tensor:
    """x * tanh(softplus(x)).

    >>> from anneal.tensor import Tensor
    >>> Tensor([-1.0, 2.0]).mish()
    Tensor([-0.3034,  1.944 ], dtype=float32)
    """
    return x * x.softplus().tanh()


@_activation("inplace=twin")
def hardtanh(x: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """x clipped to [min_val, max_val].

    >>> from anneal.tensor import Tensor
    >>> Tensor([-2.0, 0.5, 2.0]).hardtanh()
    Tensor([-1. ,  0.5,  1. ], dtype=float32)
    """
    if min_val > max_val:
        raise ShapeError(f"hardtanh: min_val may not be above max_val: {min_val} and {max_val}")
    return clipped(x, min_val, max_val)


@_single("inplace")
def hardsigmoid(x: Tensor) -> Tensor:
    """relu6(x + 3) / 6.

    >>> from anneal.tensor import Tensor
    >>> Tensor([-4.0, 0.0, 1.5]).hardsigmoid()
    Tensor([0.  , 0.5 , 0.75], dtype=float32)
    """
    return (x + 3.0).clamp(0, 6) / 6.0


@_single("inplace")
def hardswish(x: Tensor) -> Tensor:
    """x * relu6(x + 3) / 6.

    >>> from anneal.tensor import Tensor
    >>> Tensor([-4.0, 1.0, 4.0]).hardswish()
    Tensor([-0.    ,  0.6667,  4.    ], dtype=float32)
    """
    return x * x.hardsigmoid()


@_activation
def softshrink(x: Tensor, lambd: float = 0.5) -> Tensor:
    """x moved towards 0 by `lambd`, 0 where it would pass it.

    >>> from anneal.tensor import Tensor
    >>> Tensor([-1.0, 0.25, 2.0]).softshrink()
    Tensor([-0.5,  0. ,  1.5], dtype=float32)
    """
    if not lambd >= 0:
        raise ShapeError(f"softshrink: lambd may not be negative: {lambd}")
    x = floats_of(x)
    return choose(x.abs() <= lambd, x * 0.0, choose(x > 0.0, x - lambd, x + lambd))


@_activation
def hardshrink(x: Tensor, lambd: float = 0.5) -> Tensor:
    """x where |x| > lambd, 0 elsewhere.

    >>> from anneal.tensor import Tensor
    >>> Tensor([-1.0, 0.2, 2.0]).hardshrink()
    Tensor([-1.,  0.,  2.], dtype=float32)
    """
    return choose(x.abs() <= lambd, 0, x)


@_single
def tanhshrink(x: Tensor) -> Tensor:
    """x - tanh(x).

    >>> from anneal.tensor import Tensor
    >>> Tensor([0.0, 2.0]).tanhshrink()
    Tensor([0.   , 1.036], dtype=float32)
    """
    return x - x.tanh()


@_activation("inplace=twin")
def threshold(x: Tensor, threshold: float, value: float) -> Tensor:
    """x above `threshold`, `value` elsewhere.

    >>> from anneal.tensor import Tensor
    >>> Tensor([0.5, 2.0]).threshold(1.0, -1.0)
    Tensor([-1.,  2.], dtype=float32)
    """
    return choose(x <= threshold, value, x)


@_activation("autocast=low")
def prelu(x: Tensor, weight: Operand) -> Tensor:
    """x above 0, weight * x elsewhere; a weight of several elements goes along axis 1.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[-2.0, -2.0]]).prelu(Tensor([0.5, 0.25]))
    Tensor([[-1. , -0.5]], dtype=float32)
    """
    floats = floats_of(x)
    w = x._lift(weight)
    if w.shape == (1,):
        w = w.reshape(())
    if w.ndim == 1:
        if floats.ndim < 2 or floats.shape[1] != w.shape[0]:
            raise ShapeError(f"prelu: a weight of shape {w.shape} needs axis 1 of {floats.shape} to be as long")
        w = w.reshape(-1, *[1] * (floats.ndim - 2))
    return choose(floats > 0.0, floats, floats * w)


# -- normalisation to mean 0 and variance 1 along some axes, and related functions ------------------------------------


def _centre_and_scale(u: UOp, axes: Ints, eps: float) -> tuple[UOp, UOp, UOp]:
    """`(u - mean) / sqrt(variance + eps)` along `axes`, with mean and variance (their axes kept)."""
    share = reciprocal(u.dtype, [u.shape[a] for a in axes])
    mean = reduce_axis(u, Op.ADD, axes) * share
    centred = u - expand(mean, u.shape)
    variance = reduce_axis(centred * centred, Op.ADD, axes) * share
    r = Op.RSQRT(variance + eps)
    y = centred * expand(r, u.shape)
    return by_rule("standardize", y, u, r, arguments=axes), mean, variance


def _need_by_channel(x: Tensor, **given: Tensor | None) -> None:
    s = x.uop.shape
    for name, p in given.items():
        if p is not None and p.uop.shape != (s[1],):
            raise ShapeError(f"{name} has shape {p.shape}, but x of shape {s} has {s[1]} channels (axis 1)")


def _affine(u: UOp, weight: Tensor | None, bias: Tensor | None, view: Ints = ()) -> UOp:
    """`u` times a weight plus a bias, both of shape `view` if it is given."""
    if weight is not None:
        u = u * _wide(weight, u, view)
    return u if bias is None else u + _wide(bias, u, view)


def _wide(x: Tensor, u: UOp, view: Ints) -> UOp:
    return broadcast(reshape(x.uop, view or x.shape).cast(u.dtype), u.shape)


def _trailing(x: Tensor, shape: int | Sequence[int], *params: Tensor | None) -> Ints:
    """The axes that `shape` names at the end of x's; raises ShapeError if it does not match."""
    tail = (shape,) if isinstance(shape, int) else tuple(shape)
    if not tail or x.shape[-len(tail) :] != tail:
        raise ShapeError(f"normalized_shape {tail} must be the last axes of x, whose shape is {x.shape}")
    for p in params:
        if p is not None and p.shape != tail:
            raise ShapeError(f"weight and bias must have normalized_shape {tail}, not {p.shape}")
    return tuple(range(x.ndim - len(tail), x.ndim))


@_norm
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
    need_float("x", x, weight, bias)
    axes = _trailing(x, normalized_shape, weight, bias)
    u, _, _ = _centre_and_scale(x.uop, axes, eps)
    given = [p.uop for p in (x, weight, bias) if p is not None]
    y = _affine(u, weight, bias)
    y = y if weight is None else named("layer_norm", y, *given, arguments=(axes[0], eps))
    return result(y, x, weight, bias)


@_norm
def rms_norm(
    x: Tensor, normalized_shape: int | Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """`x / sqrt(mean(x*x) + eps)` over the last axes, times weight; eps defaults to the dtype's precision.

    >>> from anneal.tensor import Tensor
    >>> rms_norm(Tensor([3.0, 4.0]), 2).numpy().round(4)
    array([0.8485, 1.1314], dtype=float32)
    """
    need_float("x", x, weight)
    axes = _trailing(x, normalized_shape, weight)
    u = x.uop
    share = reciprocal(u.dtype, [u.shape[a] for a in axes])
    square = reduce_axis(u * u, Op.ADD, axes) * share + (2.0 ** (1 - u.dtype.digits) if eps is None else eps)
    return result(_affine(u * expand(Op.RSQRT(square), u.shape), weight, None), x, weight)


@_norm
def group_norm(
    x: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Mean 0 and variance 1 over each group of channels (axis 1) and all axes after it, then weight and bias
    (channels,).

    >>> from anneal.tensor import Tensor
    >>> group_norm(Tensor([[1.0, 3.0, 5.0, 5.0]]), 2).round(2)
    Tensor([[-1.,  1.,  0.,  0.]], dtype=float32)
    """
    need_float("x", x, weight, bias)
    s = x.uop.shape
    if len(s) < 2 or num_groups < 1 or s[1] % num_groups:
        raise ShapeError(f"group_norm: {num_groups} groups do not divide the channels (axis 1) of shape {s}")
    grouped = (s[0], num_groups, count_of(s[1:]) // num_groups)
    u, _, _ = _centre_and_scale(reshape(x.uop, grouped), (2,), eps)
    _need_by_channel(x, weight=weight, bias=bias)
    return result(_affine(reshape(u, s), weight, bias, row_shape(s[1], 1, len(s))), x, weight, bias)


def take_running_updates() -> list[Tensor]:
    """The running statistics that still have a lazy update, which is then no longer remembered here."""
    out = [t for r in here.statistics.values() if (t := r()) is not None]
    here.statistics.clear()
    return out


@_activation
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

    >>> from anneal.tensor import Tensor
    >>> batch_norm(Tensor([[1.0], [3.0]]), training=True).round(2)
    Tensor([[-1.],
            [ 1.]], dtype=float32)
    """
    need_float("x", x, running_mean, running_var, weight, bias)
    s = x.shape
    if s == (0,) and weight is None and bias is None:
        return x.clone()  # as in torch, which takes no other vector
    if len(s) < 2:
        raise ShapeError(f"batch_norm: x has shape (batch, channels, ...), not {s}")
    _need_by_channel(x, running_mean=running_mean, running_var=running_var, weight=weight, bias=bias)
    view = row_shape(s[1], 1, len(s))
    kind = x.uop.dtype  # not "single=first": what moves is the running statistics, not casts of them
    wide = x.uop.cast(promote(kind, dtypes.float32))
    if not training:
        if running_mean is None or running_var is None:
            raise ShapeError("batch_norm: without running statistics it must be training=True")
        mean, var = (reshape(r.uop.cast(wide.dtype), view) for r in (running_mean, running_var))
        y = _affine((wide - broadcast(mean, s)) * broadcast(Op.RSQRT(var + eps), s), weight, bias, view)
        if weight is not None and bias is not None:
            given = [p.uop.cast(wide.dtype) for p in (weight, bias, running_mean, running_var)]
            y = named("batch_norm", y, wide, *given, arguments=eps)
        return result(y.cast(kind), x, weight, bias)
    count = count_of([n for i, n in enumerate(s) if i != 1])
    if count == 1:
        raise ShapeError(f"batch_norm: training needs more than one value per channel, and x has shape {s}")
    u, mean, var = _centre_and_scale(wide, (0, *range(2, len(s))), eps)
    if count:  # an empty batch tells nothing
        _moved(running_mean, mean, momentum)
        n = count.cast(var.dtype) if isinstance(count, UOp) else count  # quotients of a device's ints are ints
        _moved(running_var, var * (n / (n - 1)), momentum)
    return result(_affine(u, weight, bias, view).cast(kind), x, weight, bias)


def _moved(running: Tensor | None, value: UOp, momentum: float | Tensor) -> None:
    """Move a running statistic towards a value of its size by `momentum`."""
    if running is None:
        return
    with no_grad():
        u = running.uop
        old, new = u.cast(value.dtype), reshape(value, u.shape)
        m: Any = momentum.uop.cast(new.dtype) if is_tensor(momentum) else momentum
        running.assign(running._new_plain(UOp(Op.DETACH, u.dtype, ((old * (1 - m) + new * m).cast(u.dtype),))))
        here.statistics[id(running)] = weakref.ref(running)


@_single("method=no autocast=float32")
def normalize(x: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """x divided by its p-norm along an axis, or by eps where that is larger.

    >>> from anneal.tensor import Tensor
    >>> normalize(Tensor([[3.0, 4.0]]))
    Tensor([[0.6, 0.8]], dtype=float32)
    """
    return x / x.norm(p, dim, True).clamp(min=eps)


@_activation("method=no")
def instance_norm(
    x: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float | Tensor = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Instance normalisation: each channel of each sample with mean 0 and variance 1 over its places, then scaled and
    shifted by channel.

    Running statistics (channels,) move by `momentum` towards the means over the samples, as in `batch_norm`; without
    `use_input_stats` they are used instead.

    Raises ShapeError for shapes that do not fit.

    >>> from anneal.tensor import Tensor
    >>> instance_norm(Tensor([[[1.0, 3.0]]])).round(3)
    Tensor([[[-1.,  1.]]], dtype=float32)
    """
    s = x.uop.shape
    if len(s) < 3:
        raise ShapeError(f"instance_norm: takes (batch, channels, places...), not shape {s}")
    if not use_input_stats:
        return batch_norm(x, running_mean, running_var, weight, bias, False, momentum, eps)
    _need_by_channel(x, running_mean=running_mean, running_var=running_var)
    count = count_of(s[2:])
    if count == 1:
        raise ShapeError(f"instance_norm: needs more than one place per channel, and x has shape {s}")
    if (running_mean is not None or running_var is not None) and x.numel():
        places = list(range(2, len(s)))
        with no_grad():
            _moved(running_mean, x.mean([0, *places]).uop, momentum)
            spread = x.var(places, correction=min(1, count - 1)).mean(0)
            _moved(running_var, spread.uop, momentum)
    return group_norm(x, s[1], weight, bias, eps) if s[1] else x * 1.0


@_activation("method=no")
def local_response_norm(x: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """Local response normalisation: x / (k + alpha * m) ** beta, where m is the mean square of `size` channels about
    x's own.

    >>> from anneal.tensor import Tensor
    >>> local_response_norm(Tensor.ones(1, 3, 1), 3, alpha=3.0).shape
    (1, 3, 1)
    """
    if x.ndim < 3:
        raise ShapeError(f"local_response_norm: takes (batch, channels, places...), not shape {x.shape}")
    before, after = size // 2, (size - 1) // 2
    square = (x * x).pad(((0, 0), (before, after), *[(0, 0)] * (x.ndim - 2)))
    total = square.narrow(1, 0, x.shape[1])
    for i in range(1, size):
        total = total + square.narrow(1, i, x.shape[1])
    return x / (total * (alpha / size) + k) ** beta
