"""Symbolic sizes: `Variable`, and what tensors need to know of sizes that only a run fixes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anneal.uop import SYMBOLIC, DType, Op, UOp, alu, const
from anneal.uop.sizes import Size, evaluator, mapped, product, unbound, variable

__all__ = ["Variable", "bound_shape", "reciprocal"]


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


def reciprocal(dtype: DType, sizes: Sequence[Size]) -> UOp:
    """One over the number of elements of `sizes`, in `dtype`."""
    n = product(sizes)
    return alu(Op.RECIP, (n.cast(dtype),)) if isinstance(n, UOp) else const(dtype, 1.0 / n)
