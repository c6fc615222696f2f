"""Symbolic sizes: `Variable`, and what the methods of tensors need to know of sizes that only a run fixes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from anneal.errors import PositionError
from anneal.uop import DType, Op, UOp, alu, const
from anneal.uop.sizes import Size, product, range_of, variable


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
