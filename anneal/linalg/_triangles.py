"""Decompositions into triangles."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from anneal.errors import GradientError, ShapeError
from anneal.linalg._solving import _no_faults, solve_triangular

from anneal.linalg._spectra import (  # isort: skip
    _Array, _called, _called_for_one, _float_op, _leading, _matrices, _on_device, _one_batch, _squares,
)  # fmt: skip
from anneal.runtime import Fun
from anneal.tensor import Tensor, dtypes


class QR(NamedTuple):
    """The result of `qr`: `Q` with orthonormal columns and the upper triangle `R`, whose product is the matrix."""

    Q: Tensor
    R: Tensor


class CholeskyEx(NamedTuple):
    """The result of `cholesky_ex`: the factor `L`, and `info`, 0 for each matrix."""

    L: Tensor
    info: Tensor


@_float_op
def cholesky(A: Tensor, *, upper: bool = False) -> Tensor:
    """The lower triangle L with L L^T = A of symmetric positive definite matrices, or its transpose if `upper`.

    Only the lower triangle of A is read. On the host.

    Gradient: the symmetric part of L^-T P L^-1, where P is the lower triangle of L^T g with half its diagonal (Murray,
    "Differentiation of the Cholesky decomposition", 2016).

    Raises ShapeError for matrices that are not square; LinAlgError, where values are computed, for one that is not
    positive definite.

    >>> from anneal.tensor import Tensor
    >>> cholesky(Tensor([[4.0, 2.0], [2.0, 5.0]]))
    Tensor([[2., 0.],
            [1., 2.]], dtype=float32)
    """
    _squares(A)

    def gradient(_: Tensor, low: Tensor, g: Tensor) -> Tensor:
        product = low.mT @ g
        half = (product.tril() + product.tril(-1)) * 0.5
        left = solve_triangular(low.mT, half, upper=True)
        whole = solve_triangular(low, left, upper=False, left=False)
        return (whole + whole.mT) * 0.5

    fault = "is not positive definite, or not finite"
    low = _called_for_one("cholesky", fault, np.linalg.cholesky, A.shape, [A], gradient)
    return low.mT if upper else low


@_float_op
def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False) -> CholeskyEx:
    """`cholesky` of A, lower or `upper`, and `info`, an int32 0 for each matrix: a matrix without a factor is always an
    error here, whatever `check_errors` says.
    """
    return CholeskyEx(cholesky(A, upper=upper), _no_faults(A))


@_float_op
def qr(A: Tensor, mode: str = "reduced") -> QR:
    """A = Q R with orthogonal columns Q and an upper triangle R. On the host.

    Shapes, with k = min(m, n): (..., m, n) -> Q (..., m, k), R (..., k, n) by "reduced"; Q (..., m, m), R (..., m, n)
    by "complete"; by "r" only R, (..., k, n), and a Q without elements. Signs are LAPACK's.

    Gradient, of "reduced" and of "complete" where m <= n: Walter and Lehmann, "Algorithmic differentiation of linear
    algebra functions", 2018; of wide matrices Roberts and Roberts, "QR and LQ decomposition matrix backpropagation",
    2020. The others raise GradientError.

    >>> from anneal.tensor import Tensor
    >>> qr(Tensor([[3.0], [4.0]])).R.abs()
    Tensor([[5.]], dtype=float32)
    """
    m, n = _matrices(A)
    if mode not in ("reduced", "complete", "r"):
        raise ShapeError(f'linalg.qr: mode is "reduced", "complete" or "r", not {mode!r}')
    k, lead = (m if mode == "complete" else min(m, n)), A.shape[:-2]

    def gradient(a: Tensor, *others: Tensor) -> Tensor:
        if mode == "r" or k > n:
            raise GradientError(f'linalg.qr: mode {mode!r} has no gradient for shape {a.shape}; use "reduced"')
        q, r, gq, gr = others
        if m >= n:
            return _tall(q, r, gq, gr)
        # A = [X, Y] with X square, so R = [R_X, Q^T Y]
        y, g = a[..., m:], gr[..., m:]
        return Tensor.cat([_tall(q, r[..., :m], gq + y @ g.mT, gr[..., :m]), q @ g], dim=-1)

    fault, shapes = "has no such decomposition", [(*lead, m, k), (*lead, k, n)]
    compute: Fun = lambda a: np.linalg.qr(a, mode)  # type: ignore[call-overload]
    if mode == "r":
        return QR(A.detach().new_zeros(0), _called_for_one("qr", fault, compute, shapes[1], [A], gradient, mode))
    return QR(*_called("qr", fault, compute, shapes, [A], gradient, mode))


def _tall(q: Tensor, r: Tensor, gq: Tensor, gr: Tensor) -> Tensor:
    """The cotangent of a matrix with at least as many rows as columns."""
    product = r @ gr.mT - gq.mT @ q
    both = product.tril() + product.tril(-1).mT
    return solve_triangular(r.mT, gq + q @ both, upper=False, left=False)


@_float_op
def householder_product(A: Tensor, tau: Tensor) -> Tensor:
    """The first n columns of H_1 H_2 ... H_k with H_i = I - tau_i v_i v_i^T, where v_i is 1 at i and below that the
    i-th column of A, as LAPACK's QR stores it. Shapes: A (..., m, n), `tau` (..., k) -> (..., m, n); ops of the device.

    >>> from anneal.tensor import Tensor
    >>> householder_product(Tensor([[5.0], [0.5]]), Tensor([1.6])).round(2)
    Tensor([[-0.6],
            [-0.8]], dtype=float32)
    """
    m, n = _matrices(A)
    count = tau.shape[-1] if tau.ndim else 0
    if not count <= n <= m or tau.shape[:-1] != A.shape[:-2]:
        raise ShapeError(f"linalg.householder_product: shapes {A.shape} and {tau.shape} do not fit")
    ones = Tensor.eye(m, n, dtype=A.dtype, device=A.device)
    v = A.tril(-1) + ones
    out = ones.expand(A.shape)
    for i in reversed(range(count)):
        column = v[..., i : i + 1]
        out = out - tau[..., i : i + 1].unsqueeze(-1) * column @ (column.mT @ out)
    return out


# -- matrices as a permutation, a lower and an upper triangle ---------------------------------------------------------


class LU(NamedTuple):
    """The result of `lu`: the matrix is P L U."""

    P: Tensor
    L: Tensor
    U: Tensor


class LUFactor(NamedTuple):
    """The result of `lu_factor`: L below the diagonal of `LU` and U above, and `pivots`: row i and row pivots[i] - 1
    changed places.
    """

    LU: Tensor
    pivots: Tensor


class LUFactorEx(NamedTuple):
    """The result of `lu_factor_ex`: the fields of `LUFactor`, and `info`, the first i for which U[i - 1, i - 1] is 0,
    or 0.
    """

    LU: Tensor
    pivots: Tensor
    info: Tensor


def _rows(pivots: _Array, m: int) -> _Array:
    """The order of m rows after the exchanges that `pivots`, which count from 1, describe."""
    if pivots.shape[-1:] > (m,) or not ((pivots >= 1) & (pivots <= m)).all():
        raise ShapeError(f"pivots are numbers of rows from 1 to {m}, as lu_factor gives them, not {pivots.tolist()}")
    order = np.broadcast_to(np.arange(m), (*pivots.shape[:-1], m)).copy()
    for i in range(pivots.shape[-1]):
        at = pivots[..., i, None].astype(np.int64) - 1
        other = np.take_along_axis(order, at, -1)
        np.put_along_axis(order, at, order[..., i, None].copy(), -1)
        order[..., i, None] = other
    return order


def _eliminated(a: _Array, pivot: bool) -> tuple[_Array, _Array]:
    shape = a.shape
    a = a.reshape(math.prod(shape[:-2]), *shape[-2:]).copy()
    each, k = np.arange(len(a)), min(shape[-2:])
    pivots = np.broadcast_to(np.arange(1, k + 1), (len(a), k)).copy()
    for j in range(k):
        if pivot:
            at = np.abs(a[:, j:, j]).argmax(1) + j
            pivots[:, j] = at + 1
            a[each, at], a[:, j] = a[:, j].copy(), a[each, at].copy()
        head = a[:, j, j, None]
        a[:, j + 1 :, j] /= np.where(head == 0, 1, head)  # as LAPACK: a column of zeros stays
        a[:, j + 1 :, j + 1 :] -= a[:, j + 1 :, j, None] * a[:, j, None, j + 1 :]
    return a.reshape(shape), pivots.reshape(*shape[:-2], k)


def _reordered(x: Tensor, rows: Tensor) -> Tensor:
    """The rows of each matrix in an order of its own."""
    at = rows.cast(dtypes.int32).unsqueeze(-1)
    return x.take_along_dim(at.expand((*rows.shape, x.shape[-1])), -2)


def _packed(A: Tensor, pivot: bool, strict: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """L and U in one, the pivots, and the order of the rows, as floats; a 0 on the diagonal is an error if `strict`."""
    m, n = _matrices(A)
    k = min(m, n)

    def compute(a: _Array) -> list[_Array]:
        with np.errstate(all="ignore"):
            packed, pivots = _eliminated(a, pivot)
        if strict and (np.diagonal(packed, axis1=-2, axis2=-1) == 0).any():
            raise np.linalg.LinAlgError
        rows = _rows(pivots, m)
        return [packed, pivots, rows, rows.argsort(-1)]

    def gradient(*tensors: Tensor) -> Tensor:
        _, packed, _, _, back, g, *_ = tensors
        low, high = _triangles(packed)
        gl, gu = g[..., :k].tril(-1), g[..., :k, :].triu()
        square = high[..., :k].mT
        if m <= n:
            inner = (low.mT @ gl - gu @ high.mT).tril(-1)
            part = gu[..., :k] + solve_triangular(square, inner, upper=False, left=False)
            whole = part if m == n else Tensor.cat([part, gu[..., k:]], dim=-1)
            x = solve_triangular(low.mT, whole, upper=True, unitriangular=True)
        else:
            top = low[..., :k, :]
            inner = (gu @ high.mT - low.mT @ gl).triu()
            part = gl[..., :k, :] + solve_triangular(top.mT, inner, upper=True, unitriangular=True)
            x = solve_triangular(square, Tensor.cat([part, gl[..., k:, :]], dim=-2), upper=False, left=False)
        return _reordered(x, back)

    lead = A.shape[:-2]
    shapes = [A.shape, (*lead, k), (*lead, m), (*lead, m)]
    fault = "is singular: its U has a 0 on the diagonal"
    made = _called("lu_factor", fault, compute, shapes, [A], gradient, (pivot, strict))
    return made[0], made[1].detach(), made[2].detach()


def _triangles(packed: Tensor) -> tuple[Tensor, Tensor]:
    m, n = packed.shape[-2:]
    k = min(m, n)
    ones = Tensor.eye(m, k, dtype=packed.dtype, device=packed.device)
    return packed[..., :k].tril(-1) + ones, packed[..., :k, :].triu()


def _permutation(rows: Tensor, like: Tensor) -> Tensor:
    """The matrix P with A = P (A with its rows in this order)."""
    places = Tensor.arange(rows.shape[-1], device=rows.device)
    return rows.cast(dtypes.int32).unsqueeze(-1).eq(places).cast(like.dtype).mT


@_float_op
def lu(A: Tensor, *, pivot: bool = True) -> LU:
    """P L U of matrices A (..., m, n): a permutation (..., m, m), L with ones on its diagonal (..., m, k) and U
    (..., k, n) with k = min(m, n). Without `pivot` rows keep their places, and P has no elements. On the host.

    >>> from anneal.tensor import Tensor
    >>> lu(Tensor([[0.0, 2.0], [1.0, 3.0]])).U
    Tensor([[1., 3.],
            [0., 2.]], dtype=float32)
    """
    packed, _, rows = _packed(A, pivot)
    return LU(_permutation(rows, A) if pivot else A.detach().new_zeros(0), *_triangles(packed))


@_float_op
def lu_factor(A: Tensor, *, pivot: bool = True) -> LUFactor:
    """L and U of matrices A in one, with the pivots, int32, for `lu_solve`; rows keep their places unless `pivot`. On
    the host.

    Raises LinAlgError, where values are computed, for a singular matrix.

    >>> from anneal.tensor import Tensor
    >>> lu_factor(Tensor([[2.0, 2.0], [1.0, 3.0]])).LU
    Tensor([[2. , 2. ],
            [0.5, 2. ]], dtype=float32)
    """
    packed, pivots, _ = _packed(A, pivot, True)
    return LUFactor(packed, pivots.cast(dtypes.int32))


@_float_op
def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> LUFactorEx:
    """`lu_factor` of A with `pivot`, also of singular matrices, whose `info` is not 0; with `check_errors` they are
    errors.

    >>> from anneal.tensor import Tensor
    >>> lu_factor_ex(Tensor([[2.0, 2.0], [1.0, 1.0]])).info.item()
    2
    """
    packed, pivots, _ = _packed(A, pivot, check_errors)
    zero = packed.detach().diagonal(0, -2, -1).eq(0.0)
    first = zero.int().argmax(-1) + 1 if zero.shape[-1] else zero.sum(-1)
    return LUFactorEx(packed, pivots.cast(dtypes.int32), zero.any(-1).where(first, 0).cast(dtypes.int32))


def _order(pivots: Tensor, m: int, like: Tensor) -> tuple[Tensor, Tensor]:
    """The order of the rows after the exchanges of the pivots, and the inverse of the order, as floats."""

    def compute(given: _Array) -> list[_Array]:
        rows = _rows(given, m)
        return [rows, rows.argsort(-1)]

    shape = (*pivots.shape[:-1], m)
    rows, back = _called("lu_solve", "", compute, [shape, shape], [pivots.cast(like.dtype)], None, m)
    return rows, back


@_on_device
def lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    """X with A X = B, or X A = B unless `left`, by `LU` and `pivots`, the factors of A that `lu_factor` gives; for A's
    transpose if `adjoint`. B is (..., n, k), or (..., k, n) unless `left`. On the host.

    >>> from anneal.tensor import Tensor
    >>> A = Tensor([[0.0, 2.0], [4.0, 0.0]])
    >>> lu_solve(*lu_factor(A), Tensor([[2.0], [4.0]]))
    Tensor([[1.],
            [1.]], dtype=float32)
    """
    n = _squares(LU)
    _matrices(B)
    if pivots.shape != LU.shape[:-1] or B.shape[-2 if left else -1] != n:
        raise ShapeError(
            f"linalg.lu_solve: LU of shape {LU.shape}, pivots of {pivots.shape} and B of {B.shape} do not fit"
        )
    if not left:
        return lu_solve(LU, pivots, B.mT, adjoint=not adjoint).mT
    rows, back = (x.unsqueeze(-1) for x in _order(pivots, n, LU))
    packed, b = _one_batch(LU, B)
    rows, back = (_leading(x, b.shape[:-2]).squeeze(-1) for x in (rows, back))
    if adjoint:
        y = solve_triangular(packed.mT, b, upper=False)
        return _reordered(solve_triangular(packed.mT, y, upper=True, unitriangular=True), back)
    y = solve_triangular(packed, _reordered(b, rows), upper=False, unitriangular=True)
    return solve_triangular(packed, y, upper=True)
