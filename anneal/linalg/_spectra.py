"""Singular values and vectors, eigenvalues and eigenvectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from anneal.errors import ShapeError
from anneal.linalg._host import called, float_op, matrices, squares
from anneal.tensor import Tensor

FAULT = "has no such decomposition: LAPACK's iteration did not converge; look for nan and inf"


class SVD(NamedTuple):
    """The result of `svd`: `U`, the singular values `S`, descending, and `Vh`, with U diag(S) Vh the matrix."""

    U: Tensor
    S: Tensor
    Vh: Tensor


class Eigh(NamedTuple):
    """The result of `eigh`: `eigenvalues` (..., n), ascending, and `eigenvectors` (..., n, n) as columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


def _per_gap(numerator: Tensor, gap: Tensor) -> Tensor:
    """numerator / gap, and 0 where both are 0: a pair of equal values, on whose vectors nothing depends."""
    nothing = gap.eq(0.0) & numerator.eq(0.0)
    return (numerator / gap.masked_fill(nothing, 1.0)).masked_fill(nothing, 0.0)


def _skew(x: Tensor) -> Tensor:
    return x - x.mT


def _diagonal(x: Tensor) -> Tensor:
    return x.diag_embed()


@float_op
def svd(A: Tensor, full_matrices: bool = True) -> SVD:
    """The singular value decomposition A = U diag(S) Vh, with the largest singular value first. On the host.

    Shapes, with k = min(m, n): (..., m, n) -> U (..., m, k), S (..., k), Vh (..., k, n); U (..., m, m) and
    Vh (..., n, n) if `full_matrices`.

    Gradient: Townsend, "Differentiating the singular value decomposition", 2016. It is infinite, or nan, where
    something depends on the vectors of equal singular values, or of a 0 of a matrix that is not square. Columns of U
    and rows of Vh from the k-th on get none, since any basis does. Signs of vectors are LAPACK's.

    Raises ShapeError for no matrices; LinAlgError, where values are computed, for nan or inf.

    >>> from anneal.tensor import Tensor
    >>> svd(Tensor([[0.0, 2.0], [1.0, 0.0]])).S
    Tensor([2., 1.], dtype=float32)
    """
    m, n = matrices("linalg.svd", A)
    k, lead = min(m, n), A.shape[:-2]

    def gradient(inputs: Sequence[Tensor], outputs: Sequence[Tensor], given: Sequence[Tensor]) -> list[Tensor]:
        u, s, vh = outputs[0][..., :k], outputs[1], outputs[2][..., :k, :]
        gu, gs, gvh = given[0][..., :k], given[1], given[2][..., :k, :]
        row, column = s.unsqueeze(-2), s.unsqueeze(-1)
        gap = (row - column) * (row + column)
        inner = _per_gap(_skew(u.mT @ gu), gap) * row + column * _per_gap(_skew(vh @ gvh.mT), gap) + _diagonal(gs)
        out = u @ inner @ vh
        if m > k:
            out = out + _per_gap(gu - u @ (u.mT @ gu), row.expand(gu.shape)) @ vh
        if n > k:
            out = out + u @ _per_gap(gvh - (gvh @ vh.mT) @ vh, column.expand(gvh.shape))
        return [out]

    shapes = [(*lead, m, m if full_matrices else k), (*lead, k), (*lead, n if full_matrices else k, n)]
    made = called("svd", FAULT, lambda a: np.linalg.svd(a, full_matrices), shapes, [A], gradient, full_matrices)
    return SVD(*made)


@float_op
def svdvals(A: Tensor) -> Tensor:
    """The singular values, the largest first: (..., m, n) -> (..., min(m, n)). On the host.

    Gradient: U diag(g) Vh, which equal singular values have too.

    >>> from anneal.tensor import Tensor
    >>> svdvals(Tensor([[3.0, 0.0], [0.0, 4.0]]))
    Tensor([4., 3.], dtype=float32)
    """
    m, n = matrices("linalg.svdvals", A)

    def gradient(inputs: Sequence[Tensor], outputs: Sequence[Tensor], given: Sequence[Tensor]) -> list[Tensor]:
        u, _, vh = svd(inputs[0], False)
        return [(u * given[0].unsqueeze(-2)) @ vh]

    shape = (*A.shape[:-2], min(m, n))
    return called("svdvals", FAULT, lambda a: [np.linalg.svd(a, compute_uv=False)], [shape], [A], gradient)[0]


def _triangle(name: str, UPLO: str) -> Any:
    if UPLO.upper() not in ("L", "U"):
        raise ShapeError(f'{name}: UPLO is "L" or "U", the triangle that is read, not {UPLO!r}')
    return UPLO.upper()


@float_op
def eigh(A: Tensor, UPLO: str = "L") -> Eigh:
    """Eigenvalues, ascending, and eigenvectors as columns, of symmetric matrices: (..., n, n) -> (..., n), (..., n, n).

    Of A the lower triangle is read, or the upper by "U". On the host.

    Gradient: V (diag(gL) + V^T gV / (L_j - L_i)) V^T (Giles 2008, 3.1), infinite or nan where something depends on the
    vectors of equal eigenvalues. Signs of vectors are LAPACK's.

    Raises ShapeError for matrices that are not square; LinAlgError, where values are computed, for nan or inf.

    >>> from anneal.tensor import Tensor
    >>> eigh(Tensor([[2.0, 1.0], [1.0, 2.0]])).eigenvalues
    Tensor([1., 3.], dtype=float32)
    """
    squares("linalg.eigh", A)
    uplo = _triangle("linalg.eigh", UPLO)

    def gradient(inputs: Sequence[Tensor], outputs: Sequence[Tensor], given: Sequence[Tensor]) -> list[Tensor]:
        values, v = outputs
        gap = values.unsqueeze(-2) - values.unsqueeze(-1)
        turns = _skew(v.mT @ given[1]) * 0.5
        return [v @ (_per_gap(turns, gap) + _diagonal(given[0])) @ v.mT]

    shapes = [A.shape[:-1], A.shape]
    made = called("eigh", FAULT, lambda a: np.linalg.eigh(a, uplo), shapes, [A], gradient, uplo)
    return Eigh(*made)


@float_op
def eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:
    """The eigenvalues of symmetric matrices A, ascending: (..., n, n) -> (..., n); of A the lower triangle is read, or
    the upper by UPLO="U". On the host.

    Gradient: V diag(g) V^T, which equal eigenvalues have too.

    >>> from anneal.tensor import Tensor
    >>> eigvalsh(Tensor([[2.0, 1.0], [1.0, 2.0]]))
    Tensor([1., 3.], dtype=float32)
    """
    squares("linalg.eigvalsh", A)
    uplo = _triangle("linalg.eigvalsh", UPLO)

    def gradient(inputs: Sequence[Tensor], outputs: Sequence[Tensor], given: Sequence[Tensor]) -> list[Tensor]:
        v = eigh(inputs[0], uplo).eigenvectors
        return [(v * given[0].unsqueeze(-2)) @ v.mT]

    return called("eigvalsh", FAULT, lambda a: [np.linalg.eigvalsh(a, uplo)], [A.shape[:-1]], [A], gradient, uplo)[0]
