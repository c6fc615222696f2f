"""Index arithmetic: linear forms over dims, the dimensions of a kernel's iteration space.

Each is one array axis. A RANGE starts as one dim; where an index takes it apart with `//` and `%` it becomes
several, most significant first, so that the index turns linear again: a range of 12 used as r // 4 and r % 4 is
4 * a + b.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

from anneal.rewrite import Sum
from anneal.uop import Op, Src, UOp, toposort


@dataclass(slots=True)
class LinearIndex:
    """constant + sum of coefficient * dim + sum of coefficient * node, where nodes depend on data."""

    const: int
    dims: dict[int, int]
    nodes: dict[UOp, int] = field(default_factory=dict)


class NotLinear(Exception):
    """An index no linear form describes."""


class NeedsSplit(Exception):
    """A dim has to be split before the index is linear."""

    def __init__(self, dim: int, inner: int) -> None:
        super().__init__(dim, inner)
        self.dim, self.inner = dim, inner


class Unsettled(Exception):
    """A plan would depend on the values of variables."""


class Dims:
    """The dimensions of a kernel's iteration space: extents, and for each range id its mixed-radix index, as (dim,
    weight) digits, most significant first.

    `limits` are dims of which a run takes the first values, as many as a symbolic size says; `points` those of which
    it takes one, a variable's value: their extent is 1, and `top` the largest value.
    """

    def __init__(self) -> None:
        self.extent: list[int] = []
        self.top: list[int] = []
        self.digits: dict[int, list[tuple[int, int]]] = {}
        self.limits: dict[int, UOp] = {}
        self.points: dict[int, UOp] = {}

    def add(self, range_id: int, extent: int, taken: UOp | None = None, point: bool = False) -> None:
        """Add a range's dim, of which a run takes the first `taken` values, or, if it is a `point`, that one alone."""
        dim = len(self.extent)
        self.digits[range_id] = [(dim, 1)]
        self.top.append(extent - 1)
        self.extent.append(1 if point else extent)
        if taken is not None:
            (self.points if point else self.limits)[dim] = taken

    def count(self, some: Iterable[int]) -> int:
        """The number of combinations of values that these dims have."""
        return math.prod([self.extent[s] for s in some])

    def ends(self, steps: Mapping[int, int]) -> tuple[int, int]:
        """The least and the greatest sum of step * dim."""
        ends = [step * self.top[s] for s, step in steps.items()]
        return sum([min(x, 0) for x in ends]), sum([max(x, 0) for x in ends])

    def varies(self, dim: int) -> bool:
        """True if an index may depend on the dim."""
        return self.extent[dim] > 1 or dim in self.points

    def settled(self, dim: int) -> bool:
        """True if every run takes all values of the dim."""
        return dim not in self.limits and dim not in self.points

    def split(self, dim: int, inner: int) -> None:
        """Replace `dim` by dim // inner (which keeps its number) and dim % inner (a new one)."""
        if not self.settled(dim):
            raise Unsettled
        new = len(self.extent)
        self.extent.append(inner)
        self.extent[dim] //= inner
        self.top[dim] = self.extent[dim] - 1
        self.top.append(inner - 1)
        for digits in self.digits.values():
            for at, (s, weight) in enumerate(digits):
                if s == dim:
                    digits[at : at + 1] = [(dim, weight * inner), (new, weight)]
                    break


def linear(index: UOp, dims: Dims, opaque: bool = False) -> LinearIndex:
    """The linear form of an integer expression.

    Raises NeedsSplit when it would be linear after splitting a dim, NotLinear when there is none. With `opaque`,
    what is not linear becomes a node term instead.
    """
    done: dict[UOp, LinearIndex] = {}
    for u in toposort(index, sources=_parts):
        try:
            done[u] = _combine(u, done, dims)
        except NotLinear:
            if not opaque:
                raise
            done[u] = LinearIndex(0, {}, {u: 1})
    return done[index]


def _parts(u: UOp) -> Src:
    """The expressions that one is linear in, or divides."""
    return u.src if u.op in (Op.IDIV, Op.MOD) else tuple([t for t in Sum.of(u).terms if t is not u])[::-1]


def _plus(a: LinearIndex, b: LinearIndex, factor: int) -> LinearIndex:
    dims = dict(a.dims)
    for s, c in b.dims.items():
        dims[s] = dims.get(s, 0) + factor * c
        if not dims[s]:
            del dims[s]
    nodes = dict(a.nodes)
    for u, c in b.nodes.items():
        nodes[u] = nodes.get(u, 0) + factor * c
        if not nodes[u]:
            del nodes[u]
    return LinearIndex(a.const + factor * b.const, dims, nodes)


def _combine(u: UOp, done: dict[UOp, LinearIndex], dims: Dims) -> LinearIndex:
    if u.op is Op.RANGE and u.arg[0] in dims.digits:
        return LinearIndex(0, {s: w for s, w in dims.digits[u.arg[0]] if dims.varies(s)})
    if u.op in (Op.IDIV, Op.MOD):
        a, b = done[u.src[0]], done[u.src[1]]
        if a.nodes or b.nodes or b.dims or b.const <= 0:
            raise NotLinear
        return _divide(a, b.const, dims, u.op is Op.MOD)
    whole = Sum.of(u)
    if u in whole.terms:
        raise NotLinear
    return reduce(lambda out, t: _plus(out, done[t[0]], t[1]), whole.terms.items(), LinearIndex(whole.constant, {}))


