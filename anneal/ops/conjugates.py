"""torch's functions of complex numbers, for real ones: no dtype here is complex."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from anneal.ops.arguments import function
from anneal.ops.elementwise import choose, real_node
from anneal.ops.functions import by_slope

if TYPE_CHECKING:
    from anneal.tensor import Tensor


@function(alias="conj_physical resolve_conj resolve_neg", function_alias="real")
def conj(x: Tensor) -> Tensor:
    """The tensor itself: real numbers are their own conjugates.

    >>> from anneal.tensor import Tensor
    >>> conj(Tensor([-1.5, 0.0, 2.0]))
    Tensor([-1.5,  0. ,  2. ], dtype=float32)
    """
    return x


@function(view=True)
def adjoint(x: Tensor) -> Tensor:
    """Another name of `mT`, the matrices transposed: numbers are real.

    >>> from anneal.tensor import Tensor
    >>> adjoint(Tensor([[1.0, 2.0]]))
    Tensor([[1.],
            [2.]], dtype=float32)
    """
    return x.mT


@function(in_place=True)
def sgn(x: Tensor) -> Tensor:
    """`sign`, of x's shape.

    >>> from anneal.tensor import Tensor
    >>> sgn(Tensor([-1.5, 0.0, 2.0]))
    Tensor([-1.,  0.,  1.], dtype=float32)
    """
    return x.sign()


@function
def angle(x: Tensor) -> Tensor:
    """0 for numbers from 0 on, pi below, nan for nan; the gradient is 0.

    >>> from anneal.tensor import Tensor
    >>> Tensor([2.0, -2.0]).angle().round(4)
    Tensor([0.    , 3.1416], dtype=float32)
    """
    floats = x._new(real_node(x))
    return by_slope(floats, lambda x: (choose(x.isnan(), x, choose(x < 0, math.pi, 0.0)).detach(), x.detach() * 0.0))
