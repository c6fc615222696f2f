"""Sizes that are known only when a program runs: integers, or int32 expressions over VARIABLEs.

A size in a shape is an `int` or a node: a polynomial over variables (and over quotients and remainders of such), in one
canonical form, so that equal sizes are the same node. A size that folds to a constant is an int. While a program
is built the variables are BIND nodes, which carry the value of this run; a plan knows VARIABLEs alone.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from anneal.errors import ShapeError
from anneal.uop.caches import Recent
from anneal.uop.dtype import dtypes
from anneal.uop.node import Ints, Known, Src, UOp, const, toposort
from anneal.uop.ops import ALU, SYMBOLIC, Op, Shape

Size = int | UOp
Sizes = Mapping[str, int]  # the values of Variables, by name
Monomial = Src
Poly = dict[Monomial, int]

_I32 = dtypes.int32
_LIMIT = 20_000
_VARIABLES = frozenset((Op.VARIABLE, Op.BIND))


def variable(name: str, low: int, high: int) -> UOp:
    """The variable `name`, an integer from `low` to `high`."""
    if not isinstance(name, str) or not name.isidentifier():
        raise ShapeError(f"Variable: a name is an identifier, not {name!r}")
    if not 0 <= low <= high < 2**31:
        raise ShapeError(f"Variable {name}: bounds are integers with 0 <= min <= max, not {low} and {high}")
    SYMBOLIC.seen = True
    return UOp(Op.VARIABLE, _I32, (), (name, int(low), int(high)))


def bind(u: UOp, value: int) -> UOp:
    """The variable `u` with the value it has in this run."""
    if u.op is not Op.VARIABLE:
        raise ShapeError(f"bind: only a Variable takes a value, not {size_text(u)}")
    name, low, high = u.arg
    number = operator.index(value)
    if not low <= number <= high:
        raise ShapeError(f"Variable {name} runs from {low} to {high}: {number} is outside")
    return UOp(Op.BIND, _I32, (), (name, low, high, number))


# -- polynomials ------------------------------------------------------------------------------------------------------

_POLY: Recent[UOp, Poly] = Recent(_LIMIT)


def _rank(u: UOp) -> tuple[int, str]:
    """An order of atoms that is the same in every process, and for a variable with and without a value."""
    if u.op in _VARIABLES:
        return (0, u.arg[0])
    if u.op is Op.RANGE:
        return (1, f"{u.arg[0]:08}{u.arg[1]}")
    return (2, size_text(u)) if not u.ranges and is_symbolic(u) else (3, u.key.hex())


def _times(a: Poly, b: Poly) -> Poly:
    out: Poly = {}
    for m, j in a.items():
        for n, k in b.items():
            both = tuple(sorted((*m, *n), key=_rank)) if m and n else m or n
            out[both] = out.get(both, 0) + j * k
    return {m: k for m, k in out.items() if k}


def plus(a: Poly, b: Poly, factor: int = 1) -> Poly:
    """a + factor * b."""
    out = dict(a)
    for m, k in b.items():
        out[m] = out.get(m, 0) + factor * k
    return {m: k for m, k in out.items() if k}


def poly(u: Size) -> Poly:
    """`u` as a polynomial: monomial -> coefficient; what is neither sum nor product is an atom. Do not change it."""
    if not isinstance(u, UOp):
        return {(): u} if u else {}
    found = _POLY[u]
    if found is not None:
        return found
    for n in toposort(u, until=lambda n: _POLY[n] is not None or n.op not in _ARITHMETIC or n.dtype is not _I32):
        op = n.op
        a = _known(n.src[0])
        made: Poly
        if op is Op.NEG:
            made = {m: -k for m, k in a.items()}
        elif op in (Op.IDIV, Op.MOD):
            symbolic = not n.ranges and is_symbolic(n)
            made = _division(n, poly_node(a), poly_node(_known(n.src[1]))) if symbolic else {(n,): 1}
        else:
            b = _known(n.src[1])
            made = _times(a, b) if op is Op.MUL else plus(a, b, 1 if op is Op.ADD else -1)
        _POLY[n] = made
    return _known(u)


_ARITHMETIC = frozenset((Op.ADD, Op.SUB, Op.NEG, Op.MUL, Op.IDIV, Op.MOD))


def _known(u: UOp) -> Poly:
    found = _POLY[u]
    if found is None:
        found = _POLY[u] = {(u,): 1} if u.op is not Op.CONST else {(): int(u.arg)} if u.arg else {}
    return found


def _division(n: UOp, a: UOp, b: UOp) -> Poly:
    exact = poly_quotient(_known(n.src[0]), _known(n.src[1]))
    if exact is not None and not exact[1]:
        return exact[0] if n.op is Op.IDIV else {}
    u = n.op(a, b)
    if u.op is n.op or u.op not in (Op.CONST, Op.ADD, Op.MUL, Op.NEG, Op.SUB):
        return {(u,): 1}
    # folding took something out of the quotient: what is left is smaller
    return poly(u)


def poly_node(p: Poly) -> UOp:
    """The node of a polynomial: monomials of the highest degree first, the constant last."""
    out: UOp | None = None
    for m in sorted(p, key=lambda m: (-len(m), [_rank(a) for a in m])):
        if not m:
            continue
        term = math.prod(m[1:], start=m[0])
        if p[m] != 1:
            term = term * p[m]
        out = term if out is None else out + term
    last = const(_I32, p.get((), 0))
    return last if out is None else out + last


def poly_quotient(a: Poly, d: Poly) -> tuple[Poly, Poly] | None:
    """(q, r) with a == q * d + r, by d's leading monomial; None where d is 0."""
    if not d:
        return None
    lead = max(d, key=lambda m: (len(m), [_rank(x) for x in m]))
    k = d[lead]
    rest, q = dict(a), cast(Poly, {})
    for _ in range(256):
        for m, c in rest.items():
            if not c % k and (left := _without(m, lead)) is not None:
                break
        else:
            return q, rest
        q[left] = q.get(left, 0) + c // k
        rest = plus(rest, _times({left: c // k}, d), -1)
    return None


def _without(m: Monomial, part: Monomial) -> Monomial | None:
    left = list(m)
    for a in part:
        if a not in left:
            return None
        left.remove(a)
    return tuple(left)


# -- sizes ------------------------------------------------------------------------------------------------------------


def size(n: Any) -> Size:
    """A size in its canonical form; an int where it is constant."""
    if type(n) is int:
        return n
    if not isinstance(n, UOp):
        return n.node if isinstance(n, Count) else operator.index(n)
    return _canonical(n)


@functools.lru_cache(_LIMIT)
def _canonical(n: UOp) -> Size:
    if n.is_const:
        return int(n.arg)
    if n.dtype is not _I32 or n.shape or not is_symbolic(n):
        raise ShapeError(f"a size is an integer or made of Variables, not {n!r}")
    u = poly_node(poly(n))
    return u if u.vmin != u.vmax else int(u.vmin or 0)


def sizes(shape: Shape) -> Shape:
    """The sizes of `shape`, each in its canonical form."""
    for n in shape:
        if n.__class__ is not int:
            return tuple([size(n) for n in shape])
    return shape


def product(shape: Iterable[Any]) -> Any:
    """The number of elements of `shape`: an int, or a node."""
    out: Any = math.prod(shape)
    return out if out.__class__ is int else size(out)


def divided_size(a: Size, b: Size) -> Size | None:
    """`a / b` where b divides a for every value of their variables; None where that is not so or not known."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b if b and a % b == 0 else None
    found = poly_quotient(poly(a), poly(b))
    if found is None or found[1]:
        return None
    return size(poly_node(found[0]))


def size_node(n: Size) -> UOp:
    """A size as a node."""
    return n if isinstance(n, UOp) else const(_I32, n)


def ranged(count: Size, arg: Any) -> UOp:
    """The RANGE of so many values; `arg` is its number and its kind."""
    return UOp(Op.RANGE, _I32, (size_node(count),), arg)


def most(n: Size) -> int:
    """The largest value of a size."""
    return n if isinstance(n, int) else int(n.vmax or 0)


def least(n: Size) -> int:
    """The smallest value of a size."""
    return n if isinstance(n, int) else int(n.vmin or 0)


def content(n: Size) -> int:
    """The largest constant that divides a size whatever its variables are."""
    return n if isinstance(n, int) else math.gcd(*poly(n).values())


def widest(shape: Sequence[Size]) -> Ints:
    """The largest that the sizes of `shape` can be: how memory of that shape is laid out, whatever its sizes are in a
    run.

    Strides are constants then, and what an axis leaves free lies at its end.
    """
    return tuple([most(n) for n in shape])


class Count(int):
    """A number of elements that depends on variables: as an int the largest it can be, equal only to the same
    expression.
    """

    node: UOp

    def __new__(cls, node: UOp, largest: int) -> Count:
        made = super().__new__(cls, largest)
        made.node = node
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Count) and other.node is self.node

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.node)

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, UOp):
            return self.node * other
        return _count(size(self.node * (other.node if isinstance(other, Count) else other)), int(self) * int(other))

    __rmul__ = __mul__


def _count(n: Size, largest: int) -> int:
    return n if isinstance(n, int) else Count(n, largest)


def count(shape: Sequence[Any]) -> int:
    """The number of elements of `shape` for decisions: an int, or a Count."""
    total = 1
    for n in shape:
        if n.__class__ is not int:
            return _count(product(shape), math.prod(widest(shape)))
        total *= n
    return total


# -- what holds sizes -------------------------------------------------------------------------------------------------


@functools.lru_cache(_LIMIT)
def is_symbolic(u: UOp) -> bool:
    """True if `u` is made of variables and constants alone."""
    if u.ranges or u.shape:
        return False
    return all(x.op in _LEAVES or (x.src and x.op in _WITHIN) for x in toposort(u))


_LEAVES = frozenset((Op.CONST, Op.VARIABLE, Op.BIND))
_EITHER = (Op.MAX, Op.MIN)
_WITHIN = _ARITHMETIC.union(_EITHER)


def decided(u: UOp) -> bool | None:
    """True if a size is not 0, or a comparison of sizes holds; None for any other node.

    Raises ShapeError where that depends on the variables' values.
    """
    test, truth = u, True
    while test.op is Op.NOT:
        test, truth = test.src[0], not truth
    if test.op in (Op.LT, Op.EQ, Op.NE) and is_symbolic(test.src[0]) and is_symbolic(test.src[1]):
        low, high = range_of(test.src[0] - test.src[1])
        if test.op is Op.LT:
            found = True if high < 0 else False if low >= 0 else None
        else:
            equal = False if low > 0 or high < 0 else True if low == high == 0 else None
            found = equal if equal is None or test.op is Op.EQ else not equal
    elif u.dtype is _I32 and is_symbolic(u):
        low, high = range_of(u)
        found = True if low > 0 or high < 0 else None
    else:
        return None
    if found is None:
        raise ShapeError(
            f"whether {size_text(u, values=False)} holds depends on the values of its Variables; give them narrower "
            "bounds, or the sizes another form"
        )
    return found is truth


def range_of(n: Size, ways: int = 64) -> tuple[int, int]:
    """The smallest and the largest value of a size: of its canonical form, in which equal parts have met.

    A quotient by a number k moves with what it divides: k * (a // k) is a, less a remainder below k. What all parts
    have as a factor is one. A minimum is one of two: up to `ways` such choices are looked at.

    >>> n, m = variable("n", 2, 9), variable("m", 1, 4)
    >>> range_of(n - n // 2), range_of(n - (n + 1) // 2 * 2), range_of(m * n - m)
    ((1, 5), (-1, 0), (1, 32))
    >>> range_of(n - Op.MIN(n, const(_I32, 5)))
    (0, 4)
    """
    n = size(n)
    low, high = least(n), most(n)
    if isinstance(n, UOp) and low < high:
        shared = set.intersection(*[set(m) for m in poly(n)])
        if shared and len(poly(n)) > 1:
            factor = min(shared, key=_rank)
            ends = [a * b for a in range_of(factor) for b in range_of(cast(Size, divided_size(n, factor)))]
            low, high = max(low, min(ends)), min(high, max(ends))
        ways //= 2 * len([m for m in poly(n) if m and m[0].op in _EITHER]) or 1
        for m, c in poly(n).items():
            rest = {other: v for other, v in poly(n).items() if other != m}
            if len(m) == 1 and m[0].op in _EITHER and ways:
                one, two = [range_of(size(poly_node(plus(rest, poly(x), c))), ways) for x in m[0].src]
                pick = max if (c > 0) is (m[0].op is Op.MAX) else min
                low, high = max(low, pick(one[0], two[0])), min(high, pick(one[1], two[1]))
            if len(m) == 1 and m[0].op is Op.IDIV and m[0].src[1].op is Op.CONST and (k := int(m[0].src[1].arg)) > 0:
                # k * n = c * (a - r) + k * rest, with r from 0 to k - 1
                begin, end = range_of(size(poly_node(plus(plus({}, rest, k), poly(m[0].src[0]), c))))
                spare = c * (k - 1)
                low = max(low, -((max(spare, 0) - begin) // k))
                high = min(high, (end - min(spare, 0)) // k)
    return low, high


def symbolic_arg(arg: Any) -> bool:
    """True if an arg, or a tuple in it, holds a node."""
    for a in arg if arg.__class__ is tuple else (arg,):  # a generator would take twice as long
        if a.__class__ is UOp or (a.__class__ is tuple and symbolic_arg(a)):
            return True
    return False


def any_symbolic(nodes: Iterable[UOp]) -> bool:
    """True if some node is a variable, bound or not, or has a size of variables."""
    for u in nodes:  # noqa: SIM110  # for the same reason
        if u.op in _VARIABLES or (u.arg.__class__ is tuple and symbolic_arg(u.arg)):
            return True
    return False


def mapped(arg: Any, f: Callable[[UOp], Any]) -> Any:
    """`arg` with every node in it replaced."""
    if arg.__class__ is tuple:
        return tuple([mapped(a, f) for a in arg])
    return f(arg) if isinstance(arg, UOp) else arg


def variables_of(u: Size) -> Src:
    """The variables, with or without a value, that a size is made of."""
    if not isinstance(u, UOp):
        return ()
    return tuple([x for x in toposort(u) if x.op in _VARIABLES])


def bindings_of(u: Size) -> Src:
    """The bound variables that a size is made of."""
    return tuple([x for x in variables_of(u) if x.op is Op.BIND])


def unbound(u: UOp, values: dict[str, int]) -> Size:
    """A size without the values of this run, which are noted in `values`.

    Raises ShapeError for a variable without a value, or with two.
    """

    def free(x: UOp) -> UOp:
        if x.op is Op.VARIABLE:
            raise ShapeError(f"Variable {x.arg[0]} has no value here: use {x.arg[0]}.bind(value) in the sizes")
        note_value(x, values)
        return free_of(x)

    return _with_variables(u, free)


def free_of(x: UOp) -> UOp:
    """A variable, bound or not, without its value."""
    return UOp(Op.VARIABLE, _I32, (), x.arg[:3])


def with_variables(arg: Any, f: Callable[[UOp], UOp]) -> Any:
    """`arg` with `f` applied to the variables of the sizes in it, bound or not."""
    return mapped(arg, lambda u: _with_variables(u, f))


def _with_variables(u: UOp, f: Callable[[UOp], UOp]) -> Size:
    new: Known = {}
    for x in toposort(u):  # rewrite/walk.py is a floor above
        if x.op in _VARIABLES:
            new[x] = f(x)
        else:
            new[x] = x.replace(src=tuple([new[s] for s in x.src])) if x.src else x
    return size(new[u])


def note_value(x: UOp, values: dict[str, int]) -> None:
    """Note the value of a BIND. Raises ShapeError if the variable has another already."""
    name, value = x.arg[0], x.arg[3]
    if values.setdefault(name, value) != value:
        raise ShapeError(
            f"Variable {name} has two values in one program, {values[name]} and {value}: realize one first"
        )
    if isinstance(values, Values) and values.tags.setdefault(name, x.tag) != x.tag:
        raise ShapeError(
            f"Variable {name} is an argument of a jit function and is also bound to {value}, which a replay would not "
            "change: take all that depends on it from the arguments"
        )


class Values(dict[str, int]):
    """Values of variables, and by which kind of binding each came."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: dict[str, Any] = {}


def bound_to(values: Sizes, tag: Any = None, free: bool = False) -> Callable[[UOp], UOp]:
    """A function that binds a variable, bound or not (`free`: only one that is not), to its value in `values`; `tag`
    tells these bindings from others.
    """

    def bound(x: UOp) -> UOp:
        if x.arg[0] not in values or (free and x.op is Op.BIND):
            return x
        return UOp(Op.BIND, _I32, (), (*x.arg[:3], values[x.arg[0]]), tag)

    return bound


def bound_sizes(arg: Any, values: Sizes, tag: Any = None, free: bool = False) -> Any:
    """`arg` with the variables of its sizes bound as `bound_to` binds them."""
    return with_variables(arg, bound_to(values, tag, free))


# -- text and values --------------------------------------------------------------------------------------------------

# The precedence of operators in the text of a size.
_BINDS = {Op.LT: 0, Op.EQ: 0, Op.NE: 0, Op.ADD: 1, Op.SUB: 1, Op.MUL: 2, Op.IDIV: 2, Op.MOD: 2}


def size_text(u: Size, values: bool = True) -> str:
    """A size as it is read: `n*64`; a bound variable with its value: `n=5`."""
    if not isinstance(u, UOp):
        return str(u)
    text: dict[UOp, tuple[str, int]] = {}
    for x in toposort(u):
        op = x.op
        if op is Op.CONST:
            text[x] = (str(x.arg), 3 if x.arg >= 0 else 0)
        elif op is Op.VARIABLE or op is Op.BIND:
            text[x] = (x.arg[0] + (f"={x.arg[3]}" if values and op is Op.BIND else ""), 3)
        elif op is Op.ADD and x.src[1].is_const and x.src[1].arg < 0:
            text[x] = (f"{text[x.src[0]][0]} - {-x.src[1].arg}", 1)
        elif op in _BINDS:
            (a, p), (b, q) = text[x.src[0]], text[x.src[1]]
            mine = _BINDS[op]
            a = f"({a})" if p < mine else a
            apart = op is not Op.ADD and not (op is x.src[1].op is Op.MUL)
            b = f"({b})" if q < mine or (q == mine and apart) else b
            text[x] = (f"{a}{op.sign}{b}" if mine == 2 else f"{a} {op.sign} {b}", mine)
        elif op is Op.NEG:
            text[x] = (f"-({text[x.src[0]][0]})", 0)
        else:
            text[x] = (f"{op.name.lower()}({', '.join(text[s][0] for s in x.src)})", 3)
    return text[u][0]


_PYTHON = {op: f"({{}}{op.sign}{{}})" for op in ALU if op.sign} | {
    Op.NEG: "(-{})", Op.MIN: "min({},{})", Op.MAX: "max({},{})", Op.WHERE: "({1} if {0} else {2})", Op.NOT: "(not {})",
}  # fmt: skip


@functools.lru_cache(4096)
def evaluator(wanted: tuple[Size, ...]) -> Callable[[Sizes], Ints]:
    """A function that gives the values of sizes from those of their variables.

    >>> n = variable("n", 1, 8)
    >>> evaluator((n * 64, 3))({"n": 5})
    (320, 3)
    """
    parts = []
    for u in wanted:
        text: dict[UOp, str] = {}
        for x in toposort(u) if isinstance(u, UOp) else ():
            if x.is_const:
                text[x] = repr(x.arg)
            elif x.op in _VARIABLES:
                text[x] = f"v[{x.arg[0]!r}]"
            else:
                text[x] = _PYTHON[x.op].format(*[text[s] for s in x.src])
        parts.append(text[u] if isinstance(u, UOp) else repr(int(u)))
    return cast(Callable[[Sizes], Ints], eval(f"lambda v: ({''.join(p + ', ' for p in parts)})"))
