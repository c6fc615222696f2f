"""Products of matrices and vectors, powers and the exponential. All but the last run where the tensors are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from anneal.errors import ShapeError
from anneal.linalg._host import Array, Tensors, called, float_op, on_device, squares
from anneal.linalg._solving import inv
from anneal.ops import cross as _cross, need_tensor
from anneal.tensor import Tensor


@on_device
def cross(input: Tensor, other: Any, *, dim: int = -1) -> Tensor:
    """The cross product of vectors of three numbers along the axis `dim`; the other axes of `input` and `other`
    broadcast.

    >>> from anneal.tensor import Tensor
    >>> cross(Tensor([1.0, 0.0, 0.0]), Tensor([0.0, 1.0, 0.0]))
    Tensor([0., 0., 1.], dtype=float32)
    """
    return _cross(input, other, dim)


@on_device
def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonals of the matrices A (..., m, n), or of axes `dim1` and `dim2`, as the last axis; `offset` counts
    diagonals upwards from the main one.

    >>> from anneal.tensor import Tensor
    >>> diagonal(Tensor([[[1, 2], [3, 4]]]))
    Tensor([[1, 4]], dtype=int32)
    """
    return A.diagonal(offset, dim1, dim2)


@on_device
def vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """The powers of each element from 0 up to N - 1 as a new last axis, whose size N is that of x's last by default.

    >>> from anneal.tensor import Tensor
    >>> vander(Tensor([2, 3]), N=3)
    Tensor([[1, 2, 4],
            [1, 3, 9]], dtype=int32)
    """
    x = x if x.ndim else x.reshape(1)
    count = x.shape[-1] if N is None else N
    if count < 1:
        raise ShapeError(f"linalg.vander: N is at least 1, not {count}")
    wide = x.unsqueeze(-1).expand((*x.shape, count - 1))
    ones: Tensor = Tensor.ones(*x.shape, 1, dtype=x.dtype, device=x.device)
    return Tensor.cat([ones, wide.cumprod(-1)], dim=-1) if count > 1 else ones


@on_device
def matrix_power(A: Tensor, n: int) -> Tensor:
    """The n-th power of square matrices A (..., k, k), by squaring; of the inverse, on the host, if n is negative.

    >>> from anneal.tensor import Tensor
    >>> matrix_power(Tensor([[2.0, 0.0], [0.0, 4.0]]), -2)
    Tensor([[0.25  , 0.    ],
            [0.    , 0.0625]], dtype=float32)
    """
    return A.matrix_power(n) if n >= 0 else inv(A).matrix_power(-n)


def multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """The product of the matrices `tensors`, two or more, in the order that takes the fewest multiplications (Cormen et
    al., "Introduction to Algorithms", 15.2). The first may be a vector, which is a row, and the last one, a column.

    >>> from anneal.tensor import Tensor
    >>> multi_dot([Tensor.ones(2, 3), Tensor.ones(3, 1), Tensor.ones(1, 2)]).tolist()
    [[3.0, 3.0], [3.0, 3.0]]
    """
    xs = [need_tensor("linalg.multi_dot", "each", x) for x in tensors]
    if len(xs) < 2:
        raise ShapeError(f"linalg.multi_dot: takes two tensors or more, not {len(xs)}")
    ends = xs[0].ndim == 1, xs[-1].ndim == 1
    if ends[0]:
        xs[0] = xs[0].unsqueeze(0)
    if ends[1]:
        xs[-1] = xs[-1].unsqueeze(1)
    for i, x in enumerate(xs):
        if x.ndim != 2 or (i and xs[i - 1].shape[1] != x.shape[0]):
            shapes = ", ".join(str(t.shape) for t in tensors)
            raise ShapeError(f"linalg.multi_dot: shapes {shapes} make no chain of matrices, from {i} on")
    out = _chain(xs, _splits([x.shape[0] for x in xs] + [xs[-1].shape[1]]), 0, len(xs) - 1)
    out = out.squeeze(0) if ends[0] else out
    return out.squeeze(-1) if ends[1] else out


def _splits(sizes: Sequence[int]) -> dict[tuple[int, int], int]:
    """The place to cut each part of a chain."""
    count = len(sizes) - 1
    cost = {(i, i): 0 for i in range(count)}
    best: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            work, best[i, j] = min(
                (cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j)
            )
            cost[i, j] = work
    return best


def _chain(xs: Sequence[Tensor], splits: dict[tuple[int, int], int], i: int, j: int) -> Tensor:
    if i == j:
        return xs[i]
    k = splits[i, j]
    return _chain(xs, splits, i, k) @ _chain(xs, splits, k + 1, j)


# Coefficients of the diagonal Padé approximant of degree 13 of exp, and up to which 1-norm it has float64's digits.
_PADE = (
    64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000, 10559470521600,
    670442572800, 33522128640, 1323241920, 40840800, 960960, 16380, 182, 1,
)  # fmt: skip
_FAR = 5.37


def _exponential(a: Array) -> list[Array]:
    wide = a.astype(np.float64)
    size = np.abs(wide).sum(-2).max(-1, initial=0.0)[..., None, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        halvings = np.ceil(np.log2(size / _FAR))
    halvings = np.where(np.isfinite(halvings), np.maximum(halvings, 0), 0)
    x = wide / 2.0**halvings
    x2 = x @ x
    power, even, odd = np.broadcast_to(np.eye(x.shape[-1]), x.shape), np.zeros_like(x), np.zeros_like(x)
    for k in range(0, len(_PADE), 2):
        even, odd = even + _PADE[k] * power, odd + _PADE[k + 1] * power
        power = power @ x2
    odd = x @ odd
    out = np.linalg.solve(even - odd, even + odd)
    for k in range(int(halvings.max(initial=0.0))):
        out = np.where(k < halvings, out @ out, out)
    return [out]


@float_op
def matrix_exp(A: Tensor) -> Tensor:
    """The exponential of square matrices: the sum of A^n / n!. On the host, in float64.

    By scaling and squaring of a Padé approximant (Higham, "The scaling and squaring method for the matrix exponential
    revisited", 2005). Gradient: the upper right block of exp([[A^T, g], [0, A^T]]) (Mathias, "A chain rule for matrix
    functions and applications", 1996).

    >>> from anneal.tensor import Tensor
    >>> matrix_exp(Tensor([[0.0, 1.0], [0.0, 0.0]]))
    Tensor([[1., 1.],
            [0., 1.]], dtype=float32)
    """
    n = squares(A)

    def gradient(inputs: Tensors, outputs: Tensors, given: Tensors) -> list[Tensor]:
        a = inputs[0].mT
        top = Tensor.cat([a, given[0]], dim=-1)
        below = Tensor.cat([a * 0.0, a], dim=-1)
        return [matrix_exp(Tensor.cat([top, below], dim=-2))[..., :n, n:]]

    fault = "has no exponential: it has nan or inf"
    return called("matrix_exp", fault, _exponential, [A.shape], [A], gradient)[0]
