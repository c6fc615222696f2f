"""Orthogonal polynomials of a degree, by their recurrences: each is made of the two before it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from anneal.errors import DTypeError, ShapeError
from anneal.ops.arguments import function
from anneal.ops.elementwise import choose, real_node
from anneal.ops.facts import is_bool, is_tensor, said
from anneal.ops.indexing import values_now

if TYPE_CHECKING:
    from anneal.tensor import Tensor

_HIGHEST = 1024  # a graph of more steps is not worth its kernel


def _polynomial(
    name: str,
    x: Any,
    n: Any,
    first: Callable[[Tensor], Tensor],
    step: Callable[[Tensor, float, Tensor, Tensor], Tensor],
) -> Tensor:
    """The polynomial of degree `n`: 1, `first(x)`, and `step(x, k, of k - 1, of k - 2)`; 0 for a degree below 0."""
    if not is_tensor(x):
        if not is_tensor(n) or is_bool(x) or not isinstance(x, (int, float)):
            raise DTypeError(f"{name}: x is a tensor, not {said(x)}")
        x = n._lift(name, float(x))
    floats = x._new(real_node(x))
    if is_tensor(n):
        degrees = values_now(n, name, "give the degree as an int")
        whole = np.trunc(degrees.astype(np.float64))
        highest = int(whole.max(initial=0.0, where=np.isfinite(whole)))
        chosen: Any = n.detach().trunc() if n.dtype.is_float else n
    elif isinstance(n, (int, float)) and not is_bool(n):
        highest, chosen = int(n), None
    else:
        raise DTypeError(f"{name}: the degree is a number or a tensor of them, not {said(n)}")
    if highest > _HIGHEST:
        raise ShapeError(f"{name}: degrees up to {_HIGHEST}, not {highest}")
    before, now = floats * 0.0 + 1.0, first(floats)
    if chosen is None and highest < 1:
        constant: Tensor = before if highest == 0 else floats * 0.0
        return constant
    out: Any = None if chosen is None else choose(chosen < 0, 0.0, choose(chosen.eq(0), 1.0, now))
    for k in range(2, highest + 1):
        before, now = now, step(floats, float(k), now, before)
        if chosen is not None:
            out = choose(chosen.eq(k), now, out)
    result: Tensor = now if out is None else out
    return result


@function(special=True)
def chebyshev_polynomial_t(x: Any, n: Any) -> Tensor:
    """Chebyshev's polynomial of the first kind of degree `n`: cos(n * t) at x = cos(t).

    `n` is an int, or a tensor that broadcasts, which is computed now and refused by ShapeError inside jit. 0 for a
    degree below 0. Gradients go to x.

    >>> from anneal.tensor import Tensor
    >>> chebyshev_polynomial_t(Tensor([0.5, 2.0]), 3)
    Tensor([-1., 26.], dtype=float32)
    """
    return _polynomial("chebyshev_polynomial_t", x, n, lambda x: x, lambda x, k, a, b: x * a * 2.0 - b)


@function(special=True)
def chebyshev_polynomial_u(x: Any, n: Any) -> Tensor:
    """Chebyshev's polynomial of the second kind of degree `n`; arguments as for `chebyshev_polynomial_t`.

    >>> from anneal.tensor import Tensor
    >>> chebyshev_polynomial_u(Tensor([0.5, 2.0]), 2)
    Tensor([ 0., 15.], dtype=float32)
    """
    return _polynomial("chebyshev_polynomial_u", x, n, lambda x: x * 2.0, lambda x, k, a, b: x * a * 2.0 - b)


@function(special=True)
def chebyshev_polynomial_v(x: Any, n: Any) -> Tensor:
    """Chebyshev's polynomial of the third kind of degree `n`; arguments as for `chebyshev_polynomial_t`.

    >>> from anneal.tensor import Tensor
    >>> chebyshev_polynomial_v(Tensor([0.5, 2.0]), 2)
    Tensor([-1., 11.], dtype=float32)
    """
    return _polynomial("chebyshev_polynomial_v", x, n, lambda x: x * 2.0 - 1.0, lambda x, k, a, b: x * a * 2.0 - b)


@function(special=True)
def chebyshev_polynomial_w(x: Any, n: Any) -> Tensor:
    """Chebyshev's polynomial of the fourth kind of degree `n`; arguments as for `chebyshev_polynomial_t`.

    >>> from anneal.tensor import Tensor
    >>> chebyshev_polynomial_w(Tensor([0.5, 2.0]), 2)
    Tensor([ 1., 19.], dtype=float32)
    """
    return _polynomial("chebyshev_polynomial_w", x, n, lambda x: x * 2.0 + 1.0, lambda x, k, a, b: x * a * 2.0 - b)


@function(special=True)
def hermite_polynomial_h(x: Any, n: Any) -> Tensor:
    """Hermite's polynomial of degree `n` (the physicists'); arguments as for `chebyshev_polynomial_t`.

    >>> from anneal.tensor import Tensor
    >>> hermite_polynomial_h(Tensor([1.0]), 2)
    Tensor([2.], dtype=float32)
    """
    return _polynomial(
        "hermite_polynomial_h", x, n, lambda x: x * 2.0, lambda x, k, a, b: (x * a - b * (k - 1.0)) * 2.0
    )


@function(special=True)
def hermite_polynomial_he(x: Any, n: Any) -> Tensor:
    """Hermite's polynomial of degree `n` (the statisticians'); arguments as for `chebyshev_polynomial_t`.

    >>> from anneal.tensor import Tensor
    >>> hermite_polynomial_he(Tensor([0.5, 2.0]), 2)
    Tensor([-0.75,  3.  ], dtype=float32)
    """
    return _polynomial("hermite_polynomial_he", x, n, lambda x: x, lambda x, k, a, b: x * a - b * (k - 1.0))


@function(special=True)
def laguerre_polynomial_l(x: Any, n: Any) -> Tensor:
    """Laguerre's polynomial of degree `n`; arguments as for `chebyshev_polynomial_t`.

    >>> from anneal.tensor import Tensor
    >>> laguerre_polynomial_l(Tensor([0.5, 2.0]), 2)
    Tensor([ 0.125, -1.   ], dtype=float32)
    """
    return _polynomial(
        "laguerre_polynomial_l",
        x,
        n,
        lambda x: 1.0 - x,
        lambda x, k, a, b: ((2.0 * k - 1.0 - x) * a - b * (k - 1.0)) * (1 / k),
    )


@function(special=True)
def legendre_polynomial_p(x: Any, n: Any) -> Tensor:
    """Legendre's polynomial of degree `n`; arguments as for `chebyshev_polynomial_t`.

    >>> from anneal.tensor import Tensor
    >>> legendre_polynomial_p(Tensor([0.5, 2.0]), 2)
    Tensor([-0.125,  5.5  ], dtype=float32)
    """
    return _polynomial(
        "legendre_polynomial_p",
        x,
        n,
        lambda x: x,
        lambda x, k, a, b: (x * a * (2.0 * k - 1.0) - b * (k - 1.0)) * (1 / k),
    )


def _shifted(name: str, x: Any, n: Any, plain: Any) -> Tensor:
    if not is_tensor(x) and (is_bool(x) or not isinstance(x, (int, float))):
        raise DTypeError(f"{name}: x is a tensor, not {said(x)}")
    out: Tensor = plain(x * 2.0 - 1.0, n)
    return out


@function(special=True)
def shifted_chebyshev_polynomial_t(x: Any, n: Any) -> Tensor:
    """`chebyshev_polynomial_t` of 2x - 1: orthogonal between 0 and 1.

    >>> from anneal.tensor import Tensor
    >>> shifted_chebyshev_polynomial_t(Tensor([0.5, 2.0]), 2)
    Tensor([-1., 17.], dtype=float32)
    """
    return _shifted("shifted_chebyshev_polynomial_t", x, n, chebyshev_polynomial_t)


@function(special=True)
def shifted_chebyshev_polynomial_u(x: Any, n: Any) -> Tensor:
    """`chebyshev_polynomial_u` of 2x - 1.

    >>> from anneal.tensor import Tensor
    >>> shifted_chebyshev_polynomial_u(Tensor([0.5, 2.0]), 2)
    Tensor([-1., 35.], dtype=float32)
    """
    return _shifted("shifted_chebyshev_polynomial_u", x, n, chebyshev_polynomial_u)


@function(special=True)
def shifted_chebyshev_polynomial_v(x: Any, n: Any) -> Tensor:
    """`chebyshev_polynomial_v` of 2x - 1.

    >>> from anneal.tensor import Tensor
    >>> shifted_chebyshev_polynomial_v(Tensor([0.5, 2.0]), 2)
    Tensor([-1., 29.], dtype=float32)
    """
    return _shifted("shifted_chebyshev_polynomial_v", x, n, chebyshev_polynomial_v)


@function(special=True)
def shifted_chebyshev_polynomial_w(x: Any, n: Any) -> Tensor:
    """`chebyshev_polynomial_w` of 2x - 1.

    >>> from anneal.tensor import Tensor
    >>> shifted_chebyshev_polynomial_w(Tensor([0.5, 2.0]), 2)
    Tensor([-1., 41.], dtype=float32)
    """
    return _shifted("shifted_chebyshev_polynomial_w", x, n, chebyshev_polynomial_w)
