"""Nodes from nodes and sizes; tensors are not known here. Optimisers, adjoints and batching use these, too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from anneal.errors import DTypeError, PositionError
from anneal.ops.checks import broadcast_shapes
from anneal.runtime import here, made_number
from anneal.uop import MOVEMENT, SYMBOLIC, DType, Ints, Op, Shape, Src, UOp, alu, by_rule, const, dtypes, promote
from anneal.uop.sizes import Size, product, range_of, sizes, symbolic_arg, variable, widest

BOOL, INT32, FLOAT32 = dtypes.bool_, dtypes.int32, dtypes.float32
Pick = tuple[UOp, bool]  # an integer tensor of an index, and whether it was checked and wrapped already
Pairs = tuple[tuple[Any, Any], ...]

# Movement costs nothing when nothing moves: each helper folds the trivial and the repeated case. A cotangent may have
# shape `()`: it then stands for the same number at every position, and most movement leaves it as it is. `spread` gives
# such a value its full shape where an op needs it. Then rows picked and put by integer nodes, what indexing by tensors
# is made of, and their order; values of one dtype and shape; and sizes that are known only at a run.


def reshape(x: UOp, shape: Shape) -> UOp:
    """`x` with `shape`; a reshape of a reshape is one reshape."""
    if SYMBOLIC.seen:
        shape = sizes(shape)
    if x.shape == shape:
        return x
    if x.op is Op.RESHAPE:
        x = x.src[0]
        if x.shape == shape:
            return x
    return UOp(Op.RESHAPE, x.dtype, (x,), shape)


def expand(x: UOp, shape: Shape) -> UOp:
    """`x` with its axes of size 1 repeated to `shape`."""
    if SYMBOLIC.seen:
        shape = sizes(shape)
    if x.shape == shape:
        return x
    if x.op is Op.EXPAND:
        x = x.src[0]
    return UOp(Op.EXPAND, x.dtype, (x,), shape)


def spread(x: UOp, shape: Shape) -> UOp:
    """`x` itself if it has `shape`; a scalar repeated to `shape` otherwise."""
    if x.shape == shape:
        return x
    return expand(reshape(x, (1,) * len(shape)), shape)


def permute(x: UOp, order: Sequence[int]) -> UOp:
    """`x` with axis `order[i]` at place i; a permutation of a permutation is one."""
    axes = tuple(order)
    if x.op is Op.PERMUTE:
        axes = tuple([x.arg[i] for i in axes])
        x = x.src[0]
    if axes == tuple(range(len(axes))):
        return x
    return UOp(Op.PERMUTE, x.dtype, (x,), axes)


def moved(x: UOp, axis: int, to: int) -> UOp:
    """`x` with one axis at another place; the others keep their order."""
    n = len(x.shape)
    order = list(range(n))
    order.insert(to % n, order.pop(axis))
    return permute(x, order)


def pad(x: UOp, pairs: Pairs) -> UOp:
    """`x` with zeros before and after on each axis, or on each of the last ones."""
    pairs = ((0, 0),) * (len(x.shape) - len(pairs)) + pairs
    if SYMBOLIC.seen:
        pairs = tuple([sizes(p) for p in pairs])
    return x if pairs == ((0, 0),) * len(pairs) else UOp(Op.PAD, x.dtype, (x,), pairs)


def filled(x: UOp, pairs: Pairs, fill: UOp | Number) -> UOp:
    """`x` with elements of one value before and after on each axis, or on each of the last ones."""
    padded = pad(x, pairs)
    if padded is x or fill == 0:
        return padded
    return pad(broadcast(const(BOOL, True), x.shape), pairs).where(padded, fill)


def shrink(x: UOp, pairs: Pairs) -> UOp:
    """The part [begin, end) of `x` on each axis, or on each of the last ones."""
    if len(pairs) < len(x.shape):
        pairs = (*[(0, n) for n in x.shape[: -len(pairs)]], *pairs)
    if SYMBOLIC.seen:
        pairs = tuple([sizes(p) for p in pairs])
    if False not in [b == 0 and e == n for (b, e), n in zip(pairs, x.shape, strict=True)]:
        return x
    return UOp(Op.SHRINK, x.dtype, (x,), pairs)


def head(x: UOp, counts: Sequence[Size]) -> UOp:
    """The first elements of each axis, or of each of the last axes."""
    return shrink(x, tuple([(0, n) for n in counts]))


def grown(x: UOp, axis: int, before: Size, after: Size) -> UOp:
    """`x` with zeros before and after on one axis."""
    return pad(x, tuple([(before, after) if i == axis else (0, 0) for i in range(len(x.shape))]))


def from_memory(x: UOp, shape: Shape) -> UOp:
    """The array of `shape` that lies in the flat `x`, with room for its largest sizes."""
    if not (SYMBOLIC.seen and symbolic_arg(shape)):
        return reshape(x, shape)
    return head(reshape(x, widest(shape)), shape)


def to_memory(x: UOp, shape: Shape) -> UOp:
    """The opposite: `x` in flat memory, with zeros where its sizes leave room; `shape` is that of the memory."""
    if SYMBOLIC.seen and symbolic_arg(x.shape):
        x = pad(x, tuple([(0, most - n) for most, n in zip(widest(x.shape), x.shape, strict=True)]))
    return reshape(x, shape)


def cut(x: UOp, axis: int, begin: Size, end: Size) -> UOp:
    """The part [begin, end) of one axis."""
    return shrink(x, tuple([(begin, end) if i == axis else (0, n) for i, n in enumerate(x.shape)]))


def earlier(x: UOp, by: int, fill: int) -> UOp:
    """The elements so many places earlier along axis 1 of three, and `fill` before the first."""
    return filled(shrink(x, ((0, x.shape[1] - by), (0, x.shape[2]))), ((by, 0), (0, 0)), fill)


def flip(x: UOp, axes: Ints) -> UOp:
    """`x` reversed along `axes`."""
    return UOp(Op.FLIP, x.dtype, (x,), axes) if axes else x


def detached(x: UOp) -> UOp:
    """`x`, to which no gradient flows."""
    while x.op is Op.CALL and x.arg[0].name == "equal":  # the other is for its gradient, and long where a loop goes on
        x = x.src[0]
    return UOp(Op.DETACH, x.dtype, (x,))


def reduce_axis(x: UOp, op: Op, axes: Ints) -> UOp:
    """`x` reduced by `op` along `axes`, which stay with size 1."""
    return UOp(Op.REDUCE_AXIS, x.dtype, (x,), (op, axes)) if axes else x


def reduce_node(u: UOp, op: Op, axes: Ints, keepdim: bool) -> UOp:
    """`u` reduced along `axes`; axes of size 1 only disappear."""
    s = u.shape
    u = reduce_axis(u, op, tuple([a for a in axes if s[a] != 1]))
    return u if keepdim else reshape(u, tuple([n for i, n in enumerate(s) if i not in axes]))


def iota(n: Size, axis: int = 0, ndim: int = 1) -> UOp:
    """0 to n-1 along `axis` of `ndim` axes, the others of size 1."""
    u = UOp(Op.IOTA, INT32, (), (n,))
    return u if ndim == 1 else reshape(u, row_shape(n, axis, ndim))


def numbered(shape: Shape, axis: int) -> UOp:
    """The place along one axis of each element of an array of `shape`."""
    return expand(iota(shape[axis], axis, len(shape)), shape)


def row_shape(n: Size, axis: int, ndim: int) -> Shape:
    """The shape of a row along `axis` of `ndim` axes: n there, 1 elsewhere."""
    return (1,) * axis + (n,) + (1,) * (ndim - axis - 1)


def resized(shape: Shape, axis: int, *sizes: Size) -> Shape:
    """`shape` with these sizes, or none, in place of one axis."""
    return (*shape[:axis], *sizes, *shape[axis + 1 :])


def every(u: UOp, axis: int, step: int) -> UOp:
    """The elements of one axis `step` apart, from the first."""
    if step == 1:
        return u
    s = u.shape
    out = -(-s[axis] // step)
    u = reshape(grown(u, axis, 0, out * step - s[axis]), resized(s, axis, out, step))
    return reshape(cut(u, axis + 1, 0, 1), resized(s, axis, out))


def thin_out(u: UOp, axis: int, step: int, length: Size) -> UOp:
    """`u` along one axis with step-1 zeros after each element, `length` long: the reverse of `every`."""
    if step == 1:
        return u
    s = u.shape
    u = grown(reshape(u, resized(s, axis, s[axis], 1)), axis + 1, 0, step - 1)
    return cut(reshape(u, resized(s, axis, s[axis] * step)), axis, 0, length)


def diagonal(u: UOp) -> UOp:
    """The diagonal of the last two axes, which are of one size."""
    *rest, n, _ = u.shape
    # rows one longer put the diagonal under itself
    u = pad(reshape(u, (*rest, n * n)), ((0, n),))
    return reshape(shrink(reshape(u, (*rest, n, n + 1)), ((0, 1),)), (*rest, n))


# -- rows -------------------------------------------------------------------------------------------------------------


def take_rows(u: UOp, index: UOp) -> UOp:
    """The rows `index` (any shape, int32, counted from 0) of `u`: shape (*index.shape, *u.shape[1:])."""
    rest = u.shape[1:]
    n, d = math.prod(index.shape), math.prod(rest)
    flat = reshape(index, (n,))
    if rest:
        u = reshape(u, (u.shape[0], d))
        flat = broadcast(reshape(flat, (n, 1)), (n, d))
    return reshape(UOp(Op.GATHER, u.dtype, (u, flat), 0), (*index.shape, *rest))


def picked(u: UOp, axis: int, index: UOp) -> UOp:
    """The elements `index` (any shape, int32, counted from 0) of an axis, with the index's axes in its place."""
    shape, n = u.shape, math.prod(index.shape)
    flat = broadcast(reshape(index, row_shape(n, axis, len(shape))), resized(shape, axis, n))
    return reshape(UOp(Op.GATHER, u.dtype, (u, flat), axis), resized(shape, axis, *index.shape))


