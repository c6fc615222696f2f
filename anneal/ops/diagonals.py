"""Triangles and diagonals, and turns by right angles."""

from __future__ import annotations

from collections.abc import Sequence

from anneal.errors import PositionError, ShapeError
from anneal.names import Tensor
from anneal.ops.arguments import function
from anneal.ops.checks import axes_of, axis_of, need_axes
from anneal.ops.elementwise import beside
from anneal.ops.nodes import broadcast, iota, pad, permute, reshape, shrink
from anneal.uop import const
from anneal.uop.sizes import most


@function(in_place=True)
def tril(x: Tensor, diagonal: int = 0) -> Tensor:
    """The lower triangle of the last two axes; 0 above the diagonal.

    >>> from anneal.tensor import Tensor
    >>> Tensor.ones(2, 2).tril()
    Tensor([[1., 0.],
            [1., 1.]], dtype=float32)
    """
    return _triangle(x, "tril", diagonal, True)


@function(in_place=True)
def triu(x: Tensor, diagonal: int = 0) -> Tensor:
    """The upper triangle of the last two axes; 0 below the diagonal.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1, 2], [3, 4]]).triu()
    Tensor([[1, 2],
            [0, 4]], dtype=int32)
    """
    return _triangle(x, "triu", diagonal, False)


def _triangle(x: Tensor, name: str, diagonal: int, lower: bool) -> Tensor:
    s = x.shape
    if len(s) < 2:
        raise PositionError(f"{name}: needs two axes or more, not shape {s}")
    row = broadcast(iota(s[-2], 0, 2), s[-2:])
    column = broadcast(iota(s[-1], 1, 2), s[-2:])
    diagonal = max(-most(s[-2]), min(diagonal, most(s[-1])))  # further off there is none, and sums may not fit int32
    edge = row + diagonal if diagonal else row
    keep = edge >= column if lower else column >= edge
    u = x.uop
    return x._new(broadcast(keep, s).where(u, 0))


@function(function_alias="diagonal_copy", view=True)
def diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The diagonal of two axes, as the last axis.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1, 2], [3, 4]]).diagonal()
    Tensor([1, 4], dtype=int32)
    """
    n = x.ndim
    if n < 2:
        raise PositionError(f"diagonal: needs two axes or more, not shape {x.shape}")
    a, b = axis_of("diagonal", dim1, n), axis_of("diagonal", dim2, n)
    if a == b:
        raise ShapeError(f"diagonal: dim1 and dim2 are both axis {a}; name two different ones")
    u = permute(x.uop, [i for i in range(n) if i not in (a, b)] + [a, b])
    rest, (rows, columns) = u.shape[:-2], u.shape[-2:]
    top, left = max(0, -offset), max(0, offset)
    d = max(0, min(rows - top, columns - left))
    whole = tuple([(0, m) for m in rest])
    if not d:
        return x._new(beside(broadcast(const(u.dtype, 0), (*rest, 0)), x))
    u = shrink(u, (*whole, (top, top + d), (left, left + d)))
    # rows one longer put the diagonal under itself
    u = pad(reshape(u, (*rest, d * d)), (*((0, 0) for _ in rest), (0, d)))
    u = shrink(reshape(u, (*rest, d, d + 1)), (*whole, (0, d), (0, 1)))
    return x._new(reshape(u, (*rest, d)))


@function
def diag(x: Tensor, diagonal: int = 0) -> Tensor:
    """The diagonal of a matrix, or the matrix with a vector as its diagonal.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 2]).diag()
    Tensor([[1, 0],
            [0, 2]], dtype=int32)
    """
    if x.ndim == 2:
        return x.diagonal(diagonal)
    if x.ndim != 1:
        raise ShapeError(f"diag: takes one or two axes, not shape {x.shape}")
    n = x.shape[0]
    u = pad(reshape(x.uop, (n, 1)), ((0, 0), (0, n)))
    u = reshape(shrink(reshape(u, (n * (n + 1),)), ((0, n * n),)), (n, n))
    off = abs(diagonal)
    return x._new(pad(u, ((0, off), (off, 0)) if diagonal > 0 else ((off, 0), (0, off))))


@function
def diag_embed(x: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """A matrix for each row of the last axis, with the row as its diagonal and 0 elsewhere.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1, 2], [3, 4]]).diag_embed().shape
    (2, 2, 2)
    """
    s = x.shape
    if not s:
        raise ShapeError("diag_embed: needs one axis or more, not shape ()")
    a, b = axis_of("diag_embed", dim1, len(s) + 1), axis_of("diag_embed", dim2, len(s) + 1)
    if a == b:
        raise ShapeError(f"diag_embed: dim1 and dim2 are both axis {a}; name two different ones")
    n, rest = s[-1], s[:-1]
    plain = [(0, 0)] * len(rest)
    u = pad(reshape(x.uop, (*rest, n, 1)), (*plain, (0, 0), (0, n)))
    u = shrink(reshape(u, (*rest, n * (n + 1))), (*[(0, m) for m in rest], (0, n * n)))
    off = abs(offset)
    border = ((0, off), (off, 0)) if offset > 0 else ((off, 0), (0, off))
    u = pad(reshape(u, (*rest, n, n)), (*plain, *border))
    order = [i for i in range(len(s) + 1) if i not in (a, b)] + [a, b]
    return x._new(permute(u, sorted(range(len(order)), key=order.__getitem__)))


@function
def rot90(x: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """Turned by `k` quarter turns from the first of two axes towards the second.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1, 2], [3, 4]]).rot90()
    Tensor([[2, 4],
            [1, 3]], dtype=int32)
    """
    if len(dims) != 2:
        raise ShapeError(f"rot90: takes two axes, not {tuple(dims)}")
    a, b = axes_of("rot90", dims, x.ndim)
    if axis_of("rot90", dims[0], x.ndim) != a:
        a, b = b, a
    k %= 4
    if k == 2:
        return x.flip(a, b)
    return x if not k else x.flip(b).transpose(a, b) if k == 1 else x.transpose(a, b).flip(b)


@function
def fliplr(x: Tensor) -> Tensor:
    """The second axis reversed.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1, 2], [3, 4]]).fliplr()
    Tensor([[2, 1],
            [4, 3]], dtype=int32)
    """
    return x.flip(1)


@function
def flipud(x: Tensor) -> Tensor:
    """The first axis reversed.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1, 2], [3, 4]]).flipud()
    Tensor([[3, 4],
            [1, 2]], dtype=int32)
    """
    need_axes("flipud", x.shape)
    return x.flip(0)
