"""Decompositions into triangles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from anneal.errors import GradientError, ShapeError
from anneal.linalg._host import Array, called, float_op, matrices, squares
from anneal.linalg._solving import solve_triangular
from anneal.tensor import Tensor


class QR(NamedTuple):
    """The result of `qr`: `Q` with orthonormal columns and the upper triangle `R`, whose product is the matrix."""

    Q: Tensor
    R: Tensor


@float_op
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
    squares("linalg.cholesky", A)

    def gradient(inputs: Sequence[Tensor], outputs: Sequence[Tensor], given: Sequence[Tensor]) -> list[Tensor]:
        low = outputs[0]
        product = low.mT @ given[0]
        half = (product.tril() + product.tril(-1)) * 0.5
        left = solve_triangular(low.mT, half, upper=True)
        whole = solve_triangular(low, left, upper=False, left=False)
        return [(whole + whole.mT) * 0.5]

    fault = "is not positive definite, or not finite"
    low = called("cholesky", fault, lambda a: [np.linalg.cholesky(a)], [A.shape], [A], gradient)[0]
    return low.mT if upper else low


@float_op
def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False) -> tuple[Tensor, Tensor]:
    """`cholesky` of A, lower or `upper`, and an int32 of 0 for each matrix: a matrix without a factor is always an
    error here, whatever `check_errors` says.
    """
    return cholesky(A, upper=upper), Tensor.zeros(A.shape[:-2], dtype="int32", device=A.device)


@float_op
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
    m, n = matrices("linalg.qr", A)
    if mode not in ("reduced", "complete", "r"):
        raise ShapeError(f'linalg.qr: mode is "reduced", "complete" or "r", not {mode!r}')
    k, lead = (m if mode == "complete" else min(m, n)), A.shape[:-2]

    def gradient(inputs: Sequence[Tensor], outputs: Sequence[Tensor], given: Sequence[Tensor]) -> list[Tensor]:
        if mode == "r" or k > n:
            raise GradientError(f'linalg.qr: mode {mode!r} has no gradient for shape {inputs[0].shape}; use "reduced"')
        q, r = outputs
        gq, gr = given
        if m >= n:
            return [_tall(q, r, gq, gr)]
        # A = [X, Y] with X square, so R = [R_X, Q^T Y]
        y, g = inputs[0][..., m:], gr[..., m:]
        return [Tensor.cat([_tall(q, r[..., :m], gq + y @ g.mT, gr[..., :m]), q @ g], dim=-1)]

    def compute(a: Array) -> Sequence[Array]:
        made: Any = np.linalg.qr(a, mode)  # type: ignore[call-overload]
        return [made] if mode == "r" else list(made)

    fault = "has no such decomposition"
    if mode == "r":
        nothing: Tensor = Tensor.zeros(0, dtype=A.dtype, device=A.device)
        return QR(nothing, called("qr", fault, compute, [(*lead, k, n)], [A], gradient, mode)[0])
    return QR(*called("qr", fault, compute, [(*lead, m, k), (*lead, k, n)], [A], gradient, mode))


def _tall(q: Tensor, r: Tensor, gq: Tensor, gr: Tensor) -> Tensor:
    """The cotangent of a matrix with at least as many rows as columns."""
    product = r @ gr.mT - gq.mT @ q
    both = product.tril() + product.tril(-1).mT
    return solve_triangular(r.mT, gq + q @ both, upper=False, left=False)


@float_op
def householder_product(A: Tensor, tau: Tensor) -> Tensor:
    """The first n columns of H_1 H_2 ... H_k with H_i = I - tau_i v_i v_i^T, where v_i is 1 at i and below that the
    i-th column of A, as LAPACK's QR stores it. Shapes: A (..., m, n), `tau` (..., k) -> (..., m, n); ops of the device.

    >>> from anneal.tensor import Tensor
    >>> householder_product(Tensor([[5.0], [0.5]]), Tensor([1.6])).round(2)
    Tensor([[-0.6],
            [-0.8]], dtype=float32)
    """
    m, n = matrices("linalg.householder_product", A)
    count = tau.shape[-1] if tau.ndim else 0
    if not count <= n <= m or tau.shape[:-1] != A.shape[:-2]:
        raise ShapeError(f"linalg.householder_product: shapes {A.shape} and {tau.shape} do not fit")
    ones: Tensor = Tensor.eye(m, n, dtype=A.dtype, device=A.device)
    v = A.tril(-1) + ones
    out = ones.expand(A.shape)
    for i in reversed(range(count)):
        column = v[..., i : i + 1]
        out = out - tau[..., i : i + 1].unsqueeze(-1) * column @ (column.mT @ out)
    return out