def span(u: UOp, axis: int, begin: UOp, size: int) -> UOp:
    """The given number of elements of an axis from a place in memory on."""
    return picked(u, axis, iota(size) + broadcast(begin, (size,)))


def wrapped(index: UOp, n: int) -> UOp:
    """An index that may count from the end as int32, counted from 0."""
    if index.op is Op.EXPAND:  # a row's place for all of the row stays one
        return broadcast(wrapped(index.src[0], n), index.shape)
    index = index.cast(INT32)
    if index.vmin is not None and index.vmin >= 0:
        return index
    return (index < 0).where(index + n, index)


def meet(op: Op, a: UOp | None, b: UOp) -> UOp:
    """`op` of two nodes, broadcast; `b` alone if there is no `a`."""
    if a is None:
        return b
    shape = broadcast_shapes(a.shape, b.shape, name="index")
    return op(broadcast(a, shape) if a.shape else a, broadcast(b, shape) if b.shape else b)


def inverse(order: Sequence[int]) -> list[int]:
    return sorted(range(len(order)), key=order.__getitem__)


def lay_out(u: UOp, picks: dict[int, Pick]) -> tuple[UOp, UOp, list[int], Ints]:
    """Reading at integer tensors as a look-up of rows.

    Returns the picked axes of `u` in front and as one; the row for every element of the index; the order that brings
    what is read there, index axes first, to index axes where they belong; and the result's shape.
    """
    s = u.shape
    axes = sorted(picks)
    others = [i for i in range(len(s)) if i not in picks]
    shape = broadcast_shapes(*[picks[a][0].shape for a in axes], name="index")
    stride = math.prod([s[a] for a in axes])
    rows = reshape(permute(u, [*axes, *others]), (stride, *[s[i] for i in others]))
    position = inside = None
    for a in axes:
        n = s[a]
        stride //= max(n, 1)
        p, checked = picks[a]
        if not checked:
            p = wrapped(p, n)
            if len(axes) > 1:
                inside = meet(Op.AND, inside, (p >= 0) & (p < n))
        position = meet(Op.ADD, position, p * stride if stride != 1 else p)
    assert position is not None
    position = broadcast(position, shape)
    if inside is not None:
        position = broadcast(inside, shape).where(position, -1)
    at, k = axes[0] if axes[-1] - axes[0] == len(axes) - 1 else 0, len(shape)
    back = inverse([*range(at, at + k), *range(at), *range(at + k, k + len(others))])
    wide = (*shape, *rows.shape[1:])
    return rows, position, back, tuple([wide[i] for i in back])


