"""Rewrites that the lowering rules call by name because they compute with constants."""

from __future__ import annotations

import math

from anneal.uop import UOp

__all__ = ["by_inverse"]


def by_inverse(x: UOp, c: UOp) -> UOp | None:
    """`x / c` as a product, if c is a power of two so far from the ends of float16's range that 1/c is exact, too.

    >>> from anneal.uop import Op, const, dtypes
    >>> x = UOp(Op.PARAM, dtypes.float32, (), (0, ()))
    >>> by_inverse(x, const(dtypes.float32, 8)) is x * 0.125, by_inverse(x, const(dtypes.float32, 3))
    (True, None)
    """
    value = float(c.arg)
    if not 2.0**-14 <= abs(value) <= 2.0**14 or abs(math.frexp(value)[0]) != 0.5:
        return None
    return x * (1 / value)
