"""Writing by position, and elements by their place in memory order: put and its kin; triangles and diagonals."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from anneal.errors import DTypeError, PositionError, ShapeError
from anneal.names import Tensor
from anneal.ops import nodes
from anneal.ops.arguments import family, function
from anneal.ops.checks import axes_of, axis_in, axis_of, broadcast_shapes, is_tensor, need_axes, said
from anneal.ops.elementwise import beside, choose
from anneal.ops.indexing import added_rows, by_rows, index_node, places, scattered, written
from anneal.ops.inputs import wholes

from anneal.ops.nodes import (  # isort: skip
    BOOL, FLOAT32, INT32, broadcast, flip, inverse, iota, lay_out, numbered, pad, permute, put_rows, reshape, resized,
    row_shape, shrink, sum_into, take_rows,
)  # fmt: skip
from anneal.ops.operators import parsed
from anneal.ops.precision import kept
from anneal.uop import Op, UOp, alu, by_rule, const
from anneal.uop.sizes import most

_WAYS = ("sum", "prod", "mean", "amax", "amin")
_in_place = function("in_place")

# Every result is a new tensor. Repeated positions are settled in a fixed order, so results are the same every time.


@_in_place
def scatter_reduce(x: Tensor, dim: int, index: Any, src: Any, reduce: str, include_self: bool = True) -> Tensor:
    """This tensor with all src[i, j] whose index is k reduced into place [k, j] (dim=0).

    `reduce` is "sum", "prod", "mean", "amax" or "amin". Without `include_self` what stood in a place that is
    written does not count. Equal extremes share the gradient evenly.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, 2.0]).scatter_reduce(0, Tensor([0, 0, 1]), Tensor([5.0, 7.0, -1.0]), "amax")
    Tensor([7., 2.], dtype=float32)
    """
    if reduce not in _WAYS:
        raise DTypeError(f"scatter_reduce: reduce is one of {', '.join(_WAYS)}, not {reduce!r}")
    if extreme := reduce in ("amax", "amin"):
        x._kept()
        if is_tensor(src):
            src._kept()
    v, i, value, given = scattered(x, dim, index, src, whole=not extreme)
    (n, width), dtype = value.shape, x.dtype
    u = reshape(x.uop, (v, width))
    if dtype is BOOL:
        raise DTypeError("scatter_reduce: takes numbers, not bools; use .int() first")

    def added(rows: UOp) -> UOp:
        return UOp(Op.SCATTER_ADD, rows.dtype, (i, rows), (v,))

    count = broadcast(added(broadcast(const(INT32, 1), (n, 1))), (v, width))
    hit = const(INT32, 0) < count
    if reduce in ("sum", "mean"):
        base = u if include_self else hit.where(const(dtype, 0), u)
        out = kept("scatter_reduce", x.device, (base, value), lambda b, new: b + added(new))
        if reduce == "mean":
            terms = count + 1 if include_self else Op.MAX(count, const(INT32, 1))
            out = alu(Op.DIV if dtype.is_float else Op.IDIV, (out, terms.cast(dtype)))
    elif reduce == "prod":
        wide = FLOAT32 if dtype.is_narrow else dtype
        product = UOp(Op.SCATTER_ADD, wide, _products(i, value.cast(wide)), (v,)).cast(dtype)
        out = hit.where(u * product if include_self else product, u)
    else:
        u, value, hit = reshape(u, (v,)), reshape(value, (n,)), reshape(hit, (v,))
        # The least is the largest of what is turned round.
        turn = None if reduce == "amax" else Op.NEG if dtype.is_float else Op.NOT
        a, b = (u, value) if turn is None else (turn(u), turn(value))
        top = nodes.of_keys(nodes.largest_at(i, nodes.keys(b, False, True), v), dtype)
        top = hit.where(Op.MAX(a, top) if include_self else top, a)
        out = top if turn is None else turn(top)
        if dtype.is_float and (x.requires_grad or given.requires_grad):
            # the gradient of an extreme is shared evenly by all that are equal to it
            mine = u.eq(out)
            theirs = value.eq(take_rows(out, i))
            total = mine.cast(INT32) + sum_into(i, theirs.cast(INT32), v)
            mine = mine if include_self else mine & Op.NOT(hit)  # counted above all the same
            zero = const(dtype, 0)
            sums = mine.where(u, zero) + sum_into(i, theirs.where(value, zero), v)
            out = by_rule("equal", out, sums / total.cast(dtype))
    return x._new(reshape(out, x.shape), given)


def _products(i: UOp, value: UOp) -> tuple[UOp, UOp]:
    """The product of the rows of `value` (n, width) for each number in `i` (n,), where this number is the last of its
    kind in order, and these numbers, -1 elsewhere.

    Each row is multiplied by the one 1, 2, 4, ... places before it, if they go to one place.
    """
    n, step = value.shape[0], 1
    if not n:
        return i, value
    order = nodes.sorting(i)
    placed = reshape(take_rows(i, order), (1, n, 1))
    value = reshape(take_rows(value, order), (1, *value.shape))
    while step < n:
        same = broadcast(placed.eq(nodes.earlier(placed, step, -1)), value.shape)
        value = (value * same.where(nodes.earlier(value, step, 0), 1)).then(Op.CONTIGUOUS)
        step *= 2
    following = nodes.earlier(flip(placed, (1,)), 1, -1)
    return reshape(placed.ne(flip(following, (1,))).where(placed, -1), (n,)), reshape(value, value.shape[1:])


@_in_place("autocast=widest")
def index_put(x: Tensor, indices: Any, values: Any, accumulate: bool = False) -> Tensor:
    """This tensor with `values` at the places that the index tensors name, as in x[indices] = values.

    With `accumulate` values are added, repeated places included; else the last of them stays.

    >>> from anneal.tensor import Tensor
    >>> Tensor.zeros(2, 2).index_put((Tensor([0, 0]), Tensor([1, 1])), Tensor([1.0, 2.0]), accumulate=True)
    Tensor([[0., 3.],
            [0., 0.]], dtype=float32)
    """
    index = tuple(indices) if isinstance(indices, (tuple, list)) else (indices,)
    given = written(x, values)
    if not accumulate:
        out = x.clone()
        out[index] = given
        return out
    rows_of_one = [i.reshape(1) if is_tensor(i) and not i.ndim and i.dtype.is_int else i for i in index]
    basic, picks = parsed(x, tuple(rows_of_one))
    if not picks or basic.shape != x.shape:
        raise ShapeError("index_put: accumulate takes integer tensors, one for each of the first axes")
    rows, position, back, chosen = lay_out(x.uop, picks)
    if broadcast_shapes(given.shape, chosen) != chosen:
        raise ShapeError(f"index_put: values of shape {given.shape} do not fit the chosen {chosen}")
    n = math.prod(position.shape)
    value = permute(broadcast(given.uop.cast(x.dtype), chosen), inverse(back))
    value = reshape(value, (n, math.prod(rows.shape[1:])))
    added = added_rows(x, "index_put", rows, reshape(position, (n,)), value)
    return x._new(nodes.lay_back(added, x.shape, picks), given)


@_in_place
def index_copy(x: Tensor, dim: int, index: Any, source: Any) -> Tensor:
    """This tensor with the positions `index` of an axis replaced by those of `source`; of several the last stays.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 2, 3]).index_copy(0, Tensor([2, 0]), Tensor([7, 8]))
    Tensor([8, 2, 7], dtype=int32)
    """
    at, i, given = axis_in(dim, x), index_node(x, index), written(x, source)
    write = functools.partial(put_rows, slopes=given.requires_grad)
    return by_rows(x, at, i, given, PositionError, write)


@_in_place
def index_fill(x: Tensor, dim: int, index: Any, value: Any) -> Tensor:
    """This tensor with `value` at the positions `index` of an axis.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 2, 3]).index_fill(0, Tensor([2, 0]), 9)
    Tensor([9, 2, 9], dtype=int32)
    """
    at = axis_in(dim, x)
    i = places(x, index_node(x, index), at)
    n, m = x.shape[at] if x.ndim else 1, math.prod(i.shape)
    count = sum_into(reshape(i, (m,)), broadcast(const(INT32, 1), (m,)), n)
    hit = x._new_plain(reshape(const(INT32, 0) < count, row_shape(n, at, x.ndim) if x.ndim else ()))
    return x.masked_fill(hit, value)


@_in_place
def masked_scatter(x: Tensor, mask: Any, source: Any) -> Tensor:
    """This tensor with the elements of `source`, in order, where the mask is true; 0 where they run out.

    The tensor and the mask broadcast.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 2, 3]).masked_scatter(Tensor([True, False, True]), Tensor([8, 9]))
    Tensor([8, 2, 9], dtype=int32)
    """
    m = x._lift(mask)
    if m.dtype is not BOOL:
        raise DTypeError(f"masked_scatter: a mask is bool, not {m.dtype.name}; compare first")
    given = written(x, source)
    shape = broadcast_shapes(m.shape, x.shape)
    x, m = x.expand(shape), m._new_plain(broadcast(m.uop, shape))
    place = (m.cast(INT32).reshape(-1).cumsum(0) - 1).reshape(x.shape)
    flat = reshape(given.uop.cast(x.uop.dtype), (given.numel(),))
    return choose(m, x._new(take_rows(flat, place.uop), given), x)


@function("lifts=number")
def bucketize(x: Tensor, boundaries: Any, *, out_int32: bool = True, right: bool = False) -> Tensor:
    """The number of the bucket of each element between sorted boundaries: `boundaries.searchsorted(x,
    right)`.

    Places are int32, or int64 without `out_int32`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([0.5, 2.0, 9.0]).bucketize(Tensor([1.0, 2.0, 3.0]))
    Tensor([0, 1, 3], dtype=int32)
    """
    return x._lift(boundaries).searchsorted(x, right, out_int32=out_int32)


def _places(x: Tensor, size: Sequence[int], stride: Sequence[int], offset: int | None) -> Tensor:
    """The places in the flat row that sizes and strides name."""
    first = offset or 0
    if len(size) != len(stride) or any(n < 0 for n in (*size, *stride, first)):
        raise ShapeError(f"takes as many sizes as strides, none negative, not {tuple(size)}, {tuple(stride)}, {first}")
    last = first + sum((n - 1) * s for n, s in zip(size, stride))
    if 0 not in size and last >= x.numel():
        raise ShapeError(
            f"sizes {tuple(size)} with strides {tuple(stride)} from {first} on reach element {last} of {x.numel()}"
        )
    places = x._new_plain(iota(1)).reshape(()) + first
    for axis, (n, s) in enumerate(zip(size, stride)):
        places = places + x._new_plain(iota(n, axis, len(size))) * s
    return places.expand(tuple(size))


@function("function_alias=as_strided_copy view")
def as_strided(x: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Tensor:
    """The elements `storage_offset + i * stride[0] + j * stride[1] + ...` of the flat row, at (i, j, ...).

    The strides are those of a contiguous tensor, as every tensor counts here, also one that torch would hold as a
    view. The result is a copy. Raises ShapeError for places beyond the last element.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 2, 3, 4]).as_strided((3, 2), (1, 1)).tolist()
    [[1, 2], [2, 3], [3, 4]]
    """
    return x.reshape(-1)[_places(x, size, stride, storage_offset).reshape(-1)].reshape(tuple(size))


@function
def as_strided_scatter(
    x: Tensor, src: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> Tensor:
    """This tensor with `src` in the places that `as_strided` reads; of several writes to one place the last stays.

    `storage_offset` is the first of these places, 0 by default.

    >>> from anneal.tensor import Tensor
    >>> as_strided_scatter(Tensor.zeros(2, 2), Tensor([1.0, 2.0]), (2,), (3,)).tolist()
    [[1.0, 0.0], [0.0, 2.0]]
    """
    places = _places(x, size, stride, storage_offset)
    if src.shape != tuple(size):
        raise ShapeError(f"as_strided_scatter: src has shape {src.shape}, not {tuple(size)}")
    return x.put(places, src.to(x.dtype))


@function
def diagonal_scatter(x: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """This tensor with `src` on the diagonal that `diagonal(offset, dim1, dim2)` reads.

    >>> from anneal.tensor import Tensor
    >>> Tensor.zeros(2, 2).diagonal_scatter(Tensor([1.0, 2.0]))
    Tensor([[1., 0.],
            [0., 2.]], dtype=float32)
    """
    if src.device != x.device:
        x._mixed(src)
    places = x._new_plain(iota(x.numel())).reshape(x.shape).diagonal(offset, dim1, dim2)
    if src.shape != places.shape:
        raise ShapeError(f"diagonal_scatter: the diagonal has shape {places.shape}, and src {src.shape}")
    return x.put(places, src.to(x.dtype))


@_in_place
def put(x: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """This tensor with the elements of `source` at the places `index` of its flat row; added with `accumulate`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1, 2], [3, 4]]).put(Tensor([0, 3]), Tensor([7, 8])).tolist()
    [[7, 2], [3, 8]]
    """
    if index.shape != source.shape and index.numel() != source.numel():
        raise ShapeError(f"put: index and source have as many elements, not {index.shape} and {source.shape}")
    row = x.reshape(-1)
    how = row.scatter_add if accumulate else row.scatter
    return how(0, index.reshape(-1), source.reshape(-1)).reshape(x.shape)


@_in_place
def index_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """This tensor with the slices of `source` reduced into the positions `index` of an axis, as `scatter_reduce` does.

    `reduce` is "prod", "mean", "amax" or "amin".

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, 2.0]).index_reduce(0, Tensor([0, 0]), Tensor([5.0, 7.0]), "amax")
    Tensor([7., 2.], dtype=float32)
    """
    at = axis_in(dim, x)
    if not x.ndim:
        flat = x.reshape(1).index_reduce(0, index.reshape(-1), source.reshape(-1), reduce, include_self=include_self)
        return flat.reshape(())
    index = index.reshape(-1)
    wanted = resized(x.shape, at, index.shape[0])
    if source.shape != wanted:
        raise ShapeError(
            f"index_reduce: an index of {index.shape[0]} needs a source of shape {wanted}, not {source.shape}"
        )
    places = index.reshape(row_shape(-1, at, x.ndim)).expand(wanted)
    return x.scatter_reduce(at, places, source, reduce, include_self)


@function("method=no")
def unravel_index(indices: Tensor, shape: int | Sequence[int]) -> tuple[Tensor, ...]:
    """The coordinates, a tensor for each axis, of places in the flat row of a shape.

    >>> from anneal.tensor import Tensor
    >>> [t.tolist() for t in unravel_index(Tensor([5, 0]), (2, 3))]
    [[1, 0], [2, 0]]
    """
    if not indices.dtype.is_int:
        raise DTypeError(f"unravel_index: places are integers, not {said(indices)}")
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    broadcast_shapes(sizes)
    out = []
    for n in reversed(sizes):
        out.append(indices % n)
        indices = indices // n
    if math.prod(sizes) <= 0:
        raise ShapeError(f"unravel_index: shape {sizes} has no places")
    return tuple(out[::-1])


# -- triangles and diagonals, and turns by right angles ---------------------------------------------------------------


@wholes("diagonal")
def _triangle(name: str, lower: bool, x: Tensor, diagonal: int = 0) -> Tensor:
    s = x.shape
    if len(s) < 2:
        raise PositionError(f"needs two axes or more, not shape {s}")
    row, column = numbered(s[-2:], 0), numbered(s[-2:], 1)
    diagonal = max(-most(s[-2]), min(diagonal, most(s[-1])))  # further off there is none, and sums may not fit int32
    edge = row + diagonal
    keep = edge >= column if lower else column >= edge
    return x._new(broadcast(keep, s).where(x.uop, 0))


tril, triu = family(
    _triangle,
    "in_place array_api",
    """
    tril:
    The lower triangle of the last two axes; 0 above the diagonal.

    >>> from anneal.tensor import Tensor
    >>> Tensor.ones(2, 2).tril()
    Tensor([[1., 0.],
            [1., 1.]], dtype=float32)

    triu:
    The upper triangle of the last two axes; 0 below the diagonal.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1, 2], [3, 4]]).triu()
    Tensor([[1, 2],
            [0, 4]], dtype=int32)
    """,
    {
        "tril": True,
        "triu": False,
    },
)


@function("function_alias=diagonal_copy view")
def diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The diagonal of two axes, as the last axis.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1, 2], [3, 4]]).diagonal()
    Tensor([1, 4], dtype=int32)
    """
    n = x.ndim
    if n < 2:
        raise PositionError(f"diagonal: needs two axes or more, not shape {x.shape}")
    a, b = axis_of(dim1, n), axis_of(dim2, n)
    if a == b:
        raise ShapeError(f"diagonal: dim1 and dim2 are both axis {a}; name two different ones")
    u = permute(x.uop, [i for i in range(n) if i not in (a, b)] + [a, b])
    rest, (rows, columns) = u.shape[:-2], u.shape[-2:]
    top, left = max(0, -offset), max(0, offset)
    d = max(0, min(rows - top, columns - left))
    if not d:
        return x._new(beside(broadcast(const(u.dtype, 0), (*rest, 0)), x))
    return x._new(nodes.diagonal(shrink(u, ((top, top + d), (left, left + d)))))


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
    return diag_embed(x, diagonal)


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
    a, b = axis_of(dim1, len(s) + 1), axis_of(dim2, len(s) + 1)
    if a == b:
        raise ShapeError(f"diag_embed: dim1 and dim2 are both axis {a}; name two different ones")
    n, rest = s[-1], s[:-1]
    u = pad(reshape(x.uop, (*rest, n, 1)), ((0, n),))
    u = shrink(reshape(u, (*rest, n * (n + 1))), ((0, n * n),))
    off = abs(offset)
    border = ((0, off), (off, 0)) if offset > 0 else ((off, 0), (0, off))
    u = pad(reshape(u, (*rest, n, n)), border)
    order = [i for i in range(len(s) + 1) if i not in (a, b)] + [a, b]
    return x._new(permute(u, inverse(order)))


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
    a, b = axes_of(dims, x.ndim)
    if axis_in(dims[0], x) != a:
        a, b = b, a
    k %= 4
    if k == 2:
        return x.flip(a, b)
    return x.clone() if not k else x.flip(b).transpose(a, b) if k == 1 else x.transpose(a, b).flip(b)


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
    need_axes(x.shape)
    return x.flip(0)
