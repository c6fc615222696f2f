"""Numbers of ops that may be memory, a tensor of one element; and places in an index, where the part is looked up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from anneal.names import Tensor
from anneal.ops import nodes
from anneal.ops.arguments import deferred
from anneal.ops.bases import Placement, link_part
from anneal.runtime import Args, F, Fun, Handle, Options, Varies, number
from anneal.uop import DType, Ints, dtypes

Again = Callable[[Args, Options], Any]  # the op, with other arguments
Made = tuple[Any] | None  # the result with memory for the numbers that vary; None where none does
# where the part of an axis begins, an int or a place in memory (None: of a new axis), how long it is, and whether the
# axis stays
Part = tuple[Any, int, bool]


def wholes(*names: str) -> Callable[[F], F]:
    """A decorator of ops: whole numbers in these arguments may be memory of integers."""

    def decorate(function: F) -> F:
        function.whole = names  # type: ignore[attr-defined]
        return function

    return decorate


def places(index: Fun, write: Fun | None = None) -> Callable[[F], F]:
    """The op shows the part of its first argument at the index that `index` makes of its arguments, if any; `write` is
    the op that writes there."""

    def decorate(function: F) -> F:
        function.inputs = partial(_at_places, index, write)  # type: ignore[attr-defined]
        return function

    return decorate


def along(x: Any, dim: int, start: Any, length: Any = None) -> Any:
    """The index of an item of one axis, or of `length` from `start` on; None where they are not there."""
    shape = x._looks.shape
    if dim.__class__ is not int or not -len(shape) <= dim < len(shape):
        return None
    if length is not None:
        if start.__class__ is not int or length.__class__ is not int:
            return None
        begin = start + shape[dim] if start < 0 else start
        start = slice(begin, begin + length) if 0 <= begin <= begin + length <= shape[dim] else None
    return (*[slice(None)] * (dim % len(shape)), start)


def _memory(x: Any, dtype: DType, like: Any) -> Any:
    return like._new_plain(number(x, dtype, like.device))


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
    parts: list[Part] = []
    bounds, sizes, same = list[Any](), list[Any](), True
    for item in items:
        if item is None:
            sizes.append(1)
            parts.append((None, 1, True))
            continue
        axis = len(bounds)
        if axis == len(shape):
            return None
        n, kept = shape[axis], item.__class__ is slice
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
    sizes = iter(x.uop.shape)
    for begin, size, kept in index:
        if begin is None:
            shape.append(1)
            continue
        n, known = next(sizes), begin.__class__ is int
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
