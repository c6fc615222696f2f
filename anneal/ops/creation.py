"""Tensors made from nothing. All are lazy: a constant or a counter in the graph, no memory until something needs it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from anneal.errors import ArgumentError, DTypeError, ShapeError
from anneal.names import Tensor
from anneal.ops.arguments import family, function
from anneal.ops.checks import bound_int, broadcast_shapes, int_args, is_tensor, need_tensor, number, said
from anneal.ops.made import DTypeLike, as_dtype, fresh, tensor
from anneal.ops.nodes import FLOAT32, INT32, Number, broadcast, check_fits, given, iota, numbered, row_shape, weak_dtype
from anneal.runtime import made_number
from anneal.uop import DType, Ints, UOp, const, dtypes, normalise_const
from anneal.uop.sizes import size

_static = function("static")


# -- constants --------------------------------------------------------------------------------------------------------


@_static
def full(
    shape: int | Sequence[int],
    fill_value: Number,
    *,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    requires_grad: bool | None = None,
) -> Tensor:
    """A tensor filled with one value, in the value's own dtype (int32, float32 or bool) unless one is given.

    >>> from anneal.tensor import Tensor
    >>> Tensor.full((2,), 7)
    Tensor([7, 7], dtype=int32)
    """
    kind = weak_dtype(fill_value) if dtype is None else as_dtype(dtype)
    u = broadcast(given(kind, fill_value, device), sizes_given((shape,)))
    return fresh(u, device, requires_grad)


def _filled(
    name: str,
    value: int,
    *shape: Any,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    requires_grad: bool | None = None,
) -> Tensor:
    return fresh(broadcast(const(_or_float(dtype), value), sizes_given(shape)), device, requires_grad)


zeros, ones, empty = family(
    _filled,
    "static",
    """
    zeros:
    A tensor of zeros.

    >>> from anneal.tensor import Tensor
    >>> Tensor.zeros(2, 2)
    Tensor([[0., 0.],
            [0., 0.]], dtype=float32)

    ones:
    A tensor of ones.

    >>> from anneal.tensor import Tensor
    >>> Tensor.ones(2, 2, dtype="int32")
    Tensor([[1, 1],
            [1, 1]], dtype=int32)

    empty:
    A tensor of unspecified values (zeros, as it happens).

    >>> from anneal.tensor import Tensor
    >>> Tensor.empty(2, 3).shape
    (2, 3)
    """,
    {
        "zeros": 0,
        "ones": 1,
        "empty": 0,
    },
)


@_static
def eye(
    n: int,
    m: int | None = None,
    *,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    requires_grad: bool | None = None,
) -> Tensor:
    """The n by m (default n) matrix with ones on the diagonal.

    >>> from anneal.tensor import Tensor
    >>> Tensor.eye(2)
    Tensor([[1., 0.],
            [0., 1.]], dtype=float32)
    """
    shape = sizes_given((n, n if m is None else m))
    same = numbered(shape, 0).eq(numbered(shape, 1))
    return fresh(broadcast(same.cast(_or_float(dtype)), shape), device, requires_grad)


@_static
def tri(
    n: int, m: int | None = None, k: int = 0, *, dtype: DTypeLike | None = None, device: str | None = None
) -> Tensor:
    """Ones at and below the k-th diagonal of an n by m matrix, zeros above.

    >>> from anneal.tensor import Tensor
    >>> Tensor.tri(3, dtype="int32")
    Tensor([[1, 0, 0],
            [1, 1, 0],
            [1, 1, 1]], dtype=int32)
    """
    return ones(n, n if m is None else m, dtype=dtype, device=device).tril(k)


@_static
def arange(
    start: Number | UOp,
    end: Number | UOp | None = None,
    step: Number = 1,
    *,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    requires_grad: bool | None = None,
) -> Tensor:
    """start, start + step, ... up to but without end; int32 if all are ints (torch has int64), else float32.

    Raises DTypeError for an integer dtype that does not hold every number, ShapeError for a step of 0 or ends that
    are not finite.

    >>> from anneal.tensor import Tensor
    >>> Tensor.arange(3), Tensor.arange(1, 2, 0.5)
    (Tensor([0, 1, 2], dtype=int32), Tensor([1. , 1.5], dtype=float32))
    """
    if end is None:
        start, end = 0, start
    if not step:
        raise ShapeError("arange: step must not be 0")
    if isinstance(start, UOp) or isinstance(end, UOp):
        if step != 1 or not all(isinstance(x, (int, UOp)) for x in (start, end)):
            raise ShapeError(f"arange: from {start} to {end} by {step}: symbolic ends are whole and go by steps of 1")
        n = size(end - start)
        u = broadcast(iota(n) + start, (n,)).cast(INT32 if dtype is None else as_dtype(dtype))
        return fresh(u, device, requires_grad)
    if not all(math.isfinite(x) for x in (start, end, step)):
        raise ShapeError(f"arange: from {start} to {end} by {step}: all three must be finite")
    whole = isinstance(start, int) and isinstance(end, int) and isinstance(step, int)
    kind = (INT32 if whole else FLOAT32) if dtype is None else _of_numbers(dtype)
    count = -((start - end) // step) if whole else math.ceil((end - start) / step)
    n = bound_int("the number of elements", max(0, int(count)))
    if kind.is_int and n:
        for x in (start, start + (n - 1) * step):
            if not kind.min <= int(x) <= kind.max:
                raise DTypeError(f"arange: {x} does not fit {kind.name} ({kind.min} to {kind.max}); give a wider dtype")
    wide = kind if whole or kind.is_float else FLOAT32
    gap, first = made_number(step, wide, device, "step"), made_number(start, wide, device, "start")
    u = iota(n).cast(wide)
    u = u if gap.is_const and step == 1 else u * gap
    u = u if first.is_const and not start else u + first
    return fresh(broadcast(u.cast(kind), (n,)), device, requires_grad)


@_static
def linspace(
    start: Any,
    end: Any,
    steps: int,
    *,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    requires_grad: bool | None = None,
) -> Tensor:
    """`steps` numbers at equal distances from start to end, both included; in an integer dtype truncated towards 0,
    exactly. The ends may be tensors of shape (), through which no gradient flows.

    >>> from anneal.tensor import Tensor
    >>> Tensor.linspace(0, 1, 5)
    Tensor([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    """
    kind = _of_numbers(dtype)
    (n,) = sizes_given((steps,))
    if is_tensor(start) or is_tensor(end):
        return _line_between(start, end, n, device).cast(kind)
    start, end = number("start", start), number("end", end)
    if not kind.is_float:
        return fresh(_whole_line(kind, start, end, n), device, requires_grad)
    low, high = normalise_const(kind, float(start)), normalise_const(kind, float(end))
    step = normalise_const(kind, high - low) / max(1, n - 1)
    first, last, gap = [made_number(x, kind, device, str(at)) for at, x in enumerate((low, high, step))]
    i = iota(n)
    # counted from both ends, so that both come out exactly
    rising = i.cast(kind) * gap + first
    falling = ((i * -1) + (n - 1)).cast(kind) * -gap + last
    u = (i < max(1, n // 2)).where(broadcast(rising, (n,)), falling)
    return fresh(broadcast(u, (n,)), device, requires_grad)


@_static
def logspace(
    start: Any,
    end: Any,
    steps: int,
    base: float = 10.0,
    *,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    requires_grad: bool | None = None,
) -> Tensor:
    """`steps` powers of `base`, their exponents at equal distances from start to end, as for `linspace`.

    >>> from anneal.tensor import Tensor
    >>> Tensor.logspace(0, 2, 3).round(3)
    Tensor([  1.,  10., 100.], dtype=float32)
    """
    if not base > 0:
        raise ShapeError(f"logspace: the base must be above 0, not {base}")
    kind = _of_numbers(dtype)
    line = linspace(start, end, steps, dtype=dtypes.float64 if kind is dtypes.float64 else FLOAT32, device=device)
    out = (line * math.log2(base)).exp2().cast(kind)
    return out.requires_grad_() if requires_grad else out


def _line_between(start: Any, end: Any, n: int, device: str | None) -> Tensor:
    """Numbers from `start` to `end`, one of them a tensor, counted from both, so that both come out exactly."""
    one = start if is_tensor(start) else end
    for end_ in (start, end):
        if is_tensor(end_) and end_.ndim:
            raise ShapeError(f"an end is a number or a tensor of shape (), not {said(end_)}")
    low, high = (one._lift(x).detach().cast(FLOAT32) for x in (start, end))
    i = one._new_plain(iota(n)).cast(FLOAT32)
    gap = (high - low) / max(1, n - 1)
    out = (i < max(1, n // 2)).where(low + i * gap, high - (float(n - 1) - i) * gap)
    return out if device is None else out.to(device)


def _triangle(
    name: str, places: Callable[..., Any], row: int, col: int, offset: int = 0, *, device: str | None = None
) -> Tensor:
    sizes_given((row, col))
    return tensor(np.array(places(row, offset, col), np.int32), device=device)


tril_indices, triu_indices = family(
    _triangle,
    "static",
    """
    tril_indices:
    The rows and columns, as two rows, of the lower triangle of a matrix.

    >>> from anneal.tensor import Tensor
    >>> Tensor.tril_indices(2, 2).tolist()
    [[0, 1, 1], [0, 0, 1]]

    triu_indices:
    The rows and columns, as two rows, of the upper triangle of a matrix.

    >>> from anneal.tensor import Tensor
    >>> Tensor.triu_indices(2, 3)
    Tensor([[0, 0, 0, 1, 1],
            [0, 1, 2, 1, 2]], dtype=int32)
    """,
    {
        "tril_indices": np.tril_indices,
        "triu_indices": np.triu_indices,
    },
)


Formula = Callable[[Tensor, float], Tensor]  # of a window's places, 0, 1, ..., and of how many steps it has


def window(
    name: str,
    formula: Formula,
    window_length: int,
    periodic: bool = True,
    *,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    requires_grad: bool | None = None,
) -> Tensor:
    """A formula of places, 0 to `window_length` - 1, of shape (window_length,); of one place, 1.

    Args:
        name: what messages call it.
        formula: the formula, of the places and the number of steps.
        window_length: the number of places.
        periodic: whether the place after the last is the first again.
        dtype: a float; float32 by default.
        device: the device's name.
        requires_grad: whether the result does.

    >>> window("triangle", triangle, 4)
    Tensor([0. , 0.5, 1. , 0.5], dtype=float32)
    """
    kind = _or_float(dtype)
    if not kind.is_float:
        raise ArgumentError(f"a window is made of floats, not {kind.name}")
    (n,) = sizes_given((window_length,))
    places = arange(n, device=device).cast(kind if kind.bits >= 32 else FLOAT32)
    out = formula(places, float(max(1, n if periodic else n - 1))).cast(kind)
    out = out * 0.0 + 1.0 if n == 1 else out
    return out.requires_grad_() if requires_grad else out


def cosines(*parts: float) -> Formula:
    """The formula of the sum of cosines of whole turns, with every second part taken off, in the shape of the places.

    Args:
        parts: the factor of each.

    >>> window("hann", cosines(0.5, 0.5), 4).round(3)
    Tensor([0. , 0.5, 1. , 0.5], dtype=float32)
    """

    def formula(places: Tensor, steps: float) -> Tensor:
        turns = places * (2 * math.pi / steps)
        out = turns * 0.0 + float(parts[0])
        for k, part in enumerate(parts[1:], 1):
            out = out + (turns * float(k)).cos() * (part * (-1.0) ** k)
        return out

    return formula


def triangle(places: Tensor, steps: float) -> Tensor:
    """Bartlett's window: straight up to 1 and down again, in the shape of the places.

    Args:
        places: 0, 1, and so on.
        steps: how many there are up to the end.

    >>> triangle(arange(3).float(), 2.0)
    Tensor([0., 1., 0.], dtype=float32)
    """
    return 1.0 - (places * (2.0 / steps) - 1.0).abs()


def kaisers(beta: float) -> Formula:
    """The formula of Bessel's function i0 of `beta` times a half circle, over that of beta, in the shape of the places.

    Args:
        beta: how narrow it is.

    >>> window("kaiser", kaisers(0.0), 3)
    Tensor([1., 1., 1.], dtype=float32)
    """

    def formula(places: Tensor, steps: float) -> Tensor:
        from anneal.ops.gamma import i0e  # scaled: i0 overflows

        t = places * (2.0 / steps) - 1.0
        inner = (1.0 - t * t).clamp(min=0.0).sqrt() * beta
        return i0e(inner) * (inner - beta).exp() / i0e(inner * 0.0 + beta)

    return formula


hann_window, hamming_window, blackman_window, bartlett_window = family(
    window,
    "static",
    """
    hann_window:
    Half a cosine's swing up and down.

    >>> from anneal.tensor import Tensor
    >>> Tensor.hann_window(4).round(3)
    Tensor([0. , 0.5, 1. , 0.5], dtype=float32)

    hamming_window:
    0.54 less 0.46 times a cosine.

    >>> from anneal.tensor import Tensor
    >>> Tensor.hamming_window(4).round(2)
    Tensor([0.08, 0.54, 1.  , 0.54], dtype=float32)

    blackman_window:
    0.42 less half a cosine, plus 0.08 of one of twice the frequency.

    >>> from anneal.tensor import Tensor
    >>> Tensor.blackman_window(4).round(2)
    Tensor([-0.  ,  0.34,  1.  ,  0.34], dtype=float32)

    bartlett_window:
    A triangle: straight up to 1 and down again.

    >>> from anneal.tensor import Tensor
    >>> Tensor.bartlett_window(4)
    Tensor([0. , 0.5, 1. , 0.5], dtype=float32)
    """,
    {
        "hann_window": cosines(0.5, 0.5),
        "hamming_window": cosines(0.54, 0.46),
        "blackman_window": cosines(0.42, 0.5, 0.08),
        "bartlett_window": triangle,
    },
)


@_static
def kaiser_window(
    window_length: int,
    periodic: bool = True,
    beta: float = 12.0,
    *,
    dtype: DTypeLike | None = None,
    device: str | None = None,
    requires_grad: bool | None = None,
) -> Tensor:
    """Bessel's function i0 of `beta` times a half circle, over that of beta.

    >>> from anneal.tensor import Tensor
    >>> Tensor.kaiser_window(4, beta=2.0).round(2)
    Tensor([0.44, 0.83, 1.  , 0.83], dtype=float32)
    """
    return window("", kaisers(beta), window_length, periodic, dtype=dtype, device=device, requires_grad=requires_grad)


@_static
def from_numpy(array: np.ndarray[Any, Any], device: str | None = None) -> Tensor:
    """A copy of an array, of its dtype: it does not see later changes of the array, whose memory torch shares.

    >>> from anneal.tensor import Tensor
    >>> import numpy as np
    >>> Tensor.from_numpy(np.array([1.5, 2.5]))
    Tensor([1.5, 2.5], dtype=float64)
    """
    return tensor(array, device=device)


# -- like another -----------------------------------------------------------------------------------------------------


def _like(
    name: str,
    value: Number,
    x: Tensor,
    dtype: DTypeLike | None = None,
    requires_grad: bool | None = None,
    device: str | None = None,
) -> Tensor:
    kind = x._looks.dtype if dtype is None else as_dtype(dtype)
    at = device or x.device
    one = given(kind, value, at) if name == "full_like" else const(kind, value)
    return x._made._fresh(broadcast(one, x.shape), at, requires_grad)


zeros_like, ones_like, empty_like = family(
    _like,
    "",
    """
    zeros_like:
    Zeros of this tensor's shape, dtype and device.

    >>> from anneal.tensor import Tensor
    >>> Tensor.zeros_like(Tensor([1, 2]))
    Tensor([0, 0], dtype=int32)

    ones_like:
    Ones of this tensor's shape, dtype and device.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.5, 2.5]).ones_like()
    Tensor([1., 1.], dtype=float32)

    empty_like:
    Another name of `zeros_like`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 2]).empty_like().dtype
    dtypes.int32
    """,
    {
        "zeros_like": 0,
        "ones_like": 1,
        "empty_like": 0,
    },
)


@function
def full_like(
    x: Tensor,
    fill_value: Number,
    dtype: DTypeLike | None = None,
    requires_grad: bool | None = None,
    device: str | None = None,
) -> Tensor:
    """A tensor filled with one value, in this tensor's shape, dtype and device.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 2]).full_like(7)
    Tensor([7, 7], dtype=int32)
    """
    return _like("full_like", fill_value, x, dtype, requires_grad, device)


def sizes_given(shape: Sequence[Any]) -> Ints:
    """The sizes of a new shape, one by one or together. Raises ShapeError for negative ones."""
    sizes = int_args(shape)
    if any(n < 0 for n in sizes):
        raise ShapeError(f"sizes must not be negative, not {sizes}")
    return sizes


def _of_numbers(dtype: DTypeLike | None) -> DType:
    kind = _or_float(dtype)
    if kind is dtypes.bool_:
        raise DTypeError("makes numbers, not bools; compare them with one")
    return kind


def _or_float(dtype: DTypeLike | None) -> DType:
    return FLOAT32 if dtype is None else as_dtype(dtype)


def _whole_line(dtype: DType, start: Number, end: Number, n: int) -> UOp:
    """`n` whole numbers from start to end: start + i * (end - start) / (n - 1), truncated, in integer arithmetic."""
    for x in (start, end):
        if not math.isfinite(x):
            raise DTypeError(f"linspace: {x} does not fit {dtype.name}; use a float dtype")
        check_fits(dtype if dtype.is_int else INT32, int(x))
    first, apart = int(start), int(end) - int(start)
    whole, rest = divmod(abs(apart), max(1, n - 1))
    wide = INT32 if dtype.bits < 64 and dtype is not dtypes.uint32 else dtype
    if rest and n * rest > wide.max:
        raise ShapeError(f"linspace: {n} steps from {start} to {end} need larger numbers than {wide.name} has")
    i = iota(n).cast(wide)
    below, sign = const(wide, max(1, n - 1)), 1 if apart >= 0 else -1
    place = i * whole + (i * rest // below)  # how far from the start, rounded down
    line = place + first if sign > 0 else place * -1 + first
    over = (i * rest % below).ne(0)
    # rounded away from 0 where the line rises below 0, or falls above it
    beyond = line < 0 if sign > 0 else const(wide, 0) < line
    fixed = (over & beyond).where(line + sign, line)
    return broadcast(fixed, (n,)).cast(dtype)


@function("method=no")
def meshgrid(*tensors: Any, indexing: str = "ij") -> tuple[Any, ...]:
    """Vectors, one by one or in a list, as grids over their product, which are views; indexing "ij" keeps their order,
    "xy" exchanges the first two.

    >>> from anneal.tensor import Tensor
    >>> [t.shape for t in meshgrid(Tensor.arange(2), Tensor.arange(3))]
    [(2, 3), (2, 3)]
    """
    if indexing not in ("ij", "xy"):
        raise ShapeError(f'meshgrid: indexing is "ij" or "xy", not {indexing!r}')
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        tensors = tuple(tensors[0])
    for t in tensors:
        need_tensor("each argument", t)
        if t.ndim > 1:
            raise ShapeError(f"meshgrid: takes vectors, not shape {t.shape}")
    order = list(range(len(tensors)))
    if indexing == "xy" and len(order) > 1:
        order[0], order[1] = 1, 0
    sizes = tuple([tensors[i].numel() for i in order])
    return tuple(
        [t.reshape(row_shape(t.numel(), order.index(i), len(sizes))).expand(sizes) for i, t in enumerate(tensors)]
    )


@function("method=no")
def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Views of the tensors, expanded to the shape that they broadcast to.

    >>> from anneal.tensor import Tensor
    >>> [t.shape for t in broadcast_tensors(Tensor.zeros(2, 1), Tensor.zeros(3))]
    [(2, 3), (2, 3)]
    """
    for t in tensors:
        need_tensor("each argument", t)
    if not tensors:
        return ()
    shape = broadcast_shapes(*[t.shape for t in tensors])
    return tuple([t.expand(shape) for t in tensors])
