"""The standard's linear algebra extension: `anneal.linalg` by the standard's names and arguments."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from anneal import linalg
from anneal.array_api._dtypes import result_type, standards
from anneal.array_api._functions import matmul, matrix_transpose, sum as _sum, tensordot, vecdot
from anneal.tensor import Tensor

__all__ = [
    "cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "matmul", "matrix_norm", "matrix_power",
    "matrix_rank", "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve", "svd", "svdvals", "tensordot",
    "trace", "vecdot", "vector_norm",
]  # fmt: skip


class QRResult(NamedTuple):
    """The result of `qr`: `Q` with orthonormal columns and the upper triangle `R`, whose product is the matrix."""

    Q: Tensor
    R: Tensor


class EighResult(NamedTuple):
    """The result of `eigh`: `eigenvalues` (..., n), ascending, and `eigenvectors` (..., n, n) as columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class SlogdetResult(NamedTuple):
    """The result of `slogdet`: the `sign` of the determinant, and `logabsdet`, the logarithm of its absolute value."""

    sign: Tensor
    logabsdet: Tensor


class SVDResult(NamedTuple):
    """The result of `svd`: `U`, the singular values `S`, descending, and `Vh`, with U diag(S) Vh the matrix."""

    U: Tensor
    S: Tensor
    Vh: Tensor


def cholesky(x: Tensor, /, *, upper: bool = False) -> Tensor:
    """`anneal.linalg.cholesky`."""
    return linalg.cholesky(x, upper=upper)


@standards
def cross(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The vector products of vectors of three numbers along an axis, counted from the end; the other axes broadcast."""
    ndim = max(x1.ndim, x2.ndim)
    x1, x2 = [x.reshape((*[1] * (ndim - x.ndim), *x.shape)) for x in (x1, x2)]
    return linalg.cross(x1, x2, dim=axis)


def det(x: Tensor, /) -> Tensor:
    """`anneal.linalg.det`."""
    return linalg.det(x)


def diagonal(x: Tensor, /, *, offset: int = 0) -> Tensor:
    """The diagonals of matrices, as the last axis."""
    return linalg.diagonal(x, offset=offset)


def eigh(x: Tensor, /) -> EighResult:
    """`anneal.linalg.eigh`."""
    return EighResult(*linalg.eigh(x))


def eigvalsh(x: Tensor, /) -> Tensor:
    """`anneal.linalg.eigvalsh`."""
    return linalg.eigvalsh(x)


def inv(x: Tensor, /) -> Tensor:
    """`anneal.linalg.inv`."""
    return linalg.inv(x)


def matrix_norm(x: Tensor, /, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    """`anneal.linalg.matrix_norm` of the last two axes."""
    return linalg.matrix_norm(x, ord, keepdim=keepdims)


def matrix_power(x: Tensor, n: int, /) -> Tensor:
    """`anneal.linalg.matrix_power`."""
    return linalg.matrix_power(x, n)


def matrix_rank(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """`anneal.linalg.matrix_rank`: int32."""
    return linalg.matrix_rank(x, rtol=rtol)


@standards
def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The product of every element of one vector and every element of the other."""
    return linalg.outer(x1, x2)


def pinv(x: Tensor, /, *, rtol: Any = None) -> Tensor:
    """`anneal.linalg.pinv`."""
    return linalg.pinv(x, rtol=rtol)


def qr(x: Tensor, /, *, mode: str = "reduced") -> QRResult:
    """`anneal.linalg.qr`; mode is "reduced" or "complete"."""
    return QRResult(*linalg.qr(x, mode))


def slogdet(x: Tensor, /) -> SlogdetResult:
    """`anneal.linalg.slogdet`."""
    return SlogdetResult(*linalg.slogdet(x))


def solve(x1: Tensor, x2: Tensor, /) -> Tensor:
    """X with x1 X = x2, in the dtype in which both meet; x2 is one vector if it has one axis, else matrices."""
    kind = result_type(x1, x2)
    x1, x2 = x1.cast(kind), x2.cast(kind)
    if x2.ndim > 1 and x2.ndim == x1.ndim - 1:
        x2 = x2.unsqueeze(0)  # torch would take it for a vector for each matrix
    return linalg.solve(x1, x2)


def svd(x: Tensor, /, *, full_matrices: bool = True) -> SVDResult:
    """`anneal.linalg.svd`."""
    return SVDResult(*linalg.svd(x, full_matrices))


def svdvals(x: Tensor, /) -> Tensor:
    """`anneal.linalg.svdvals`."""
    return linalg.svdvals(x)


def trace(x: Tensor, /, *, offset: int = 0, dtype: Any = None) -> Tensor:
    """The sums of the diagonals of matrices. Dtypes as those of `sum`."""
    return _sum(linalg.diagonal(x, offset=offset), axis=-1, dtype=dtype)


def vector_norm(x: Tensor, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Tensor:
    """`anneal.linalg.vector_norm`; that of nothing is 0."""
    if ord == math.inf and not math.prod(x.shape):
        ord = 1  # there is no largest element
    return linalg.vector_norm(x, ord, axis, keepdims)
