"""Python's operators: `x + y` is the op `add` without a look at its arguments by kind. Each is a name of this file."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from anneal.doors import named
from anneal.errors import DTypeError, GradientError, PositionError, ShapeError, SubscriptError, UserError
from anneal.names import Tensor
from anneal.ops import nodes
from anneal.ops.arguments import changing, deferred, function, rename, viewing
from anneal.ops.checks import broadcast_shapes, is_tensor, several, whole as whole_number
from anneal.ops.elementwise import binary, power, quotient
from anneal.ops.indexing import as_array, check_places, out_of_range, values_now
from anneal.ops.inplace import changed, need_changeable
from anneal.ops.inputs import Again, Made, Part, has_axis, placed, places, spread_out, wholes
from anneal.ops.made import wrap_array

from anneal.ops.nodes import (  # isort: skip
    BOOL, INT32, Pick, broadcast, check_inside, every, flip, inverse, lay_out, pad, permute, reshape, shrink,
)  # fmt: skip
from anneal.ops.precision import casts, grad_enabled
from anneal.runtime import Args, Fun, Handle, Options, Varies, at_once, here, is_realized, number
from anneal.uop import DType, Ints, Op, UOp, const
from anneal.uop.sizes import most, product, range_of, size

Known = tuple[tuple[int, bool], ...]  # items of an index, and whether they are a mask's
_MASK_ADVICE = "use where or masked_fill, or masked_select(mask, size=), or index with a NumPy mask"

# -- subscripts -------------------------------------------------------------------------------------------------------


@viewing
def getitem(x: Tensor, index: Any, known: Known = ()) -> Tensor:
    mask = _alone(index)
    if is_tensor(mask) and mask.dtype is BOOL and not mask.shape:  # of the whole: one of it along a new axis, or none
        return getitem(x.unsqueeze(0), values_now(mask, _MASK_ADVICE, "index").reshape(1))
    basic, picks = parsed(x, index, known)
    part = x._new(basic.read(x.uop))
    if not picks:
        return part
    rows, position, back, _ = lay_out(part.uop, picks)
    return x._new(permute(nodes.take_rows(rows, position), back))


def setitem(x: Tensor, index: Any, value: Any, known: Known = ()) -> Tensor:
    need_changeable(x, "index")
    given = x._lift(value, "index")
    dtype, shape = x.uop.dtype, x.uop.shape
    nodes.check_fits(dtype, value, "index")
    old = (x.detach() if x.is_leaf else x).uop
    mask = _whole_mask(x, index, given)
    if mask is not None:
        filled = broadcast(given.uop.cast(dtype), shape)
        return _put(x, nodes.elementwise(Op.WHERE, (mask, filled, old), shape), given)
    basic, picks = parsed(x, index, known)
    part = basic.read(old)
    if not picks and given.uop is basic.read(x.uop):
        return x  # `x[i] += y`: the part was changed in place, and x with it
    if picks:
        rows, position, back, chosen = lay_out(part, picks)
    new = _fitted(given, dtype, chosen if picks else part.shape)
    if picks:
        n = math.prod(position.shape)
        new = reshape(permute(new, inverse(back)), (n, *rows.shape[1:]))
        apart = len(picks) == len(known) and all(of_mask for _, of_mask in known)
        new = nodes.put_rows(rows, reshape(position, (n,)), new, given.requires_grad, apart)
        new = nodes.lay_back(new, part.shape, picks)
    in_memory = is_realized(old) or old.op is Op.UPDATE or nodes.put_in_place(old)
    if part is not old and not picks and basic.is_box and in_memory and 0 not in part.shape:
        # memory: what is assigned goes into its place, and where nobody needs the old values nothing else moves
        box = reshape(new, tuple([e - b for b, e in basic.bounds]))
        new = UOp(Op.UPDATE, dtype, (old, box), tuple([b for b, _ in basic.bounds]))
    elif part is not old:
        inside = basic.write(broadcast(const(BOOL, True), part.shape), shape)
        placed = basic.write(new, shape)
        new = placed if inside.op is Op.EXPAND else inside.where(placed, old)
    return _put(x, new, given)


def _assigned(varies: Varies, again: Again, args: Args, options: Options) -> Made:
    """An assignment with memory for the place and the number that vary; None where neither does."""
    x, index, value, *known = args
    dtype = x._looks.dtype
    found = placed(varies, x, index)
    if value.__class__ in (int, float) and dtype.is_float and varies("value", value):
        value = x._new_plain(number(value, dtype, x.device))
    elif found is None:
        return None
    return (again((x, index, value, *known), {}) if found is None else write_places(x, found[0], value),)


@changing
def write_places(x: Tensor, index: tuple[Part, ...], value: Any) -> Tensor:
    """Write values where an index says that some places are memory (`Part`)."""
    given = x._lift(value, "index")
    nodes.check_fits(x.uop.dtype, value, "index")
    new = _fitted(given, x.uop.dtype, tuple([n for _, n, kept in index if kept]))
    index = tuple([part for part in index if part[0] is not None])
    if x._wants or given._wants:
        box = tuple([n for _, n, kept in index if kept])
        return setitem(x, _items_of(x, index), given._new(reshape(new, box)))
    places = [reshape(b.uop, ()) for b, _, _ in index if is_tensor(b)]
    begins = tuple([None if is_tensor(b) else b for b, _, _ in index])
    part = reshape(new, tuple([n for _, n, _ in index]))
    return _put(x, UOp(Op.UPDATE, x.uop.dtype, (x.uop, part, *places), begins), given)


def _items_of(x: Tensor, index: tuple[Part, ...]) -> tuple[Any, ...]:
    """The parts of the axes as items of an index, where runs of several places are as the axes of a mesh."""
    items, left = list[Any](), sum([kept for _, _, kept in index])
    mesh = sum([is_tensor(begin) for begin, _, _ in index]) > 1
    for begin, n, kept in index:
        left -= kept
        if kept and (mesh or is_tensor(begin)):
            at = broadcast(begin.uop, (n,)) if is_tensor(begin) else begin
            items.append(x._new_plain(reshape(nodes.iota(n) + at, (n, *[1] * (left if mesh else 0)))))
        else:
            items.append(slice(begin, begin + n) if kept else begin)
    return tuple(items)


def _fitted(given: Tensor, dtype: DType, chosen: Ints) -> UOp:
    """Values that are assigned, in the shape of the chosen part."""
    new = given.uop.cast(dtype)
    if len(new.shape) > len(chosen):
        # leading axes of size 1 are dropped, as torch and NumPy do
        extra = len(new.shape) - len(chosen)
        if new.shape[:extra] == (1,) * extra:
            new = reshape(new, new.shape[extra:])
    if new.shape != chosen:
        if broadcast_shapes(new.shape, chosen, name="index assignment") != chosen:
            raise ShapeError(f"index assignment: values of shape {given.shape} do not fit the chosen {chosen}")
        new = broadcast(new, chosen)
    return new


setitem.inputs = _assigned  # type: ignore[attr-defined]


def _alone(index: Any) -> Any:
    """The one item of an index that is a tuple of one."""
    return index[0] if isinstance(index, tuple) and len(index) == 1 else index


def _whole_mask(x: Tensor, index: Any, given: Tensor) -> UOp | None:
    """A lazy mask of the first axes in the shape of `x`, where every place that it may choose gets the same values."""
    mask = _alone(index)
    if not is_tensor(mask) or mask.dtype is not BOOL:
        return None
    m, s, g = mask.shape, x.uop.shape, given.uop.shape
    rest = s[len(m) :]
    if (*m, *rest) != s or len(g) > len(rest):
        return None
    if mask.device != x.device:
        x._mixed(mask, "index")
    if broadcast_shapes(g, rest, name="index assignment") != rest:
        return None
    return broadcast(reshape(mask.uop, (*m, *[1] * len(rest))), s)


def _put(x: Tensor, new: UOp, given: Tensor) -> Tensor:
    """Let `x` show `new`, which was made of it and of `given`; gives `x`."""
    out = x._new(broadcast(new, x.shape), given) if not x.is_leaf else given._new(new)
    if (x._base is not None and x._is_part()) or not (here.grad or x._leaf):
        # a view: what it is a part of changes too; or a result whose gradient goes where it did, past these values
        return changed(x, "index", out)
    if x.requires_grad and x.is_leaf:
        x._assign(x._leaf_of(out.uop))
    else:
        here.tensors.flags += x._wants is not out.requires_grad
        x._wants, x._leaf = out.requires_grad, out.is_leaf
        x._take(out.uop)
    return x


def __iter__(x: Tensor) -> Iterator[Tensor]:
    if not x.uop.shape:
        raise TypeError("iter: a tensor of shape () has no rows")
    n = x.uop.shape[0]
    if not isinstance(n, int):
        raise TypeError(f"iter: the first axis has {n} elements, as many as its Variables say; take a slice of so many")
    return (x[i] for i in range(n))


@function
def update_slice(x: Tensor, value: Any, starts: Sequence[Any]) -> Tensor:
    """The tensor with `value` written into the part that begins at `starts`: for each axis an int, a symbolic size, or
    an integer tensor of one element.

    A start that is a tensor is not read by the host, and is clamped so that the value fits. If the result is assigned
    to the tensor itself, it is written in place, by the same kernels for all starts. Gradients flow if at most two
    starts are tensors.

    >>> from anneal.tensor import Tensor
    >>> x = Tensor.zeros(2, 4).realize()
    >>> x.assign(x.update_slice(Tensor([[1.0], [2.0]]), (0, Tensor([3])))).tolist()
    [[0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 2.0]]
    """
    given = x._lift(value, "update_slice")
    starts = several("starts", starts)
    shape, part = x.uop.shape, given.uop.shape
    if len(part) != len(shape) or len(starts) != len(shape):
        raise ShapeError(
            f"update_slice: a value of shape {part} and {len(starts)} starts for a tensor of shape {shape}; it takes "
            "as many axes, and as many starts"
        )
    for axis, (n, whole) in enumerate(zip(part, shape)):
        if most(n) > most(whole):
            raise ShapeError(f"update_slice: axis {axis} of a value of shape {part} does not fit into {shape}")
    begins = []
    looked_up = []
    for axis, start in enumerate(starts):
        if not is_tensor(start):
            start = whole_number("a start", start)
            end = start + part[axis]
            if isinstance(end, int) and isinstance(shape[axis], int) and not 0 <= start <= end <= shape[axis]:
                raise ShapeError(
                    f"update_slice: {part[axis]} elements from {start} on do not fit into axis {axis} of shape {shape}"
                )
            begins.append(start)
            continue
        if not start.dtype.is_int or most(product(start.shape)) != 1:
            raise DTypeError(
                f"update_slice: a start is a single integer, not {start.dtype.name} of shape {start.shape} at axis "
                f"{axis}"
            )
        looked_up.append(reshape(start.uop, ()).cast(INT32))
        begins.append(None)
    if len(looked_up) > 2 and grad_enabled() and (x.requires_grad or given.requires_grad):
        raise GradientError(
            f"update_slice: gradients flow where at most two starts are tensors, and {len(looked_up)} are; use "
            "where(), or no_grad()"
        )
    new = given.uop.cast(x.uop.dtype)
    return x._new(UOp(Op.UPDATE, x.uop.dtype, (x.uop, new, *looked_up), tuple(begins)), given)


def resolved(x: Tensor, index: Any) -> Args:
    """An index, whose masks, arrays and lists are tensors of the places that they choose, so that they are data and no
    part of the plan; and which of its items those are. The index alone where there are none, or one is wrong."""
    items = index if isinstance(index, tuple) else (index,)
    if at_once(vars(here)) or not any(map(_is_data, items)):
        return (index,)
    found: list[Any] = []
    known = []
    try:
        for item in items:
            parts = _item(x, item) if _is_data(item) else [item]
            known += [(len(found) + i, p.size is not None) for i, p in enumerate(parts) if isinstance(p, _Known)]
            found += parts
        axes = [id(item) for item in spread_out(found, x.ndim) if has_axis(item)]
        for i, _ in known:
            if not found[i].array.size:
                return (index,)
            found[i] = x._new_plain(_known(x, found[i], axes.index(id(found[i]))))
    except (UserError, IndexError):
        return (index,)
    return tuple(found), tuple(known)


def _is_data(item: Any) -> bool:
    if is_tensor(item):
        return item.dtype is BOOL and item.shape != ()
    return isinstance(item, (np.ndarray, list, range)) and np.ndim(item) > 0


def parsed(t: Tensor, index: Any, known: Known = ()) -> tuple[_Basic, dict[int, Pick]]:
    """The basic part of an index, and its integer tensors by the axis they stand at in what that leaves. Of those that
    are `known` all places are there, and counted from 0."""
    shape = t.uop.shape
    there = {id(index[i].uop) for i, _ in known}
    items = [y for x in (index if isinstance(index, tuple) else (index,)) for y in _item(t, x)]
    used, dots = sum(map(has_axis, items)), sum([x is Ellipsis for x in items])
    if dots > 1:
        raise PositionError(f"index: only one ... may stand in an index, a single ellipsis; there are {dots}")
    if used > len(shape):
        raise PositionError(f"index: too many indices: {used} axes are named, but shape {shape} has {len(shape)}")
    bounds: list[tuple[Any, Any]] = []
    flips = []
    steps = []
    out: list[Any] = []
    picks = {}
    for x in spread_out(items, len(shape)):
        if x is None or x.__class__ is bool:
            if x is not None:  # a new axis, of which its one place is chosen, or none
                picks[len(out)] = wrap_array(np.zeros(int(x), np.int32), t.device), True
            out.append(1)
            continue
        axis = len(bounds)
        n = shape[axis]
        begin: Any = 0
        end, step = n, 1
        if isinstance(x, slice):
            begin, end, step = _slice_bounds(t, x, n, axis)
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
            check_inside(begin, end, axis, shape, "index")
        else:
            if isinstance(x, _Known):
                picks[len(out)] = _known(t, x, axis), True
            elif id(x) in there:
                picks[len(out)] = x, True
            else:
                check_places("index", x, axis, shape)
                picks[len(out)] = x.cast(INT32), False
            out.append(n)
        bounds.append((begin, end))
        steps.append(step)
    return _Basic(tuple(bounds), tuple(flips), steps, tuple(out)), picks


def _slice_bounds(x: Tensor, s: slice, n: Any, axis: int) -> tuple[Any, Any, int]:
    if any(isinstance(x, UOp) for x in (s.start, s.stop, n)):
        return _symbolic_bounds(x, s, n, axis)
    try:
        chosen = range(n)[s]
    except (TypeError, ValueError) as e:
        raise ShapeError(f"index: {s} on axis {axis} of shape {x.shape}: {e}") from e
    if not chosen:
        return 0, 0, 1
    first, last = sorted((chosen[0], chosen[-1]))
    return first, last + 1, chosen.step


def _symbolic_bounds(x: Tensor, s: slice, n: Any, axis: int) -> tuple[Any, Any, int]:
    if s.step not in (None, 1, -1) or (s.step == -1 and (s.start, s.stop) != (None, None)):
        raise ShapeError(f"index: {s} on axis {axis} of shape {x.shape}: symbolic slices go by steps of 1")
    places = 0 if s.start is None else s.start, n if s.stop is None else s.stop
    begin, end = (size(n + p if range_of(p)[1] < 0 else p) for p in places)
    check_inside(begin, end, axis, x.shape, "index")
    return begin, end, s.step or 1


def _known(t: Tensor, x: _Known, axis: int) -> UOp:
    n = t.shape[axis]
    if x.size is not None and x.size != n:
        raise PositionError(f"index: a mask of {x.size} elements does not fit axis {axis} of shape {t.shape}")
    array = x.array
    if array.size:
        for extreme in (int(array.min()), int(array.max())):
            if not -n <= extreme < n:
                raise PositionError(out_of_range("index", extreme, axis, t.shape))
    return wrap_array(np.where(array < 0, array + n, array).astype(np.int32), t.device)


def _item(t: Tensor, x: Any) -> list[Any]:
    """The parts of one item of an index: ints, bools, slices, None, Ellipsis, int32 nodes and known arrays."""
    if x is None or x is Ellipsis or isinstance(x, slice):
        return [x]
    if isinstance(x, (bool, np.bool_)):
        return [bool(x)]
    if isinstance(x, int):
        return [x]
    if isinstance(x, UOp):
        n = size(x)
        return [n if isinstance(n, int) else _Position(n)]
    if is_tensor(x):
        if x.device != t.device:
            t._mixed(x, "index")
        if x.dtype is BOOL:
            return _places(values_now(x, _MASK_ADVICE, "index"))
        if not x.dtype.is_int:
            raise SubscriptError(f"index: takes integers, not {x.dtype.name}; use .int() first")
        return [int(x.uop.arg)] if x.uop.is_const else [x.uop]
    if isinstance(x, (list, tuple, range, np.ndarray)):
        array = as_array(x, "index")
        if array.size == 0 and not isinstance(x, np.ndarray):
            array = array.astype(np.int32)
        if array.dtype.kind == "b":
            return _places(array)
        if array.dtype.kind not in "iu":
            raise SubscriptError(f"index: takes integers, not an array of {array.dtype}")
        return [_Known(array)] if array.ndim else [int(array)]
    try:
        return [x.__index__()]
    except (AttributeError, TypeError):
        raise SubscriptError(
            f"index: takes ints, slices, None, ... and integer tensors, arrays or lists, not {type(x).__name__}"
        ) from None


def _places(mask: np.ndarray[Any, Any]) -> list[Any]:
    if not mask.ndim:
        return [bool(mask)]
    return [_Known(a, n) for a, n in zip(np.nonzero(mask), mask.shape)]


class _Basic(NamedTuple):
    """The basic part of an index, axis by axis: what is kept of each, and what becomes of the axis."""

    bounds: nodes.Pairs
    flips: Ints
    steps: Sequence[int]
    shape: Ints

    @property
    def is_box(self) -> bool:
        """True if neighbours stay neighbours, in order."""
        return not self.flips and set(self.steps) <= {1}

    def read(self, u: UOp) -> UOp:
        """The chosen part: cut, turned round, thinned, reshaped."""
        u = flip(shrink(u, self.bounds), self.flips)
        for axis, step in enumerate(self.steps):
            u = every(u, axis, step)
        return reshape(u, self.shape)

    def write(self, u: UOp, shape: Ints) -> UOp:
        """The reverse of `read`: `u` in its places in an array of `shape`, zeros elsewhere."""
        kept = [-(-(e - b) // s) if s != 1 else e - b for (b, e), s in zip(self.bounds, self.steps)]
        u = reshape(u, tuple(kept))
        for axis, (step, (begin, end)) in enumerate(zip(self.steps, self.bounds)):
            u = nodes.thin_out(u, axis, step, end - begin)
        u = flip(u, self.flips)
        return pad(u, tuple([(b, n - e) for (b, e), n in zip(self.bounds, shape)]))


class _Position(NamedTuple):
    """A symbolic position in an index."""

    size: UOp


class _Known(NamedTuple):
    """An integer array of an index, known now: checked and wrapped here. `size` is what a mask says the axis has."""

    array: np.ndarray[Any, Any]
    size: int | None = None


# -- python's operators -----------------------------------------------------------------------------------------------


Operand = Any  # a tensor, an array or a Python number
Compute = Callable[["Tensor", Operand, bool], "Tensor"]  # True: `other` comes first
_over = casts(quotient, "float32")  # as a reciprocal
# operator: the op's name, and what it computes
PAIRS: dict[str, tuple[str, Compute | Op]] = {
    "add": ("add", Op.ADD),
    "sub": ("sub", Op.SUB),
    "mul": ("mul", Op.MUL),
    "truediv": ("div", lambda x, other, swap: (_over if swap else quotient)(x, other, swap)),
    "floordiv": ("floor_divide", Op.IDIV),
    "mod": ("remainder", Op.MOD),
    "pow": ("pow", casts(power, "float32")),
    "and": ("bitwise_and", Op.AND),
    "or": ("bitwise_or", Op.OR),
    "xor": ("bitwise_xor", Op.XOR),
    "lshift": ("bitwise_left_shift", Op.SHL),
    "rshift": ("bitwise_right_shift", Op.SHR),
}
_OTHERS: dict[str, Fun] = {
    "neg": lambda x: x.neg(),
    "pos": lambda x: x,
    "abs": lambda x: x.abs(),
    "invert": lambda x: x.bitwise_not(),
    "round": lambda x, ndigits=None: x.round(ndigits or 0),
    "matmul": lambda x, other: x.matmul(other),
    "imatmul": lambda x, other: x.matmul(other),  # a new tensor, as in torch, which has no such method
    "rmatmul": lambda x, other: x._lift(other, "matmul").matmul(x),
    "eq": lambda x, other: x.eq(other) if _comparable(other) else NotImplemented,
    "ne": lambda x, other: x.ne(other) if _comparable(other) else NotImplemented,
    "lt": lambda x, other: x.lt(other),
    "gt": lambda x, other: x.gt(other),
    "le": lambda x, other: x.le(other),
    "ge": lambda x, other: x.ge(other),
}
# operators that take memory of integers
_WHOLE = frozenset(("floordiv", "mod", *list(_OTHERS)[-6:]))


def _operator(title: str, compute: Compute, swap: bool) -> Fun:
    """`x + y`, or `y + x` where only x is a tensor."""

    def operate(x: Tensor, other: Operand) -> Tensor:
        try:
            return compute(x, other, swap)
        except UserError as error:
            rename(error, title)
            raise

    return operate


def _in_place(title: str, compute: Compute) -> Fun:
    """`x += y`."""

    def change(x: Tensor, other: Operand, _: bool) -> Tensor:
        need_changeable(x, title)
        return changed(x, title, compute(x, other, False))

    return _operator(title, change, False)


def _comparable(other: object) -> bool:
    """True if == compares values; beside None, text and the like it compares identity."""
    return isinstance(other, (Handle, bool, int, float, np.generic, np.ndarray, list, tuple))


def _define(prefix: str, name: str, function: Fun, late: Fun = deferred) -> None:
    function = named(function, prefix + name)
    globals()[f"__{prefix}{name}__"] = late(wholes("other")(function) if name in _WHOLE else function)


for _name, (_title, _op) in PAIRS.items():
    _compute = partial(binary, _op) if isinstance(_op, Op) else _op
    _define("", _name, _operator(_title, _compute, False))
    _define("r", _name, _operator(_title, _compute, True))
    _define("i", _name, _in_place(f"{_title}_", _compute), changing)
_OTHERS["pos"].is_itself = True  # type: ignore[attr-defined]
for _name, _function in _OTHERS.items():
    _define("", _name, _function)


def __divmod__(x: Tensor, other: Operand) -> tuple[Tensor, Tensor]:
    return x.divmod(other)


def __rdivmod__(x: Tensor, other: Operand) -> tuple[Tensor, Tensor]:
    return globals()["__rfloordiv__"](x, other), globals()["__rmod__"](x, other)


__rdiv__ = globals()["__rtruediv__"]  # Python 2's name, which torch still has
_get = deferred(places(lambda x, index, known=(): index, write_places)(getitem))
_set = changing(setitem)


def __getitem__(x: Tensor, *given: Any) -> Tensor:
    (index,) = given  # CPython would inline a function of two arguments, and the place of its call change by that
    simple = index.__class__ is int or index.__class__ is slice
    return _get(x, index) if simple else _get(x, *resolved(x, index))


def __setitem__(x: Tensor, index: Any, value: Any) -> None:
    if isinstance(value, (np.ndarray, list)):
        value = x._lift(value, "index")  # data, and no part of what a call is known by
    link: Any = value._base if is_tensor(value) and not value._wants else None
    if link is not None and link.root is x and link.recipe.is_at(index) and value._is_part():
        need_changeable(x, "index")  # `x[i] += y`: the part was changed in place, and x with it
        return
    mask = _alone(index)
    if is_tensor(mask) and mask.dtype is BOOL and len(np.shape(value)) <= x.ndim - mask.ndim:
        _set(x, index, value)  # all places get the same values, so the mask's places are not needed
    else:
        index, *known = resolved(x, index)
        _set(x, index, value, *known)
