"""Reductions along axes, and what is made of them: statistics, norms, softmax."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from anneal.errors import DTypeError, ShapeError
from anneal.names import Tensor
from anneal.ops.arguments import family, function
from anneal.ops.checks import Axes, axes_of, axis_in
from anneal.ops.elementwise import beside, choose, floats_of, real_node, sloped, unary
from anneal.ops.logic import truth
from anneal.ops.made import DTypeLike, as_dtype
from anneal.ops.nodes import Number, elementwise, named, reciprocal, reduce_node
from anneal.ops.precision import largest_of, power, whole
from anneal.uop import Op, UOp
from anneal.uop.sizes import most, product


def folded(x: Tensor, name: str, op: Op, axis: Axes, dtype: DTypeLike | None, made: Callable[[UOp], UOp]) -> Tensor:
    """`made`, which adds or multiplies along axes, of x in the dtype that its result has."""
    u = x.uop
    if dtype is not None:
        return x._new(made(u.cast(as_dtype(dtype))))
    if u.dtype.is_float or u.dtype.bits == 64:
        return x._new(made(u))
    s = u.shape
    count = math.prod([most(s[a]) for a in axes_of(axis, len(s))])
    top = largest_of(u)
    return x._new(whole(name, x.device, (u,), top * count if op is Op.ADD else power(top, count), made))


# `axis` and `dim` are one argument: an int, several, or None for all axes. `keepdim` leaves reduced axes with size 1.
# Sums and products of bools and of integers below 32 bits are int32, or int64 where they may not fit; means of integers
# are float32.


def _folded(
    name: str, op: Op, x: Tensor, axis: Axes = None, keepdim: bool = False, *, dtype: DTypeLike | None = None
) -> Tensor:
    return folded(x, name, op, axis, dtype, lambda u: reduce_node(u, op, axes_of(axis, len(u.shape)), keepdim))


sum, prod = family(
    _folded,
    "autocast=float32 array_api",
    """
    sum neutral=0:
    The sum along axes; 0 over nothing.

    Sums of bools, and of integers of 32 bits or fewer, are int32 (of uint32: uint32). If bounds of the elements are
    known (from a small dtype, from `arange`) and allow the sum to overflow int32, the sum is int64; a device without
    int64 raises RangeError. If no bounds are known, the cpu adds in int64, and reading a sum that does not fit int32
    raises RangeError; webgpu gives int64, or wraps around if it has none. With `dtype` the sum is computed in that
    dtype, and wraps around.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1.0, 2.0], [3.0, 4.0]]).sum(axis=0)
    Tensor([4., 6.], dtype=float32)

    prod neutral=1:
    The product along axes; 1 over nothing. Products of integers have the dtypes and the errors of `sum`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([2, 3, 4]).prod().item()
    24
    """,
    {
        "sum": Op.ADD,
        "prod": Op.MUL,
    },
)


def _truth(name: str, op: Op, x: Tensor, axis: Axes = None, keepdim: bool = False) -> Tensor:
    return x._new_plain(reduce_node(truth(x).uop, op, axes_of(axis, x.ndim), keepdim))


any, all = family(
    _truth,
    "array_api",
    """
    any:
    True if some element along axes differs from 0; False over no elements.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[0, 1], [0, 0]]).any(axis=1)
    Tensor([ True, False], dtype=bool)

    all:
    True if every element along axes differs from 0; True over no elements.

    >>> from anneal.tensor import Tensor
    >>> (Tensor([1, 2]) > 0).all().item()
    True
    """,
    {
        "any": Op.MAX,
        "all": Op.MIN,
    },
)


@function
def count_nonzero(x: Tensor, axis: Axes = None) -> Tensor:
    """The number of elements along axes that differ from 0, as int32.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[0, 1], [2, 3]]).count_nonzero(axis=1)
    Tensor([1, 2], dtype=int32)
    """
    return truth(x).sum(axis)


# -- statistics -------------------------------------------------------------------------------------------------------


def _count(x: Tensor, axis: Axes) -> int:
    return product([x.shape[a] for a in axes_of(axis, x.ndim)])  # type: ignore[no-any-return]


@function("array_api single")
def mean(x: Tensor, axis: Axes = None, keepdim: bool = False, *, dtype: DTypeLike | None = None) -> Tensor:
    """The mean along axes; nan over nothing. Integers give float32.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1, 2], [3, 4]]).mean(axis=1)
    Tensor([1.5, 3.5], dtype=float32)
    """
    u = real_node(x) if dtype is None else x.uop.cast(as_dtype(dtype))
    if not u.dtype.is_float:
        raise DTypeError(f"mean: the dtype of a mean is a float, not {u.dtype.name}")
    n = _count(x, axis)
    total = reduce_node(u, Op.ADD, axes_of(axis, len(u.shape)), keepdim)
    if n == 1:
        return x._new(total)
    return x._new(elementwise(Op.MUL, (total, reciprocal(u.dtype, [n])), total.shape))


def _spread(
    name: str,
    rooted: bool,
    x: Tensor,
    axis: Axes | bool = None,
    correction: Number | None = 1,
    keepdim: bool = False,
    *,
    unbiased: bool | None = None,
) -> Tensor:
    axis, unbiased = _unbiased(axis, unbiased)
    if unbiased is not None or correction is None:
        correction = int(unbiased is not False)
    floats = floats_of(x)
    centred = floats - floats.mean(axis, True)
    left = _count(x, axis) - correction
    out = (centred * centred).sum(axis, keepdim)
    if isinstance(left, UOp):
        out = out / x._new_plain(Op.MAX(left, left.const_like(0)).cast(out.dtype))
    else:
        out = out * (1 / left) if left > 0 else out / 0.0
    return root(out, 2) if rooted else out


var, std = family(
    _spread,
    "array_api single",
    """
    var:
    The variance along axes, in two passes; the divisor is the count less `correction`. torch's default is 1.

    A bool in the axis's place is `unbiased`, as torch has it: True is a correction of 1, False of 0.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, 2.0, 3.0, 4.0]).var(correction=0).item()
    1.25

    std:
    The square root of `var`. The gradient is 0 where it is 0.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1.0, 3.0], [5.0, 5.0]]).std(axis=1, correction=0)
    Tensor([1., 0.], dtype=float32)
    """,
    {
        "var": False,
        "std": True,
    },
)


def _with_mean(
    name: str,
    spread: Callable[..., Tensor],
    x: Tensor,
    axis: Axes | bool = None,
    correction: Number | None = 1,
    keepdim: bool = False,
    *,
    unbiased: bool | None = None,
) -> tuple[Tensor, Tensor]:
    axis, unbiased = _unbiased(axis, unbiased)
    return spread(x, axis, correction, keepdim, unbiased=unbiased), x.mean(axis, keepdim)


var_mean, std_mean = family(
    _with_mean,
    "",
    """
    var_mean:
    `var` and `mean`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, 3.0]).var_mean(correction=0)
    (Tensor(1., dtype=float32), Tensor(2., dtype=float32))

    std_mean:
    `std` and `mean`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, 3.0]).std_mean(correction=0)
    (Tensor(1., dtype=float32), Tensor(2., dtype=float32))
    """,
    {
        "var_mean": var,
        "std_mean": std,
    },
)


def root(x: Tensor, p: float) -> Tensor:
    """The p-th root of what is not negative, with slope 0 at 0: the lengths of vectors, where all lie in
    one point.
    """
    length = unary(x, Op.SQRT) if p == 2 else x ** (1.0 / p)
    zero = length.eq(0.0)
    safe = choose(zero, 1.0, x)
    slope = choose(zero, 0.0, 0.5 / unary(safe, Op.SQRT) if p == 2 else safe ** (1.0 / p - 1.0) * (1.0 / p))
    return sloped(length, x, slope)


def size_power(x: Tensor, p: float) -> Tensor:
    """The power |x| ** p, with slope 0 at 0."""
    size = x.abs()
    zero = size.eq(0.0)
    slope = choose(zero, 0.0, x.sign() * choose(zero, 1.0, size) ** (p - 1.0) * p)
    return sloped(size**p, x, slope)


@function("autocast=float32 single")
def norm(x: Tensor, p: float | str = 2.0, axis: Axes = None, keepdim: bool = False) -> Tensor:
    """The p-norm of vectors along axes: any number; inf and -inf are the ends, 0 counts; "fro" is 2.

    The gradient of the norm of zeros is 0.

    >>> from anneal.tensor import Tensor
    >>> Tensor([3.0, 4.0]).norm().item(), Tensor([3.0, -4.0]).norm(float("inf")).item()
    (5.0, 4.0)
    """
    floats = floats_of(x)
    if p in ("fro", 2):
        return root((floats * floats).sum(axis, keepdim), 2)
    if isinstance(p, str):
        raise ShapeError(f'norm: p is a number or "fro", not {p!r}; matrix_norm has those of matrices')
    size = floats.abs()
    if p == 1:
        return size.sum(axis, keepdim)
    if p in (math.inf, -math.inf):
        return (size.amax if p > 0 else size.amin)(axis, keepdim)
    if p == 0:
        return x._new(beside(floats.ne(0.0).cast(floats.uop.dtype).sum(axis, keepdim).uop, floats))
    if p < 0 and 0 in [x.shape[a] for a in axes_of(axis, x.ndim)]:
        raise ShapeError(f"norm: p={p} of no elements, along axis {axis} of shape {x.shape}, is no number")
    p = p * 1.0
    return root(size_power(floats, p).sum(axis, keepdim), p)


# -- without nan ------------------------------------------------------------------------------------------------------


@function
def nansum(x: Tensor, axis: Axes = None, keepdim: bool = False, *, dtype: DTypeLike | None = None) -> Tensor:
    """The sum of the elements that are not nan; `dtype` as for `sum`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, float("nan"), 2.0]).nansum().item()
    3.0
    """
    return choose(x.isnan(), 0, x).sum(axis, keepdim, dtype=dtype)


@function("single")
def nanmean(x: Tensor, axis: Axes = None, keepdim: bool = False) -> Tensor:
    """The mean of the elements that are not nan; nan where every element is.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, float("nan"), 2.0]).nanmean().item()
    1.5
    """
    x = floats_of(x)
    nan = x.isnan()
    return choose(nan, 0.0, x).sum(axis, keepdim) / (~nan).sum(axis, keepdim)


@function("single")
def nanvar(x: Tensor, axis: Axes = None, correction: int | float = 1, keepdim: bool = False) -> Tensor:
    """The variance of the elements that are not nan; the divisor is their count less `correction`, nan where that is
    not above 0.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, float("nan"), 3.0]).nanvar(correction=0)
    Tensor(1., dtype=float32)
    """
    x = floats_of(x)
    nan = x.isnan()
    apart = choose(nan, 0.0, x - x.nanmean(axis, True))
    left = (~nan).sum(axis, keepdim) - correction
    return choose(left > 0, (apart * apart).sum(axis, keepdim) / left, math.nan)


@function("single")
def nanstd(x: Tensor, axis: Axes = None, correction: int | float = 1, keepdim: bool = False) -> Tensor:
    """The square root of `nanvar`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, float("nan"), 3.0]).nanstd(correction=0)
    Tensor(1., dtype=float32)
    """
    return root(x.nanvar(axis, correction, keepdim), 2)


# -- exponential families ---------------------------------------------------------------------------------------------


def _top(x: Tensor, axis: Axes) -> Tensor:
    """The maximum along axes, as a constant: it shifts exponents, has no gradient of its own, and is compared with
    nothing, so that x need not be kept for it."""
    x = x.detach()
    return x._new(reduce_node(x.uop, Op.MAX, axes_of(axis, x.ndim), True))


@function("special autocast=float32 neutral=-inf single")
def logsumexp(x: Tensor, axis: Axes = None, keepdim: bool = False) -> Tensor:
    """log(sum(exp(x))) along axes, without overflow; -inf where every element is.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1000.0, 1000.0]).logsumexp().round(1)
    Tensor(1000.7, dtype=float32)
    """
    floats = floats_of(x)
    top = _top(floats, axis)
    top = choose(top.isinf(), 0.0, top)
    total = (floats - top).exp().sum(axis, True).log() + top
    return total if keepdim else total.squeeze(axis)


def _soft(name: str, logs: bool, x: Tensor, axis: int | None = None, *, dtype: DTypeLike | None = None) -> Tensor:
    at = -1 if axis is None else axis
    floats = floats_of(x) if dtype is None else x.cast(dtype)
    place = axis_in(at, floats)
    if not floats.ndim:
        return floats * 0.0 if logs else floats * 0.0 + 1.0
    if 0 in floats.shape:
        return floats
    shifted = floats - _top(floats, at)
    e = shifted.exp()
    total = e.sum(at, True)
    u = (shifted - total.log() if logs else e / total).uop
    return floats._new(named(name, u, floats.uop, arguments=place))


softmax, log_softmax = family(
    _soft,
    "functional special autocast=float32 neutral=-inf single",
    """
    softmax:
    exp(x) divided by its sum along one axis: a tensor of x's shape, whose elements along that axis add up to
    1.

    Args:
        axis: the axis; -1, the last, if neither it nor `dim` is given.
        dim: torch's name for `axis`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([0.0, 0.0]).softmax(-1)
    Tensor([0.5, 0.5], dtype=float32)

    log_softmax:
    The logarithm of `softmax`, computed without overflow: a tensor of x's shape.

    Args:
        axis: the axis; -1, the last, if neither it nor `dim` is given.
        dim: torch's name for `axis`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([0.0, 0.0]).log_softmax(-1).round(4)
    Tensor([-0.6931, -0.6931], dtype=float32)
    """,
    {
        "softmax": False,
        "log_softmax": True,
    },
)


@function("functional autocast=float32 neutral=inf single")
def softmin(x: Tensor, axis: int | None = None, *, dtype: DTypeLike | None = None) -> Tensor:
    """`softmax` of -x, a tensor of x's shape.

    Args:
        axis: the axis; -1, the last, if neither it nor `dim` is given.
        dim: torch's name for `axis`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([0.0, 0.0]).softmin(0)
    Tensor([0.5, 0.5], dtype=float32)
    """
    return x.neg().softmax(axis, dtype=dtype)


def _unbiased(axis: Any, unbiased: bool | None) -> tuple[Any, bool | None]:
    """The axis and `unbiased`, where torch takes a bool in the first place for the second."""
    if not isinstance(axis, bool):
        return axis, unbiased
    if unbiased is not None and unbiased != axis:
        raise ShapeError(
            f"var: {axis} in the axis's place and unbiased={unbiased} are the same argument; give one of them"
        )
    return None, axis
