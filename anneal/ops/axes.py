"""Shapes and axes as arguments: how shapes broadcast, and which axes an op was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anneal.errors import ArgumentError, PositionError, ShapeError
from anneal.ops.checks import said, whole
from anneal.uop import UOp
from anneal.uop.sizes import Count, size

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
    for a, b in zip(out, out[1:], strict=False):
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


def one_of(name: str, axis: Any, dim: Any, default: Any = None) -> Any:
    """`axis` and `dim` are two spellings of one argument."""
    if dim is None:
        return default if axis is None else axis
    if axis is not None and axis != dim:
        raise ShapeError(f"{name}: axis={axis} and dim={dim} are the same argument; give one of them")
    return dim


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
