"""Index arithmetic: linear forms over dims, the dimensions of a kernel's iteration space.

Each is one array axis. A RANGE starts as one dim; where an index takes it apart with `//` and `%` it becomes
several, most significant first, so that the index turns linear again: a range of 12 used as r // 4 and r % 4 is
4 * a + b.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from anneal.uop import Op, UOp


@dataclass(slots=True)
class Linear:
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

    __slots__ = ("digits", "extent", "limits", "points", "top")

    def __init__(self) -> None:
        self.extent: list[int] = []
        self.top: list[int] = []
        self.digits: dict[int, list[tuple[int, int]]] = {}
        self.limits: dict[int, UOp] = {}
        self.points: dict[int, UOp] = {}

    def add(self, range_id: int, extent: int, limit: UOp | None = None, point: UOp | None = None) -> None:
        dim = len(self.extent)
        self.digits[range_id] = [(dim, 1)]
        self.top.append(extent - 1)
        self.extent.append(extent if point is None else 1)
        if limit is not None:
            self.limits[dim] = limit
        if point is not None:
            self.points[dim] = point

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


def linear(index: UOp, dims: Dims, opaque: bool = False) -> Linear:
    """The linear form of an integer expression.

    Raises NeedsSplit when it would be linear after splitting a dim, NotLinear when there is none. With `opaque`,
    what is not linear becomes a node term instead.
    """
    done: dict[UOp, Linear] = {}
    stack = [index]
    while stack:
        u = stack[-1]
        if u in done:
            stack.pop()
            continue
        if u.op in _THROUGH:
            todo = [s for s in u.src if s not in done]
            if todo:
                stack.extend(todo)
                continue
        try:
            done[u] = _combine(u, done, dims)
        except NotLinear:
            if not opaque:
                raise
            done[u] = Linear(0, {}, {u: 1})
        stack.pop()
    return done[index]


_THROUGH = frozenset((Op.ADD, Op.SUB, Op.MUL, Op.NEG, Op.IDIV, Op.MOD, Op.SHL))


def _plus(a: Linear, b: Linear, factor: int) -> Linear:
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
    return Linear(a.const + factor * b.const, dims, nodes)


_ZERO = Linear(0, {})


def _combine(u: UOp, done: dict[UOp, Linear], dims: Dims) -> Linear:
    op = u.op
    if op is Op.CONST:
        return Linear(int(u.arg), {})
    if op is Op.RANGE:
        digits = dims.digits.get(u.arg[0])
        if digits is None:
            raise NotLinear
        return Linear(0, {s: w for s, w in digits if dims.varies(s)})
    if op in (Op.ADD, Op.SUB):
        return _plus(done[u.src[0]], done[u.src[1]], 1 if op is Op.ADD else -1)
    if op is Op.NEG:
        return _plus(_ZERO, done[u.src[0]], -1)
    if op is Op.MUL:
        a, b = done[u.src[0]], done[u.src[1]]
        if a.dims or a.nodes:
            a, b = b, a
        if a.dims or a.nodes:
            raise NotLinear
        return _plus(_ZERO, b, a.const)
    if op is Op.SHL and not (by := done[u.src[1]]).dims and not by.nodes and 0 <= by.const < 31:
        return _plus(_ZERO, done[u.src[0]], 1 << by.const)
    if op in (Op.IDIV, Op.MOD):
        a, b = done[u.src[0]], done[u.src[1]]
        if a.nodes or b.nodes or b.dims or b.const <= 0:
            raise NotLinear
        return _divide(a, b.const, dims, op is Op.MOD)
    raise NotLinear


def _divide(a: Linear, by: int, dims: Dims, modulo: bool) -> Linear:
    whole = {s: c for s, c in a.dims.items() if c % by == 0}
    rest = {s: c for s, c in a.dims.items() if c % by}
    low = high = a.const % by
    for s, c in rest.items():
        span = c * dims.top[s]
        low, high = low + min(span, 0), high + max(span, 0)
    if low < 0 or high >= by:
        # biggest steps first: splitting those leaves the smaller ones inside one period
        for s, c in sorted(rest.items(), key=lambda item: -abs(item[1])):
            inner = by // abs(c)
            if not dims.settled(s):
                raise Unsettled
            if by % abs(c) == 0 and inner < dims.extent[s] and dims.extent[s] % inner == 0:
                raise NeedsSplit(s, inner)
        raise NotLinear
    if modulo:
        return Linear(a.const % by, rest)
    return Linear(a.const // by, {s: c // by for s, c in whole.items()})


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
        upper, const = not negated, form.const
        limit = -const  # sum < limit, or sum >= limit
        if terms[0][1] < 0:
            terms = [(s, -c) for s, c in terms]
            upper, limit = not upper, 1 - limit
        b = found.setdefault(tuple(terms), Bounds(dict(terms), -_FAR, _FAR))
        if upper:
            b.high = min(b.high, limit)
        else:
            b.low = max(b.low, limit)
    used: set[int] = set()
    for b in found.values():
        if used & b.dims.keys():
            return None
        used |= b.dims.keys()
    return list(found.values())
