"""Inverses, systems of equations and determinants, and functions made of products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from anneal.errors import ShapeError

from anneal.linalg._spectra import (  # isort: skip
    _Array, _bounds, _called, _called_for_one, _float_op, _matrices, _of_inverse, _on_device, _one_batch, _rank,
    _squares, svdvals,
)  # fmt: skip
from anneal.ops import need_tensor
from anneal.tensor import Tensor

_REGULAR, _MIDDLE = 1e8, 600.0  # bounds of the condition, and of a determinant's logarithm, for an inverse in float64
_SINGULAR = "is singular: it has no inverse"


class SLogDet(NamedTuple):
    """The result of `slogdet`: the `sign` of the determinant, and `logabsdet`, the logarithm of its absolute value."""

    sign: Tensor
    logabsdet: Tensor


class InvEx(NamedTuple):
    """The result of `inv_ex`: the `inverse`, and `info`, 0 for each matrix."""

    inverse: Tensor
    info: Tensor


class SolveEx(NamedTuple):
    """The result of `solve_ex`: the solution as `result`, and `info`, 0 for each matrix."""

    result: Tensor
    info: Tensor


class LstSq(NamedTuple):
    """The result of `lstsq`: the `solution` X, the sums of squared `residuals` (empty where the rank is below n or m is
    n), the `rank` of A, int32, and A's `singular_values`.
    """

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


# -- inverses and systems ---------------------------------------------------------------------------------------------


@_float_op
def inv(A: Tensor) -> Tensor:
    """The inverses of square matrices (..., n, n). On the host.

    Gradient: -Y^T g Y^T for Y = A^-1 (Giles, "An extended collection of matrix derivative results", 2008, 2.2.3).

    Raises ShapeError for matrices that are not square; LinAlgError, where values are computed, for a singular one.

    >>> from anneal.tensor import Tensor
    >>> inv(Tensor([[2.0, 0.0], [0.0, 4.0]]))
    Tensor([[0.5 , 0.  ],
            [0.  , 0.25]], dtype=float32)
    """
    _squares(A)
    return _called_for_one("inv", _SINGULAR, np.linalg.inv, A.shape, [A], _of_inverse)


@_float_op
def inv_ex(A: Tensor, *, check_errors: bool = False) -> InvEx:
    """The inverses of A, and `info`, an int32 0 for each matrix: a singular matrix is always an error here, whatever
    `check_errors` says. On the host.
    """
    return InvEx(inv(A), _no_faults(A))


def _no_faults(A: Tensor) -> Tensor:
    return A.new_zeros(A.shape[:-2], dtype="int32")


@_float_op
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
    n = _squares(A)
    if B.ndim == 1 or B.shape == A.shape[:-1]:
        if B.shape[-1] != n:
            raise ShapeError(f"linalg.solve: matrices of shape {A.shape} and vectors of shape {B.shape} do not fit")
        return _solved(*_one_batch(A if left else A.mT, B.unsqueeze(-1))).squeeze(-1)
    return _of_matrices(A, B, left, n)


def _of_matrices(A: Tensor, B: Tensor, left: bool, n: int) -> Tensor:
    """`solve` of matrices B, of whatever shape."""
    _matrices(B)
    if B.shape[-2 if left else -1] != n:
        raise ShapeError(
            f"linalg.solve: {'A X = B' if left else 'X A = B'} with A of shape {A.shape} and B of shape {B.shape}: "
            f"axis {-2 if left else -1} of B must have {n} elements"
        )
    return _solved(*_one_batch(A, B)) if left else _solved(*_one_batch(A.mT, B.mT)).mT


def _solved(A: Tensor, B: Tensor) -> Tensor:
    """X with A X = B, of equal leading axes."""

    def gradient(a: Tensor, _: Tensor, x: Tensor, g: Tensor) -> list[Tensor]:
        b = _solved(a.mT, g)
        return [-(b @ x.mT), b]

    return _called_for_one("solve", _SINGULAR, np.linalg.solve, B.shape, [A, B], gradient)


@_float_op
def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> SolveEx:
    """`solve` of A and B, on the `left` or the right, and `info`, an int32 0 for each matrix: a singular matrix is
    always an error here, whatever `check_errors` says. On the host.
    """
    return SolveEx(solve(A, B, left=left), _no_faults(A))


@_float_op
def solve_triangular(A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    """`solve` for a triangular A: only its `upper` or its lower triangle is read. With `unitriangular` the diagonal
    counts as ones. On the host.

    B is (..., n, k), or (..., k, n) unless `left`.

    >>> from anneal.tensor import Tensor
    >>> solve_triangular(Tensor([[1.0, 9.0], [2.0, 1.0]]), Tensor([[1.0], [4.0]]), upper=False)
    Tensor([[1.],
            [2.]], dtype=float32)
    """
    n = _squares(A)
    triangle = A.triu(int(unitriangular)) if upper else A.tril(-int(unitriangular))
    if unitriangular:
        triangle = triangle + Tensor.eye(n, dtype=A.dtype, device=A.device)
    return _of_matrices(triangle, B, left, n)


@_float_op
def tensorinv(A: Tensor, ind: int = 2) -> Tensor:
    """The inverse of A for `tensordot(A, B, ind)`: A as a matrix whose rows are its first `ind` axes, and whose columns
    are the others. The matrix must be square.

    On the host.

    >>> from anneal.tensor import Tensor
    >>> tensorinv(Tensor.eye(6).reshape(2, 3, 6)).shape
    (6, 2, 3)
    """
    rows, columns = A.shape[:ind], A.shape[ind:]
    if ind < 1 or math.prod(rows) != math.prod(columns):
        raise ShapeError(f"linalg.tensorinv: the first {ind} and the other axes of shape {A.shape} make no square")
    return inv(A.reshape(math.prod(rows), -1)).reshape(*columns, *rows)


@_float_op
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


@_float_op
def det(A: Tensor) -> Tensor:
    """The determinants of square matrices: (..., n, n) -> (...). On the host. Gradient: g times the cofactors of A
    (Jacobi's formula; Giles 2008, 2.2.4), which singular matrices have too. The second derivative of a singular matrix
    is a LinAlgError.

    >>> from anneal.tensor import Tensor
    >>> det(Tensor([[1.0, 2.0], [3.0, 4.0]])).round(4).item()
    -2.0
    """
    _squares(A)
    gradient = lambda a, _, g: g[..., None, None] * _cofactors(a)
    return _called_for_one("det", "has no determinant", np.linalg.det, A.shape[:-2], [A], gradient)


def _cofactors(A: Tensor) -> Tensor:
    """det(A) A^-T, also of singular matrices."""

    def compute(a: _Array) -> Any:
        wide = a.astype(np.float64)
        sign, size = np.linalg.slogdet(wide)
        if a.size and (np.abs(size) < _MIDDLE).all():
            y = np.swapaxes(np.linalg.inv(wide), -1, -2)
            if (_lengths(wide) * _lengths(y) < _REGULAR).all():
                return (sign * np.exp(size))[..., None, None] * y
        # A = U S V^T: cof(A) = det(U V^T) U cof(S) V^T (Stewart, "On the adjugate matrix", 1998)
        u, s, v = np.linalg.svd(a)
        n = a.shape[-1]
        others = np.where(np.eye(n, dtype=bool), 1, s[..., None, :]).prod(-1)
        sign = np.linalg.det(u) * np.linalg.det(v)
        return sign[..., None, None] * ((u * others[..., None, :]) @ v)

    def gradient(a: Tensor, c: Tensor, g: Tensor) -> Tensor:
        # C = d A^-T with d = det A, so dC = tr(C^T dA) A^-T - A^-T dA^T C
        y = inv(a).mT
        return (g * y).sum((-2, -1), True) * c - c @ g.mT @ y

    return _called_for_one("det", "has no singular values", compute, A.shape, [A], gradient, "cofactors")


@_float_op
def slogdet(A: Tensor) -> SLogDet:
    """The signs of determinants and the logarithms of their sizes: -inf for a singular matrix. On the host.

    Gradient of the logarithm: g A^-T (Giles 2008, 2.2.5); a singular matrix has none: LinAlgError. The sign has no
        gradient.

    >>> from anneal.tensor import Tensor
    >>> sign, size = slogdet(Tensor([[1.0, 2.0], [3.0, 4.0]]))
    >>> sign.item(), size.exp().round(4).item()
    (-1.0, 2.0)
    """
    _squares(A)
    gradient = lambda a, *others: others[-1][..., None, None] * inv(a).mT
    shape = A.shape[:-2]
    made = _called("slogdet", "has no determinant", np.linalg.slogdet, [shape, shape], [A], gradient)
    return SLogDet(made[0].detach(), made[1])


# -- least squares ----------------------------------------------------------------------------------------------------


@_float_op
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
    _matrices(A)
    if hermitian:
        _squares(A)
    return _pseudo_inverse(A, *_bounds(A, atol, rtol), hermitian)


def _pseudo_inverse(A: Tensor, atol: Tensor, rtol: Tensor, lower: bool = False) -> Tensor:
    """The pseudo-inverse by the singular values above `atol`, and `rtol` times the largest; with `lower` of the lower
    triangle alone, with the gradient as if all of A were read, as in torch.
    """
    m, n = A.shape[-2:]

    def compute(a: _Array, least: _Array, share: _Array) -> _Array:
        if lower:
            a = np.tril(a) + np.swapaxes(np.tril(a, -1), -1, -2)
        if (found := _of_full_rank(a, least, share)) is not None:
            return found
        u, s, v = np.linalg.svd(a, full_matrices=False)
        counts = s > np.maximum(least[..., None], share[..., None] * s.max(-1, initial=0, keepdims=True))
        reciprocal = np.where(counts, 1 / np.where(counts, s, 1), 0)
        return np.swapaxes((u * reciprocal[..., None, :]) @ v, -1, -2)

    def gradient(a: Tensor, atol: Tensor, rtol: Tensor, _: Tensor, g: Tensor) -> list[Tensor | None]:
        p = _pseudo_inverse(a, atol, rtol, lower)
        q, t = p.mT, g.mT
        out = -(q @ g @ q)
        # the parts outside the span of the columns, and of the rows: zero where the matrix has full rank
        out = out + (t - a @ (p @ t)) @ (p @ q) + (q @ p) @ (t - (t @ p) @ a)
        return [out, None, None]

    fault = "has no singular values: it has nan or inf"
    return _called_for_one("pinv", fault, compute, (*A.shape[:-2], n, m), [A, atol, rtol], gradient, lower)


def _lengths(a: _Array) -> Any:
    """The Frobenius norms of matrices, which are no less than the largest singular values."""
    return np.linalg.norm(a, axis=(-2, -1))


def _of_full_rank(a: _Array, atol: _Array, rtol: _Array) -> _Array | None:
    """R^-1 Q^T of A = Q R, if the norms of R and R^-1 show that all singular values count; a tenth of SVD's time."""
    wide = a.shape[-2] < a.shape[-1]
    with np.errstate(all="ignore"):
        q, r = np.linalg.qr(np.swapaxes(a, -1, -2) if wide else a)
        if not np.diagonal(r, 0, -2, -1).all():
            return None
        inverse = np.linalg.inv(r)
        if not (_lengths(inverse) * np.maximum(atol, rtol * _lengths(r)) < 1).all():
            return None
        found: _Array = inverse @ np.swapaxes(q, -1, -2)
    return np.swapaxes(found, -1, -2) if wide else found


@_float_op
def lstsq(A: Tensor, B: Tensor, rcond: float | None = None, *, driver: str | None = None) -> LstSq:
    """The X that makes |A X - B| least; if there are several, the one with the least norm: (..., m, n), (..., m, k) ->
    (..., n, k). On the host.

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
    m, n = _matrices(A)
    vectors = B.shape == A.shape[:-1]
    b = B.unsqueeze(-1) if vectors else B
    if b.ndim < 2 or b.shape[-2] != m:
        raise ShapeError(f"{name}: A of shape {A.shape} and B of shape {B.shape}: as many rows are needed")
    a, b = _one_batch(A, b)
    values = svdvals(a.detach())
    x = _pseudo_inverse(a, *_bounds(a, None, rcond)) @ b
    rank = _rank(a, values, None, rcond)
    nothing = A.detach().new_zeros(0)
    told = m > n and driver != "gelsy"
    residuals = (a @ x - b).square().sum(-2) if told else nothing
    return LstSq(
        x.squeeze(-1) if vectors else x,
        residuals.squeeze(-1) if vectors and told else residuals,
        rank.new_zeros(0) if driver == "gels" else rank,
        values if driver in ("gelsd", "gelss") else nothing,
    )


# -- products ---------------------------------------------------------------------------------------------------------
# Products of matrices and vectors, powers and the exponential. All but the exponential run on the tensors' device.


@_on_device
def cross(input: Tensor, other: Any, *, dim: int = -1) -> Tensor:
    """The cross product of vectors of three numbers along the axis `dim`; the other axes of `input` and `other`
    broadcast.

    >>> from anneal.tensor import Tensor
    >>> cross(Tensor([1.0, 0.0, 0.0]), Tensor([0.0, 1.0, 0.0]))
    Tensor([0., 0., 1.], dtype=float32)
    """
    return input.cross(other, dim)


@_on_device
def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonals of the matrices A (..., m, n), or of axes `dim1` and `dim2`, as the last axis; `offset` counts
    diagonals upwards from the main one.

    >>> from anneal.tensor import Tensor
    >>> diagonal(Tensor([[[1, 2], [3, 4]]]))
    Tensor([[1, 4]], dtype=int32)
    """
    return A.diagonal(offset, dim1, dim2)


@_on_device
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
    return x.reshape(-1).vander(count, True).reshape(*x.shape, count)


@_on_device
def matrix_power(A: Tensor, n: int) -> Tensor:
    """The n-th power of square matrices A (..., k, k), by squaring; of the inverse, on the host, if n is negative.

    >>> from anneal.tensor import Tensor
    >>> matrix_power(Tensor([[2.0, 0.0], [0.0, 4.0]]), -2)
    Tensor([[0.25  , 0.    ],
            [0.    , 0.0625]], dtype=float32)
    """
    return (A if n >= 0 else inv(A)).matrix_power(abs(n))


def multi_dot(tensors: Sequence[Tensor]) -> Tensor:
    """The product of the matrices `tensors`, two or more, in the order that takes the fewest multiplications (Cormen et
    al., "Introduction to Algorithms", 15.2). The first may be a vector, which is a row, and the last one, a column.

    >>> from anneal.tensor import Tensor
    >>> multi_dot([Tensor.ones(2, 3), Tensor.ones(3, 1), Tensor.ones(1, 2)]).tolist()
    [[3.0, 3.0], [3.0, 3.0]]
    """
    xs = [need_tensor("each", x, "linalg.multi_dot") for x in tensors]
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
    """The place to split each part of a chain of products."""
    count = len(sizes) - 1
    cost = {(i, i): 0 for i in range(count)}
    best = {}
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


# Coefficients of the diagonal Padé approximant of degree 13 of exp, and the largest 1-norm for which it is exact to
# float64.
_PADE = (
    64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000, 10559470521600,
    670442572800, 33522128640, 1323241920, 40840800, 960960, 16380, 182, 1,
)  # fmt: skip
_FAR = 5.37


def _exponential(a: _Array) -> _Array:
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
    return out


@_float_op
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
    n = _squares(A)

    def gradient(a: Tensor, _: Tensor, g: Tensor) -> Tensor:
        a = a.mT
        top = Tensor.cat([a, g], dim=-1)
        below = Tensor.cat([a * 0.0, a], dim=-1)
        return matrix_exp(Tensor.cat([top, below], dim=-2))[..., :n, n:]

    fault = "has no exponential: it has nan or inf"
    return _called_for_one("matrix_exp", fault, _exponential, A.shape, [A], gradient)
