"""Choosing by position: x[...], gather, scatter, masks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, overload

import numpy as np

from anneal.backend import Array, get_device
from anneal.errors import DTypeError, PositionError, ShapeError
from anneal.names import Tensor
from anneal.ops import nodes
from anneal.ops.arguments import function
from anneal.ops.checks import Shape, axis_in, axis_of, bound_int, broadcast_shapes, is_tensor
from anneal.ops.elementwise import choose
from anneal.ops.inputs import wholes
from anneal.ops.nodes import BOOL, INT32, Number, broadcast, iota, moved, reshape, resized, take_rows
from anneal.ops.precision import kept
from anneal.runtime import here
from anneal.uop import Ints, Op, UOp
from anneal.uop.sizes import Count, most

_SAME_VALUES = (Op.RESHAPE, Op.EXPAND, Op.PERMUTE, Op.FLIP, Op.DETACH, Op.CONTIGUOUS)


# -- along an axis ----------------------------------------------------------------------------------------------------

# `x[...]` takes ints, slices with any step, None, Ellipsis, bools, integer tensors, arrays and lists, and boolean
# arrays and lists. A bool is a mask of shape (): a new axis of 1 or 0 elements. Several integer tensors broadcast
# together; their axes take the place of the first of them, or come first where a slice stands between (torch's and
# NumPy's rule).
#
# In every op here -n to -1 count from the end of an axis of n. What is known here and now is checked now, by
# `check_places`: ints, lists, arrays, and tensors whose integers are on the host. An index that is computed on a device
# cannot be: it reads 0 where it is out of range, and writes nothing.


def index_node(x: Tensor, index: Any) -> UOp:
    """An index argument as a node of integers on this device."""
    if isinstance(index, (list, tuple, range)):
        array = as_array(index)
        index = array.astype(np.int32) if not array.size else array
    elif isinstance(index, (bool, np.bool_)):
        raise DTypeError(f"an index is made of integers, not {index}")
    elif isinstance(index, int) and not isinstance(index, Count):
        index = np.asarray(bound_int("an index", index), np.int32)
    i = x._lift(index)
    if not i.dtype.is_int:
        raise DTypeError(f"an index is made of integers, not {i.dtype.name}; use .int() first")
    return i.uop


def places(x: Tensor, index: UOp, axis: int) -> UOp:
    """The positions of an index along an axis as int32, counted from 0; those that are known are checked."""
    shape = x.uop.shape or (1,)
    check_places("", index, axis, shape)
    return nodes.wrapped(index, shape[axis])


@function
def gather(x: Tensor, dim: int, index: Any) -> Tensor:
    """out[i, j, k] = x[i, index[i, j, k], k] for dim=1, and so on; the result has the index's shape.

    The index has as many axes, none longer than this tensor's but at `dim`; -1 is the last position. Raises
    PositionError for an index on the host that is out of range; one on a device reads 0 there.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1, 2], [3, 4]]).gather(1, Tensor([[0, 0], [1, -2]]))
    Tensor([[1, 1],
            [4, 3]], dtype=int32)
    """
    i = index_node(x, index)
    if 0 in i.shape and len(i.shape) != x.ndim:  # torch's exception: of no positions nothing is asked
        return x.reshape(-1)[:0].reshape(i.shape)
    if not x.ndim and len(i.shape) == 1:  # a row of one element
        return x.reshape(1).gather(dim, x._new_plain(i))
    at = _fits(dim, i.shape, x.uop.shape, "this tensor's")
    return gathered(x, at, places(x, i, at))


def gathered(x: Tensor, at: int, i: UOp) -> Tensor:
    """`gather` of positions that count from 0; what is out of range reads 0."""
    if not x.uop.shape:
        return x._new(i.eq(0).where(x.uop, 0))
    return x._new(UOp(Op.GATHER, x.uop.dtype, (x.uop, i), at))


def _fits(dim: int, small: Ints, big: Ints, whose: str) -> int:
    at = axis_of(dim, len(big))
    if len(small) != len(big):
        raise ShapeError(f"the index has shape {small} and {whose} is {big}; they need as many axes")
    for a, (n, m) in enumerate(zip(small, big)):
        if a != at and n > m:
            raise ShapeError(f"the index has shape {small}, longer than {whose} {big} on axis {a}")
    return at


@function("alias=take_along_axis")
def take_along_dim(x: Tensor, index: Any, dim: int | None = None) -> Tensor:
    """`gather`, whose index broadcasts and may count from the end; without an axis, from the flat row.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1, 2], [3, 4]]).take_along_dim(Tensor([[1], [0]]), dim=1)
    Tensor([[2],
            [3]], dtype=int32)
    """
    if dim is None:
        return x.ravel().take_along_dim(x._lift(index).ravel(), 0)
    i = index_node(x, index)
    at = axis_in(dim, x)
    s = x.shape
    if len(i.shape) != len(s):
        raise ShapeError(f"take_along_dim: index of shape {i.shape} and tensor of shape {s} need as many axes")
    i = places(x, i, at)
    if not s:
        return gathered(x, at, i)
    wide = broadcast_shapes(i.shape, resized(s, at, i.shape[at]))
    u = broadcast(x.uop, resized(wide, at, s[at]))
    return x._new(UOp(Op.GATHER, u.dtype, (u, broadcast(i, wide)), at))


@function
def index_select(x: Tensor, dim: int, index: Any) -> Tensor:
    """The positions `index` (one axis) of an axis.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1, 2], [3, 4]]).index_select(0, Tensor([1, 1, 0]))
    Tensor([[3, 4],
            [3, 4],
            [1, 2]], dtype=int32)
    """
    at = axis_in(dim, x)
    i = index_node(x, index)
    if len(i.shape) > 1:
        raise ShapeError(f"index_select: the index has one axis, not shape {i.shape}")
    i = places(x, i, at)
    if not x.ndim:
        return x._new(reshape(i.eq(0).where(broadcast(x.uop, i.shape), 0), ()))
    return x._new(nodes.picked(x.uop, at, reshape(i, (math.prod(i.shape),))))


@function
def rows(x: Tensor, index: Any) -> Tensor:
    """x[index] along the first axis, for an index counted from 0: an embedding's look-up.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1, 2], [3, 4]]).rows(Tensor([[1, 0]])).shape
    (1, 2, 2)
    """
    if not x.shape:
        raise ShapeError("rows: a tensor of shape () has no rows")
    i = index_node(x, index)
    check_places("rows", i, 0, x.shape, 0)
    return x._new(take_rows(x.uop, i.cast(INT32)))


@function
def take(x: Tensor, index: Any) -> Tensor:
    """The elements of the flat row at `index`, in the index's shape; negative ones count from the end.

    >>> from anneal.tensor import Tensor
    >>> Tensor([[1, 2], [3, 4]]).take(Tensor([0, -1]))
    Tensor([1, 4], dtype=int32)
    """
    row = x.ravel()
    return x._new(take_rows(row.uop, places(row, index_node(x, index), 0)))


# -- writing by position ----------------------------------------------------------------------------------------------


@function("in_place autocast=widest")
def scatter_add(x: Tensor, dim: int, index: Any, src: Any) -> Tensor:
    """This tensor with x[index[i, j], j] += src[i, j] (dim=0) done for every element of the index.

    Repeated positions add up, in a fixed order. Raises PositionError for an index on the host that is out of range;
    on a device such positions are left out.

    >>> from anneal.tensor import Tensor
    >>> Tensor.zeros(3).scatter_add(0, Tensor([0, 2, 0]), Tensor([1.0, 2.0, 3.0]))
    Tensor([4., 0., 2.], dtype=float32)
    """
    rows, i, value, given = scattered(x, dim, index, src)
    return x._new(added_rows(x, "scatter_add", x.uop, i, value, rows), given)


def added_rows(x: Tensor, name: str, u: UOp, index: UOp, value: UOp, rows: Any = None) -> UOp:
    """`u` with rows added at an index of its first axis, or of as many `rows` as it is to have meanwhile."""

    def made(u: UOp, value: UOp) -> UOp:
        counted = value.cast(INT32) if value.dtype is BOOL else value
        total = UOp(Op.SCATTER_ADD, counted.dtype, (index, counted), (u.shape[0] if rows is None else rows,))
        return u + reshape(total.cast(value.dtype), u.shape)

    return kept(name, x.device, (u, value), made)


@function("in_place")
def scatter(x: Tensor, dim: int, index: Any, src: Any, reduce: str | None = None) -> Tensor:
    """This tensor with x[index[i, j], j] = src[i, j] (dim=0); of several writes to one place the last stays.

    With reduce="add" or "multiply" values are added to what stands there, or multiplied with it. `src` may be a number.

    >>> from anneal.tensor import Tensor
    >>> Tensor.zeros(3).scatter(0, Tensor([0, 2, 0]), Tensor([1.0, 2.0, 3.0]))
    Tensor([3., 0., 2.], dtype=float32)
    """
    if reduce == "add":
        return x.scatter_add(dim, index, src)
    if reduce == "multiply":
        return x.scatter_reduce(dim, index, src, "prod")
    if reduce is not None:
        raise DTypeError(f'scatter: reduce is None, "add" or "multiply", not {reduce!r}')
    rows, i, value, given = scattered(x, dim, index, src)
    width = math.prod(value.shape[1:])
    new = nodes.put_rows(reshape(x.uop, (rows, width)), i, value, given.requires_grad)
    return x._new(reshape(new, x.shape), given)


def scattered(x: Tensor, dim: int, index: Any, src: Any, whole: bool = True) -> tuple[int, UOp, UOp, Tensor]:
    """A scatter as rows, of several elements if `whole` and they go together: how many there are, the row of each value
    row, the values, and the tensor they are of."""
    i = index_node(x, index)
    s = x.uop.shape
    if not i.shape and len(s) == 1:
        i = reshape(i, (1,))  # one place of a row
    shape = i.shape
    at = _fits(dim, shape, s, "this tensor's")
    i = places(x, i, at)
    given = written(x, src)
    value = given.uop.cast(x.uop.dtype)
    if not value.shape:
        value = broadcast(value, shape)
    _fits(dim, shape, value.shape, "the values'")
    if shape and shape[at] > value.shape[at]:
        raise ShapeError(f"the index has shape {shape}, longer than the values' {value.shape} on axis {at}")
    value = nodes.head(value, shape)
    n, total = math.prod(shape), math.prod(s)
    if whole and at == 0 and i.op is Op.EXPAND and i.src[0].size == shape[0] and shape[1:] == s[1:]:
        # the same row for a whole row of values: add rows, not elements
        return s[0], reshape(i.src[0], shape[:1]), reshape(value, (shape[0], math.prod(s[1:]))), given
    position = None
    stride = total
    for a, m in enumerate(s):
        stride //= max(m, 1)
        if m != 1 or a == at:
            here = i if a == at else nodes.numbered(shape, a)
            position = nodes.meet(Op.ADD, position, here * stride if stride != 1 else here)
    if position is None:
        position = i
    elif len(s) > 1:
        position = ((i >= 0) & (i < s[at])).where(position, -1)
    return total, reshape(position, (n,)), reshape(value, (n, 1)), given


def written(x: Tensor, source: Any) -> Tensor:
    """Values to be written into `x`. Raises DTypeError for a tensor of another dtype, which would be rounded unseen, as
    torch does; integers of another width, which Python's int32 and torch's int64 make, are taken."""
    nodes.check_fits(x.dtype, source)
    given = x._lift(source)
    if given.dtype is not x.dtype and is_tensor(source) and not (given.dtype.is_int and x.dtype.is_int):
        kind = x.dtype.name
        raise DTypeError(f'a tensor of {kind} takes values of {kind}, not {given.dtype.name}; use .to("{kind}")')
    return given


@function("in_place")
def index_add(x: Tensor, dim: int, index: Any, source: Any, alpha: Number = 1) -> Tensor:
    """This tensor with alpha * source added at the positions `index` of an axis; repeated positions add up.

    >>> from anneal.tensor import Tensor
    >>> Tensor.zeros(2, 2).index_add(0, Tensor([1, 1]), Tensor.ones(2, 2))
    Tensor([[0., 0.],
            [2., 2.]], dtype=float32)
    """
    at = axis_in(dim, x)
    i = index_node(x, index)
    given = written(x, source)
    if x.ndim and not i.shape:
        i = reshape(i, (1,))
        given = given if given.ndim == x.ndim else given.unsqueeze(at)
    given = given * alpha if alpha != 1 else given
    return by_rows(x, at, i, given, ShapeError, lambda *rows: added_rows(x, "index_add", *rows))


def by_rows(x: Tensor, at: int, i: UOp, given: Tensor, error: type[ShapeError], write: Callable[..., UOp]) -> Tensor:
    """This tensor with values at the positions `i` of an axis: `write` takes its rows along that axis, the positions
    and the values' rows, and gives the new rows. Raises `error` for a shape of the values that does not fit.
    """
    if not x.ndim:  # a row of one element
        i = reshape(i, (math.prod(i.shape),))
        return by_rows(x.reshape(1), 0, i, given.reshape(-1), error, write).reshape(())
    wanted = resized(x.shape, at, *i.shape)
    if len(i.shape) != 1 or given.shape != wanted:
        raise error(f"an index of shape {i.shape} needs a source of shape {wanted}, not {given.shape}")
    i = places(x, i, at)
    value = moved(given.uop.cast(x.uop.dtype), at, 0)
    value = reshape(value, (i.shape[0], math.prod(value.shape[1:])))
    return x._new(moved(write(moved(x.uop, at, 0), i, value), 0, at), given)


# -- masks ------------------------------------------------------------------------------------------------------------


@overload
def where(x: Tensor) -> tuple[Tensor, ...]: ...
@overload
def where(x: Tensor, a: Any, b: Any) -> Tensor: ...
@function
@wholes("a", "b")
def where(x: Tensor, a: Any = None, b: Any = None) -> Tensor | tuple[Tensor, ...]:
    """Elements of two tensors, chosen by a condition; all three broadcast. Of a condition alone, the places where it is
    true, an index for each axis: `nonzero(as_tuple=True)`.

    Called on a condition, `condition.where(a, b)` or `Tensor.where(condition, a, b)`: `a` where it is true, else
    `b`. Called on values, `x.where(condition, b)`: `x` where the condition is true, else `b`.

    >>> from anneal.tensor import Tensor
    >>> x = Tensor([-1, 2])
    >>> Tensor.where(x > 0, x, 0), x.where(x > 0, 9)
    (Tensor([0, 2], dtype=int32), Tensor([9, 2], dtype=int32))
    """
    if a is None and b is None:
        return x.nonzero(as_tuple=True)
    if a is None or b is None:
        raise DTypeError("where: takes two values, or a condition alone")
    a, b = [v.item() if isinstance(v, np.generic) else v for v in (a, b)]  # NumPy's numbers are as Python's
    if x.uop.dtype is BOOL:
        return choose(x, a, b)
    condition = x._lift(a)
    if condition.dtype is not BOOL:
        raise DTypeError(f"where: a condition is bool, not {x.dtype.name}; compare first, as in (x != 0).where(a, b)")
    return choose(condition, x, b)


@function("in_place")
@wholes("value")
def masked_fill(x: Tensor, mask: Any, value: Any) -> Tensor:
    """`value` where the mask is true, this tensor elsewhere, in this tensor's dtype: a fraction among integers is cut
    off. Raises DTypeError for a number that it does not have.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1.0, 2.0]).masked_fill(Tensor([True, False]), 0)
    Tensor([0., 2.], dtype=float32)
    """
    m = x._lift(mask)
    if m.dtype is not BOOL:
        raise DTypeError(f"masked_fill: a mask is bool, not {m.dtype.name}; compare first")
    if isinstance(value, float) and not x.dtype.is_float:
        value = x.new_full((), value)
    return choose(m, value, x).cast(x.dtype)


@function("functional")
def one_hot(x: Tensor, num_classes: int = -1) -> Tensor:
    """A new last axis with 1 at the position each element names and 0 elsewhere, as int32.

    With num_classes=-1 the number is one more than the largest element, which is computed now. Raises PositionError
    for an element on the host that is no class; one that is computed on a device gives zeros.

    >>> from anneal.tensor import Tensor
    >>> Tensor([1, 0]).one_hot(3)
    Tensor([[0, 1, 0],
            [1, 0, 0]], dtype=int32)
    """
    if not x.uop.dtype.is_int:
        raise DTypeError(f"one_hot: takes integers, not {x.dtype.name}; use .int() first")
    if num_classes == -1 and not x.numel():
        raise ShapeError(f"one_hot: shape {x.shape} has no largest element; give num_classes")
    n = int(x.max().item()) + 1 if num_classes == -1 else num_classes
    if n < 1:
        raise ShapeError(f"one_hot: num_classes must be positive, not {n}")
    shape = (*x.shape, n)
    check_places("one_hot", x.uop, len(shape) - 1, shape, 0)
    u = broadcast(reshape(x.uop.cast(INT32), (*x.shape, 1)), shape)
    return x._new_plain(u.eq(broadcast(iota(n), shape)).cast(INT32))


def out_of_range(name: str, x: Any, axis: int, shape: Shape, least: int | None = None) -> str:
    n = shape[axis]
    runs = f": it runs from {-n if least is None else least} to {n - 1}" if n != 0 else ", which has no elements"
    return f"{name}: {x} is out of bounds for axis {axis} of shape {shape}{runs}"


def as_array(x: Any, name: str = "") -> Array:
    """A list of ints, or an array, as an array."""
    try:
        if isinstance(x, (list, tuple)) and any(is_tensor(y) for y in x):
            raise DTypeError(f"{name}: an index is a tensor or a list of ints, not a list of tensors; use Tensor.stack")
        array = np.asarray(x)
    except (ValueError, OverflowError, TypeError) as e:
        if isinstance(e, DTypeError):
            raise
        raise ShapeError(f"{name}: a list of an index must be a box of ints: {e}") from None
    if array.dtype.kind == "O":
        raise DTypeError(f"{name}: an index is made of integers of 64 bits at most")
    return array


def values_now(x: Tensor, instead: str, name: str = "") -> Array:
    """The values, computed now. Raises ShapeError inside jit: there the shape that they decide would be frozen."""
    if here.recordings:
        raise ShapeError(
            f"{name}: the shape of the result depends on values, and inside jit shapes are static: {instead}"
        )
    return (x.detach() if x._wants else x).numpy()


def _shown(u: UOp) -> UOp:
    """The node whose values a node has, in some order."""
    while u.op in _SAME_VALUES or (u.op is Op.CAST and u.src[0].dtype.is_int):
        u = u.src[0]
    return u


def host_values(u: UOp) -> Array | None:
    """The integers of a node, in some order, where they are on the host already; else None.

    Inside a jit function they are the first call's only, and inside vmap those of no example: there, None.
    """
    u = _shown(u)
    if u.op is Op.CONST:
        return np.array([u.arg])
    if u.op is not Op.BUFFER or here.assigned:
        return None
    storage = u.arg
    if storage.host is None and storage.buffer is not None:
        return get_device(storage.device).host_view(storage.buffer, storage.size, storage.dtype)
    return storage.host  # type: ignore[no-any-return]


def check_places(
    name: str, index: UOp, axis: int, shape: Shape, least: int | None = None, but: int | None = None
) -> None:
    """Raise PositionError for integers of `index` that are known now and no positions of an axis of `shape`.

    They run from `least`, by default -n, to n - 1; `but` is one more that may be there.
    """
    if 0 in index.shape:
        return
    n = shape[axis]
    high = most(n) - 1
    low = -high - 1 if least is None else least
    if index.vmin is not None and index.vmax is not None and low <= index.vmin <= index.vmax <= high:
        return
    if here.checks is not None and _shown(index).op is Op.BUFFER:
        here.checks.append((check_places, index, (name, axis, shape, least, but)))
    values = host_values(index)
    if values is None:
        return
    for extreme in (int(values.min()), int(values.max())):
        if not low <= extreme <= high:
            if but is not None:
                outside = values[(values != but) & ((values < low) | (values > high))]
                if not outside.size:
                    return
                extreme = int(outside[0])
            raise PositionError(out_of_range(name, extreme, axis, shape, least))
