"""Single elements of a value that is too large to be evaluated whole: the graph as it was written, from the top.

An index goes down through movement, a reduction opens axes for its terms, and memory is read at what is left. It is the
arithmetic of `TensorValues`, which has the memory and the nodes that are known, and does for whole arrays what has no
form for single elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from anneal.backend import numpy_dtype
from anneal.inspect.checking.bounds import EXACT, Array, Bounded, apply, exactly
from anneal.inspect.checking.reductions import part_of, reduced
from anneal.inspect.checking.tensor_values import TensorValues, TooLarge, base
from anneal.rewrite import value_of
from anneal.uop import ALU, Op, UOp

_LANES = 1 << 18  # elements of an array at once
_ROW = 1 << 22  # terms of one element
_PASSED = frozenset((Op.CONTIGUOUS, Op.DETACH))
Index = tuple[Array, ...]


class PointValues:
    """Elements of nodes, over what `whole` knows."""

    def __init__(self, whole: TensorValues) -> None:
        self.whole = whole
        self._memo: dict[tuple[UOp, int], Bounded] = {}
        self._kept: list[Index] = []  # while their ids are in the memo
        self._arrays: dict[UOp, Bounded] = {}

    def work(self, root: UOp) -> int:
        """The most terms that one element of `root` makes work for."""
        found: dict[UOp, int] = {}
        for u in self.whole.cone(root):
            most = 1 if base(u) in self.whole.known else max([found.get(s, 1) for s in u.src], default=1)
            if u.op is Op.REDUCE_AXIS and base(u) not in self.whole.known:
                most = max([found.get(s, 1) for s in (*u.src, *[t for s in u.src for t in s.src])], default=1)
                most *= math.prod([u.src[0].shape[a] for a in u.arg[1]])
            found[u] = most
        return found[root]

    def at(self, root: UOp, points: Array) -> Iterator[tuple[Array, Bounded]]:
        """The elements of `root` with these numbers, in pieces. Raises TooLarge where one has too many terms."""
        work = self.work(root)
        if work > _ROW:
            raise TooLarge(work)
        step = max(1, _LANES // work)
        for i in range(0, points.size, step):
            some = points[i : i + step]
            index = tuple([d.astype(np.int64) for d in np.unravel_index(some, root.shape)]) if root.shape else ()
            self._memo.clear()
            self._kept.clear()
            value = self._value(root, index, 1)
            error = EXACT if value.exact else np.broadcast_to(value.error, value.value.shape)
            yield some, Bounded(_all(value.value, some.size), EXACT if value.exact else _all(error, some.size))

    def _value(self, u: UOp, index: Index, ndim: int) -> Bounded:
        """`u` at an index of arrays with so many axes."""
        key = (u, id(index))
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = self._one(u, index, ndim)
            self._kept.append(index)
        return found

    def _one(self, u: UOp, index: Index, ndim: int) -> Bounded:
        known = self.whole.known.get(base(u))
        if known is not None:
            return _taken(known, _flat(index, u.shape, ndim))
        if u.op is Op.BUFFER:
            content = self._arrays.setdefault(u, exactly(self.whole.leaves[u.arg]))
            return _taken(content, _flat(index, u.shape, ndim))
        if u.op is Op.CONST:
            d = np.dtype(np.float64) if u.dtype.is_float else numpy_dtype(u.dtype)
            return Bounded(np.array(u.arg, d).reshape((1,) * ndim), EXACT)
        if u.op is Op.IOTA:
            return Bounded(index[0].astype(np.float64 if u.dtype.is_float else numpy_dtype(u.dtype)), EXACT)
        if u.op in ALU:
            sources = [self._value(s, index if s.shape else (), ndim) for s in u.src]
            return apply(u.op, u.dtype, sources, [s.dtype for s in u.src])
        if u.op in _PASSED:
            return self._value(u.src[0], index, ndim)
        if u.op is Op.CALL:
            return self._value(value_of(u), index, ndim)
        if u.op is Op.REDUCE_AXIS:
            return self._reduce(u, index, ndim)
        if u.op is Op.GATHER:
            return self._gather(u, index, ndim)
        if u.op in _MOVES:
            below, inside = _MOVES[u.op](u, index, ndim)
            return _gated(self._value(u.src[0], below, ndim), inside)
        whole = self._arrays.get(u)
        if whole is None:
            made = self.whole.value(u)
            whole = self._arrays[u] = made.moved(lambda a: np.ascontiguousarray(a).reshape(-1))
        return _taken(whole, _flat(index, u.shape, ndim))

    def _reduce(self, u: UOp, index: Index, ndim: int) -> Bounded:
        op, axes = u.arg
        shape = u.src[0].shape
        deep = ndim + len(axes)
        inner = [i.reshape(i.shape + (1,) * len(axes)) for i in index]
        for n, a in enumerate(axes):
            inner[a] = np.arange(shape[a]).reshape([-1 if d == ndim + n else 1 for d in range(deep)])
        x = self._value(u.src[0], tuple(inner), deep)
        terms = tuple(range(ndim, deep))
        full = [*x.value.shape[:ndim], *[shape[a] for a in axes]]
        part = part_of(op, u.dtype, x.moved(lambda a: np.broadcast_to(a, full)), terms)
        return reduced(op, u.dtype, part).moved(lambda a: a.reshape(a.shape[:ndim]))

    def _gather(self, u: UOp, index: Index, ndim: int) -> Bounded:
        where = self._value(u.src[1], index, ndim)
        n = u.src[0].shape[u.arg]
        at = where.value.astype(np.int64)
        inside = (at >= 0) & (at < n)
        below = list(index)
        below[u.arg] = np.where(inside, at, 0)
        found = _gated(self._value(u.src[0], tuple(below), ndim), inside)
        if where.exact:
            return found
        return Bounded(found.value, np.where(where.error > 0, np.inf, found.error))


def _all(a: Array, count: int) -> Array:
    return np.broadcast_to(a.reshape(-1), (count,))


def _flat(index: Index, shape: tuple[int, ...], ndim: int) -> Array:
    out: Array = np.zeros((1,) * ndim, np.int64)
    for i, n in zip(index, shape, strict=True):
        out = out * n + i
    return out


def _taken(memory: Bounded, at: Array) -> Bounded:
    return memory.moved(lambda a: a[at])


def _gated(x: Bounded, inside: Array | None) -> Bounded:
    if inside is None:
        return x
    value = np.where(inside, x.value, np.zeros((), x.value.dtype))
    return Bounded(value, EXACT if x.exact else np.where(inside, x.error, 0.0))


# -- movement: the index below, and where there is anything ----------------------------------------------------------


def _reshaped(u: UOp, index: Index, ndim: int) -> tuple[Index, Array | None]:
    rest = _flat(index, u.shape, ndim)
    out: list[Array] = []
    for n in reversed(u.src[0].shape):
        out.append(rest % n if n else rest)
        rest = rest // max(n, 1)
    return tuple(reversed(out)), None


def _permuted(u: UOp, index: Index, ndim: int) -> tuple[Index, Array | None]:
    out = list(index)
    for to, axis in enumerate(u.arg):
        out[axis] = index[to]
    return tuple(out), None


def _expanded(u: UOp, index: Index, ndim: int) -> tuple[Index, Array | None]:
    zero = np.zeros((1,) * ndim, np.int64)
    return tuple([zero if n == 1 else i for i, n in zip(index, u.src[0].shape, strict=True)]), None


def _shrunk(u: UOp, index: Index, ndim: int) -> tuple[Index, Array | None]:
    return tuple([i + b for i, (b, _) in zip(index, u.arg, strict=True)]), None


def _flipped(u: UOp, index: Index, ndim: int) -> tuple[Index, Array | None]:
    return tuple([n - 1 - i if a in u.arg else i for a, (i, n) in enumerate(zip(index, u.shape, strict=True))]), None


def _padded(u: UOp, index: Index, ndim: int) -> tuple[Index, Array | None]:
    inside: Array = np.ones((1,) * ndim, np.bool_)
    out = []
    for i, (before, _), n in zip(index, u.arg, u.src[0].shape, strict=True):
        at = i - before
        inside = inside & (at >= 0) & (at < n)
        out.append(np.clip(at, 0, max(n - 1, 0)))
    return tuple(out), inside


_MOVES: dict[Op, Callable[[UOp, Index, int], tuple[Index, Array | None]]] = {
    Op.RESHAPE: _reshaped,
    Op.PERMUTE: _permuted,
    Op.EXPAND: _expanded,
    Op.SHRINK: _shrunk,
    Op.FLIP: _flipped,
    Op.PAD: _padded,
}