def lay_back(rows: UOp, shape: Ints, picks: dict[int, Pick]) -> UOp:
    """`lay_out`'s rows as the array of `shape` they came from."""
    axes = sorted(picks)
    order = [*axes, *[i for i in range(len(shape)) if i not in picks]]
    return permute(reshape(rows, tuple([shape[i] for i in order])), inverse(order))


def put_rows(u: UOp, index: UOp, value: UOp, slopes: bool = False, apart: bool = False) -> UOp:
    """`u` (v rows) with row index[j] replaced by value[j]; of several j the last stays.

    With `slopes` each value has the gradient of its row, also one that does not stay: torch's rule.

    With `apart` no two go to one row.
    """
    v, n = u.shape[0], index.shape[0]
    if not n or not v:
        return by_rule("beside", u, value) if u.dtype.is_float else u
    shape, value = u.shape, value.cast(u.dtype)
    if n == 1:  # nothing to be sorted, or added to zeros
        row = reshape(value, (1, *shape[1:]))
        if put_in_place(u):
            return _put_row(u, reshape(index, ()), row)
        at = broadcast(reshape(index, (1,) * len(shape)), shape)
        return numbered(shape, 0).eq(at).where(broadcast(row, shape), u)
    d = math.prod(shape[1:])
    old, new = reshape(u, (v, d)), reshape(value, (n, d))
    written = largest_at(index, iota(n), v, apart)
    hit = broadcast(reshape(written >= 0, (v, 1)), (v, d))
    out = reshape(hit.where(take_rows(new, written), old), shape)
    if slopes and u.dtype.is_float and not apart:
        total = UOp(Op.SCATTER_ADD, u.dtype, (index, new), (v,))
        out = by_rule("equal", out, reshape(hit.where(total, old), shape))
    return out


