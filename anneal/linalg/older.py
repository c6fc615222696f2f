"""Functions of matrices that torch has beside torch.linalg: `an.inverse`, `an.logdet`, `an.svd` with its V, ..."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from anneal.errors import ShapeError
from anneal.linalg._solving import _SINGULAR, det, inv, matrix_exp, multi_dot, pinv, slogdet, solve_triangular

from anneal.linalg._spectra import (  # isort: skip
    _Array, _called_for_one, _float_op, _matrices, _on_device, _one_batch, _squares, svd as _svd,
)  # fmt: skip
from anneal.linalg._triangles import (  # isort: skip
    LU, QR, _order, _permutation, _triangles, cholesky, lu_factor_ex, lu_solve as _lu_solve, qr as _qr,
)  # fmt: skip
from anneal.ops import need_tensor
from anneal.tensor import Tensor

__all__ = [
    "chain_matmul", "cholesky", "cholesky_inverse", "cholesky_solve", "det", "inverse", "logdet", "lu", "lu_solve",
    "lu_unpack", "matrix_exp", "pca_lowrank", "pinverse", "qr", "slogdet", "svd", "svd_lowrank", "triangular_solve",
]  # fmt: skip

inverse = inv


class SVD(NamedTuple):
    """The matrix is U diag(S) V^T."""

    U: Tensor
    S: Tensor
    V: Tensor


class TriangularSolve(NamedTuple):
    """The result of `triangular_solve`: the `solution`, and the triangular matrix as `cloned_coefficient`."""

    solution: Tensor
    cloned_coefficient: Tensor


@_float_op
def logdet(input: Tensor) -> Tensor:
    """The logarithms of determinants: -inf of a singular matrix, nan of a negative determinant. On the host.

    >>> from anneal.tensor import Tensor
    >>> logdet(Tensor([[2.0, 0.0], [0.0, 0.5]])).item()
    0.0
    """
    sign, size = slogdet(input)
    return size.masked_fill(sign < 0, float("nan"))


@_float_op
def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """`linalg.pinv`, of the singular values above rcond times the largest. On the host.

    >>> from anneal.tensor import Tensor
    >>> pinverse(Tensor([[2.0], [0.0]]))
    Tensor([[0.5, 0. ]], dtype=float32)
    """
    return pinv(input, rtol=rcond)


@_float_op
def qr(input: Tensor, some: bool = True) -> QR:
    """`linalg.qr`, complete unless `some`. On the host.

    >>> from anneal.tensor import Tensor
    >>> qr(Tensor([[3.0], [4.0]])).R.abs()
    Tensor([[5.]], dtype=float32)
    """
    return _qr(input, "reduced" if some else "complete")


@_float_op
def svd(input: Tensor, some: bool = True, compute_uv: bool = True) -> SVD:
    """`linalg.svd` with V, not its transpose; all vectors unless `some`, zeros for them unless `compute_uv`. On the
    host.

    >>> from anneal.tensor import Tensor
    >>> svd(Tensor([[0.0, 2.0], [1.0, 0.0]])).V.abs()
    Tensor([[0., 1.],
            [1., 0.]], dtype=float32)
    """
    u, s, vh = _svd(input, not some or not compute_uv)
    return SVD(u, s, vh.mT) if compute_uv else SVD(u.detach().zeros_like(), s, vh.detach().mT.zeros_like())


@_float_op
def svd_lowrank(A: Tensor, q: int | None = 6, niter: int = 2, M: Tensor | None = None) -> SVD:
    """The `q` largest singular values of A, or of A - M, and their vectors. On the host.

    All are computed: torch's come from random directions in `niter` rounds, and are near these.

    Args:
        niter: ignored. M: a matrix that is taken off.

    Raises ShapeError for a q that is more than the smaller size.

    >>> svd_lowrank(Tensor([[0.0, 2.0], [1.0, 0.0]]), q=1).S
    Tensor([2.], dtype=float32)
    """
    _matrices(A)
    q, most = 6 if q is None else q, min(A.shape[-2:])
    if not 0 <= q <= most:
        raise ShapeError(f"svd_lowrank: q is at most {most}, the smaller size of shape {A.shape}, not {q}")
    return SVD(*[part[..., :q] for part in svd(A if M is None else A - M)])


@_float_op
def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True, niter: int = 2) -> SVD:
    """`svd_lowrank` of A less the mean of its rows: principal components are the columns of V.

    Args:
        q: how many; None: 6, or the smaller size. center: whether the mean is taken off. niter: ignored.

    >>> pca_lowrank(Tensor([[1.0, 1.0], [3.0, 3.0]]), q=1).V.abs().round(4)
    Tensor([[0.7071],
            [0.7071]], dtype=float32)
    """
    _matrices(A)
    q = min(6, *A.shape[-2:]) if q is None else q
    return svd_lowrank(A - A.mean(-2, keepdim=True) if center else A, q, niter)


@_float_op
def cholesky_solve(B: Tensor, L: Tensor, upper: bool = False) -> Tensor:
    """X with L L^T X = B, or L^T L X = B if `upper`. On the host.

    One triangle of L is read; its gradient is, as in torch, that of all of L (of which `tril` leaves what is read).

    >>> from anneal.tensor import Tensor
    >>> cholesky_solve(Tensor([[4.0]]), Tensor([[2.0]]))
    Tensor([[1.]], dtype=float32)
    """
    _squares(L)
    _matrices(B)
    return _cholesky_solved(*_one_batch(L.mT if upper else L, B))


def _cholesky_solved(L: Tensor, B: Tensor) -> Tensor:
    """X with L L^T X = B, of equal leading axes."""

    def compute(low: _Array, b: _Array) -> _Array:
        low = np.tril(low)
        return np.linalg.solve(np.swapaxes(low, -1, -2), np.linalg.solve(low, b))

    def gradient(low: Tensor, _: Tensor, x: Tensor, g: Tensor) -> list[Tensor]:
        b = _cholesky_solved(low, g)
        both = b @ x.mT
        return [-((both + both.mT) @ low), b]

    return _called_for_one("cholesky_solve", _SINGULAR, compute, B.shape, [L, B], gradient)


@_float_op
def cholesky_inverse(L: Tensor, upper: bool = False) -> Tensor:
    """The inverse of L L^T, or of L^T L if `upper`. On the host.

    >>> from anneal.tensor import Tensor
    >>> cholesky_inverse(Tensor([[2.0]]))
    Tensor([[0.25]], dtype=float32)
    """
    _squares(L)
    ones = Tensor.eye(L.shape[-1], dtype=L.dtype, device=L.device)
    return cholesky_solve(ones.expand(L.shape), L, upper)


@_float_op
def triangular_solve(
    b: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> TriangularSolve:
    """The solution X of A X = b for a triangle A, or of A^T X = b if `transpose`; and A. On the host.

    `upper` says which triangle of A counts; with `unitriangular` its diagonal counts as ones.

    >>> from anneal.tensor import Tensor
    >>> triangular_solve(Tensor([[4.0]]), Tensor([[2.0]])).solution
    Tensor([[2.]], dtype=float32)
    """
    a, high = (A.mT, not upper) if transpose else (A, upper)
    return TriangularSolve(solve_triangular(a, b, upper=high, unitriangular=unitriangular), A.clone())


@_float_op
def lu(A: Tensor, pivot: bool = True, get_infos: bool = False) -> tuple[Tensor, ...]:
    """`linalg.lu_factor` of A with `pivot`, also of singular matrices; if `get_infos`, with `info` of `lu_factor_ex`.

    >>> from anneal.tensor import Tensor
    >>> lu(Tensor([[2.0, 2.0], [1.0, 3.0]]))[1]
    Tensor([1, 2], dtype=int32)
    """
    found = lu_factor_ex(A, pivot=pivot)
    return found if get_infos else found[:2]


@_on_device
def lu_unpack(LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True) -> LU:
    """The parts P, L and U of what `lu_factor` gave, `LU_data` and `LU_pivots`; without elements what `unpack_data` (L
    and U) or `unpack_pivots` (P) leaves out. On the host.

    >>> from anneal.tensor import Tensor
    >>> lu_unpack(*lu_factor_ex(Tensor([[0.0, 2.0], [4.0, 0.0]]))[:2]).P
    Tensor([[0., 1.],
            [1., 0.]], dtype=float32)
    """
    m, _ = _matrices(LU_data)
    nothing = LU_data.detach().new_zeros(0)
    low, high = _triangles(LU_data) if unpack_data else (nothing, nothing)
    return LU(_permutation(_order(LU_pivots, m, LU_data)[0], LU_data) if unpack_pivots else nothing, low, high)


def lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """`linalg.lu_solve(LU_data, LU_pivots, b)`."""
    return _lu_solve(LU_data, LU_pivots, b)


def chain_matmul(*matrices: Tensor) -> Tensor:
    """The product of `matrices`, as `linalg.multi_dot` takes it; of one matrix a copy."""
    if len(matrices) == 1:
        return need_tensor("the matrix", matrices[0], "chain_matmul").clone()  # type: ignore[no-any-return]
    return multi_dot(matrices)