def _divide(a: LinearIndex, by: int, dims: Dims, modulo: bool) -> LinearIndex:
    whole = {s: c for s, c in a.dims.items() if c % by == 0}
    rest = {s: c for s, c in a.dims.items() if c % by}
    low, high = dims.ends(rest)
    if a.const % by + low < 0 or a.const % by + high >= by:
        # biggest steps first: splitting those leaves the smaller ones inside one period
        for s, c in sorted(rest.items(), key=lambda item: -abs(item[1])):
            inner = by // abs(c)
            if not dims.settled(s):
                raise Unsettled
            if by % abs(c) == 0 and inner < dims.extent[s] and dims.extent[s] % inner == 0:
                raise NeedsSplit(s, inner)
        raise NotLinear
    if modulo:
        return LinearIndex(a.const % by, rest)
    return LinearIndex(a.const // by, {s: c // by for s, c in whole.items()})


@dataclass(slots=True)
class Bounds:
    """low <= sum of coefficient * dim < high."""

    dims: dict[int, int]
    low: int
    high: int


_FAR = 1 << 62


def box_of(predicate: UOp, dims: Dims) -> list[Bounds] | None:
    """A predicate as bounds that must all hold, over forms that share no dim; None if it is not of that kind."""
    found: dict[tuple[tuple[int, int], ...], Bounds] = {}
    stack = [predicate]
    while stack:
        u = stack.pop()
        if u.op is Op.AND:
            stack.extend(u.src)
            continue
        negated = u.op is Op.NOT
        if negated:
            u = u.src[0]
        if u.op is not Op.LT or not u.src[0].dtype.is_int:
            return None
        try:
            form = _plus(linear(u.src[0], dims), linear(u.src[1], dims), -1)
        except NotLinear:
            return None
        # form < 0, or form >= 0 when negated
        terms = sorted(form.dims.items())
        if not all(dims.settled(s) for s, _ in terms):
            return None
        if not terms:
            if (form.const < 0) == negated:
                return [Bounds({}, 0, 0)]
            continue
        upper, limit = not negated, -form.const  # sum < limit, or sum >= limit
        if terms[0][1] < 0:
            terms = [(s, -c) for s, c in terms]
            upper, limit = not upper, 1 - limit
        b = found.setdefault(tuple(terms), Bounds(dict(terms), -_FAR, _FAR))
        if upper:
            b.high = min(b.high, limit)
        else:
            b.low = max(b.low, limit)
    used = [s for b in found.values() for s in b.dims]
    return list(found.values()) if len(used) == len({*used}) else None


# ---------------------------------------------------------------------------------------------------------------------
# Windows: reduces over the few places of overlapping windows, which are folded place by place.
#
# A convolution of each channel by itself, or a pool, reduces over the places ("taps") of a window: few for each output,
# and many outputs for each tap. As one array of products and one reduce, every product would be written to memory and
# summed along axes of three elements. Tap by tap, each is a pass over arrays of the output's size:
#
#     out = x[at tap 0] * w[tap 0];  part = x[at tap 1] * w[tap 1];  out += part;  ...


# A window of more taps is a reduce like any other: its calls would take longer than its work.
MOST = 128
# Fewer outputs than this are not worth two calls a tap.
LEAST = 1024


def factors_of(u: UOp) -> Src:
    """The factors that a reduce's body multiplies, if it adds products; else the body."""
    body = u.src[0]
    return body.src if u.arg is Op.ADD and body.op is Op.MUL else (body,)


def overlaps(form: LinearIndex, over: int, extent: Sequence[int]) -> bool:
    """True if one place in memory is read for several outputs, through dims that a reduce ends and dims that it
    keeps.
    """
    for tap, a in form.dims.items():
        for kept, b in form.dims.items():
            if over >> tap & 1 and not over >> kept & 1:
                for x, y, n in ((abs(a), abs(b), extent[tap]), (abs(b), abs(a), extent[kept])):
                    if x and y % x == 0 and y < x * n:
                        return True
    return False


def forms_of(form: LinearIndex, over: int, top: Sequence[int]) -> list[Bounds] | None:
    """Windows without borders as sums of a kept dim and a tap's, each bounded by what it takes; None if the steps do
    not tell which belong together."""
    found = []
    used = set()
    for tap, a in form.dims.items():
        if not over >> tap & 1:
            continue
        near = [s for s, b in form.dims.items() if not over >> s & 1 and s not in used and a > 0 and b % a == 0]
        near = [s for s in near if form.dims[s] // a <= top[tap] + 1 and form.dims[s] > 0]
        if len(near) != 1:
            return None
        used.add(near[0])
        step = form.dims[near[0]] // a
        found.append(Bounds({near[0]: step, tap: 1}, 0, step * top[near[0]] + top[tap] + 1))
    return found
