"""Calls of NumPy's LAPACK; singular values and vectors, eigenvalues and eigenvectors, norms and ranks by them."""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from anneal.backend import numpy_settings
from anneal.errors import DTypeError, LinAlgError, ShapeError
from anneal.ops import Shape, broadcast_shapes, checked, two_axes
from anneal.runtime import F, Fun, mapped
from anneal.tensor import Tensor, dtypes, host_call

_Array = npt.NDArray[Any]
# Elements of a matrix up to which LAPACK gains nothing by threads, and loses much where other programs run.
_ALONE = 1 << 17
_Tensors = Sequence[Tensor]


def _float_op(function: F) -> F:
    """A decorator of functions of float tensors: errors name `linalg.NAME`; narrower floats are computed in float32,
    and the results are cast back.

    Raises DTypeError for tensors of other dtypes.
    """
    title = f"linalg.{function.__name__}"

    @functools.wraps(function)
    def _called(*args: Any, **options: Any) -> Any:
        # tolerances are of any dtype
        given = [*args, *[a for what, a in options.items() if what not in ("atol", "rtol", "tol")]]
        tensors = [a for a in given if isinstance(a, Tensor)]
        for x in tensors:
            if not x.dtype.is_float:
                raise DTypeError(f"{title}: takes floats, not {x.dtype.name}; use .float()")
        kinds = {x.dtype for x in tensors}
        if len(kinds) > 1:
            names = " and ".join(sorted(k.name for k in kinds))
            raise DTypeError(f"{title}: takes tensors of one dtype, not {names}; use .cast")
        narrow = next((k for k in kinds if k.bits < 32), None)
        if narrow is None:
            return function(*args, **options)
        single = lambda x: x.cast(dtypes.float32) if isinstance(x, Tensor) else x
        made = function(*map(single, args), **mapped(options, single))
        return mapped(made, lambda x: x.cast(narrow) if x.dtype.is_float else x)

    return checked(_called, title)  # type: ignore[return-value]


def _on_device(function: F) -> F:
    """A decorator of functions that the device computes: errors name `linalg.NAME`."""
    return checked(function, f"linalg.{function.__name__}")


def _matrices(x: Tensor) -> tuple[int, int]:
    """The sizes of the last two axes. Raises ShapeError for a tensor with fewer axes."""
    if x.ndim < 2:
        raise ShapeError(f"takes matrices, the last two axes, not shape {x.shape}")
    return x.shape[-2], x.shape[-1]


def _squares(x: Tensor) -> int:
    """The size n of square matrices (..., n, n). Raises ShapeError for others."""
    m, n = _matrices(x)
    if m != n:
        raise ShapeError(f"takes square matrices, not shape {x.shape}")
    return m


def _leading(x: Tensor, shape: Shape) -> Tensor:
    """The matrices of `x` broadcast over these leading axes."""
    wide = (*shape, *x.shape[-2:])
    return x if x.shape == wide else x.expand(wide)


