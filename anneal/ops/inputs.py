"""Numbers of ops that may be memory, a tensor of one element; and places in an index, where the part is looked up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from anneal.names import Tensor
from anneal.ops import nodes
from anneal.ops.arguments import deferred
from anneal.ops.bases import Placement, link_part
from anneal.runtime import Args, Fun, Handle, Options, Varies, number
from anneal.uop import DType, Ints, Op, dtypes

F = TypeVar("F", bound=Fun)
Again = Callable[[Args, Options], Any]  # the op, with other arguments
Made = tuple[Any] | None  # the result with memory for the numbers that vary; None where none does
# where the part of an axis begins, an int or a place in memory, how long it is, and whether the axis stays
Part = tuple[Any, int, bool]
_EXACT = 1 << 53  # integers below are floats

# Ops that mean the same if a number is replaced by a tensor of the dtype that the number would take. An op whose
# meaning follows from a number's value (a power, a shape, a bound whose gradient ends there) is not here.


def takes(inputs: Callable[..., Made]) -> Callable[[F], F]:
    """A decorator of ops for which `inputs` says what memory they take in place of numbers."""

    def decorate(function: F) -> F:
        function.inputs = inputs  # type: ignore[attr-defined]
        return function

    return decorate


def computes(function: F, whole: bool = False, lifts: bool = False, single: bool = False) -> F:
    """The op computes with its numbers in the dtype of its tensors, which is the same for all but masks, or if it is
    `single` in float32 for narrow ones; with `lifts` the first may be a number."""
    return takes(partial(_filled, whole, lifts, single))(function)


computes_numbers = partial(computes, lifts=True)
computes_single = partial(computes, single=True)


def compares(function: F) -> F:
    """The op computes with its number, and of integers with one of those: no sum of them is to be looked at."""
    return computes(function, True)


def places(index: Fun, write: Fun | None = None) -> Callable[[F], F]:
    """The op shows the part of its first argument at the index that `index` makes of its arguments, if any; `write` is
    the op that writes there."""
    return takes(partial(_at_places, index, write))


def along(x: Any, dim: int, start: Any, length: Any = None) -> Any:
    """The index of an item of one axis, or of `length` from `start` on; None where they are not there."""
    shape = x._looks.shape
    if dim.__class__ is not int or not -len(shape) <= dim < len(shape):
        return None
    if length is not None:
        if start.__class__ is not int or length.__class__ is not int:
            return None
        begin = start + shape[dim] if start < 0 else start
        start = slice(begin, begin + length) if 0 <= begin <= shape[dim] - length else None
    return (*[slice(None)] * (dim % len(shape)), start)


def _filled(whole: bool, lifts: bool, single: bool, varies: Varies, again: Again, args: Args, options: Options) -> Made:
    """The result with memory for numbers that vary; None where none does. With `whole` integers are taken too; unless
    it `lifts`, the op refuses a number in the first place, and would take a tensor there.
    """
    dtype = first = None
    if not lifts and not (args and isinstance(args[0], Handle)):
        return None
    for t in (*args, *options.values()):
        if isinstance(t, Handle):
            first, u = t if first is None else first, t._looks
            if u.dtype.kind != "bool":
                # what is added to an exponential is a part of how its quotient's gradient stays finite
                if u.op is Op.EXP or (dtype is not None and dtype is not u.dtype):
                    return None
                dtype = u.dtype
    if dtype is None:
        return None
    if single and dtype.is_narrow:
        dtype = dtypes.float32
    given, named, same = list(args), dict(options), True
    for slots, row in ((enumerate(args), given), (options.items(), named)):
        for slot, x in slots:
            if _fits(x, dtype, whole) and varies(slot, x):
                row[slot], same = _memory(x, dtype, first), False  # type: ignore[index]
    return None if same else (again(tuple(given), named),)


def _scaled(varies: Varies, again: Again, args: Args, options: Options) -> Made:
    if (len(args), *options) not in ((3,), (2, "alpha")):
        return None if options or len(args) != 2 else _filled(False, True, False, varies, again, args, options)
    x, other, alpha = *args[:2], *args[2:], *options.values()
    if not (isinstance(x, Handle) and isinstance(other, Handle)) or other._looks.dtype is not x._looks.dtype:
        return None
    if not _fits(alpha, x._looks.dtype, False) or not varies("alpha", alpha):
        return None
    return (again((x, other * _memory(alpha, x._looks.dtype, other)), {}),)


def _dropped(varies: Varies, again: Again, args: Args, options: Options) -> Made:
    *given, below, scale = args
    dtype = given[0]._looks.dtype
    if below.__class__ is not int or not varies("p", below):
        return None
    return (again((*given, _memory(below, dtypes.uint32, given[0]), _memory(scale, dtype, given[0])), options),)


scales = takes(_scaled)  # an op of two operands, and `alpha`, by which it multiplies the second first
drops = takes(_dropped)  # dropout, of a tensor and a key, with a bound of words, and the factor of what is kept


def _memory(x: Any, dtype: DType, like: Any) -> Any:
    return like._new_plain(number(x, dtype, like.device))


def _fits(x: Any, dtype: DType, whole: bool) -> bool:
    """True if something is a number that memory of this dtype can hold in its place."""
    if x.__class__ is int or isinstance(x, np.integer):
        n = int(x)
        return -_EXACT < n < _EXACT if dtype.is_float else (whole or dtype.bits > 32) and dtype.min <= n <= dtype.max
    return isinstance(x, (float, np.floating)) and dtype.is_float


# -- places -----------------------------------------------------------------------------------------------------------


def has_axis(item: Any) -> bool:
    """True if an item of an index is of an axis that the tensor has."""
    return item is not None and item is not Ellipsis and not isinstance(item, (bool, np.bool_))


def spread_out(items: Sequence[Any], ndim: int) -> list[Any]:
    """The items of an index, with slices in place of `...` and of the axes that it does not name."""
    at = next((i for i, item in enumerate(items) if item is Ellipsis), len(items))
    left = ndim - sum([has_axis(item) for item in items])
    return [*items[:at], *[slice(None)] * left, *items[at + 1 :]]


def placed(varies: Varies, x: Any, index: Any) -> tuple[tuple[Part, ...], nodes.Pairs, Ints] | None:
    """An index of integers and slices with memory for the places that vary; the bounds that are now, and the sizes of
    the part. None where nothing varies, or where the index has something else, or is out of range."""
    shape = x._looks.shape
    items = spread_out(index if index.__class__ is tuple else (index,), len(shape))
    if index is None or len(items) > len(shape):
        return None
    parts: list[Part] = []
    bounds, sizes, same = [], [], True
    for axis, (item, n) in enumerate(zip(items, shape)):
        kept = item.__class__ is slice
        if kept and item.step in (None, 1) and _plain(item.start) and _plain(item.stop):
            begin, end, _ = item.indices(n)
        elif (item.__class__ is int or isinstance(item, np.integer)) and -n <= item < n:
            begin, end = int(item) % n, int(item) % n + 1
        else:
            return None
        if begin >= end:
            return None
        bounds.append((begin, end))
        size, place = end - begin, begin
        if size < n and varies((axis, kept, size), begin):
            place, same = _memory(begin, dtypes.int32, x), False
        if kept:
            sizes.append(size)
        parts.append((place, size, kept))
    return None if same else (tuple(parts), tuple(bounds), tuple(sizes))


def _at_places(index: Fun, write: Any, varies: Varies, again: Again, args: Args, options: Options) -> Made:
    """The part at an index whose positions vary."""
    x: Any = args[0] if args else None
    if not isinstance(x, Handle) or x._looks.shape == ():
        return None
    try:
        at = index(*args, **options)
    except TypeError:  # the op's error says it in its own words
        return None
    found = placed(varies, x, at)
    if found is None:
        return None
    parts, bounds, sizes = found
    part = at_places(args[0], parts)
    link_part(part, x, bounds, sizes, at, None if write is None else Placement(parts, at_places, write))
    return (part,)


def _plain(x: Any) -> bool:
    return x is None or x.__class__ is int or isinstance(x, np.integer)


@deferred
def at_places(x: Tensor, index: tuple[Part, ...]) -> Tensor:
    """The parts of the axes of `x` that an index names (`Part`), which are there."""
    bounds, shape, runs = list[Any](), list[Any](), list[Any]()
    picks: dict[int, nodes.Pick] = {}
    for (begin, size, kept), n in zip(index, x.uop.shape):
        known = begin.__class__ is int
        bounds.append((begin, begin + size) if known else (0, n))
        if kept and not known:
            runs.append((len(shape) - len(picks), begin.uop, size))
        elif not known:
            picks[len(shape)] = begin.uop, True
        if kept or not known:
            shape.append(size if known else n)
    u = nodes.reshape(nodes.shrink(x.uop, tuple(bounds)), tuple(shape))
    if picks:
        u = nodes.take_rows(*nodes.lay_out(u, picks)[:2])
    for run in runs:
        u = nodes.span(u, *run)
    return x._new(u)