def largest_at(index: UOp, value: UOp, v: Size, apart: bool = False) -> UOp:
    """The largest of the integers `value` (n,) whose `index` is each of `v` places, the dtype's least where none is.

    Sorting by position, stably, brings those of one place together, in rising order; all but the last of each are sent
    out of range, so that the numbers of what is left can be added to zeros. With `apart` no two have one place.
    """
    n, least = index.shape[0], const(value.dtype, value.dtype.min)
    if not n or not v:
        return broadcast(least, (v,))
    place, target = broadcast(iota(n), (n,)), index
    if not apart:
        if value.op is not Op.IOTA:
            place = sorting(value)
        placed = take_rows(index, place)
        order = sorting(placed)
        placed, place = take_rows(placed, order), take_rows(place, order)
        following = pad(shrink(placed, ((1, n),)), ((0, 1),))
        last = broadcast(iota(n).eq(n - 1), (n,)) | placed.ne(following)
        target = last.where(placed, -1)
    number = sum_into(target, place + 1, v)  # 1 for the first value
    found = (const(INT32, 0) < number).where(take_rows(value, number - 1), least)
    return by_rule("largest", found, index, value)


def sum_into(index: UOp, value: UOp, v: Size) -> UOp:
    """`v` sums of the elements of `value` whose index is theirs."""
    rows = reshape(value, (index.shape[0], 1))
    return reshape(UOp(Op.SCATTER_ADD, value.dtype, (index, rows), (v,)), (v,))


