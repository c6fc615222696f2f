"""Choosing by position: x[...], gather, scatter, masks.

`x[...]` takes ints, slices with any step, None, Ellipsis, integer tensors, arrays and lists, and boolean arrays and
lists. Several integer tensors broadcast together; their axes take the place of the first of them, or come first where
a slice stands between (torch's and NumPy's rule).

In every op here -n to -1 count from the end of an axis of n. What is known here and now is checked now, by
`check_places`: ints, lists, arrays, and tensors whose integers are on the host. An index that is computed on a device
cannot be: it reads 0 where it is out of range, and writes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np

from anneal.backend import get_device
from anneal.errors import DTypeError, GradientError, PositionError, ShapeError
from anneal.ops import axis_of, bound_int, broadcast_shapes, grad_enabled, nodes, several, wrap_array
from anneal.ops import whole as whole_number
from anneal.ops.nodes import (
    Number,
    Pick,
    broadcast,
    check_inside,
    elementwise_where,
    every,
    inverse,
    iota,
    lay_back,
    lay_out,
    meet,
    put_rows,
    take_rows,
    wrapped,
)
from anneal.runtime import here, is_realized
from anneal.tensor._base import TensorBase
from anneal.tensor._reduce import Reduce
from anneal.uop import Op, UOp, alu, const, dtypes
from anneal.uop.sizes import Count, most, product, range_of, size

__all__ = ["Indexing"]

_INT32 = dtypes.int32
_BOOL = dtypes.bool_
_MASK_ADVICE = "use where or masked_fill, or index with a NumPy mask, x[mask.numpy()]"


class _Basic:
    """The basic part of an index, axis by axis: what is kept of each, and what becomes of the axis."""

    __slots__ = ("bounds", "flips", "shape", "steps")

    def __init__(self, bounds: list[tuple[Any, Any]], flips: list[int], steps: list[int], shape: list[Any]) -> None:
        self.bounds = tuple(bounds)
        self.flips = tuple(flips)
        self.steps = steps
        self.shape = tuple(shape)

    @property
    def is_box(self) -> bool:
        """Whether neighbours stay neighbours, in order."""
        return not self.flips and all(s == 1 for s in self.steps)

    def read(self, u: UOp) -> UOp:
        """The chosen part: cut, turned round, thinned, reshaped."""
        u = nodes.flip(nodes.shrink(u, self.bounds), self.flips)
        for axis, step in enumerate(self.steps):
            u = every(u, axis, step)
        return nodes.reshape(u, self.shape)

    def write(self, u: UOp, shape: tuple[int, ...]) -> UOp:
        """The reverse of `read`: `u` in its places in an array of `shape`, zeros elsewhere."""
        kept = [-(-(e - b) // s) if s != 1 else e - b for (b, e), s in zip(self.bounds, self.steps, strict=True)]
        u = nodes.reshape(u, tuple(kept))
        for axis, step in enumerate(self.steps):
            if step > 1:
                length = self.bounds[axis][1] - self.bounds[axis][0]
                u = _thin_out(u, axis, step, length)
        u = nodes.flip(u, self.flips)
        return nodes.pad(u, tuple([(b, n - e) for (b, e), n in zip(self.bounds, shape, strict=True)]))


def _thin_out(u: UOp, axis: int, step: int, length: int) -> UOp:
    """`u` along one axis with step-1 zeros after each element, `length` long: the reverse of `every`."""
    s = u.shape
    n = s[axis]
    u = nodes.reshape(u, (*s[: axis + 1], 1, *s[axis + 1 :]))
    u = nodes.pad(u, tuple([(0, step - 1) if i == axis + 1 else (0, 0) for i in range(len(s) + 1)]))
    u = nodes.reshape(u, (*s[:axis], n * step, *s[axis + 1 :]))
    return nodes.shrink(u, tuple([(0, length) if i == axis else (0, m) for i, m in enumerate(u.shape)]))


class _Position:
    """A symbolic position in an index."""

    __slots__ = ("size",)

    def __init__(self, size: UOp) -> None:
        self.size = size


class _Known:
    """An integer array of an index, known now: checked and wrapped here. `size` is what a mask says the axis has."""

    __slots__ = ("array", "size")

    def __init__(self, array: np.ndarray[Any, Any], size: int | None = None) -> None:
        self.array = array
        self.size = size


class Indexing(Reduce):
    """Indexing and everything that picks elements by position."""

    __slots__ = ()

    # -- x[...] ---------------------------------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> Self:
        basic, picks = self._parse(index)
        part = self._new(basic.read(self.uop))
        if not picks:
            return part
        rows, position, shape, front = lay_out(part.uop, picks)
        got = take_rows(rows, position)
        return self._new(nodes.permute(nodes.reshape(got, (*shape, *rows.shape[1:])), inverse(front)))

    def __setitem__(self, index: Any, value: Any) -> None:
        if self.requires_grad and self.is_leaf and grad_enabled():
            raise GradientError(
                "index: a leaf that requires a gradient cannot be changed in place; use .clone() first, or no_grad()"
            )
        basic, picks = self._parse(index)
        given = self._lift("index", value)
        old = self.detach() if self.is_leaf else self
        part = basic.read(old.uop)
        dtype = self.uop.dtype
        if picks:
            rows, position, shape, front = lay_out(part, picks)
            chosen = tuple([(*shape, *rows.shape[1:])[i] for i in inverse(front)])
        else:
            chosen = part.shape
        new = given.uop.cast(dtype)
        if len(new.shape) > len(chosen):
            # leading axes of size 1 are dropped, as torch and NumPy do
            extra = len(new.shape) - len(chosen)
            if new.shape[:extra] == (1,) * extra:
                new = nodes.reshape(new, new.shape[extra:])
        if new.shape != chosen:
            if broadcast_shapes("index assignment", new.shape, chosen) != chosen:
                raise ShapeError(f"index assignment: values of shape {given.shape} do not fit the chosen {chosen}")
            new = broadcast(new, chosen)
        if picks:
            new = nodes.reshape(nodes.permute(new, front), (math.prod(shape), *rows.shape[1:]))
            new = put_rows(rows, nodes.reshape(position, (math.prod(shape),)), new)
            new = lay_back(new, part.shape, picks)
        in_memory = is_realized(old.uop) or old.uop.op is Op.UPDATE
        if part is not old.uop and not picks and basic.is_box and in_memory and 0 not in part.shape:
            # memory: what is assigned goes into its place, and where nobody needs the old values nothing else moves
            box = nodes.reshape(new, tuple([e - b for b, e in basic.bounds]))
            new = UOp(Op.UPDATE, dtype, (old.uop, box), tuple([b for b, _ in basic.bounds]))
        elif part is not old.uop:
            inside = basic.write(broadcast(const(_BOOL, True), part.shape), self.shape)
            placed = basic.write(new, self.shape)
            new = placed if inside.op is Op.EXPAND else alu(Op.WHERE, (inside, placed, old.uop))
        out = self._new(broadcast(new, self.shape), given) if not self.is_leaf else given._new(new)
        wanted = self.requires_grad and self.is_leaf
        self._assign(out.uop)
        if not wanted:
            self.requires_grad, self.is_leaf = out.requires_grad, out.is_leaf

    def update_slice(self, value: Any, starts: Sequence[Any]) -> Self:
        """The tensor with `value` in the place that begins at `starts`, one for each axis: ints, sizes, or single
        integers.

        The others are tensors on the device, and the place is moved so that the value fits inside. Assigned to the
        tensor itself, it is written in place, and what runs is the same for every place. No gradient flows through a
        place that is a tensor.

        >>> from anneal.tensor import Tensor
        >>> x = Tensor.zeros(2, 4).realize()
        >>> x.assign(x.update_slice(Tensor([[1.0], [2.0]]), (0, Tensor([3])))).tolist()
        [[0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 2.0]]
        """
        given = self._lift("update_slice", value)
        starts = several("update_slice", "starts", starts)
        shape, part = self.uop.shape, given.uop.shape
        if len(part) != len(shape) or len(starts) != len(shape):
            raise ShapeError(
                f"update_slice: a value of shape {part} and {len(starts)} starts for a tensor of shape {shape}; it takes as "
                "many axes, and as many starts"
            )
        for axis, (n, whole) in enumerate(zip(part, shape, strict=True)):
            if most(n) > most(whole):
                raise ShapeError(f"update_slice: axis {axis} of a value of shape {part} does not fit into {shape}")
        begins: list[Any] = []
        looked_up = []
        for axis, start in enumerate(starts):
            if not isinstance(start, Indexing):
                start = whole_number("update_slice", "a start", start)
                end = start + part[axis]
                if isinstance(end, int) and isinstance(shape[axis], int) and not 0 <= start <= end <= shape[axis]:
                    raise ShapeError(
                        f"update_slice: {part[axis]} elements from {start} on do not fit into axis {axis} of shape {shape}"
                    )
                begins.append(start)
                continue
            if not start.dtype.is_int or most(product(start.shape)) != 1:
                raise DTypeError(
                    f"update_slice: a start is a single integer, not {start.dtype.name} of shape {start.shape} at axis {axis}"
                )
            looked_up.append(nodes.reshape(start.uop, ()).cast(_INT32))
            begins.append(None)
        if looked_up and grad_enabled() and (self.requires_grad or given.requires_grad):
            raise GradientError(
                "update_slice: no gradient flows through a place that is a tensor; use where(), or no_grad()"
            )
        new = given.uop.cast(self.uop.dtype)
        return self._new(UOp(Op.UPDATE, self.uop.dtype, (self.uop, new, *looked_up), tuple(begins)), given)

    def __iter__(self) -> Iterator[Self]:
        if not self.uop.shape:
            raise TypeError("iter: a tensor of shape () has no rows")
        n = self.uop.shape[0]
        if not isinstance(n, int):
            raise TypeError(
                f"iter: the first axis has {n} elements, as many as its Variables say; take a slice of so many"
            )
        return (self[i] for i in range(n))

    def _parse(self, index: Any) -> tuple[_Basic, dict[int, Pick]]:
        """The basic part of an index, and its integer tensors by the axis they stand at in what that leaves."""
        shape = self.uop.shape
        items = [y for x in (index if isinstance(index, tuple) else (index,)) for y in self._item(x)]
        used = sum(1 for x in items if x is not None and x is not Ellipsis)
        dots = [i for i, x in enumerate(items) if x is Ellipsis]
        if len(dots) > 1:
            raise ShapeError(f"index: only one ... may stand in an index; there are {len(dots)}")
        if used > len(shape):
            raise ShapeError(f"index: {used} axes are named, but shape {shape} has {len(shape)}")
        rest: list[Any] = [slice(None)] * (len(shape) - used)
        items = items[: dots[0]] + rest + items[dots[0] + 1 :] if dots else items + rest
        bounds: list[tuple[Any, Any]] = []
        flips: list[int] = []
        steps: list[int] = []
        out: list[Any] = []
        picks: dict[int, Pick] = {}
        for x in items:
            if x is None:
                out.append(1)
                continue
            axis = len(bounds)
            n = shape[axis]
            begin: Any = 0
            end, step = n, 1
            if isinstance(x, slice):
                begin, end, step = self._slice_bounds(x, n, axis)
                if step < 0:
                    flips.append(axis)
                    step = -step
                out.append(-(-(end - begin) // step) if step != 1 else size(end - begin))
            elif isinstance(x, int):
                if not (-n <= x and x < n):
                    raise PositionError(out_of_range("index", x, axis, shape))
                begin = x + n if x < 0 else x
                end = begin + 1
            elif isinstance(x, _Position):
                begin, end = x.size, size(x.size + 1)
                check_inside("index", begin, end, axis, shape)
            else:
                if isinstance(x, _Known):
                    picks[len(out)] = self._known(x, axis), True
                else:
                    check_places("index", x, axis, shape)
                    picks[len(out)] = x.cast(_INT32), False
                out.append(n)
            bounds.append((begin, end))
            steps.append(step)
        return _Basic(bounds, flips, steps, out), picks

    def _slice_bounds(self, s: slice, n: Any, axis: int) -> tuple[Any, Any, int]:
        if any(isinstance(x, UOp) for x in (s.start, s.stop, n)):
            return self._symbolic_bounds(s, n, axis)
        try:
            begin, end, step = s.indices(n)
        except (TypeError, ValueError) as e:
            raise ShapeError(f"index: {s} on axis {axis} of shape {self.shape}: {e}") from e
        count = len(range(begin, end, step))
        if not count:
            return 0, 0, 1
        if step > 0:
            return begin, begin + (count - 1) * step + 1, step
        return begin + (count - 1) * step, begin + 1, step

    def _symbolic_bounds(self, s: slice, n: Any, axis: int) -> tuple[Any, Any, int]:
        if s.step not in (None, 1, -1) or (s.step == -1 and (s.start, s.stop) != (None, None)):
            raise ShapeError(f"index: {s} on axis {axis} of shape {self.shape}: symbolic slices go by steps of 1")
        ends = []
        for x, default in ((s.start, 0), (s.stop, n)):
            x = default if x is None else x
            ends.append(size(n + x if range_of(x)[1] < 0 else x))
        begin, end = ends
        check_inside("index", begin, end, axis, self.shape)
        return begin, end, s.step or 1

    def _known(self, x: _Known, axis: int) -> UOp:
        n = self.uop.shape[axis]
        if x.size is not None and x.size != n:
            raise ShapeError(f"index: a mask of {x.size} elements does not fit axis {axis} of shape {self.shape}")
        array = x.array
        if array.size:
            for extreme in (int(array.min()), int(array.max())):
                if not -n <= extreme < n:
                    raise PositionError(out_of_range("index", extreme, axis, self.shape))
        return wrap_array(np.where(array < 0, array + n, array).astype(np.int32), self.device)

    def _item(self, x: Any) -> list[Any]:
        """One item of an index as ints, slices, None, Ellipsis, int32 nodes and known arrays."""
        if x is None or x is Ellipsis or isinstance(x, slice):
            return [x]
        if isinstance(x, (bool, np.bool_)):
            raise DTypeError(
                "index: True and False are no positions; use 0 and 1, None for a new axis, or a mask array"
            )
        if isinstance(x, int):
            return [x]
        if isinstance(x, UOp):
            n = size(x)
            return [n if isinstance(n, int) else _Position(n)]
        if isinstance(x, TensorBase):
            if x.device != self.device:
                self._mixed("index", x)
            if x.dtype is _BOOL:
                raise DTypeError(f"index: a bool tensor gives a shape that depends on its values; {_MASK_ADVICE}")
            if not x.dtype.is_int:
                raise DTypeError(f"index: takes integers, not {x.dtype.name}; use .int() first")
            return [int(x.uop.arg)] if x.uop.is_const else [x.uop]
        if isinstance(x, (list, tuple, range, np.ndarray)):
            array = _as_array("index", x)
            if array.size == 0 and not isinstance(x, np.ndarray):
                array = array.astype(np.int32)
            if array.dtype.kind == "b":
                return [_Known(a, n) for a, n in zip(np.nonzero(array), array.shape, strict=True)]
            if array.dtype.kind not in "iu":
                raise DTypeError(f"index: takes integers, not an array of {array.dtype}")
            return [_Known(array)] if array.ndim else [int(array)]
        try:
            return [x.__index__()]
        except (AttributeError, TypeError):
            raise DTypeError(
                f"index: takes ints, slices, None, ... and integer tensors, arrays or lists, not {type(x).__name__}"
            ) from None

    # -- along an axis --------------------------------------------------------------------------------------------

    def _index_node(self, name: str, index: Any) -> UOp:
        """An index argument as a node of integers on this device."""
        if isinstance(index, (list, tuple, range)):
            array = _as_array(name, index)
            index = array.astype(np.int32) if not array.size else array
        elif isinstance(index, (bool, np.bool_)):
            raise DTypeError(f"{name}: an index is made of integers, not {index}")
        elif isinstance(index, int) and not isinstance(index, Count):
            index = np.asarray(bound_int(name, "an index", index), np.int32)
        i = self._lift(name, index)
        if not i.dtype.is_int:
            raise DTypeError(f"{name}: an index is made of integers, not {i.dtype.name}; use .int() first")
        return i.uop

    def _places(self, name: str, index: UOp, axis: int) -> UOp:
        """The positions of an index along an axis as int32, counted from 0; those that are known are checked."""
        shape = self.uop.shape or (1,)
        check_places(name, index, axis, shape)
        return wrapped(index.cast(_INT32), shape[axis])

    def gather(self, dim: int, index: Any) -> Self:
        """out[i, j, k] = self[i, index[i, j, k], k] for dim=1, and so on; the result has the index's shape.

        The index has as many axes, none longer than this tensor's but at `dim`; -1 is the last position. Raises
        PositionError for an index on the host that is out of range; one on a device reads 0 there.

        >>> from anneal.tensor import Tensor
        >>> Tensor([[1, 2], [3, 4]]).gather(1, Tensor([[0, 0], [1, -2]]))
        Tensor([[1, 1],
                [4, 3]], dtype=int32)
        """
        i = self._index_node("gather", index)
        at = self._fits("gather", dim, i.shape, self.uop.shape, "this tensor's")
        return self._gathered(at, self._places("gather", i, at))

    def _gathered(self, at: int, i: UOp) -> Self:
        """`gather` of positions that count from 0; what is out of range reads 0."""
        if not self.uop.shape:
            return self._new(elementwise_where(i, self.uop))
        return self._new(UOp(Op.GATHER, self.uop.dtype, (self.uop, i), at))

    def _fits(self, name: str, dim: int, small: tuple[int, ...], big: tuple[int, ...], whose: str) -> int:
        at = axis_of(name, dim, len(big))
        if len(small) != len(big):
            raise ShapeError(f"{name}: the index has shape {small} and {whose} is {big}; they need as many axes")
        for a, (n, m) in enumerate(zip(small, big, strict=True)):
            if a != at and n > m:
                raise ShapeError(f"{name}: the index has shape {small}, longer than {whose} {big} on axis {a}")
        return at

    def take_along_dim(self, index: Any, dim: int | None = None) -> Self:
        """`gather`, whose index broadcasts and may count from the end; without an axis, from the flat row."""
        if dim is None:
            return self.ravel().take_along_dim(self._lift("take_along_dim", index).ravel(), 0)
        i = self._index_node("take_along_dim", index)
        at = axis_of("take_along_dim", dim, self.ndim)
        s = self.shape
        if len(i.shape) != len(s):
            raise ShapeError(f"take_along_dim: index of shape {i.shape} and tensor of shape {s} need as many axes")
        i = self._places("take_along_dim", i, at)
        if not s:
            return self._gathered(at, i)
        sizes = [i.shape[a] if a == at else n for a, n in enumerate(s)]
        wide = broadcast_shapes("take_along_dim", i.shape, tuple(sizes))
        u = broadcast(self.uop, tuple([s[a] if a == at else n for a, n in enumerate(wide)]))
        return self._new(UOp(Op.GATHER, u.dtype, (u, broadcast(i, wide)), at))

    def index_select(self, dim: int, index: Any) -> Self:
        """The positions `index` (one axis) of an axis.

        >>> from anneal.tensor import Tensor
        >>> Tensor([[1, 2], [3, 4]]).index_select(0, Tensor([1, 1, 0]))
        Tensor([[3, 4],
                [3, 4],
                [1, 2]], dtype=int32)
        """
        at = axis_of("index_select", dim, self.ndim)
        i = self._index_node("index_select", index)
        if len(i.shape) > 1:
            raise ShapeError(f"index_select: the index has one axis, not shape {i.shape}")
        i = self._places("index_select", i, at)
        if not self.ndim:
            return self._new(nodes.reshape(elementwise_where(i, broadcast(self.uop, i.shape)), ()))
        order = [at, *[a for a in range(self.ndim) if a != at]]
        got = take_rows(nodes.permute(self.uop, order), nodes.reshape(i, (math.prod(i.shape),)))
        return self._new(nodes.permute(got, inverse(order)))

    def rows(self, index: Any) -> Self:
        """self[index] along the first axis, for an index counted from 0: an embedding's look-up.

        >>> from anneal.tensor import Tensor
        >>> Tensor([[1, 2], [3, 4]]).rows(Tensor([[1, 0]])).shape
        (1, 2, 2)
        """
        if not self.uop.shape:
            raise ShapeError("rows: a tensor of shape () has no rows")
        i = self._index_node("rows", index)
        check_places("rows", i, 0, self.uop.shape, 0)
        return self._new(take_rows(self.uop, i.cast(_INT32)))

    def take(self, index: Any) -> Self:
        """The elements of the flat row at `index`, in the index's shape; negative ones count from the end.

        >>> from anneal.tensor import Tensor
        >>> Tensor([[1, 2], [3, 4]]).take(Tensor([0, -1]))
        Tensor([1, 4], dtype=int32)
        """
        row = self.ravel()
        return self._new(take_rows(row.uop, row._places("take", self._index_node("take", index), 0)))

    # -- writing by position --------------------------------------------------------------------------------------

    def scatter_add(self, dim: int, index: Any, src: Any) -> Self:
        """This tensor with self[index[i, j], j] += src[i, j] (dim=0) done for every element of the index.

        Repeated positions add up, in a fixed order. Raises PositionError for an index on the host that is out of range;
        on a device such positions are left out.

        >>> from anneal.tensor import Tensor
        >>> Tensor.zeros(3).scatter_add(0, Tensor([0, 2, 0]), Tensor([1.0, 2.0, 3.0]))
        Tensor([4., 0., 2.], dtype=float32)
        """
        rows, i, value, given = self._scattered("scatter_add", dim, index, src)
        dtype = self.uop.dtype
        if dtype is _BOOL:
            total = UOp(Op.SCATTER_ADD, _INT32, (i, value.cast(_INT32)), (rows,)).cast(_BOOL)
            return self._new(alu(Op.OR, (self.uop, nodes.reshape(total, self.shape))))
        total = UOp(Op.SCATTER_ADD, dtype, (i, value), (rows,))
        return self._new(alu(Op.ADD, (self.uop, nodes.reshape(total, self.shape))), given)

    def scatter(self, dim: int, index: Any, src: Any, reduce: str | None = None) -> Self:
        """This tensor with self[index[i, j], j] = src[i, j] (dim=0); of several writes to one place the last stays.

        reduce="add" is `scatter_add`. `src` may be a number.

        >>> from anneal.tensor import Tensor
        >>> Tensor.zeros(3).scatter(0, Tensor([0, 2, 0]), Tensor([1.0, 2.0, 3.0]))
        Tensor([3., 0., 2.], dtype=float32)
        """
        if reduce == "add":
            return self.scatter_add(dim, index, src)
        if reduce is not None:
            raise DTypeError(f'scatter: reduce is None or "add", not {reduce!r}')
        rows, i, value, given = self._scattered("scatter", dim, index, src)
        width = math.prod(value.shape[1:])
        new = put_rows(nodes.reshape(self.uop, (rows, width)), i, value)
        return self._new(nodes.reshape(new, self.shape), given)

    def _scattered(self, name: str, dim: int, index: Any, src: Any) -> tuple[int, UOp, UOp, Self]:
        """A scatter as rows: how many there are, the row of each value row, the values, and the tensor they are of."""
        i = self._index_node(name, index)
        s = self.uop.shape
        at = self._fits(name, dim, i.shape, s, "this tensor's")
        i = self._places(name, i, at)
        given = self._lift(name, src)
        value = given.uop.cast(self.uop.dtype)
        if not value.shape:
            value = broadcast(value, i.shape)
        self._fits(name, dim, i.shape, value.shape, "the values'")
        if i.shape and i.shape[at] > value.shape[at]:
            raise ShapeError(
                f"{name}: the index has shape {i.shape}, longer than the values' {value.shape} on axis {at}"
            )
        value = nodes.shrink(value, tuple([(0, n) for n in i.shape]))
        n, total = math.prod(i.shape), math.prod(s)
        if len(s) == 2 and at == 0 and i.op is Op.EXPAND and i.src[0].shape[1] == 1 and i.shape[1] == s[1]:
            # the same row for a whole row of values: add rows, not elements
            return s[0], nodes.reshape(i.src[0], (n // s[1],)), value, given
        position: UOp | None = None
        stride = total
        for a, m in enumerate(s):
            stride //= max(m, 1)
            here = i if a == at else iota(i.shape[a], a, len(s))
            if m != 1 or a == at:
                here = broadcast(here, i.shape)
                position = meet(Op.ADD, position, here * stride if stride != 1 else here)
        if position is None:
            position = i
        elif len(s) > 1:
            inside = alu(Op.AND, (alu(Op.NOT, (i < 0,)), i < s[at]))
            position = alu(Op.WHERE, (inside, position, const(_INT32, -1)))
        return total, nodes.reshape(position, (n,)), nodes.reshape(value, (n, 1)), given

    def index_add(self, dim: int, index: Any, source: Any, alpha: Number = 1) -> Self:
        """This tensor with alpha * source added at the positions `index` of an axis; repeated positions add up.

        >>> from anneal.tensor import Tensor
        >>> Tensor.zeros(2, 2).index_add(0, Tensor([1, 1]), Tensor.ones(2, 2))
        Tensor([[0., 0.],
                [2., 2.]], dtype=float32)
        """
        at = axis_of("index_add", dim, self.ndim)
        i = self._index_node("index_add", index)
        given = self._lift("index_add", source)
        order = [at, *[a for a in range(self.ndim) if a != at]]
        s = self.shape
        wanted = (*s[:at], *i.shape, *s[at + 1 :])
        if len(i.shape) != 1 or given.shape != wanted:
            raise ShapeError(
                f"index_add: an index of shape {i.shape} needs a source of shape {wanted}, not {given.shape}"
            )
        i = self._places("index_add", i, at)
        value = nodes.permute((given * alpha if alpha != 1 else given).uop.cast(self.uop.dtype), order)
        rest = value.shape[1:]
        value = nodes.reshape(value, (i.shape[0], math.prod(rest)))
        total = UOp(Op.SCATTER_ADD, self.uop.dtype, (i, value), (s[at],))
        total = nodes.permute(nodes.reshape(total, (s[at], *rest)), inverse(order))
        return self._new(alu(Op.ADD, (self.uop, total)), given)

    # -- masks ----------------------------------------------------------------------------------------------------

    def where(self, a: Any, b: Any) -> Self:
        """Choose element by element; all three broadcast.

        Called on a condition, `condition.where(a, b)` or `Tensor.where(condition, a, b)`: `a` where it is true, else
        `b`. Called on values, `x.where(condition, b)`: `x` where the condition is true, else `b`.

        >>> from anneal.tensor import Tensor
        >>> x = Tensor([-1, 2])
        >>> Tensor.where(x > 0, x, 0), x.where(x > 0, 9)
        (Tensor([0, 2], dtype=int32), Tensor([9, 2], dtype=int32))
        """
        if self.uop.dtype is _BOOL:
            return self._choose(a, b)
        condition = self._lift("where", a)
        if condition.dtype is not _BOOL:
            raise DTypeError(
                f"where: a condition is bool, not {self.dtype.name}; compare first, as in (x != 0).where(a, b)"
            )
        return condition._choose(self, b)

    def masked_fill(self, mask: Any, value: Any) -> Self:
        """`value` where the mask is true, this tensor elsewhere, in this tensor's dtype.

        >>> from anneal.tensor import Tensor
        >>> Tensor([1.0, 2.0]).masked_fill(Tensor([True, False]), 0)
        Tensor([0., 2.], dtype=float32)
        """
        m = self._lift("masked_fill", mask)
        if m.dtype is not _BOOL:
            raise DTypeError(f"masked_fill: a mask is bool, not {m.dtype.name}; compare first")
        if not self.uop.dtype.is_float and isinstance(value, float):
            raise DTypeError(f"masked_fill: {value} does not fit {self.dtype.name}; cast the tensor first")
        return m._choose(value, self).cast(self.uop.dtype)

    def one_hot(self, num_classes: int = -1) -> Self:
        """A new last axis with 1 at the position each element names and 0 elsewhere, as int32.

        With num_classes=-1 the number is one more than the largest element, which is computed now. Raises PositionError
        for an element on the host that is no class; one that is computed on a device gives zeros.

        >>> from anneal.tensor import Tensor
        >>> Tensor([1, 0]).one_hot(3)
        Tensor([[0, 1, 0],
                [1, 0, 0]], dtype=int32)
        """
        if not self.uop.dtype.is_int:
            raise DTypeError(f"one_hot: takes integers, not {self.dtype.name}; use .int() first")
        if num_classes == -1 and not self.numel():
            raise ShapeError(f"one_hot: shape {self.shape} has no largest element; give num_classes")
        n = int(self.max().item()) + 1 if num_classes == -1 else num_classes
        if n < 1:
            raise ShapeError(f"one_hot: num_classes must be positive, not {n}")
        shape = (*self.shape, n)
        check_places("one_hot", self.uop, len(shape) - 1, shape, 0)
        u = broadcast(nodes.reshape(self.uop.cast(_INT32), (*self.shape, 1)), shape)
        return self._new_plain(alu(Op.EQ, (u, broadcast(iota(n), shape))).cast(_INT32))


def out_of_range(name: str, x: Any, axis: int, shape: tuple[Any, ...], least: int | None = None) -> str:
    n = shape[axis]
    if n == 0:
        return f"{name}: {x} is out of range for axis {axis} of shape {shape}, which has no elements"
    return f"{name}: {x} is out of range for axis {axis} of shape {shape}: it runs from {-n if least is None else least} to {n - 1}"


def _as_array(name: str, x: Any) -> np.ndarray[Any, Any]:
    """A list of ints, or an array, as an array."""
    try:
        if isinstance(x, (list, tuple)) and any(isinstance(y, TensorBase) for y in x):
            raise DTypeError(f"{name}: an index is a tensor or a list of ints, not a list of tensors; use Tensor.stack")
        array = np.asarray(x)
    except (ValueError, OverflowError, TypeError) as e:
        if isinstance(e, DTypeError):
            raise
        raise ShapeError(f"{name}: a list of an index must be a box of ints: {e}") from None
    if array.dtype.kind == "O":
        raise DTypeError(f"{name}: an index is made of integers of 64 bits at most")
    return array


_SAME_VALUES = (Op.RESHAPE, Op.EXPAND, Op.PERMUTE, Op.FLIP, Op.DETACH, Op.CONTIGUOUS)


def host_values(u: UOp) -> np.ndarray[Any, Any] | None:
    """The integers of a node, in some order, where they are on the host already; else None.

    Inside a jit function they are the first call's only, and inside vmap those of no example: there, None.
    """
    while u.op in _SAME_VALUES or (u.op is Op.CAST and u.src[0].dtype.is_int):
        u = u.src[0]
    if u.op is Op.CONST:
        return np.array([u.arg])
    if u.op is not Op.BUFFER or here.assigned:
        return None
    storage = u.arg
    values, buffer = storage.host, storage.buffer
    if values is None and buffer is not None:
        values = get_device(storage.device).host_view(buffer, storage.size, storage.dtype)
    return values  # type: ignore[no-any-return]


def check_places(
    name: str, index: UOp, axis: int, shape: tuple[Any, ...], least: int | None = None, but: int | None = None
) -> None:
    """Raise PositionError for integers of `index` that are known now and no positions of an axis of `shape`.

    They run from `least`, by default -n, to n - 1; `but` is one more that may be there.
    """
    if 0 in index.shape:
        return
    n = shape[axis]
    high = most(n) - 1
    low = -high - 1 if least is None else least
    if index.vmin is not None and index.vmax is not None and low <= index.vmin and index.vmax <= high:
        return
    values = host_values(index)
    if values is None:
        return
    for extreme in (int(values.min()), int(values.max())):
        if not low <= extreme <= high:
            if but is not None:
                rest = values[values != but]
                if not rest.size:
                    return
                inside = (rest >= low) & (rest <= high)
                if inside.all():
                    return
                extreme = int(rest[~inside][0])
            raise PositionError(out_of_range(name, extreme, axis, shape, least))
