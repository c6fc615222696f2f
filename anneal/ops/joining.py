"""Joining and cutting: cat, stack, split, chunk, unbind, windows of an axis."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from anneal.errors import DTypeError, PositionError, ShapeError
from anneal.names import Tensor
from anneal.ops.arguments import family, function
from anneal.ops.checks import axis_in, axis_of, broadcast_shapes, int_args, is_tensor, need_axes, said, whole
from anneal.ops.creation import meshgrid
from anneal.ops.elementwise import beside
from anneal.ops.indexing import values_now
from anneal.ops.inputs import along, places
from anneal.ops.nodes import BOOL, cut, grown, moved, permute, resized
from anneal.ops.pooling import windows_of
from anneal.uop import Op, promote


def join(parts: Sequence[Tensor], axis: int) -> Tensor:
    """The concatenation of `parts`, whose other sizes agree: the sum of the parts, each padded with zeros."""
    dtype = functools.reduce(promote, [p.dtype for p in parts])
    op = Op.OR if dtype is BOOL else Op.ADD
    total = sum(p.shape[axis] for p in parts)
    out = None
    begin = 0
    empty = []
    for p in parts:
        u = p.uop.cast(dtype)
        n = u.shape[axis]
        if n.__class__ is not int or n:
            padded = grown(u, axis, begin, total - begin - n)
            out = padded if out is None else op(out, padded)
        else:
            empty.append(p)
        begin += n
    if out is None:
        out = parts[0].uop.cast(dtype)
    return parts[0]._new(beside(out, *empty) if empty else out, *parts[1:])


@function("alias=concat,concatenate")
def cat(tensors: Any, *others: Any, dim: int | None = None) -> Tensor:
    """Tensors joined along an axis (0 if none is named); other sizes must agree.

    Called on a list, `Tensor.cat([a, b], dim=1)`, or on a tensor, `a.cat(b, dim=1)`.

    >>> from anneal.tensor import Tensor
    >>> Tensor.cat([Tensor([1]), Tensor([2, 3])])
    Tensor([1, 2, 3], dtype=int32)
    """
    parts, where = members_of(tensors, others, dim)
    if any(p.ndim > 1 for p in parts):  # torch's exception: a vector without elements joins anything
        parts = [p for p in parts if p.shape != (0,)]
    first = parts[0]
    a = axis_in(where, first)
    if not first.ndim:
        raise PositionError("cat: tensors of shape () cannot be joined; use stack")
    for i, p in enumerate(parts[1:], 1):
        ours, theirs = first.shape, p.shape
        if len(ours) != len(theirs) or resized(ours, a) != resized(theirs, a):
            raise ShapeError(
                f"cat: part 0 has shape {ours} and part {i} has {theirs}; all axes but axis {a} must be equal"
            )
    return join(parts, a) if len(parts) > 1 else first.clone()


@function
def stack(tensors: Any, *others: Any, dim: int | None = None) -> Tensor:
    """Tensors of one shape, joined along a new axis (0 if none is named).

    >>> from anneal.tensor import Tensor
    >>> Tensor.stack([Tensor([1, 2]), Tensor([3, 4])], dim=1)
    Tensor([[1, 3],
            [2, 4]], dtype=int32)
    """
    parts, where = members_of(tensors, others, dim)
    first = parts[0]
    for i, p in enumerate(parts[1:], 1):
        if p.shape != first.shape:
            raise ShapeError(f"stack: part 0 has shape {first.shape} and part {i} has {p.shape}; they must be equal")
    a = axis_of(where, first.ndim + 1)
    wide = [p.unsqueeze(a) for p in parts]
    return join(wide, a) if len(wide) > 1 else wide[0]


@function("alias=unsafe_split view")
def split(x: Tensor, split_size: int | Sequence[int], dim: int | None = None) -> tuple[Tensor, ...]:
    """Pieces of `split_size` along an axis (the last may be smaller), or of the sizes listed.

    >>> from anneal.tensor import Tensor
    >>> [t.tolist() for t in Tensor.arange(5).split(2)]
    [[0, 1], [2, 3], [4]]
    """
    a = axis_in(dim or 0, x)
    if not x.ndim:
        raise ShapeError("split: a tensor of shape () has no axis to split")
    n = x.shape[a]
    if isinstance(split_size, int):
        if split_size <= 0:
            raise ShapeError(f"split: the size must be positive, not {split_size}")
        sizes = [min(split_size, n - i) for i in range(0, n, split_size)] or [0]
    else:
        sizes = list(split_size)
        if sum(sizes) != n or any(s < 0 for s in sizes):
            raise ShapeError(f"split: sizes {sizes} add up to {sum(sizes)}, but axis {a} of {x.shape} has {n}")
    ends = itertools.accumulate(sizes)
    return tuple([slice_axis(x, a, end - s, end) for s, end in zip(sizes, ends)])


@function("alias=unsafe_chunk view")
def chunk(x: Tensor, chunks: int, dim: int | None = None) -> tuple[Tensor, ...]:
    """The tensor in at most `chunks` pieces of equal size along an axis (the last may be smaller); an axis of size 0
    gives `chunks` empty ones.

    >>> from anneal.tensor import Tensor
    >>> [t.tolist() for t in Tensor.arange(5).chunk(2)]
    [[0, 1, 2], [3, 4]]
    """
    if chunks <= 0:
        raise ShapeError(f"chunk: the number of chunks must be positive, not {chunks}")
    a = axis_in(dim or 0, x)
    n = x.shape[a] if x.ndim else 1
    return x.split(max(1, -(-n // chunks)), a) if n else (x,) * chunks


@function("alias=unstack function_alias=unbind_copy view array_api=unstack")
def unbind(x: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """The slices at each position of an axis, without that axis.

    >>> from anneal.tensor import Tensor
    >>> [row.tolist() for row in Tensor([[1, 2], [3, 4]]).unbind()]
    [[1, 2], [3, 4]]
    """
    a = axis_in(dim, x)
    need_axes(x.shape)
    rest = resized(x.shape, a)
    return tuple([t.reshape(rest) for t in x.split(1, a)]) if x.shape[a] else ()


@function("function_alias=unfold_copy view")
def unfold(x: Tensor, dim: int, size: int, step: int = 1) -> Tensor:
    """The windows of `size` elements along an axis, `step` apart; the elements of a window are the last axis.

    >>> from anneal.tensor import Tensor
    >>> Tensor.arange(5).unfold(0, 3, 1)
    Tensor([[0, 1, 2],
            [1, 2, 3],
            [2, 3, 4]], dtype=int32)
    """
    a = axis_in(dim, x)
    if not x.ndim:
        return x.reshape(1).unfold(0, size, step)[0]
    n = x.shape[a]
    if not 0 <= size <= n or step < 1:
        raise ShapeError(f"unfold: windows of {size}, {step} apart, do not fit axis {dim} of shape {x.shape}")
    if not size:  # of nothing there are as many, all empty
        s = x.shape
        return x.narrow(a, 0, 0).reshape(*resized(s, a, n // step + 1), 0)
    u = windows_of(moved(x.uop, a, -1), (size,), (step,), (1,))
    last = x.ndim - 1  # the axis of the places in a window, before that of the windows
    return x._new(permute(u, [*range(a), last + 1, *range(a, last), last]))


def members_of(first: Any, others: tuple[Any, ...], axis: int | None) -> tuple[list[Tensor], int]:
    """The tensors of `Tensor.cat([a, b], dim)`, `Tensor.cat(a, b)` and `a.cat(b, dim=)` alike, and the axis."""
    if isinstance(first, (list, tuple)) and others:
        if len(others) > 1 or axis is not None:
            raise ShapeError("takes a list of tensors and one axis")
        axis, others = whole("the axis", others[0]), ()
    parts = [p for o in (first, *others) for p in (o if isinstance(o, (list, tuple)) else (o,))]
    if not parts:
        raise ShapeError("needs at least one tensor")
    for i, p in enumerate(parts):
        if not is_tensor(p):
            raise DTypeError(f"part {i} is {type(p).__name__}, not a tensor")
        if p.device != parts[0].device:
            parts[0]._mixed(p)
    return parts, 0 if axis is None else axis


def slice_axis(x: Tensor, axis: int, begin: int, end: int) -> Tensor:
    return x._new(cut(x.uop, axis, begin, end))


@function("view")
@places(lambda x, dim, index: along(x, dim, index))  # noqa: PLW0108  # its arguments have names
def select(x: Tensor, dim: int, index: int) -> Tensor:
    """The slice at `index` of an axis, which goes.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1, 2], [3, 4]]).select(1, 0)
    Tensor([1, 3], dtype=int32)
    """
    return x[(slice(None),) * axis_in(dim, x) + (index,)]


def _with(x: Tensor, dim: int, item: Any, src: Any) -> Tensor:
    out = x.clone() if not x.requires_grad else x + 0
    out[(slice(None),) * axis_in(dim, x) + (item,)] = src
    return out


@function
def select_scatter(x: Tensor, src: Any, dim: int, index: int) -> Tensor:
    """A copy whose slice at `index` of an axis is `src`.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1, 2], [3, 4]]).select_scatter(Tensor([9, 9]), 0, 0)
    Tensor([[9, 9],
            [3, 4]], dtype=int32)
    """
    return _with(x, dim, index, src)


@function
def slice_scatter(
    x: Tensor, src: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Tensor:
    """A copy whose elements `start:end:step` of an axis are `src`.

    >>> from anneal.tensor import Tensor
    >>> Tensor.zeros(4).slice_scatter(Tensor([1.0, 2.0]), start=1, end=3)
    Tensor([0., 1., 2., 0.], dtype=float32)
    """
    return _with(x, dim, slice(start, end, step), src)


@function("view")
def tensor_split(x: Tensor, indices_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Parts of an axis: so many of nearly equal length, or cut before each of the indices.

    Places given as a tensor of integers are computed now: a ShapeError inside jit.

    >>> from anneal.tensor import Tensor
    >>> [t.tolist() for t in Tensor([1, 2, 3, 4, 5]).tensor_split(2)]
    [[1, 2, 3], [4, 5]]
    """
    at = axis_in(dim, x)
    need_axes(x.shape)
    n = x.shape[at]
    if is_tensor(indices_or_sections):
        known = values_now(indices_or_sections, "give a list of ints")
        if known.dtype.kind not in "iu" or known.ndim > 1:
            raise DTypeError(f"tensor_split: the places are a row of integers, not {said(indices_or_sections)}")
        indices_or_sections = known
    if isinstance(indices_or_sections, np.ndarray):
        indices_or_sections = indices_or_sections.tolist()
    if not isinstance(indices_or_sections, (list, tuple, range)):
        parts = whole("the number of parts", indices_or_sections)
        if parts < 1:
            raise ShapeError(f"tensor_split: at least one part, not {parts}")
        ends = list(itertools.accumulate(n // parts + (i < n % parts) for i in range(parts)))[:-1]
    else:
        ends = [min(max(whole("a place", i) + n * (i < 0), 0), n) for i in indices_or_sections]
    bounds = [0, *ends, n]
    return tuple([x.narrow(at, a, max(0, b - a)) for a, b in itertools.pairwise(bounds)])


@function("view")
def hsplit(x: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """`tensor_split` of the columns (of a vector, its elements).

    >>> from anneal.tensor import Tensor
    >>> [part.tolist() for part in Tensor([1, 2, 3, 4]).hsplit(2)]
    [[1, 2], [3, 4]]
    """
    return x.tensor_split(indices_or_sections, int(x.ndim > 1))


@function("view")
def vsplit(x: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """`tensor_split` of the rows.

    >>> from anneal.tensor import Tensor
    >>> [part.tolist() for part in Tensor([[1], [2]]).vsplit(2)]
    [[[1]], [[2]]]
    """
    return x.tensor_split(indices_or_sections, 0)


@function("view")
def dsplit(x: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """`tensor_split` of the third axis.

    >>> from anneal.tensor import Tensor
    >>> [part.shape for part in Tensor.ones(1, 2, 4).dsplit(2)]
    [(1, 2, 2), (1, 2, 2)]
    """
    return x.tensor_split(indices_or_sections, 2)


@function
def diagflat(x: Tensor, offset: int = 0) -> Tensor:
    """The matrix whose diagonal the elements are.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 2]).diagflat()
    Tensor([[1, 0],
            [0, 2]], dtype=int32)
    """
    return x.reshape(-1).diag(offset)


@function("itself")
def sum_to_size(x: Tensor, *size: Any) -> Tensor:
    """The sum over axes that broadcasting from `size` would have repeated.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1, 2], [3, 4]]).sum_to_size(1, 2)
    Tensor([[4, 6]], dtype=int32)
    """
    new = int_args(size)
    if len(new) > x.ndim or broadcast_shapes(new, x.shape) != x.shape:
        raise ShapeError(f"sum_to_size: shape {new} does not broadcast to {x.shape}")
    padded = (1,) * (x.ndim - len(new)) + new
    axes = [i for i, (a, b) in enumerate(zip(padded, x.shape)) if a == 1 != b]
    return (x.sum(axes, keepdim=True) if axes else x).reshape(new)


@function
def block_diag(x: Tensor, *others: Any) -> Tensor:
    """The matrices along the diagonal of one, zeros elsewhere.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1, 2]]).block_diag(Tensor([[3]]))
    Tensor([[1, 2, 0],
            [0, 0, 3]], dtype=int32)
    """
    parts = [p.reshape((1,) * (2 - p.ndim) + p.shape) for p in (x, *map(x._lift, others))]
    if any(p.ndim > 2 for p in parts):
        raise ShapeError(f"block_diag: takes matrices, vectors and numbers, not shapes {[p.shape for p in parts]}")
    ends = list(itertools.accumulate(p.shape[1] for p in parts))
    return join([p.pad((end - p.shape[1], ends[-1] - end)) for p, end in zip(parts, ends)], 0)


@function("itself")
def cartesian_prod(x: Tensor, *others: Any) -> Tensor:
    """The Cartesian product of vectors: every combination of an element of each, one a row.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 2]).cartesian_prod(Tensor([3, 4])).tolist()
    [[1, 3], [1, 4], [2, 3], [2, 4]]
    """
    parts = [x, *map(x._lift, others)]
    if any(p.ndim != 1 for p in parts):
        raise ShapeError(f"cartesian_prod: takes vectors, not shapes {[p.shape for p in parts]}")
    if len(parts) == 1:
        return x
    wide = [p.reshape(-1) for p in meshgrid(*parts)]
    return wide[0].stack(*wide[1:], dim=1)  # type: ignore[no-any-return]


@function
def combinations(x: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """The combinations of `r` elements of a vector, in order, one a row.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 2, 3]).combinations().tolist()
    [[1, 2], [1, 3], [2, 3]]
    """
    if x.ndim != 1:
        raise ShapeError(f"combinations: takes a vector, not shape {x.shape}")
    if r < 0:
        raise ShapeError(f"combinations: r is a count, not {r}")
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    if not r:
        return x[:0]  # as torch
    places = list(choose(range(x.shape[0]), r))
    return x[np.array(places, np.int32).reshape(-1)].reshape(len(places), r)


def _at_least(
    name: str, widen: Callable[[Tensor], Tensor], tensors: Any, *others: Tensor
) -> Tensor | tuple[Tensor, ...]:
    if is_tensor(tensors) and not others:
        return widen(tensors)
    return tuple([widen(x) for x in members_of(tensors, others, None)[0]])


atleast_1d, atleast_2d, atleast_3d = family(
    _at_least,
    "view",
    """
    atleast_1d:
    The tensor with one axis at least; of several tensors, or a list, a tuple of them.

    >>> from anneal.tensor import Tensor
    >>> Tensor(5).atleast_1d()
    Tensor([5], dtype=int32)

    atleast_2d:
    The tensor with two axes at least: a vector is a row. Of several tensors, or a list, a tuple of them.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 2]).atleast_2d()
    Tensor([[1, 2]], dtype=int32)

    atleast_3d:
    The tensor with three axes at least: a matrix is one of columns of one element, a vector its middle axis.

    Of several tensors, or a list, a tuple of them.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 2]).atleast_3d().shape
    (1, 2, 1)
    """,
    {
        "atleast_1d": lambda x: x if x.ndim else x.reshape(1),
        "atleast_2d": lambda x: x if x.ndim > 1 else x.reshape(1, -1),
        "atleast_3d": lambda x: x.atleast_2d().unsqueeze(-1) if x.ndim < 3 else x,
    },
)


def _stacked(widen: Callable[[Tensor], Tensor], dim: int, tensors: Any, *others: Any) -> Tensor:
    parts = [widen(t) for t in members_of(tensors, others, None)[0]]
    return parts[0].cat(*parts[1:], dim=min(dim, parts[0].ndim - 1))


hstack, dstack, column_stack = family(
    _stacked,
    "",
    """
    hstack:
    Tensors side by side: along the second axis, vectors along their only one.

    >>> from anneal.tensor import Tensor
    >>> Tensor.hstack(Tensor([1]), Tensor([2, 3])).tolist()
    [1, 2, 3]

    dstack:
    Tensors one behind the other, along the third axis.

    >>> from anneal.tensor import Tensor
    >>> Tensor.dstack([Tensor([1, 2]), Tensor([3, 4])])
    Tensor([[[1, 3],
             [2, 4]]], dtype=int32)

    column_stack:
    Tensors side by side, vectors as columns.

    >>> from anneal.tensor import Tensor
    >>> Tensor.column_stack(Tensor([1, 2]), Tensor([3, 4])).tolist()
    [[1, 3], [2, 4]]
    """,
    {
        "hstack": (lambda t: t.atleast_1d(), 1),
        "dstack": (lambda t: t.atleast_3d(), 2),
        "column_stack": (lambda t: t if t.ndim > 1 else t.reshape(-1, 1), 1),
    },
)


@function("alias=row_stack")
def vstack(tensors: Any, *others: Any) -> Tensor:
    """Tensors one below the other, vectors as rows.

    >>> from anneal.tensor import Tensor
    >>> Tensor.vstack(Tensor([1, 2]), Tensor([3, 4])).tolist()
    [[1, 2], [3, 4]]
    """
    return _stacked(lambda t: t.atleast_2d(), 0, tensors, *others)
