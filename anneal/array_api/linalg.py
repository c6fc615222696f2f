"""The standard's linear algebra extension: `anneal.linalg` by the standard's names and arguments."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from anneal import linalg, ops
from anneal.array_api._derived import standard, summed
from anneal.array_api._dtypes import result_type, standards
from anneal.doors import names_of, opened_later
from anneal.tensor import Tensor

if TYPE_CHECKING:
    from anneal.stubs.array_linalg import *
else:
    __getattr__ = opened_later(__name__, make=standard)
    __all__ = names_of(__name__)


@standards
def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The product of every element of one vector and every element of the other."""
    return linalg.outer(x1, x2)


def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """X with x1 X = x2, in the dtype in which both meet; x2 is one vector if it has one axis, else matrices."""
    kind = result_type(x1, x2)
    x1, x2 = x1.cast(kind), x2.cast(kind)
    if x2.ndim > 1 and x2.ndim == x1.ndim - 1:
        x2 = x2.unsqueeze(0)  # torch would take it for a vector for each matrix
    return linalg.solve(x1, x2)


@standards
def trace(x: Tensor, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """The sums of the diagonals of matrices. Dtypes as those of `sum`."""
    return summed(ops.sum)(linalg.diagonal(x, offset=offset), -1, dtype=dtype)


def vector_norm(x: Tensor, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Tensor:
    """`anneal.linalg.vector_norm`; that of nothing is 0."""
    if ord == math.inf and not math.prod(x.shape):
        ord = 1  # there is no largest element
    return linalg.vector_norm(x, ord, axis, keepdims)