def is_looked_up(begin: Size | None) -> bool:
    """True for the begin of an UPDATE's part that a source says: None for one that is moved inside, -1 for one that is
    not."""
    return begin is None or (begin.__class__ is int and begin < 0)


def kept_within(begin: UOp, m: Size, whole: Size) -> UOp:
    """The begin of a part of `m` elements in `whole`, moved inside."""
    last = whole - m
    return Op.MIN(Op.MAX(begin, const(INT32, 0)), last if isinstance(last, UOp) else const(INT32, last))


_WORTH_PLACE = 256  # elements of what is written to: where there are fewer, a pass over all costs no more


def put_in_place(u: UOp) -> bool:
    """True if a row is put into `u` as an update: in the body of a loop, which carries the same memory from turn to
    turn, and may write into it."""
    return bool(here.turns) and isinstance(u.size, int) and u.size >= _WORTH_PLACE


def _put_row(u: UOp, at: UOp, row: UOp, axis: int = 0) -> UOp:
    """`u` with one row replaced; unchanged if `at` is no position of it."""
    if u.op is Op.PERMUTE:  # it is the memory below that is written
        back = inverse(u.arg)
        return permute(_put_row(u.src[0], at, permute(row, back), u.arg[axis]), u.arg)
    return UOp(Op.UPDATE, u.dtype, (u, row, at), tuple([-1 if a == axis else 0 for a in range(len(u.shape))]))


# -- the order of rows of integers, as nodes --------------------------------------------------------------------------


def sorting(row: UOp) -> UOp:
    """The positions that sort a row of integers; equal ones keep their order."""
    return UOp(Op.ARGSORT, INT32, (row,))


COUNTED = 256  # up to here the rank of an element in its row is counted


def keys(u: UOp, descending: bool, signed: bool = False) -> UOp:
    """Integers in the order of `u`, or the reverse; nan is the largest, and -0.0 equals 0.0, or is less if `signed`."""
    if u.dtype.is_float:
        wide = u.dtype.bits == 64
        u = u if wide else u.cast(FLOAT32)
        u = u if signed else u.eq(0.0).where(const(u.dtype, 0.0), u)
        kind = dtypes.int64 if wide else INT32
        bits = UOp(Op.BITCAST, kind, (u,))
        # negative floats grow with their magnitude's bits: inverting all but the sign turns them round
        top, last = const(kind, kind.max), const(kind, kind.bits - 1)
        bits = bits ^ ((bits >> last) & top)
        u = u.ne(u).where(top, bits)
    elif u.dtype is dtypes.uint32:
        u = UOp(Op.BITCAST, INT32, (u ^ 0x80000000,))
    elif u.dtype.bits < 64:
        u = u.cast(INT32)
    return Op.NOT(u) if descending else u


def of_keys(u: UOp, dtype: DType) -> UOp:
    """The numbers of a dtype that have these `keys`, `signed` and in its order."""
    if dtype.is_float:
        last = const(u.dtype, u.dtype.bits - 1)
        bits = u ^ ((u >> last) & const(u.dtype, u.dtype.max))
        return UOp(Op.BITCAST, dtypes.float64 if dtype.bits == 64 else FLOAT32, (bits,)).cast(dtype)
    return UOp(Op.BITCAST, dtype, (u,)) ^ 0x80000000 if dtype is dtypes.uint32 else u.cast(dtype)


