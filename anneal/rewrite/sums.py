"""Integer sums of terms, and the rules of the index algebra for them.

A sum is `constant + k1 * t1 + k2 * t2 + ...` over terms that are no sums themselves. Nodes compute modulo 2**bits, so a
regrouping is only used where the sum is known not to leave the dtype (`Sum.fits`); then it is the integer that it reads
as.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache, reduce
from math import gcd
from typing import Any

from anneal.uop import SYMBOLIC, DType, Nodes, Numbers, Op, UOp, alu, const, dtypes, normalise_const, toposort
from anneal.uop.sizes import Poly, is_symbolic, least, plus, poly, poly_node, poly_quotient, size

_BOOL = dtypes.bool_
_ADD, _MUL, _CONST = Op.ADD, Op.MUL, Op.CONST
_SHORT = 128  # nodes of an expression that is walked as a tree


def linear(u: UOp) -> bool:
    """True if `u` is a signed sum or a multiple, which a Sum looks through (unsigned terms have no negatives)."""
    op = u.op
    if op is Op.ADD or op is Op.SUB or op is Op.NEG:
        return u.dtype.kind == "int"
    return op is Op.MUL and u.dtype.kind == "int" and u.src[1].op is Op.CONST


def _wrapped(dtype: DType, k: int) -> int:
    return k if dtype.min <= k <= dtype.max else int(normalise_const(dtype, k))


class Sum:
    """`constant + sum(k * term)` with coefficients as the dtype stores them."""

    __slots__ = ("constant", "dtype", "hi", "lo", "terms")

    def __init__(self, dtype: DType, terms: Numbers, constant: int) -> None:
        self.dtype = dtype
        self.terms = {t: k for t, k in terms.items() if k}
        self.constant = constant
        lo = hi = constant
        for t, k in self.terms.items():
            a: Any = t.vmin
            b: Any = t.vmax
            if k > 0:
                lo += k * a
                hi += k * b
            else:
                lo += k * b
                hi += k * a
        self.lo, self.hi = lo, hi

    @staticmethod
    @lru_cache(1 << 13)
    def of(u: UOp) -> Sum:
        """`u` as a Sum. Takes time linear in the size of the graph, however its parts are shared. The caller must not
        change the result.
        """
        return Sum._small(u) or Sum.combine(u.dtype, ((u, 1),))

    @classmethod
    def _small(cls, u: UOp) -> Sum | None:
        """`of` for a short expression, walked as a tree; None when it is not short."""
        dtype = u.dtype
        signed = dtype.kind == "int"
        terms: Numbers = {}
        constant = 0
        stack = [(u, 1)]
        for _ in range(_SHORT):
            if not stack:
                return cls(dtype, {t: _wrapped(dtype, k) for t, k in terms.items()}, _wrapped(dtype, constant))
            n, k = stack.pop()
            op = n.op
            if op is _CONST:
                constant += k * int(n.arg)
            elif not signed:
                terms[n] = terms.get(n, 0) + k
            elif op is _ADD or op is Op.SUB:
                a, b = n.src
                stack += ((b, k if op is _ADD else -k), (a, k))
            elif op is _MUL and n.src[1].op is _CONST:
                stack.append((n.src[0], k * int(n.src[1].arg)))
            elif op is Op.NEG:
                stack.append((n.src[0], -k))
            else:
                terms[n] = terms.get(n, 0) + k
        return None

    @classmethod
    def combine(cls, dtype: DType, parts: Iterable[tuple[UOp, int]], constant: int = 0) -> Sum:
        """`constant + sum(k * u)` over parts that may be sums themselves."""
        weight: Numbers = {}
        for u, k in parts:
            weight[u] = weight.get(u, 0) + k
        terms: Numbers = {}

        def give(u: UOp, k: int) -> None:
            nonlocal constant
            if u.op is Op.CONST:
                constant += k * int(u.arg)
            elif linear(u):
                weight[u] = weight.get(u, 0) + k
            else:
                terms[u] = terms.get(u, 0) + k

        inner = toposort(weight, until=lambda u: not linear(u))
        for u in list(weight):
            if not linear(u):
                give(u, weight.pop(u))
        for u in reversed(inner):
            k = weight.pop(u)
            if abs(k) > 1 << 64:
                k = int(normalise_const(dtype, k))
            if u.op is Op.MUL:
                give(u.src[0], k * int(u.src[1].arg))
            elif u.op is Op.NEG:
                give(u.src[0], -k)
            else:
                give(u.src[0], k)
                give(u.src[1], k if u.op is Op.ADD else -k)
        return cls(dtype, {t: _wrapped(dtype, k) for t, k in terms.items()}, _wrapped(dtype, constant))

    @property
    def fits(self) -> bool:
        """True if no value of the sum leaves the dtype: it is the integer that it reads as."""
        return bool(self.dtype.min <= self.lo and self.hi <= self.dtype.max)

    @property
    def negative(self) -> bool:
        """True if every coefficient is below zero."""
        return all(k < 0 for k in self.terms.values())

    def node(self) -> UOp:
        """The sum as a node: largest coefficients first, the constant last, whatever order built it."""
        out: UOp | None = None
        for t, k in self.sorted():
            piece = t if k == 1 else t * k
            out = piece if out is None else out + piece
        last = const(self.dtype, self.constant)
        return last if out is None else out + last

    def sorted(self) -> list[tuple[UOp, int]]:
        items = list(self.terms.items())
        if len({abs(k) for _, k in items}) == len(items):
            return sorted(items, key=lambda i: -abs(i[1]))
        return sorted(items, key=lambda i: (-abs(i[1]), i[0].ranges, i[0].op.index, i[0].key))

    def with_terms(self, terms: Numbers, constant: int) -> Sum:
        return Sum(self.dtype, terms, constant)

    def split(self, divisor: int) -> tuple[Sum, Sum]:
        """(whole, rest) with `self == whole * divisor + rest` and the rest's constant in 0..divisor-1."""
        whole = {t: k // divisor for t, k in self.terms.items() if k % divisor == 0}
        rest = {t: k for t, k in self.terms.items() if k % divisor}
        return self.with_terms(whole, self.constant // divisor), self.with_terms(rest, self.constant % divisor)

    def near(self, divisor: int) -> tuple[Sum, Sum]:
        """The sum split like `split`, but every coefficient leaves its remainder of least size in the rest."""
        whole: Numbers = {}
        rest: Numbers = {}
        for t, k in self.terms.items():
            r = k % divisor
            if 2 * r > divisor:
                r -= divisor
            whole[t] = (k - r) // divisor
            rest[t] = r
        return self.with_terms(whole, self.constant // divisor), self.with_terms(rest, self.constant % divisor)

    def steps(self, divisor: int) -> list[int]:
        """The sizes of coefficients above 1 that divide `divisor`, by which terms may be grouped; the largest first."""
        return sorted({abs(k) for k in self.terms.values() if abs(k) > 1 and divisor % k == 0}, reverse=True)


# -- sums -----------------------------------------------------------------------------------------------------------


def joined(s: Sum) -> Sum:
    """Quotient and remainder of one value meet again: `(x // c) * c + x % c` is x."""
    while True:
        for t, k in s.terms.items():
            if t.op is not Op.MOD or t.src[1].op is not Op.CONST or t.src[1].arg <= 0:
                continue
            w, c = t.src
            other, whole = w // c, w
            if s.terms.get(other) != k * c.arg:  # if it is: k * ((w // c) * c + w % c) -> k * w
                for q, kq in s.terms.items():
                    if q.op is Op.MOD and q.src[0] is other and kq == k * c.arg and q.src[1].op is Op.CONST:
                        d = q.src[1].arg
                        if d > 0 and d * c.arg <= s.dtype.max:
                            # k * ((w // c % d) * c + w % c) -> k * (w % (c * d))
                            other, whole = q, w % (c.arg * d)
                            break
                else:
                    continue
            break
        else:
            return s
        rest = [(x, kx) for x, kx in s.terms.items() if x is not t and x is not other]
        s = Sum.combine(s.dtype, [*rest, (whole, k)], s.constant)


def ordered(u: UOp) -> UOp:
    """The sum `u` with its terms collected, in an order that does not depend on how it was built."""
    return joined(Sum.of(u)).node()


# -- division -------------------------------------------------------------------------------------------------------


def divided(x: UOp, c: UOp) -> UOp | None:
    """`x // c` for a sum x and a positive constant c: divisible terms leave the quotient."""
    d = int(c.arg)
    s = Sum.of(x)
    if d <= 0 or not s.fits:
        return None
    for whole, rest in (s.split(d), s.near(d)):
        if rest.lo // d == rest.hi // d and whole.fits:
            # the rest stays within one multiple of c
            whole.constant += rest.lo // d
            return whole.node()
    whole, rest = s.split(d)
    if not (whole.fits and rest.fits):
        return None
    a, _, g, sign = _grouped(rest, d)
    return a.node() // (d // g) * sign + whole.node()


def _grouped(rest: Sum, d: int) -> tuple[Sum, Sum, int, int]:
    """(A, B, g, sign) with which `rest` divided by d is `sign * (A // (d / g))`, and leaves `sign * g * (A % (d / g)) +
    B`."""
    for g in rest.steps(d):
        a, b = rest.split(g)
        if b.lo >= 0 and b.hi < g and a.fits:
            return a, b, g, 1  # A * g + B where 0 <= B < g
    if rest.negative:
        # (r - A) // d -> -((A + d - 1 - r) // d), (r - A) % d -> d - 1 - (A + d - 1 - r) % d
        flipped = rest.with_terms({t: -k for t, k in rest.terms.items()}, d - 1 - rest.constant)
        if flipped.fits:
            return flipped, rest.with_terms({}, d - 1), 1, -1
    g = gcd(d, *rest.terms.values())
    return *rest.split(g), g, 1


def remainder(x: UOp, c: UOp) -> UOp | None:
    """`x % c` for a sum x and a positive constant c: divisible terms go."""
    d = int(c.arg)
    s = Sum.of(x)
    if d <= 0 or not s.fits:
        return None
    for _, rest in (s.split(d), s.near(d)):
        if rest.lo // d == rest.hi // d and rest.fits:
            rest.constant -= rest.lo // d * d
            return rest.node()
    _, rest = s.near(d)
    if not rest.fits:
        return None
    a, b, g, sign = _grouped(rest, d)
    return a.node() % (d // g) * (g * sign) + b.node()


# -- comparisons ----------------------------------------------------------------------------------------------------


def _difference(x: UOp, y: UOp) -> Sum | None:
    """`x - y` if both are known not to wrap (the difference itself may be wider than the dtype)."""
    a, b = Sum.of(x), Sum.of(y)
    if not (a.fits and b.fits):
        return None
    terms = dict(a.terms)
    for t, k in b.terms.items():
        terms[t] = terms.get(t, 0) - k
    return Sum(x.dtype, terms, a.constant - b.constant)


def _sides(s: Sum) -> tuple[UOp, UOp] | None:
    """(left, right) with positive coefficients such that `s ? 0` reads `left ? right`."""
    plus = {t: k for t, k in s.terms.items() if k > 0}
    minus = {t: -k for t, k in s.terms.items() if k < 0}
    if not plus:
        left, right = s.with_terms({}, s.constant), s.with_terms(minus, 0)
    else:
        left, right = s.with_terms(plus, 0), s.with_terms(minus, -s.constant)
    return (left.node(), right.node()) if left.fits and right.fits else None


def compared(x: UOp, y: UOp) -> UOp | None:
    """`x < y` over integer sums: terms meet, common factors go, and terms too small to matter go."""
    if SYMBOLIC.seen and x.dtype is dtypes.int32 and (known := ordered_by_sizes(x, y)) is not None:
        return known
    s = _difference(x, y)
    if s is None:
        return None
    if s.hi < 0 or s.lo >= 0:
        return const(_BOOL, s.hi < 0)
    # sum < c
    c = -s.constant
    s = s.with_terms(s.terms, 0)
    changed = True
    while changed:
        changed = False
        g = gcd(*s.terms.values())
        if g > 1:
            s = s.with_terms({t: k // g for t, k in s.terms.items()}, 0)
            c = -(-c // g)
        for g in s.steps(0):
            a, b = s.split(g)
            q, r = divmod(c, g)
            if b.lo >= r and b.hi < g + r:
                # A * g + B < q * g + r -> A < q where r <= B < g + r
                s, c, changed = a, q, True
                break
            if b.hi < r and b.lo >= r - g:
                s, c, changed = a, q + 1, True
                break
    s.constant = -c
    sides = _sides(s)
    return None if sides is None else alu(Op.LT, sides)


def equated(x: UOp, y: UOp) -> UOp | None:
    """`x == y` over integer sums: terms meet, common factors go."""
    s = _difference(x, y)
    if s is None:
        return None
    if s.lo > 0 or s.hi < 0:
        return const(_BOOL, False)
    g = gcd(*s.terms.values())
    if g == 0:
        return const(_BOOL, s.constant == 0)
    if s.constant % g:
        return const(_BOOL, False)
    s = s.with_terms({t: k // g for t, k in s.terms.items()}, s.constant // g)
    if s.sorted()[0][1] < 0:
        s = s.with_terms({t: -k for t, k in s.terms.items()}, -s.constant)
    sides = _sides(s)
    return None if sides is None else alu(Op.EQ, sides)


def unequal(x: UOp, y: UOp) -> UOp | None:
    """`x != y`, as the opposite of `equated`."""
    same = equated(x, y)
    return None if same is None else Op.NOT(same)


# -- predicates -----------------------------------------------------------------------------------------------------


def _flat(u: UOp) -> Nodes:
    """The parts of a tree of one op, each once, in an order that does not depend on how it was built."""
    op = u.op
    inner = toposort(u, until=lambda n: n.op is not op)
    within = set(inner)
    parts = dict.fromkeys(s for n in inner for s in n.src if s not in within)
    return sorted(parts, key=lambda p: (p.ranges, p.op.index, p.key))


def _fence(p: UOp) -> tuple[UOp, Any, Any] | None:
    """(x, lo, hi) if `p` means lo <= x <= hi."""
    if p.op is Op.LT:
        a, b = p.src
        if b.op is Op.CONST and a.dtype.is_int:
            return a, a.vmin, b.arg - 1
        if a.op is Op.CONST and b.dtype.is_int:
            return b, a.arg + 1, b.vmax
    if p.op is Op.EQ and p.src[1].op is Op.CONST and p.src[0].dtype.is_int:
        return p.src[0], p.src[1].arg, p.src[1].arg
    return None


def conjunction(u: UOp) -> UOp:
    """An AND of bools: each part once, one lower and one upper bound a value, False if they exclude each other."""
    parts = _flat(u)
    bounds: dict[UOp, tuple[Any, Any]] = {}  # bounds that some of the parts imply
    other = []
    for p in parts:
        if (fence := _fence(p)) is None:
            other.append(p)
            continue
        x, lo, hi = fence
        low, high = bounds.get(x, (x.vmin, x.vmax))
        bounds[x] = max(low, lo), min(high, hi)
    given = set(parts)
    if any(lo > hi for lo, hi in bounds.values()) or any(Op.NOT(p) in given for p in other):
        return const(_BOOL, False)
    out: list[UOp] = []
    for x, (lo, hi) in bounds.items():
        if lo == hi and x.vmin != x.vmax:
            out.append(x.eq(lo))
            continue
        if lo > x.vmin:
            out.append(const(x.dtype, lo - 1) < x)
        if hi < x.vmax:
            out.append(x < hi + 1)
    out += other
    return reduce(u.op, sorted(dict.fromkeys(out), key=lambda p: (p.ranges, p.op.index, p.key)))


def disjunction(u: UOp) -> UOp:
    """An OR of bools: each part once, True if one is the opposite of another."""
    parts = _flat(u)
    given = set(parts)
    if any(Op.NOT(p) in given for p in parts):
        return const(_BOOL, True)
    return reduce(u.op, parts)


# -- beside symbolic sizes: division by a size, and comparisons that hold for every value of the variables -------------
# An expression is a polynomial over ranges and variables. A range of extent n goes up to n - 1, so the largest value of
# `i*n + j` is a polynomial too, and `(i*n + j) // n` is i because j never reaches n, whatever n is.


def quotient(x: UOp, y: UOp) -> UOp | None:
    """`x // y` for a symbolic size y: what is a multiple of it leaves the quotient."""
    if (found := _split(x, y)) is None:
        return None
    whole, rest, inside = found
    return poly_node(whole) if inside else poly_node(whole) + poly_node(rest) // y if whole else None


def leftover(x: UOp, y: UOp) -> UOp | None:
    """`x % y` for a symbolic size y: what is a multiple of it goes."""
    if (found := _split(x, y)) is None:
        return None
    whole, rest, inside = found
    return poly_node(rest) if inside else poly_node(rest) % y if whole else None


def _split(x: UOp, y: UOp) -> tuple[Poly, Poly, bool] | None:
    """(q, r, whether 0 <= r < y) with x == q * y + r."""
    if y.op is Op.CONST or not is_symbolic(y) or x.dtype is not dtypes.int32 or least(y) <= 0:
        return None
    found = poly_quotient(poly(x), poly(y))
    if found is None:
        return None
    whole, rest = found
    low, high = _extreme(rest, False), _extreme(rest, True)
    inside = low is not None and high is not None and _at_least(low, 0) and _at_least(plus(poly(y), high, -1), 1)
    return whole, rest, inside


def ordered_by_sizes(x: UOp, y: UOp) -> UOp | None:
    """`x < y` where that is the same for all ranges and variables."""
    difference = plus(poly(x), poly(y), -1)
    if not any(a.op is Op.VARIABLE for m in difference for a in m):
        return None
    high = _extreme(difference, True)
    if high is not None and _at_least({m: -k for m, k in high.items()}, 1):
        return const(_BOOL, True)
    low = _extreme(difference, False)
    return const(_BOOL, False) if low is not None and _at_least(low, 0) else None


def _at_least(p: Poly, bound: int) -> bool:
    return least(size(poly_node(p))) >= bound


def _extreme(p: Poly, largest: bool) -> Poly | None:
    """The largest or smallest value of a polynomial over its ranges, as a polynomial over variables."""
    total: UOp | int = 0
    for m, k in p.items():
        sizes = [a for a in m if a.op is Op.VARIABLE or not a.ranges and is_symbolic(a)]
        others = [a for a in m if a not in sizes]
        if len(others) > 1 or any(a.vmin is None or a.vmin < 0 for a in sizes):
            return None
        term: UOp | int = k
        for a in sizes:
            term = a * term
        if others:
            bound = _bound(others[0], (k > 0) is largest)
            if bound is None:
                return None
            term = bound * term
        total = total + term
    return poly(total) if isinstance(total, UOp) else {(): total} if total else {}


def _bound(a: UOp, largest: bool) -> UOp | int | None:
    """The last or first value of an atom."""
    if a.op is Op.RANGE:
        extent = a.src[0]
        if not largest:
            return 0
        return int(extent.arg) - 1 if extent.is_const else extent - 1 if is_symbolic(extent) else None
    found = a.vmax if largest else a.vmin
    return None if found is None or abs(found) >= 1 << 30 else int(found)
