"""Arguments: what is a tensor, an int or a bool, how a message names what is none, and shapes and axes."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np

from anneal.errors import ArgumentError, DTypeError, PositionError, ShapeError
from anneal.names import Tensor
from anneal.runtime import Handle
from anneal.uop import UOp
from anneal.uop.sizes import Count, is_symbolic, size

_LIMIT = 1 << 31  # index arithmetic has 32 bits


def is_tensor(x: Any) -> TypeGuard[Tensor]:
    """True if the argument is a tensor."""
    return isinstance(x, Handle)


def is_bool(x: Any) -> bool:
    """True if the argument is a bool, which is never an axis, a size or a position."""
    return isinstance(x, (bool, np.bool_))


def said(x: Any) -> str:
    """A wrong argument, described for a message; nothing is computed for it."""
    if is_tensor(x):
        return f"a tensor of {x.dtype.name} of shape {x.shape}"
    if isinstance(x, np.ndarray):
        return f"an array of {x.dtype} of shape {x.shape}"
    if isinstance(x, (list, tuple, dict, set)) and any(is_tensor(y) for y in x):
        return f"a {type(x).__name__} with tensors in it"
    text = repr(x)
    return text if len(text) <= 60 else f"{type(x).__name__} {text[:40]}..."


def bound_int(name: str, what: str, n: int) -> int:
    """An int that fits 32 bits."""
    if -_LIMIT <= n < _LIMIT:
        return n
    raise ArgumentError(f"{name}: {what} is an int of 32 bits, not {said(n)}")


def whole(name: str, what: str, x: Any) -> Any:
    """An int, or a symbolic size; raises ShapeError for all else, bools among it."""
    if x.__class__ is int:
        return bound_int(name, what, x)
    if isinstance(x, Count) or (isinstance(x, UOp) and is_symbolic(x)):
        return x
    if not is_bool(x) and not (is_tensor(x) and x.dtype.name == "bool"):
        try:
            return bound_int(name, what, operator.index(x))
        except TypeError:
            pass
    raise ArgumentError(f"{name}: {what} is an int, not {said(x)}")


def need_tensor(name: str, what: str, x: Any) -> Any:
    """A tensor; raises DTypeError for all else."""
    if is_tensor(x):
        return x
    raise DTypeError(f"{name}: {what} is a tensor, not {said(x)}; make one with Tensor(...)")


# -- shapes and axes as arguments -------------------------------------------------------------------------------------


Shape = tuple[Any, ...]  # of ints, and of nodes where a size is symbolic


def broadcast_shapes(name: str, *shapes: Shape) -> Shape:
    """The shape that `shapes` broadcast to, aligned at the last axis; sizes of 1 repeat.

    Raises ShapeError naming `name`, the shapes and the axis that does not fit.

    >>> broadcast_shapes("add", (4, 1), (3,))
    (4, 3)
    """
    ndim = max(len(s) for s in shapes)
    out = [1] * ndim
    for s in shapes:
        for i, n in enumerate(s, ndim - len(s)):
            if n != 1 and n != out[i]:
                if out[i] != 1:
                    said = " and ".join(str(x) for x in shapes)
                    kind = PositionError if name == "index" else ShapeError
                    raise kind(
                        f"{name}: shapes {said} do not broadcast: axis {i - ndim} is {out[i]} in one and {n} in "
                        "another; sizes must be equal or 1 (aligned at the last axis): reshape, or unsqueeze the "
                        "missing axis"
                    )
                out[i] = n
    return tuple(out)


def axes_of(name: str, axis: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """Axes as sorted non-negative numbers; None means all. Raises ShapeError for a wrong or repeated one."""
    if axis is None:
        return tuple(range(ndim))
    if not isinstance(axis, (tuple, list, range)):
        at = axis_of(name, axis, ndim)  # type: ignore[arg-type]
        return (at,) if ndim else ()
    out = sorted([axis_of(name, a, ndim) for a in axis])
    for a, b in zip(out, out[1:]):
        if a == b:
            raise ShapeError(f"{name}: axis {a} is given twice in {tuple(axis)}")
    return tuple(out) if ndim else ()


def axis_of(name: str, axis: int, ndim: int) -> int:
    """An axis as a non-negative number. Raises PositionError, which lists the valid range, for a wrong one."""
    # A scalar accepts axis 0 and -1, as torch's does.
    n = ndim or 1
    if axis.__class__ is not int:
        axis = whole(name, "an axis", axis)
    if -n <= axis < n:
        return axis + n if axis < 0 else axis
    if not ndim:
        raise PositionError(f"{name}: axis {axis} does not exist: the tensor has no axes (shape ())")
    raise PositionError(f"{name}: axis {axis} does not exist: valid axes are {-n} to {n - 1} for {n} axes")


def int_args(name: str, args: Sequence[Any]) -> tuple[Any, ...]:
    """`f(2, 3)` and `f((2, 3))` alike, as a tuple of ints, and of nodes where a size is symbolic."""
    if len(args) == 1 and isinstance(args[0], (tuple, list)):
        args = args[0]
    out: list[Any] = []
    for a in args:
        if a.__class__ is int:
            out.append(a)
            continue
        try:
            out.append(size(a) if isinstance(a, (UOp, Count)) else whole(name, "an axis", a))
        except (AttributeError, TypeError, ShapeError):
            raise ArgumentError(f"{name}: sizes and axes are ints, not {said(a)}; given {said(args)}") from None
    for n in out:
        if n.__class__ is int and not -(2**31) <= n < 2**31:
            raise ShapeError(f"{name}: sizes and axes are ints of 32 bits, not {n}")
    return tuple(out)


def need_axes(name: str, shape: tuple[Any, ...]) -> None:
    """Raise PositionError for a tensor of shape ()."""
    if not shape:
        raise PositionError(f"{name}: a tensor of shape () has no axes; use .reshape(1) first")
