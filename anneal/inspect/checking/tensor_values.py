"""The tensor graph as the user wrote it, in float64 with bounds, from the values that a device has in memory."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

from anneal.backend import MEANINGS
from anneal.errors import CompilerError
from anneal.inspect.checking import kernel_values as kv
from anneal.inspect.checking.bounds import Array, Bounded, apply, exactly, unheard, wide_dtype
from anneal.rewrite import value_of
from anneal.uop import ALU, MOVEMENT, Ints, Op, Src, UOp, toposort

_SAME = frozenset((Op.RESHAPE, Op.CONTIGUOUS, Op.DETACH, Op.CALL))
_VIEWS = frozenset((Op.EXPAND, Op.PERMUTE, Op.SHRINK, Op.FLIP, Op.CONST))

_LANES = 1 << 18  # elements of an array at once
_ROW = 1 << 22  # terms of one element
Index = tuple[Array, ...]
Seen = Callable[[UOp, Bounded, Sequence[Bounded]], None]


class TooLarge(Exception):
    """An evaluation that would need arrays of `elements` elements in all."""

    def __init__(self, elements: int) -> None:
        super().__init__(f"{elements:,} elements")


def base(u: UOp) -> UOp:
    """The node whose elements `u` has, in their order."""
    while u.op in _SAME:
        u = value_of(u) if u.op is Op.CALL else u.src[0]
    return u


class TensorValues:
    """Nodes of one graph. `leaves` are the contents of BUFFERs, flat; `known` those of nodes that are in memory.

    Rules, passes and kernels have no part in this: nodes are evaluated one by one, as the oracle of the tests does
    (`tests/reference.py`). A value that a kernel stored and that was found right is taken as it is, without a bound, so
    that bounds tell of one kernel each and do not grow from kernel to kernel.

    Of a value that is too large to be evaluated whole, single elements are, from the top: an index goes down through
    movement, a reduction opens axes for its terms, and memory is read at what is left.
    """

    def __init__(self, leaves: Mapping[Any, Array], most: int, plain: bool = False) -> None:
        self.leaves = leaves
        self.plain = plain  # without bounds and roundings: what an ideal device would compute
        self.known: dict[UOp, Bounded] = {}
        self.most = most  # elements in all arrays of an evaluation
        self._memo: dict[tuple[UOp, int], tuple[Bounded, Index]] = {}  # an id names an index while that lives
        self._flat: dict[UOp, Bounded] = {}

    def cone(self, u: UOp) -> list[UOp]:
        """The nodes that an evaluation of `u` visits, sources first."""
        return toposort(u, sources=lambda x: () if base(x) in self.known else needed(x))

    def value(self, root: UOp, seen: Seen | None = None) -> Bounded:
        """The value of `root`; `seen` is told of every node, with its sources' values.

        Raises TooLarge where that takes more elements than allowed, CompilerError for an op that is no tensor's.
        """
        order = self.cone(root)
        elements = sum(u.size for u in order if u.op not in _VIEWS)
        if elements > self.most:
            raise TooLarge(elements)
        users = Counter(s for u in order if base(u) not in self.known for s in needed(u))
        values = {}
        for u in order:
            if base(u) in self.known:
                values[u] = _shaped(self.known[base(u)], u.shape)
                continue
            found = self._one(u, values)
            values[u] = found = Bounded(found.value) if self.plain else found
            below = needed(u)
            if seen is not None:
                seen(u, found, [values[s] for s in below])
            for s in below:
                users[s] -= 1
                if not users[s] and s is not root:
                    del values[s]
        return values[root]

    def _one(self, u: UOp, values: Mapping[UOp, Bounded]) -> Bounded:
        if u.op in ALU:
            sources = [_spread(values[s], u.shape) for s in u.src]
            if self.plain and u.dtype.is_float and u.op not in (Op.CAST, Op.BITCAST, Op.WHERE):
                with unheard():
                    return Bounded(np.asarray(MEANINGS[u.op](*[s.value for s in sources])))
            found = apply(u.op, u.dtype, sources, [s.dtype for s in u.src])
            return found._replace(value=np.broadcast_to(found.value, u.shape))
        if u.op is Op.REDUCE_AXIS:
            return self._reduced(u, values)
        if u.op is Op.BUFFER:
            content = self.leaves[u.arg]
            return Bounded(content) if self.plain else exactly(content)
        rule = _RULES.get(u.op)
        if rule is None:
            raise CompilerError(f"check: {u.op.name} does not belong in a tensor graph", node=repr(u))
        return rule(u, [values[s] for s in ((value_of(u),) if u.op is Op.CALL else u.src)])

    def _reduced(self, u: UOp, values: Mapping[UOp, Bounded]) -> Bounded:
        op, axes = u.arg
        parts = []
        for term in _addends(u):
            if _is_contraction(u, term):
                a, b = [_spread(values[s], term.shape) for s in term.src]
                parts.append(kv.contracted(a, b, axes))
            else:
                parts.append(kv.part_of(op, u.dtype, values[term], axes))
        total = reduce(partial(kv.joined, op, u.dtype), parts)
        if self.plain and u.dtype.is_float:
            return Bounded(total.value)
        return kv.reduced(op, u.dtype, total)

    # -- single elements: an index goes down through movement --------------------------------------------------------

    def work(self, root: UOp) -> int:
        """The most terms that one element of `root` makes work for."""
        found: dict[UOp, int] = {}
        for u in self.cone(root):
            reduces, src = u.op is Op.REDUCE_AXIS, () if base(u) in self.known else u.src
            # the products that a reduction sums are visited by their factors
            below = [*src, *[t for s in src for t in s.src]] if reduces else src
            found[u] = max([found.get(s, 1) for s in below], default=1)
            if reduces and src:
                found[u] *= math.prod(src[0].shape[a] for a in u.arg[1])
        return found[root]

    def elements(self, root: UOp, points: Array) -> Bounded:
        """The elements of `root` with these numbers. Raises TooLarge where one has too many terms."""
        work = self.work(root)
        if work > _ROW:
            raise TooLarge(work)
        step, self._flat, found = max(1, _LANES // work), dict(self.known), []
        for i in range(0, points.size, step):
            some = points[i : i + step]
            index = tuple(d.astype(np.int64) for d in np.unravel_index(some, root.shape)) if root.shape else ()
            self._memo.clear()
            found.append(self._at(root, index, 1).moved(partial(kv.spread, count=some.size)))
        value, error = [np.concatenate(parts) for parts in zip(*[(x.value, x.whole()) for x in found])]
        return Bounded(value, error)

    def _at(self, u: UOp, index: Index, ndim: int) -> Bounded:
        """`u` at an index of arrays with so many axes."""
        key = (u, id(index))
        if key not in self._memo:
            self._memo[key] = self._element(u, index, ndim), index
        return self._memo[key][0]

    def _element(self, u: UOp, index: Index, ndim: int) -> Bounded:
        flat = self._flat.get(base(u))
        if flat is not None:
            return _taken(flat, u, index, ndim)
        if u.is_const:
            return Bounded(np.full((1,) * ndim, u.arg, wide_dtype(u.dtype)))
        if u.op is Op.IOTA:
            return Bounded(index[0].astype(wide_dtype(u.dtype)))
        if u.op in ALU:
            sources = [self._at(s, index if s.shape else (), ndim) for s in u.src]
            return apply(u.op, u.dtype, sources, [s.dtype for s in u.src])
        if u.op in (Op.CONTIGUOUS, Op.DETACH, Op.CALL):
            return self._at(value_of(u) if u.op is Op.CALL else u.src[0], index, ndim)
        if u.op is Op.REDUCE_AXIS:
            return self._terms(u, index, ndim)
        if u.op is Op.GATHER:
            return self._gather(u, index, ndim)
        if u.op in _MOVES:
            return self._at(u.src[0], tuple(_MOVES[u.op](u, index, ndim)), ndim)
        if u.op is Op.PAD:
            at = [(i - before, n) for i, (before, _), n in zip(index, u.arg, u.src[0].shape, strict=True)]
            below = tuple(np.clip(i, 0, max(n - 1, 0)) for i, n in at)
            inside = reduce(np.logical_and, [(i >= 0) & (i < n) for i, n in at])
            return self._at(u.src[0], below, ndim).gated(inside)
        self._flat[u] = exactly(self.leaves[u.arg]) if u.op is Op.BUFFER else self.value(u).moved(np.ravel)
        return _taken(self._flat[u], u, index, ndim)

    def _terms(self, u: UOp, index: Index, ndim: int) -> Bounded:
        op, axes = u.arg
        shape = u.src[0].shape
        terms = tuple(range(ndim, ndim + len(axes)))
        inner = [np.expand_dims(i, terms) for i in index]
        for n, a in zip(terms, axes, strict=True):
            inner[a] = np.arange(shape[a]).reshape([-1 if d == n else 1 for d in range(ndim + len(axes))])
        x = self._at(u.src[0], tuple(inner), ndim + len(axes))
        full = [*x.value.shape[:ndim], *[shape[a] for a in axes]]
        part = kv.part_of(op, u.dtype, x.moved(lambda a: np.broadcast_to(a, full)), terms)
        return kv.reduced(op, u.dtype, part).moved(lambda a: a.reshape(a.shape[:ndim]))

    def _gather(self, u: UOp, index: Index, ndim: int) -> Bounded:
        where = self._at(u.src[1], index, ndim)
        n = u.src[0].shape[u.arg]
        at = where.value.astype(np.int64)
        inside = (at >= 0) & (at < n)
        below = list(index)
        below[u.arg] = np.where(inside, at, 0)
        return self._at(u.src[0], tuple(below), ndim).gated(inside).doubted(where)


def _addends(u: UOp) -> list[UOp]:
    """The terms that a reduction reduces: the terms of an added sum of products, each by itself."""
    body = u.src[0]
    if u.arg[0] is not Op.ADD or not u.dtype.is_float or u.dtype.is_narrow:
        return [body]
    found = []
    stack = [body]
    while stack:
        x = stack.pop()
        if x.op is Op.ADD and x.shape == body.shape and all(s.shape == body.shape for s in x.src):
            stack += reversed(x.src)
        else:
            found.append(x)
    return found if any(_is_contraction(u, x) for x in found) else [body]


def _is_contraction(u: UOp, term: UOp) -> bool:
    """True if the products that `u` sums need not be in memory."""
    return u.arg[0] is Op.ADD and term.op is Op.MUL and u.dtype.is_float and bool(term.shape)


def needed(u: UOp) -> Src:
    """The nodes whose values are needed for that of `u`."""
    if u.op is Op.REDUCE_AXIS:
        below = [x.src if _is_contraction(u, x) else (x,) for x in _addends(u)]
        return tuple(dict.fromkeys(s for src in below for s in src))
    return (value_of(u),) if u.op is Op.CALL else tuple(dict.fromkeys(u.src))


def _shaped(x: Bounded, shape: Ints) -> Bounded:
    return x.moved(lambda a: a.reshape(shape))


def _spread(x: Bounded, shape: Ints) -> Bounded:
    if x.value.shape == shape:
        return x
    return x.moved(lambda a: np.broadcast_to(a, shape))


def _made(u: UOp, _: list[Bounded]) -> Bounded:
    return Bounded(MEANINGS[u.op](u, (), wide_dtype(u.dtype)))


def _gather(u: UOp, src: list[Bounded]) -> Bounded:
    x, index = src
    found = x.moved(lambda a: MEANINGS[u.op](u, [a, index.value], a.dtype))
    return found.doubted(index) if found.value.size else found


def _update(u: UOp, src: list[Bounded]) -> Bounded:
    x, part, *places = src
    placed: Any = lambda a, b: MEANINGS[u.op](u, [a, b, *[s.value for s in places]], a.dtype)
    known = all(s.exact for s in places)
    return Bounded(placed(x.value, part.value), placed(x.whole(), part.whole()) if known else np.full(u.shape, np.inf))


_RULES: dict[Op, Callable[[UOp, list[Bounded]], Bounded]] = {
    Op.CONST: _made,
    Op.IOTA: _made,
    **dict.fromkeys(
        (*MOVEMENT, Op.CONTIGUOUS, Op.DETACH), lambda u, src: src[0].moved(lambda a: MEANINGS[u.op](u, [a], a.dtype))
    ),
    Op.CALL: lambda u, src: src[0],
    Op.GATHER: _gather,
    Op.SCATTER_ADD: kv.scattered,
    Op.SEGMENT_SUM: lambda u, src: kv.sums_of_rows(u, src, 0, np.diff(src[2].value).max(initial=0)),
    Op.ARGSORT: lambda u, src: kv.argsort(src[0]),
    Op.UPDATE: _update,
}


def _place(index: Index, shape: Ints, ndim: int) -> Array:
    out = np.zeros((1,) * ndim, np.int64)
    for i, n in zip(index, shape, strict=True):
        out = out * n + i
    return out


def _taken(memory: Bounded, u: UOp, index: Index, ndim: int) -> Bounded:
    """Elements of `u`, whose memory is flat."""
    at = _place(index, u.shape, ndim)
    return memory.moved(lambda a: a[at])


# -- movement: the index below ---------------------------------------------------------------------------------------


def _reshaped(u: UOp, index: Index, ndim: int) -> list[Array]:
    rest = _place(index, u.shape, ndim)
    out: list[Array] = []
    for n in reversed(u.src[0].shape):
        out.insert(0, rest % n if n else rest)
        rest = rest // max(n, 1)
    return out


_MOVES: dict[Op, Callable[[UOp, Index, int], list[Array]]] = {
    Op.RESHAPE: _reshaped,
    Op.PERMUTE: lambda u, index, _: [index[to] for to in np.argsort(u.arg)],
    Op.EXPAND: lambda u, index, ndim: [
        np.zeros((1,) * ndim, np.int64) if n == 1 else i for i, n in zip(index, u.src[0].shape)
    ],
    Op.SHRINK: lambda u, index, _: [i + b for i, (b, _) in zip(index, u.arg)],
    Op.FLIP: lambda u, index, _: [n - 1 - i if a in u.arg else i for a, (i, n) in enumerate(zip(index, u.shape))],
}