def first_by_blocks(ranked: UOp, k: int) -> UOp:
    """The positions of the `k` smallest of a row of int32, in order, of equal ones the first.

    They lie in the k blocks whose smallest come first: only those blocks are sorted, and before them the smallest ones.
    """
    n = ranked.shape[0]
    width = math.isqrt(n // k)  # as many blocks as elements in k blocks
    count = -(-n // width)
    filled = pad(ranked, ((0, count * width - n),))
    blocks = reshape((iota(count * width) < n).where(filled, INT32.max), (count, width))
    chosen = shrink(sorting(reduce_node(blocks, Op.MIN, (1,), False)), ((0, k),))
    chosen = take_rows(chosen, sorting(chosen))  # as they lie in the row
    order = sorting(reshape(take_rows(blocks, chosen), (k * width,)))
    places = broadcast(reshape(chosen * width, (k, 1)), (k, width)) + numbered((k, width), 1)
    return take_rows(reshape(places, (k * width,)), shrink(order, ((0, k),)))


def sorted_places(ranked: UOp, first: int | None = None) -> UOp:
    """The positions that sort each row (the last axis) of integers, or the `first` ones of them: equal ones keep their
    order."""
    *rest, n = ranked.shape
    if not rest:
        place = sorting(ranked)
    else:
        place = _sorted_together(ranked) if isinstance(n, int) and n > COUNTED else _counted(ranked)
    k = n if first is None else first
    place = shrink(place, ((0, k),))
    return by_rule("sorted", place, ranked, arguments=(n, k)) if rest else place


def _counted(ranked: UOp) -> UOp:
    """`sorted_places` of short rows."""
    *rest, n = ranked.shape
    at = len(rest)
    square, last = (*rest, n, n), (at + 1,)
    mine = broadcast(reshape(ranked, (*rest, n, 1)), square)
    other = broadcast(reshape(ranked, (*rest, 1, n)), square)
    i, j = numbered(square, at), numbered(square, at + 1)
    before = (other < mine) | (other.eq(mine) & (j < i))
    rank = reduce_node(before.cast(INT32), Op.ADD, last, False)
    # position r of the result holds the one element whose rank is r
    here = broadcast(reshape(rank, (*rest, 1, n)), square).eq(i)
    return reduce_node(here.where(j, 0), Op.ADD, last, False)


def _sorted_together(ranked: UOp) -> UOp:
    """`sorted_places` of rows by one sort of all, and another that brings the rows together again."""
    shape, length = ranked.shape, const(INT32, ranked.shape[-1])
    order = sorting(reshape(ranked, (math.prod(shape),)))
    order = take_rows(order, sorting(order // length))
    return reshape(order % length, shape)


# -- values as nodes --------------------------------------------------------------------------------------------------
# Constants in the dtype that a Python number takes, dtypes that meet, shapes that broadcast.


Number = bool | int | float

_REPEATS = MOVEMENT - {Op.PAD}  # of a repeated number they give the same number


def broadcast(u: UOp, shape: Shape) -> UOp:
    """`u` repeated to `shape`, which it is known to broadcast to."""
    if u.shape == shape:
        return u
    return expand(reshape(u, (1,) * (len(shape) - len(u.shape)) + u.shape), shape)


def repeated(u: UOp) -> Number | None:
    """The number that every element of `u` is, if its graph says so."""
    while u.op in _REPEATS:
        u = u.src[0]
    return u.arg if u.op is Op.CONST else None


def elementwise(op: Op, src: Src, shape: Shape) -> UOp:
    """`op(*src)` with `shape` even where folding leaves a scalar."""
    u = alu(op, src)
    return u if u.shape == shape else broadcast(u, shape)


def weak_dtype(value: Number) -> DType:
    """The dtype of a Python number that stands alone."""
    if isinstance(value, bool):
        return BOOL
    return INT32 if isinstance(value, int) else FLOAT32


def check_fits(dtype: DType, value: Any, name: str = "") -> None:
    """Raise DTypeError for a number that an integer dtype does not hold: a larger one, nan."""
    if dtype.is_int and isinstance(value, (int, float, np.number)) and not dtype.min <= value <= dtype.max:
        wider = "cast to a wider dtype" if isinstance(value, int) else "use a float dtype"
        raise DTypeError(f"{name}: {value} does not fit {dtype.name} ({dtype.min} to {dtype.max}); {wider}")


def given(dtype: DType, value: Number, device: str | None) -> UOp:
    """The number `value` of a new tensor, which `dtype` must hold; a float in an integer dtype is truncated."""
    if dtype.is_int:
        check_fits(dtype, value)
    return made_number(value, dtype, device)


def weak_const(dtype: DType, value: Number, name: str = "") -> UOp:
    """A Python number beside a tensor of `dtype`: it takes the tensor's dtype unless its kind is higher."""
    if isinstance(value, float):
        return const(dtype if dtype.is_float else FLOAT32, value)
    if isinstance(value, bool):
        return const(dtype, value)
    if dtype is BOOL:
        dtype = INT32
    check_fits(dtype, value, name)
    return const(dtype, value)


def common_dtype(a: UOp, b: UOp) -> tuple[UOp, UOp]:
    """The two nodes, cast to the dtype that they promote to."""
    da, db = a.dtype, b.dtype
    if da is db:
        return a, b
    d = promote(da, db)
    return a.cast(d), b.cast(d)


def named(name: str, value: UOp, *inputs: UOp, arguments: Any = ()) -> UOp:
    """`value` as a call by name where somebody asks for names: of what the op takes, with its plain arguments."""
    return by_rule(name, value, *inputs, arguments=arguments) if here.names else value


def share(y: UOp, x: UOp, e: UOp, c: float) -> UOp:
    """`e / (e + c)` for e = exp(x) and y = 1 / (e + c), also where e is infinite and y zero: from the smaller of both
    parts.
    """
    if not c:
        return const(y.dtype, 1)
    v = (e.const_like(abs(c)) < e).where(1 - y * c, e * y)
    return by_rule("share", v, x, y, arguments=c)


# -- symbolic sizes ---------------------------------------------------------------------------------------------------


def Variable(name: str, min: int, max: int) -> UOp:
    """An integer called `name`, from `min` to `max`, for a size or a position. Each run chooses its value; a program is
    compiled once for all values.

    `n.bind(5)` is n with its value in this run; `+ - * //` with ints and other sizes give sizes. Raises ShapeError
    unless 0 <= min <= max; `bind` raises it for a value outside these bounds.

    >>> from anneal.tensor import Tensor
    >>> n = Variable("n", 1, 8)
    >>> x = Tensor.arange(8)[: n.bind(3)]
    >>> x.shape, (x * 2).tolist()
    ((n=3,), [0, 2, 4])
    """
    return variable(name, min, max)


def check_inside(begin: Size, end: Size, axis: int, shape: Shape, name: str = "") -> None:
    """Raise PositionError unless [begin, end) is inside an axis of `shape` for all values of their variables."""
    for small, large in ((0, begin), (begin, end), (end, shape[axis])):
        if range_of(large - small)[0] < 0:
            why = f": {small} may be more than {large} for other values of the Variable; give it narrower bounds"
            why = why if isinstance(small, UOp) or isinstance(large, UOp) else ""
            raise PositionError(f"{name}: {begin} to {end} is not inside axis {axis} of shape {shape}{why}")


def reciprocal(dtype: DType, sizes: Sequence[Size]) -> UOp:
    """1 / (the number of elements of `sizes`), in `dtype`; nan for no elements, as a mean of nothing is."""
    n = product(sizes)
    return Op.RECIP(n.cast(dtype)) if isinstance(n, UOp) else const(dtype, 1.0 / n if n else math.nan)
