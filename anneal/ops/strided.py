"""Elements by their place in memory order, and values put in such places: as_strided and its kin, put, index_reduce."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from anneal.errors import DTypeError, ShapeError
from anneal.ops.arguments import function
from anneal.ops.axes import axis_of, broadcast_shapes
from anneal.ops.facts import said
from anneal.ops.nodes import iota

if TYPE_CHECKING:
    from anneal.tensor import Tensor


def _places(x: Tensor, name: str, size: Sequence[int], stride: Sequence[int], offset: int | None) -> Tensor:
    """The places in the flat row that sizes and strides name."""
    first = offset or 0
    if len(size) != len(stride) or any(n < 0 for n in (*size, *stride, first)):
        raise ShapeError(
            f"{name}: takes as many sizes as strides, none negative, not {tuple(size)}, {tuple(stride)}, {first}"
        )
    last = first + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    if 0 not in size and last >= x.numel():
        raise ShapeError(
            f"{name}: sizes {tuple(size)} with strides {tuple(stride)} from {first} on reach element {last} of "
            f"{x.numel()}"
        )
    places: Any = x._new_plain(iota(1)).reshape(()) + first
    for axis, (n, s) in enumerate(zip(size, stride, strict=True)):
        steps = x._new_plain(iota(n)).reshape([n if i == axis else 1 for i in range(len(size))])
        places = places + steps * s
    out: Tensor = places.expand(tuple(size))
    return out


@function(function_alias="as_strided_copy")
def as_strided(x: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> Tensor:
    """The elements `storage_offset + i * stride[0] + j * stride[1] + ...` of the flat row, at (i, j, ...).

    The strides are those of a contiguous tensor, as every tensor counts here, also one that torch would hold as a
    view. The result is a copy. Raises ShapeError for places beyond the last element.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 2, 3, 4]).as_strided((3, 2), (1, 1)).tolist()
    [[1, 2], [2, 3], [3, 4]]
    """
    places = _places(x, "as_strided", size, stride, storage_offset)
    return x.reshape(-1)[places.reshape(-1)].reshape(tuple(size))


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
    places = _places(x, "as_strided_scatter", size, stride, storage_offset)
    if src.shape != tuple(size):
        raise ShapeError(f"as_strided_scatter: src has shape {src.shape}, not {tuple(size)}")
    return x.reshape(-1).scatter(0, places.reshape(-1), src.reshape(-1).to(x.dtype)).reshape(x.shape)


@function
def diagonal_scatter(x: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """This tensor with `src` on the diagonal that `diagonal(offset, dim1, dim2)` reads.

    >>> from anneal.tensor import Tensor
    >>> Tensor.zeros(2, 2).diagonal_scatter(Tensor([1.0, 2.0]))
    Tensor([[1., 0.],
            [0., 2.]], dtype=float32)
    """
    if src.device != x.device:
        x._mixed("diagonal_scatter", src)
    places = x._new_plain(iota(x.numel())).reshape(x.shape).diagonal(offset, dim1, dim2)
    if src.shape != places.shape:
        raise ShapeError(f"diagonal_scatter: the diagonal has shape {places.shape}, and src {src.shape}")
    return x.reshape(-1).scatter(0, places.reshape(-1), src.reshape(-1).to(x.dtype)).reshape(x.shape)


@function(in_place=True)
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


@function(in_place=True)
def index_reduce(
    x: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """This tensor with the slices of `source` reduced into the positions `index` of an axis, as `scatter_reduce` does.

    `reduce` is "prod", "mean", "amax" or "amin".

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, 2.0]).index_reduce(0, Tensor([0, 0]), Tensor([5.0, 7.0]), "amax")
    Tensor([7., 2.], dtype=float32)
    """
    at = axis_of("index_reduce", dim, x.ndim)
    if not x.ndim:
        flat = x.reshape(1).index_reduce(0, index.reshape(-1), source.reshape(-1), reduce, include_self=include_self)
        return flat.reshape(())
    index = index.reshape(-1)
    wanted = (*x.shape[:at], index.shape[0], *x.shape[at + 1 :])
    if source.shape != wanted:
        raise ShapeError(
            f"index_reduce: an index of {index.shape[0]} needs a source of shape {wanted}, not {source.shape}"
        )
    places = index.reshape([-1 if i == at else 1 for i in range(x.ndim)]).expand(wanted)
    return x.scatter_reduce(at, places, source, reduce, include_self)


@function(method=False)
def unravel_index(indices: Tensor, shape: int | Sequence[int]) -> tuple[Tensor, ...]:
    """The coordinates, a tensor for each axis, of places in the flat row of a shape.

    >>> from anneal.tensor import Tensor
    >>> [t.tolist() for t in unravel_index(Tensor([5, 0]), (2, 3))]
    [[1, 0], [2, 0]]
    """
    if not indices.dtype.is_int:
        raise DTypeError(f"unravel_index: places are integers, not {said(indices)}")
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    broadcast_shapes("unravel_index", sizes)
    out: list[Any] = []
    rest: Any = indices
    for n in reversed(sizes):
        out.append(rest % n)
        rest = rest // n
    if math.prod(sizes) <= 0:
        raise ShapeError(f"unravel_index: shape {sizes} has no places")
    return tuple(out[::-1])
