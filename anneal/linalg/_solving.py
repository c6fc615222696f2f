"""Inverses, systems of equations and determinants."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from anneal.errors import ShapeError
from anneal.linalg._host import Array, Tensors, called, float_op, matrices, one_batch, squares
from anneal.linalg._spectra import _tolerance, eigvalsh, svd, svdvals
from anneal.tensor import Tensor, dtypes

_SINGULAR = "is singular: it has no inverse"


class SLogDet(NamedTuple):
    """The result of `slogdet`: the `sign` of the determinant, and `logabsdet`, the logarithm of its absolute value."""

    sign: Tensor
    logabsdet: Tensor


class LstSq(NamedTuple):
    """The result of `lstsq`: the `solution` X, the sums of squared `residuals` (empty where the rank is below n or m is
    n), the `rank` of A, int32, and A's `singular_values`.
    """

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


# -- inverses and systems ---------------------------------------------------------------------------------------------


@float_op
def inv(A: Tensor) -> Tensor:
    """The inverses of square matrices (..., n, n). On the host.

    Gradient: -Y^T g Y^T for Y = A^-1 (Giles, "An extended collection of matrix derivative results", 2008, 2.2.3).

    Raises ShapeError for matrices that are not square; LinAlgError, where values are computed, for a singular one.

    >>> from anneal.tensor import Tensor
    >>> inv(Tensor([[2.0, 0.0], [0.0, 4.0]]))
    Tensor([[0.5 , 0.  ],
            [0.  , 0.25]], dtype=float32)
    """
    squares(A)

    def gradient(inputs: Tensors, outputs: Tensors, given: Tensors) -> list[Tensor]:
        y = outputs[0].mT
        return [-(y @ given[0] @ y)]

    return called("inv", _SINGULAR, lambda a: [np.linalg.inv(a)], [A.shape], [A], gradient)[0]


@float_op
def inv_ex(A: Tensor, *, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    """`inv` of A, and an int32 of 0 for each matrix: a singular one is always an error here, whatever `check_errors`
    says. On the host.
    """
    return inv(A), _no_faults(A)


def _no_faults(A: Tensor) -> Tensor:
    return Tensor.zeros(A.shape[:-2], dtype="int32", device=A.device)


@float_op
def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """X with A X = B, or X A = B unless `left`. On the host.

    A is (..., n, n), B is (..., n, k), or (..., k, n) unless `left`; or vectors (..., n): one vector for all matrices,
    or one for each where B.shape is A.shape[:-1]. Leading axes broadcast.

    Gradients: gB = A^-T g, gA = -gB X^T (Giles 2008, 2.3.1).

    Raises ShapeError for sizes that do not fit; LinAlgError, where values are computed, for a singular matrix.

    >>> from anneal.tensor import Tensor
    >>> solve(Tensor([[2.0, 0.0], [0.0, 4.0]]), Tensor([2.0, 2.0]))
    Tensor([1. , 0.5], dtype=float32)
    """
    n = squares(A)
    if B.ndim == 1 or (B.ndim == A.ndim - 1 and B.shape == A.shape[:-1]):
        a = A if left else A.mT
        if B.shape[-1] != n:
            raise ShapeError(f"linalg.solve: matrices of shape {A.shape} and vectors of shape {B.shape} do not fit")
        return _solved(*one_batch(a, B.unsqueeze(-1))).squeeze(-1)
    matrices(B)
    if B.shape[-2 if left else -1] != n:
        raise ShapeError(
            f"linalg.solve: {'A X = B' if left else 'X A = B'} with A of shape {A.shape} and B of shape {B.shape}: "
            f"axis {-2 if left else -1} of B must have {n} elements"
        )
    if left:
        return _solved(*one_batch(A, B))
    return _solved(*one_batch(A.mT, B.mT)).mT


def _solved(A: Tensor, B: Tensor) -> Tensor:
    """X with A X = B, of equal leading axes."""

    def gradient(inputs: Tensors, outputs: Tensors, given: Tensors) -> list[Tensor]:
        b = _solved(inputs[0].mT, given[0])
        return [-(b @ outputs[0].mT), b]

    return called("solve", _SINGULAR, lambda a, b: [np.linalg.solve(a, b)], [B.shape], [A, B], gradient)[0]


@float_op
def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    """`solve` of A and B, on the `left` or the right, and an int32 of 0 for each matrix: a singular one is always an
    error here, whatever `check_errors` says. On the host.
    """
    return solve(A, B, left=left), _no_faults(A)


@float_op
def solve_triangular(A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    """`solve` that reads one triangle of A alone, the `upper` or the lower one, whose diagonal counts as ones if
    `unitriangular`. On the host.

    B is (..., n, k), or (..., k, n) unless `left`.

    >>> from anneal.tensor import Tensor
    >>> solve_triangular(Tensor([[1.0, 9.0], [2.0, 1.0]]), Tensor([[1.0], [4.0]]), upper=False)
    Tensor([[1.],
            [2.]], dtype=float32)
    """
    n = squares(A)
    matrices(B)
    triangle = A.triu(int(unitriangular)) if upper else A.tril(-int(unitriangular))
    if unitriangular:
        triangle = triangle + Tensor.eye(n, dtype=A.dtype, device=A.device)
    return solve(triangle, B, left=left)


@float_op
def tensorinv(A: Tensor, ind: int = 2) -> Tensor:
    """The inverse of A for `tensordot(A, B, ind)`: the first `ind` axes as one, and the others, are a square matrix.

    On the host.

    >>> from anneal.tensor import Tensor
    >>> tensorinv(Tensor.eye(6).reshape(2, 3, 6)).shape
    (6, 2, 3)
    """
    rows, columns = A.shape[:ind], A.shape[ind:]
    if ind < 1 or math.prod(rows) != math.prod(columns):
        raise ShapeError(f"linalg.tensorinv: the first {ind} and the other axes of shape {A.shape} make no square")
    return inv(A.reshape(math.prod(rows), -1)).reshape(*columns, *rows)


@float_op
def tensorsolve(A: Tensor, B: Tensor, dims: Sequence[int] | None = None) -> Tensor:
    """X with `tensordot(A, X, X.ndim)` = B; `dims` of A are moved to its end first. On the host.

    >>> from anneal.tensor import Tensor
    >>> tensorsolve(Tensor.eye(6).reshape(2, 3, 6), Tensor.ones(2, 3)).shape
    (6,)
    """
    if dims is not None:
        A = A.movedim(tuple(dims), tuple(range(A.ndim - len(dims), A.ndim)))
    rest = A.shape[B.ndim :]
    if math.prod(rest) != B.numel() or A.numel() != B.numel() ** 2:
        raise ShapeError(f"linalg.tensorsolve: shapes {A.shape} and {B.shape} make no square system")
    return solve(A.reshape(B.numel(), -1), B.reshape(-1)).reshape(rest)


# -- determinants -----------------------------------------------------------------------------------------------------


@float_op
def det(A: Tensor) -> Tensor:
    """The determinants of square matrices: (..., n, n) -> (...). On the host.

    Gradient: g times the cofactors of A (Jacobi's formula; Giles 2008, 2.2.4), which singular matrices have too. A
    second derivative there is a LinAlgError.

    >>> from anneal.tensor import Tensor
    >>> det(Tensor([[1.0, 2.0], [3.0, 4.0]])).round(4).item()
    -2.0
    """
    squares(A)

    def gradient(inputs: Tensors, outputs: Tensors, given: Tensors) -> list[Tensor]:
        return [given[0].unsqueeze(-1).unsqueeze(-1) * _cofactors(inputs[0])]

    return called("det", "has no determinant", lambda a: [np.linalg.det(a)], [A.shape[:-2]], [A], gradient)[0]


def _cofactors(A: Tensor) -> Tensor:
    """det(A) A^-T, also of singular matrices."""

    def compute(a: Array) -> list[Array]:
        # A = U S V^T: cof(A) = det(U V^T) U cof(S) V^T (Stewart, "On the adjugate matrix", 1998)
        u, s, v = np.linalg.svd(a)
        n = a.shape[-1]
        others = np.where(np.eye(n, dtype=bool), 1, s[..., None, :]).prod(-1)
        sign = np.linalg.det(u) * np.linalg.det(v)
        return [sign[..., None, None] * ((u * others[..., None, :]) @ v)]

    def gradient(inputs: Tensors, outputs: Tensors, given: Tensors) -> list[Tensor]:
        # C = d A^-T with d = det A, so dC = tr(C^T dA) A^-T - A^-T dA^T C
        y = inv(inputs[0]).mT
        inner = (given[0] * y).sum((-2, -1), True)
        return [inner * outputs[0] - outputs[0] @ given[0].mT @ y]

    return called("det", "has no singular values", compute, [A.shape], [A], gradient, "cofactors")[0]


@float_op
def slogdet(A: Tensor) -> SLogDet:
    """The signs of determinants and the logarithms of their sizes: -inf for a singular matrix. On the host.

    Gradient of the logarithm: g A^-T (Giles 2008, 2.2.5); a singular matrix has none, which is a LinAlgError. The sign
    has none.

    >>> from anneal.tensor import Tensor
    >>> sign, size = slogdet(Tensor([[1.0, 2.0], [3.0, 4.0]]))
    >>> sign.item(), size.exp().round(4).item()
    (-1.0, 2.0)
    """
    squares(A)

    def gradient(inputs: Tensors, outputs: Tensors, given: Tensors) -> list[Tensor]:
        return [given[1].unsqueeze(-1).unsqueeze(-1) * inv(inputs[0]).mT]

    shape = A.shape[:-2]
    made = called("slogdet", "has no determinant", np.linalg.slogdet, [shape, shape], [A], gradient)
    return SLogDet(made[0].detach(), made[1])


# -- least squares ----------------------------------------------------------------------------------------------------


@float_op
def pinv(
    A: Tensor,
    *,
    atol: float | Tensor | None = None,
    rtol: float | Tensor | None = None,
    hermitian: bool = False,
) -> Tensor:
    """The Moore-Penrose inverses of A: (..., m, n) -> (..., n, m), of the singular values (eigenvalues if `hermitian`)
    above max(atol, rtol * largest).

    rtol is max(m, n) times the dtype's epsilon if neither is given, and 0 beside an atol alone. On the host.

    Gradient: Golub and Pereyra, "The differentiation of pseudo-inverses and nonlinear least squares problems whose
    variables separate", 1973; where the rank does not change.

    >>> from anneal.tensor import Tensor
    >>> pinv(Tensor([[2.0, 0.0], [0.0, 0.0]]))
    Tensor([[0.5, 0. ],
            [0. , 0. ]], dtype=float32)
    """
    m, n = matrices(A)
    if hermitian:
        squares(A)
    values = eigvalsh(A.detach()).abs() if hermitian else svdvals(A.detach())
    least = _tolerance(values, (m, n), atol, rtol)
    return _pseudo_inverse(A, least.unsqueeze(-1).unsqueeze(-1), hermitian)


def _pseudo_inverse(A: Tensor, least: Tensor, lower: bool = False) -> Tensor:
    """The pseudo-inverse by the singular values above `least`, (..., 1, 1); with `lower` of the lower triangle alone,
    with the gradient as if all of A were read, as in torch.
    """
    m, n = A.shape[-2:]

    def compute(a: Array, low: Array) -> list[Array]:
        if lower:
            a = np.tril(a) + np.swapaxes(np.tril(a, -1), -1, -2)
        u, s, v = np.linalg.svd(a, full_matrices=False)
        counts = s > low[..., 0]
        reciprocal = np.where(counts, 1 / np.where(counts, s, 1), 0)
        return [np.swapaxes((u * reciprocal[..., None, :]) @ v, -1, -2)]

    def gradient(inputs: Tensors, outputs: Tensors, given: Tensors) -> list[Tensor | None]:
        a, p, g = inputs[0], _pseudo_inverse(inputs[0], inputs[1], lower), given[0]
        q, t = p.mT, g.mT
        out = -(q @ g @ q)
        # what leaves the span of the columns, and of the rows: nothing, where the matrix has full rank
        out = out + (t - a @ (p @ t)) @ (p @ q) + (q @ p) @ (t - (t @ p) @ a)
        return [out, None]

    shape = (*A.shape[:-2], n, m)
    fault = "has no singular values: it has nan or inf"
    return called("pinv", fault, compute, [shape], [A, least], gradient, lower)[0]


@float_op
def lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None) -> LstSq:
    """X of least |A X - B|, and among several such the least: (..., m, n), (..., m, k) -> (..., n, k). On the host.

    B may be vectors (..., m), if B.shape is A.shape[:-1]. Singular values up to `rcond` times the largest count as 0;
    it is max(m, n) times the dtype's epsilon if None. `residuals` are the squares of |A X - B| for each column if
    m > n and the driver is not "gelsy", and without elements otherwise; `rank` is int32, and without elements by the
    driver "gels"; `singular_values` are those of A by the drivers "gelsd" and "gelss", and without elements by the
    others ("gels", "gelsy"), as in torch. All drivers are one algorithm here.

    Gradient: that of `pinv(A) @ B`.

    >>> from anneal.tensor import Tensor
    >>> lstsq(Tensor([[1.0], [1.0]]), Tensor([[1.0], [3.0]])).solution
    Tensor([[2.]], dtype=float32)
    """
    name = "linalg.lstsq"
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise ShapeError(f'{name}: driver is "gels", "gelsy", "gelsd" or "gelss", not {driver!r}')
    m, n = matrices(A)
    vectors = B.ndim == A.ndim - 1 and B.shape == A.shape[:-1]
    b = B.unsqueeze(-1) if vectors else B
    if b.ndim < 2 or b.shape[-2] != m:
        raise ShapeError(f"{name}: A of shape {A.shape} and B of shape {B.shape}: as many rows are needed")
    a, b = one_batch(A, b)
    values = svd(a.detach(), False).S
    least = _tolerance(values, (m, n), None, rcond)
    x = _pseudo_inverse(a, least.unsqueeze(-1).unsqueeze(-1)) @ b
    rank = (values > least.unsqueeze(-1)).sum(-1).cast(dtypes.int32)
    nothing: Tensor = Tensor.zeros(0, dtype=A.dtype, device=A.device)
    difference = a @ x - b
    told = m > n and driver != "gelsy"
    residuals = (difference * difference).sum(-2) if told else nothing
    return LstSq(
        x.squeeze(-1) if vectors else x,
        residuals.squeeze(-1) if vectors and told else residuals,
        rank.new_zeros(0) if driver == "gels" else rank,
        values if driver in ("gelsd", "gelss") else nothing,
    )
