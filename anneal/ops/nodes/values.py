"""Values as nodes: constants in the dtype that a Python number takes, dtypes that meet, shapes that broadcast."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from anneal.errors import DTypeError, PositionError
from anneal.ops.nodes.views import expand, reshape
from anneal.runtime import here
from anneal.uop import MOVEMENT, DType, Op, UOp, alu, by_rule, const, dtypes, promote
from anneal.uop.sizes import Size, product, range_of, variable

Number = bool | int | float
Shape = tuple[Any, ...]  # of ints, and of nodes where a size is symbolic

_FLOAT32 = dtypes.float32
_INT32 = dtypes.int32
_REPEATS = MOVEMENT - {Op.PAD}  # of one number they give that number


def broadcast(u: UOp, shape: Shape) -> UOp:
    """`u` repeated to `shape`, which it is known to broadcast to."""
    if u.shape == shape:
        return u
    return expand(reshape(u, (1,) * (len(shape) - len(u.shape)) + u.shape), shape)


def repeated(u: UOp) -> Number | None:
    """The number that every element of `u` is, if its graph says so."""
    while u.op in _REPEATS:
        u = u.src[0]
    return u.arg if u.op is Op.CONST else None


def elementwise(op: Op, src: tuple[UOp, ...], shape: Shape) -> UOp:
    """`op(*src)` with `shape` even where folding leaves a scalar."""
    u = alu(op, src)
    return u if u.shape == shape else broadcast(u, shape)


def weak_dtype(value: Number) -> DType:
    """The dtype of a Python number that stands alone."""
    if isinstance(value, bool):
        return dtypes.bool_
    return _INT32 if isinstance(value, int) else _FLOAT32


def check_fits(name: str, dtype: DType, value: Number) -> None:
    if dtype.is_int and isinstance(value, int) and not dtype.min <= value <= dtype.max:
        raise DTypeError(
            f"{name}: {value} does not fit {dtype.name} ({dtype.min} to {dtype.max}); cast to a wider dtype"
        )


def weak_const(name: str, dtype: DType, value: Number) -> UOp:
    """A Python number beside a tensor of `dtype`: it takes the tensor's dtype unless its kind is higher."""
    if isinstance(value, float):
        return const(dtype if dtype.is_float else _FLOAT32, value)
    if isinstance(value, bool):
        return const(dtype, value)
    if dtype is dtypes.bool_:
        dtype = _INT32
    check_fits(name, dtype, value)
    return const(dtype, value)


def common_dtype(a: UOp, b: UOp) -> tuple[UOp, UOp]:
    """Both nodes cast to the dtype they promote to."""
    da, db = a.dtype, b.dtype
    if da is db:
        return a, b
    d = promote(da, db)
    return a.cast(d), b.cast(d)


def named(name: str, value: UOp, *inputs: UOp, arguments: Any = ()) -> UOp:
    """`value` as a call by name where somebody asks for names: of what the op takes, with its plain arguments."""
    return by_rule(name, value, *inputs, arguments=arguments) if here.names else value


def share(y: UOp, x: UOp, e: UOp, c: float) -> UOp:
    """`e / (e + c)` for e = exp(x) and y = 1 / (e + c), also where e is infinite and y zero: from the smaller of both
    parts.
    """
    if not c:
        return const(y.dtype, 1)
    v = (e.const_like(abs(c)) < e).where(1 - y * c, e * y)
    return by_rule("share", v, x, y, arguments=c)


# -- symbolic sizes ---------------------------------------------------------------------------------------------------


def Variable(name: str, min: int, max: int) -> UOp:
    """An integer called `name`, from `min` to `max`, that each run chooses: a size, or a position, of compiled programs
    that serve all.

    `n.bind(5)` is n with its value in this run; `+ - * //` with ints and other sizes give sizes. What is compiled
    depends on the Variable alone. Raises ShapeError for bounds that are no 0 <= min <= max, and `bind` for a value
    outside them.

    >>> from anneal.tensor import Tensor
    >>> n = Variable("n", 1, 8)
    >>> x = Tensor.arange(8)[: n.bind(3)]
    >>> x.shape, (x * 2).tolist()
    ((n=3,), [0, 2, 4])
    """
    return variable(name, min, max)


def check_inside(name: str, begin: Size, end: Size, axis: int, shape: tuple[Any, ...]) -> None:
    """Raise PositionError unless [begin, end) is inside an axis of `shape` for all values of their variables."""
    for small, large in ((0, begin), (begin, end), (end, shape[axis])):
        if range_of(large - small)[0] < 0:
            sized = [n for n in (small, large) if isinstance(n, UOp)]
            why = (
                f": {small} may be more than {large} for other values of the Variable; give it narrower bounds"
                if sized
                else ""
            )
            raise PositionError(f"{name}: {begin} to {end} is not inside axis {axis} of shape {shape}{why}")


def reciprocal(dtype: DType, sizes: Sequence[Size]) -> UOp:
    """One over the number of elements of `sizes`, in `dtype`; nan for none, as a mean over nothing is."""
    n = product(sizes)
    return alu(Op.RECIP, (n.cast(dtype),)) if isinstance(n, UOp) else const(dtype, 1.0 / n if n else math.nan)
