"""The tensor graph as the user wrote it, in float64 with bounds, from the values that a device has in memory.

Rules, passes and kernels have no part in this: nodes are evaluated one by one, as the oracle of the tests does
(`tests/reference.py`). A value that a kernel stored and that was found right is taken as it is, without a
bound, so that bounds tell of one kernel each and do not grow from kernel to kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from anneal.backend import MEANINGS, numpy_dtype
from anneal.errors import CompilerError
from anneal.inspect.checking.bounds import EXACT, Array, Bounded, apply, exactly
from anneal.inspect.checking.reductions import TermFacts, argsort, contracted, joined, part_of, reduced
from anneal.rewrite import value_of
from anneal.uop import ALU, MOVEMENT, Op, UOp

_SAME = frozenset((Op.RESHAPE, Op.CONTIGUOUS, Op.DETACH, Op.CALL))
_VIEWS = frozenset((Op.EXPAND, Op.PERMUTE, Op.SHRINK, Op.FLIP, Op.CONST))

Seen = Callable[[UOp, Bounded, Sequence[Bounded]], None]


class TooLarge(Exception):
    """An evaluation that would need arrays of `elements` elements in all."""

    def __init__(self, elements: int) -> None:
        super().__init__(f"{elements:,} elements")
        self.elements = elements


def base(u: UOp) -> UOp:
    """The node whose elements `u` has, in their order."""
    while u.op in _SAME:
        u = value_of(u) if u.op is Op.CALL else u.src[0]
    return u


class TensorValues:
    """Nodes of one graph. `leaves` are the contents of BUFFERs, flat; `known` those of nodes that are in memory."""

    def __init__(self, leaves: Mapping[Any, Array], most: int, plain: bool = False) -> None:
        self.leaves = leaves
        self.plain = plain  # without bounds and roundings: what an ideal device would compute
        self.known: dict[UOp, Bounded] = {}
        self.most = most  # elements in all arrays of an evaluation

    def keep(self, u: UOp, value: Bounded) -> None:
        """The elements of `u` are these from here on."""
        self.known[base(u)] = Bounded(value.value.reshape(-1), _flat(value))

    def forget(self, nodes: Iterable[UOp]) -> None:
        """These are computed again where they are needed."""
        for u in nodes:
            self.known.pop(u, None)

    def cone(self, u: UOp) -> list[UOp]:
        """The nodes that an evaluation of `u` visits, sources first."""
        order: list[UOp] = []
        seen: set[UOp] = set()
        stack: list[tuple[UOp, bool]] = [(u, False)]
        while stack:
            x, left = stack.pop()
            if left:
                order.append(x)
            elif x not in seen:
                seen.add(x)
                stack.append((x, True))
                if base(x) not in self.known:
                    stack.extend([(s, False) for s in reversed(needed(x))])
        return order

    def value(self, root: UOp, seen: Seen | None = None) -> Bounded:
        """The value of `root`; `seen` is told of every node, with its sources' values.

        Raises TooLarge where that takes more elements than allowed, CompilerError for an op that is no tensor's.
        """
        order = self.cone(root)
        elements = sum(u.size for u in order if u.op not in _VIEWS)
        if elements > self.most:
            raise TooLarge(elements)
        users: dict[UOp, int] = {}
        for u in order:
            for s in needed(u) if base(u) not in self.known else ():
                users[s] = users.get(s, 0) + 1
        values: dict[UOp, Bounded] = {}
        for u in order:
            if base(u) in self.known:
                flat = self.known[base(u)]
                values[u] = Bounded(flat.value.reshape(u.shape), _shaped(flat.error, u.shape))
                continue
            found = self._one(u, values)
            values[u] = found = Bounded(found.value, EXACT) if self.plain else found
            if found.value.shape != u.shape:
                raise CompilerError(f"check: {u.op.name} gave shape {found.value.shape}, not {u.shape}", node=repr(u))
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
                with np.errstate(all="ignore"):
                    return Bounded(np.asarray(MEANINGS[u.op](*[s.value for s in sources])), EXACT)
            found = apply(u.op, u.dtype, sources, [s.dtype for s in u.src])
            return found._replace(value=np.broadcast_to(found.value, u.shape))
        if u.op is Op.REDUCE_AXIS:
            return self._reduced(u, values)
        if u.op is Op.BUFFER:
            content = self.leaves[u.arg]
            return Bounded(content, EXACT) if self.plain else exactly(content)
        rule = _RULES.get(u.op)
        if rule is None:
            raise CompilerError(f"check: {u.op.name} does not belong in a tensor graph", node=repr(u))
        return rule(u, [values[s] for s in ((value_of(u),) if u.op is Op.CALL else u.src)])

    def _reduced(self, u: UOp, values: Mapping[UOp, Bounded]) -> Bounded:
        op, axes = u.arg
        total: TermFacts | None = None
        for term in _addends(u):
            if term.op is Op.MUL and _is_contraction(u, term):
                a, b = [_spread(values[s], term.shape) for s in term.src]
                part = contracted(a, b, axes)
            else:
                part = part_of(op, u.dtype, values[term], axes)
            total = part if total is None else joined(op, u.dtype, total, part)
        assert total is not None
        if self.plain and u.dtype.is_float:
            return Bounded(total.value, EXACT)
        return reduced(op, u.dtype, total)


def _addends(u: UOp) -> list[UOp]:
    """The terms that a reduction reduces: the terms of an added sum of products, each by itself."""
    body = u.src[0]
    if u.arg[0] is not Op.ADD or not u.dtype.is_float or u.dtype.is_narrow:
        return [body]
    found: list[UOp] = []
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


def needed(u: UOp) -> tuple[UOp, ...]:
    """The nodes whose values that of `u` takes."""
    if u.op is Op.REDUCE_AXIS:
        out: dict[UOp, None] = {}
        for x in _addends(u):
            out.update(dict.fromkeys(x.src if _is_contraction(u, x) else (x,)))
        return tuple(out)
    return (value_of(u),) if u.op is Op.CALL else tuple(dict.fromkeys(u.src))


def _flat(x: Bounded) -> Array:
    return EXACT if x.exact else np.ascontiguousarray(x.whole()).reshape(-1)


def _shaped(error: Array, shape: tuple[int, ...]) -> Array:
    return EXACT if error is EXACT else error.reshape(shape)


def _spread(x: Bounded, shape: tuple[int, ...]) -> Bounded:
    if x.value.shape == shape:
        return x
    return x.moved(lambda a: np.broadcast_to(a, shape))


def _moved(u: UOp, src: list[Bounded]) -> Bounded:
    """An op that shows elements at other places."""
    return src[0].moved(lambda a: MEANINGS[u.op](u, [a], a.dtype))


def _made(u: UOp, _: list[Bounded]) -> Bounded:
    return Bounded(MEANINGS[u.op](u, (), np.dtype(np.float64) if u.dtype.is_float else numpy_dtype(u.dtype)), EXACT)


def _gather(u: UOp, src: list[Bounded]) -> Bounded:
    x, index = src
    found = x.moved(lambda a: MEANINGS[u.op](u, [a, index.value], a.dtype))
    if index.exact or not found.value.size:
        return found
    return Bounded(found.value, np.where(index.error > 0, np.inf, found.error))


def _sums(u: UOp, src: list[Bounded], place: int, most: float) -> Bounded:
    """Sums of rows of the source at `place`, each of at most so many terms; the others say which rows."""
    value = src[place]

    def rows(of: Array) -> Array:
        made: Array = MEANINGS[u.op](u, [of if n == place else s.value for n, s in enumerate(src)], of.dtype)
        return made

    found = rows(value.value)
    if not all(s.exact for n, s in enumerate(src) if n != place):
        return Bounded(found, np.full(u.shape, np.inf))
    if not u.dtype.is_float:
        return Bounded(found, EXACT if value.exact else np.full(u.shape, np.inf))
    error = EXACT if value.exact else rows(value.whole())
    return reduced(Op.ADD, u.dtype, TermFacts(found, rows(np.abs(value.value)), error, most, False))


def _scatter_add(u: UOp, src: list[Bounded]) -> Bounded:
    index = src[0].value
    at = index[(index >= 0) & (index < u.shape[0])]
    return _sums(u, src, 1, float(np.bincount(at).max()) if at.size else 0.0)


def _segment_sum(u: UOp, src: list[Bounded]) -> Bounded:
    return _sums(u, src, 0, float(np.diff(src[2].value).max()) if u.shape[0] else 0.0)


def _update(u: UOp, src: list[Bounded]) -> Bounded:
    def placed(x: Array, part: Array) -> Array:
        made: Array = MEANINGS[u.op](u, [x, part, *[s.value for s in src[2:]]], x.dtype)
        return made

    value = placed(src[0].value, src[1].value)
    if not all(s.exact for s in src[2:]):
        return Bounded(value, np.full(u.shape, np.inf))
    exact = src[0].exact and src[1].exact
    return Bounded(value, EXACT if exact else placed(src[0].whole(), src[1].whole()))


_RULES: dict[Op, Callable[[UOp, list[Bounded]], Bounded]] = {
    Op.CONST: _made,
    Op.IOTA: _made,
    **dict.fromkeys((*MOVEMENT, Op.CONTIGUOUS, Op.DETACH), _moved),
    Op.CALL: lambda u, src: src[0],
    Op.GATHER: _gather,
    Op.SCATTER_ADD: _scatter_add,
    Op.SEGMENT_SUM: _segment_sum,
    Op.ARGSORT: lambda u, src: argsort(src[0]),
    Op.UPDATE: _update,
}