def _one_batch(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Two batches of matrices with equal leading axes."""
    lead = broadcast_shapes(a.shape[:-2], b.shape[:-2], name="linalg")
    return _leading(a, lead), _leading(b, lead)


def _called(
    name: str,
    fault: str,
    compute: Fun,
    results: Sequence[Shape],
    inputs: _Tensors,
    gradient: Fun | None,
    key: Hashable = (),
) -> list[Tensor]:
    """The results, of these shapes, of `compute` on the host, which takes and gives arrays of matrices with equal
    leading axes. `key` tells calls of one name apart; `fault` is the error's text for a matrix that LAPACK refuses.

    `gradient` takes inputs, results and cotangents of results, one after another, and gives the inputs' cotangents.
    Whatever `compute` gives is cast to the dtype of the inputs.
    """
    dtype, title = inputs[0].dtype, f"linalg.{name}"

    def run(*arrays: _Array) -> list[_Array]:
        small = all(math.prod(a.shape[-2:]) <= _ALONE for a in arrays)
        try:
            with numpy_settings(one_blas_thread=small):
                made = compute(*arrays)
        except np.linalg.LinAlgError as error:
            raise _named(title, fault, compute, arrays) from error
        return [np.asarray(a).astype(arrays[0].dtype, copy=False) for a in made]

    def pull(inputs: _Tensors, outputs: _Tensors, given: _Tensors) -> Any:
        return gradient(*inputs, *outputs, *given)  # type: ignore[misc]

    def alone(t: Tensor) -> Tensor:
        """A result that depends on no element: the gradient of the inputs is zero rather than missing."""
        for x in inputs:
            t = t + x.flatten()[:0].sum() if x.requires_grad else t
        return t

    if all(0 in shape for shape in results):
        return [alone(Tensor.zeros(*shape, dtype=dtype, device=inputs[0].device)) for shape in results]
    if any(0 in shape for shape in (*results, *[x.shape for x in inputs])):
        # operands or results without elements: the host is not called
        zeros = [np.zeros(x.shape, dtype.name) for x in inputs]
        return [alone(Tensor(a, device=inputs[0].device)) for a in run(*zeros)]
    pairs, own = [(shape, dtype) for shape in results], (title, key, dtype.name)
    return list(host_call(run, pairs, *inputs, key=own, gradient=gradient and pull, vmap_method="broadcast_all"))


def _called_for_one(
    name: str, fault: str, compute: Fun, shape: Shape, inputs: _Tensors, gradient: Fun, key: Hashable = ()
) -> Tensor:
    """`called` for a function with one result, of this shape."""
    return _called(name, fault, lambda *arrays: [compute(*arrays)], [shape], inputs, gradient, key)[0]


def _named(title: str, fault: str, compute: Fun, arrays: Sequence[_Array]) -> LinAlgError:
    """The error of the first matrix of a batch that LAPACK refuses."""
    lead = arrays[0].shape[:-2]
    for index in np.ndindex(*lead):
        try:
            compute(*[a[index] for a in arrays])
        except np.linalg.LinAlgError:
            which = f"matrix {index[0] if len(index) == 1 else index} of the batch" if index else "the matrix"
            return LinAlgError(f"{title}: {which} {fault}")
    return LinAlgError(f"{title}: a matrix {fault}")


# -- singular values and vectors, eigenvalues and eigenvectors --------------------------------------------------------


_FAULT = "has no such decomposition: LAPACK's iteration did not converge; look for nan and inf"


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
    """numerator / gap, and 0 where both are 0: the pair's values are equal, and nothing depends on their vectors."""
    nothing = gap.eq(0.0) & numerator.eq(0.0)
    return (numerator / gap.masked_fill(nothing, 1.0)).masked_fill(nothing, 0.0)


def _skew(x: Tensor) -> Tensor:
    return x - x.mT


@_float_op
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
    m, n = _matrices(A)
    k, lead = min(m, n), A.shape[:-2]

    def gradient(*tensors: Tensor) -> Tensor:
        _, u, s, vh, gu, gs, gvh = tensors
        u, vh, gu, gvh = u[..., :k], vh[..., :k, :], gu[..., :k], gvh[..., :k, :]
        row, column = s.unsqueeze(-2), s.unsqueeze(-1)
        gap = (row - column) * (row + column)
        inner = _per_gap(_skew(u.mT @ gu), gap) * row + column * _per_gap(_skew(vh @ gvh.mT), gap) + gs.diag_embed()
        out = u @ inner @ vh
        if m > k:
            out = out + _per_gap(gu - u @ (u.mT @ gu), row.expand(gu.shape)) @ vh
        if n > k:
            out = out + u @ _per_gap(gvh - (gvh @ vh.mT) @ vh, column.expand(gvh.shape))
        return out

    shapes = [(*lead, m, m if full_matrices else k), (*lead, k), (*lead, n if full_matrices else k, n)]
    made = _called("svd", _FAULT, lambda a: np.linalg.svd(a, full_matrices), shapes, [A], gradient, full_matrices)
    return SVD(*made)


@_float_op
def svdvals(A: Tensor) -> Tensor:
    """The singular values, the largest first: (..., m, n) -> (..., min(m, n)). On the host.

    Gradient: U diag(g) Vh, which equal singular values have too.

    >>> from anneal.tensor import Tensor
    >>> svdvals(Tensor([[3.0, 0.0], [0.0, 4.0]]))
    Tensor([4., 3.], dtype=float32)
    """
    shape = (*A.shape[:-2], min(_matrices(A)))

    def gradient(a: Tensor, _: Tensor, g: Tensor) -> Tensor:
        u, _, vh = svd(a, False)
        return (u * g.unsqueeze(-2)) @ vh

    return _called_for_one("svdvals", _FAULT, lambda a: np.linalg.svd(a, compute_uv=False), shape, [A], gradient)


def _triangle(UPLO: str) -> Any:
    if UPLO.upper() not in ("L", "U"):
        raise ShapeError(f'UPLO is "L" or "U", the triangle that is read, not {UPLO!r}')
    return UPLO.upper()


@_float_op
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
    _squares(A)
    uplo = _triangle(UPLO)

    def gradient(*tensors: Tensor) -> Tensor:
        _, values, v, given, turned = tensors
        gap = values.unsqueeze(-2) - values.unsqueeze(-1)
        turns = _skew(v.mT @ turned) * 0.5
        return v @ (_per_gap(turns, gap) + given.diag_embed()) @ v.mT

    shapes = [A.shape[:-1], A.shape]
    made = _called("eigh", _FAULT, lambda a: np.linalg.eigh(a, uplo), shapes, [A], gradient, uplo)
    return Eigh(*made)


@_float_op
def eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:
    """The eigenvalues of symmetric matrices A, ascending: (..., n, n) -> (..., n); of A the lower triangle is read, or
    the upper by UPLO="U". On the host.

    Gradient: V diag(g) V^T, which equal eigenvalues have too.

    >>> from anneal.tensor import Tensor
    >>> eigvalsh(Tensor([[2.0, 1.0], [1.0, 2.0]]))
    Tensor([1., 3.], dtype=float32)
    """
    _squares(A)
    uplo = _triangle(UPLO)

    def gradient(a: Tensor, _: Tensor, g: Tensor) -> Tensor:
        v = eigh(a, uplo).eigenvectors
        return (v * g.unsqueeze(-2)) @ v.mT

    compute = lambda a: np.linalg.eigvalsh(a, uplo)
    return _called_for_one("eigvalsh", _FAULT, compute, A.shape[:-1], [A], gradient, uplo)


# -- norms, ranks and conditions --------------------------------------------------------------------------------------
# Norms of vectors and matrices, condition numbers and ranks.


def _cast(x: Tensor, dtype: Any) -> Tensor:
    return x if dtype is None else x.cast(dtype)


@_on_device
def vector_norm(
    x: Tensor,
    ord: float = 2,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
) -> Tensor:
    """The norm of vectors along axes, of all elements if `dim` is None, in x's dtype, without the reduced axes.
    Computed on the tensor's device.

    The gradient of the norm of zeros is 0.

    Args:
        x: a tensor of floats, of any shape.
        ord: the order, any number: inf and -inf are the largest and the smallest absolute value, 0 counts the elements
            that are not 0.
        dim: an axis, or several.
        keepdim: whether reduced axes stay, with size 1.
        dtype: the dtype that x is cast to first; None: its own.

    >>> from anneal.tensor import Tensor
    >>> vector_norm(Tensor([3.0, 4.0])).item()
    5.0
    """
    return _cast(x, dtype).norm(ord, dim, keepdim)


@_on_device
def matrix_norm(
    A: Tensor, ord: float | str = "fro", dim: Sequence[int] = (-2, -1), keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """The norm of matrices, in A's dtype, without the two axes. The norms of singular values run on the host.

    Raises ShapeError for another `ord`, or one axis twice.

    Args:
        A: a tensor of floats with two axes or more.
        ord: "fro"; 1 (-1), the largest (smallest) sum of absolute values of a column, inf (-inf) of a row; 2 (-2), the
            largest (smallest) singular value, or "nuc", their sum.
        dim: the two axes that are rows and columns.
        keepdim: whether both axes stay, with size 1.
        dtype: the dtype that A is cast to first; None: its own.

    >>> from anneal.tensor import Tensor
    >>> A = Tensor([[3.0, 0.0], [0.0, 4.0]])
    >>> matrix_norm(A).item(), matrix_norm(A, 2).item(), matrix_norm(A, "nuc").item()
    (5.0, 4.0, 7.0)
    """
    A = _cast(A, dtype)
    if ord not in ("nuc", 2, -2):
        return A.matrix_norm(ord, dim, keepdim)
    row, column = two_axes(A, dim)
    values = svdvals(A.movedim((row, column), (-2, -1)))
    if ord == "nuc" or (ord == 2 and not values.shape[-1]):
        out = values.sum(-1)
    else:
        out = values.amax(-1) if ord == 2 else values.amin(-1)
    return out.reshape([1 if i in (row, column) else n for i, n in enumerate(A.shape)]) if keepdim else out


@_on_device
def norm(
    A: Tensor,
    ord: float | str | None = None,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: Any = None,
) -> Tensor:
    """`matrix_norm` of two axes with an `ord`, else `vector_norm`; of all elements if neither is given.

    `ord` without `dim` is for a vector or one matrix.

    Args:
        A: a tensor of floats, of any shape.
        ord: the order, as for these two; None: 2.
        dim: an axis, or several; None: all.
        keepdim: whether reduced axes stay, with size 1.
        dtype: the dtype that A is cast to first; None: its own.

    >>> from anneal.tensor import Tensor
    >>> norm(Tensor([[3.0, 4.0], [0.0, 0.0]])).item()
    5.0
    """
    if ord is not None and dim is None and A.ndim not in (1, 2):
        raise ShapeError(f"linalg.norm: shape {A.shape} is neither a vector nor a matrix; name the axes by dim=")
    axes = range(A.ndim) if dim is None else (dim,) if isinstance(dim, int) else dim
    if ord is not None and len(axes) == 2:
        return matrix_norm(A, ord, tuple(axes), keepdim, dtype=dtype)
    if isinstance(ord, str):
        raise ShapeError(f"linalg.norm: {ord!r} is a norm of matrices, and {dim} of shape {A.shape} is none")
    return vector_norm(A, 2 if ord is None else ord, dim, keepdim, dtype=dtype)


# -- conditions and ranks ---------------------------------------------------------------------------------------------


@_float_op
def cond(A: Tensor, p: float | str | None = None) -> Tensor:
    """The condition numbers: the largest singular value over the least (p is None or 2; its reciprocal by -2), or
    |A| |A^-1| in the norm p of `matrix_norm`. A singular matrix has inf. On the host.

    >>> from anneal.tensor import Tensor
    >>> cond(Tensor([[4.0, 0.0], [0.0, 2.0]])).item()
    2.0
    """
    if p in (None, 2, -2):
        _matrices(A)
        values = svdvals(A)
        high, low = values.amax(-1), values.amin(-1)
        return low / high if p == -2 else _nan_is_inf(high / low, A)
    _squares(A)
    assert p is not None
    return _nan_is_inf(matrix_norm(A, p) * matrix_norm(_inverse_or_inf(A), p), A)


def _nan_is_inf(x: Tensor, A: Tensor) -> Tensor:
    """inf in place of nan, which 0 * inf gives for a matrix of zeros; nan where A has a nan."""
    return x.masked_fill(x.isnan() & ~A.isnan().any((-2, -1)), float("inf"))


def _of_inverse(_: Tensor, y: Tensor, g: Tensor) -> Tensor:
    """The cotangent of a matrix by that of its inverse `y`: Giles 2008, 2.2.3."""
    y = y.mT
    return -(y @ g @ y)


def _inverse_or_inf(A: Tensor) -> Tensor:
    """The inverses; a singular matrix has inf everywhere."""

    def compute(a: _Array) -> _Array:
        try:
            return np.linalg.inv(a)
        except np.linalg.LinAlgError:
            return np.full_like(a, np.inf) if a.ndim == 2 else np.stack(list(map(compute, a)))

    return _called_for_one("cond", "has no inverse", compute, A.shape, [A], _of_inverse)


def _bounds(A: Tensor, atol: Any, rtol: Any) -> tuple[Tensor, Tensor]:
    """atol and rtol for each matrix: a singular value counts above both atol and rtol times the largest. By default
    rtol is the larger size times the dtype's epsilon, or 0 beside an atol.
    """
    if rtol is None:
        given = atol is not None and (isinstance(atol, Tensor) or atol > 0)
        rtol = 0.0 if given else max(A.shape[-2:]) * _EPSILON[A.dtype.name]
    least, share = (
        (b if isinstance(b, Tensor) else A.new_full((), float(b or 0))).cast(A.dtype).expand(A.shape[:-2])
        for b in (atol, rtol)
    )
    return least, share


def _rank(A: Tensor, values: Tensor, atol: Any, rtol: Any) -> Tensor:
    """The number of singular values that count, int32."""
    atol, rtol = _bounds(A, atol, rtol)
    if not values.shape[-1]:
        return values.new_zeros(values.shape[:-1], dtype="int32")
    least: Tensor = atol.maximum(rtol * values.amax(-1)).unsqueeze(-1)
    return (values > least).sum(-1).cast(dtypes.int32)


_EPSILON = {"float32": 2.0**-23, "float64": 2.0**-52}


@_float_op
def matrix_rank(
    A: Tensor,
    tol: float | Tensor | None = None,
    *,
    atol: float | Tensor | None = None,
    rtol: float | Tensor | None = None,
    hermitian: bool = False,
) -> Tensor:
    """The number of singular values (absolute eigenvalues if `hermitian`) above max(atol, rtol * the largest), int32:
    (..., m, n) -> (...). `tol` is another name of an atol beside which rtol is 0. On the host.

    rtol is max(m, n) times the dtype's epsilon if neither is given.

    >>> from anneal.tensor import Tensor
    >>> matrix_rank(Tensor([[1.0, 2.0], [2.0, 4.0]])).item()
    1
    """
    _matrices(A)
    if tol is not None:
        atol, rtol = tol, 0.0
    return _rank(A, eigvalsh(A.detach()).abs() if hermitian else svdvals(A.detach()), atol, rtol)
