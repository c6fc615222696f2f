"""Symbolic sizes: `Variable`, and what tensors need to know of sizes that only a run fixes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from anneal.errors import ShapeError
from anneal.uop import SYMBOLIC, DType, Op, UOp, alu, const
from anneal.uop.sizes import Size, evaluator, mapped, product, range_of, symbolic_arg, unbound, variable, widest

__all__ = ["Variable", "bound_shape", "check_inside", "needed", "reciprocal", "seen"]

Array = npt.NDArray[Any]


def Variable(name: str, min: int, max: int) -> UOp:
    """An integer from `min` to `max` that each run chooses: a size, or a position, of compiled programs that serve all.

    `n.bind(5)` is n with its value in this run; `+ - * //` with ints and other sizes give sizes. What is compiled depends on
    the Variable alone. Raises ShapeError for bounds that are no 0 <= min <= max, and `bind` for a value outside them.

    >>> from anneal.tensor import Tensor
    >>> n = Variable("n", 1, 8)
    >>> x = Tensor.arange(8)[: n.bind(3)]
    >>> x.shape, (x * 2).tolist()
    ((n=3,), [0, 2, 4])
    """
    return variable(name, min, max)


def bound_shape(shape: tuple[Any, ...]) -> tuple[int, ...]:
    """The sizes of this run."""
    if not SYMBOLIC.seen:
        return shape
    values: dict[str, int] = {}
    return evaluator(mapped(shape, lambda u: unbound(u, values)))(values)


def check_inside(name: str, begin: Size, end: Size, axis: int, shape: tuple[Any, ...]) -> None:
    """Raise ShapeError unless [begin, end) is inside an axis of `shape` for all values of their variables."""
    for small, large in ((0, begin), (begin, end), (end, shape[axis])):
        if range_of(large - small)[0] < 0:
            sized = [n for n in (small, large) if isinstance(n, UOp)]
            why = f": {small} may be more than {large}; give the Variable narrower bounds" if sized else ""
            raise ShapeError(f"{name}: {begin} to {end} is not inside axis {axis} of shape {shape}{why}")


def needed(shape: tuple[Any, ...]) -> int:
    """How many elements from the first on hold an array of `shape` that lies in memory."""
    if not (SYMBOLIC.seen and symbolic_arg(shape)):
        return math.prod(shape)
    end, stride = 1, 1
    for n, room in zip(reversed(bound_shape(shape)), reversed(widest(shape)), strict=True):
        if not n:
            return 0
        end += (n - 1) * stride
        stride *= room
    return end


def seen(memory: Array, shape: tuple[Any, ...]) -> Array:
    """The first elements of memory, `needed(shape)` or more, as the array of `shape`, without those that fill up its rows."""
    if not (SYMBOLIC.seen and symbolic_arg(shape)):
        return memory[: math.prod(shape)].reshape(shape)
    now = bound_shape(shape)
    steps, step = [], memory.itemsize
    for room in reversed(widest(shape)):
        steps.append(step)
        step *= room
    bits = memory.view(f"u{memory.itemsize}")  # not every dtype can be strided
    return np.lib.stride_tricks.as_strided(bits, now, steps[::-1]).copy().view(memory.dtype)


def reciprocal(dtype: DType, sizes: Sequence[Size]) -> UOp:
    """One over the number of elements of `sizes`, in `dtype`."""
    n = product(sizes)
    return alu(Op.RECIP, (n.cast(dtype),)) if isinstance(n, UOp) else const(dtype, 1.0 / n if n else math.inf)
