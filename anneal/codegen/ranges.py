"""Ranges and the indices over them: what every pass asks of RANGE nodes, and integer index expressions as affine forms.

An affine form is `sum(coefficient * atom) + constant` over int32 atoms. Rebuilding an index from its form puts the
terms that change least often first and the constant last, so that the linear program can lift the former out of loops
and share the sum between registers that differ in the constant alone.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterable, Mapping

from anneal.rewrite import Sum, joined, linear, rebuild, unflatten
from anneal.uop import Known, Nodes, Numbers, Op, Src, UOp, const, dtypes, ranged, toposort
from anneal.uop.sizes import Size, content, least, size

_I32 = dtypes.int32
_INT_MIN, _INT_MAX = _I32.min, _I32.max
ZERO = const(_I32, 0)

Form = tuple[Numbers, int]


def form(u: UOp) -> Form:
    """The terms and the constant of `u`.

    >>> i = UOp(Op.RANGE, dtypes.int32, (const(dtypes.int32, 8),), (0, "loop"))
    >>> terms, c = form((i * 4 + 3) * 2)
    >>> terms[i], c
    (8, 6)
    """
    whole = joined(Sum.of(u))
    return dict(whole.terms), whole.constant


def unform(terms: Mapping[UOp, int], constant: int, serial: int | None = None) -> UOp:
    """The expression of an affine form; with `serial` in an order: see `normalise`."""
    items = list(terms.items())
    if serial is not None:
        items.sort(key=lambda term: ((term[0].ranges & serial).bit_length(), -abs(term[1])))
    out = None
    for t, k in items:
        piece = t if k == 1 else t * k
        out = piece if out is None else out + piece
    if out is None:
        return const(_I32, constant)
    return out + constant if constant else out


def _bounded(u: UOp) -> bool:
    # Interval arithmetic falls back to the dtype's whole range when a value might wrap.
    return u.vmin is not None and u.vmax is not None and u.vmin > _INT_MIN and u.vmax < _INT_MAX


def normalise(u: UOp, serial: int = 0) -> UOp:
    """`u` rebuilt from its affine form; divisions and remainders by constants lose what divides evenly.

    `serial` masks the ids of ranges that become loops: terms that depend on them come last.
    """
    if u.dtype is not _I32 or u.op is Op.CONST:
        return u
    if u.op in (Op.IDIV, Op.MOD) and u.src[1].op is Op.CONST and int(u.src[1].arg) > 0 and _bounded(u.src[0]):
        c = int(u.src[1].arg)
        terms, constant = form(u.src[0])
        whole = {t: k // c for t, k in terms.items() if k % c == 0}
        left = unform({t: k for t, k in terms.items() if k % c}, constant % c, serial)
        if u.op is Op.MOD:
            return left % c if _bounded(left) else u
        inner = left // c
        if inner.op is not Op.CONST:
            whole[inner] = 1
        outer = unform(whole, constant // c, serial)
        return outer if _bounded(left) and _bounded(outer) else u
    if not linear(u):
        return u
    return unform(*form(u), serial)


ACCESSES = frozenset((Op.LOAD, Op.STORE))
SERIAL = frozenset(("reduce", "written"))  # kinds of ranges that are loops in the linear program


def extent(r: UOp) -> int:
    """The number of values of a range of constant extent."""
    return int(r.src[0].arg)


def ceil_div(n: Size, amount: int) -> Size:
    """n / amount rounded up: the number of parts of `amount` that cover `n`."""
    if isinstance(n, int):
        return -(-n // amount)
    return size((n if content(n) % amount == 0 else n + (amount - 1)) // amount)


def held(value: UOp, end: Size) -> UOp:
    """`value` held below `end`; at 0 where there is nothing below it."""
    below = Op.MIN(value, ZERO + (end - 1))
    return below if least(end) else Op.MAX(below, ZERO)


def of_kind(ranges: Iterable[UOp], *kinds: str) -> list[UOp]:
    """The ranges of some kinds: "workgroup", "vector", ..."""
    return [r for r in ranges if r.arg[1] in kinds]


def mask_of(ranges: Iterable[UOp]) -> int:
    """The ids of `ranges` as bits, as `UOp.ranges` has them."""
    mask = 0
    for r in ranges:
        mask |= 1 << r.arg[0]
    return mask


def serial_of(ranges: Iterable[UOp]) -> int:
    """The ids of those ranges that are loops in the linear program."""
    return mask_of(of_kind(ranges, *SERIAL))


def unused(ranges: Iterable[UOp]) -> int:
    """A number that none of the ranges has, nor one above it."""
    return 1 + max([r.arg[0] for r in ranges], default=-1)


def ranges_of(nodes: Iterable[UOp]) -> int:
    """The ids of all ranges that `nodes` depend on."""
    mask = 0
    for u in nodes:
        mask |= u.ranges
    return mask


def reads_stored(stores: Nodes, readers: Nodes | None = None) -> bool:
    """True if `readers`, or the stores themselves, read memory that `stores` write."""
    written = {s.src[0] for s in stores}
    return any(u.op is Op.LOAD and u.src[0] in written for u in toposort(stores if readers is None else readers))


# ---------------------------------------------------------------------------------------------------------------------
# Predicates of loads and stores: the condition under which an access is made, as its last source.


def conjunction(conditions: Nodes) -> Src:
    """The predicate that asks for all of `conditions`, as the last source of an access: none for none."""
    return (functools.reduce(operator.and_, conditions),) if conditions else ()


def predicate_of(access: UOp) -> Src:
    """The predicate of a load or a store, if it has one."""
    return access.src[2 if access.op is Op.LOAD else 3 :]


def only_if(conditions: Nodes, access: UOp) -> UOp:
    """A load or a store that is made under these conditions, too."""
    if not conditions:
        return access
    predicate = predicate_of(access)
    return access.replace(
        src=(*access.src[: len(access.src) - len(predicate)], *conjunction([*conditions, *predicate]))
    )


def conjuncts(predicate: UOp) -> Nodes:
    """The conditions that a predicate asks for, from left to right."""
    out, stack = [], [predicate]
    while stack:
        u = stack.pop()
        if u.op is Op.AND:
            stack += (u.src[1], u.src[0])
        else:
            out.append(u)
    return out


# ---------------------------------------------------------------------------------------------------------------------
# Subgroup matrices in the IR: values that depend on ranges of the kinds "row", "column" and "depth".
#
# As a value that depends on a vector range is a vector, so is one that depends on two of these a matrix, which the
# threads of a subgroup hold together: the left factor over (row, depth), the right one over (depth, column), their
# product over (row, column). Such a matrix is read and stored as a whole: the index of its LOAD or STORE is
# LANES(index of the first element, range, range, number of the thread in its subgroup), whose arg has the dtype and the
# steps between two elements along each range, of which one is 1.


SUBGROUP = 32  # threads that hold a matrix together


def is_fragment(index: UOp) -> bool:
    """Is `index` that of a whole matrix?"""
    return index.op is Op.LANES and len(index.src) == 4


def run_of(index: UOp) -> int | None:
    """The step between lanes of an access whose index `to_runs` made; None where lanes have indices of their own."""
    return int(index.arg) if index.op is Op.LANES and index.arg is not None else None


def is_product(u: UOp) -> bool:
    """Does the REDUCE `u` multiply matrices?"""
    return u.op is Op.REDUCE and u.src[-1].op is Op.RANGE and u.src[-1].arg[1] == "depth"


def factors(product: UOp) -> tuple[UOp, UOp]:
    """The two matrices of which the first term of a sum is the product, without the casts to the sum's dtype."""
    while product.op is Op.ADD:
        product = product.src[0]
    left, right = (x.src[0] if x.op is Op.CAST else x for x in product.src)
    return left, right


# ---------------------------------------------------------------------------------------------------------------------
# Kernel graphs rebuilt over new sources, with the indices of memory accesses in normal form.


def with_sources(u: UOp, src: Src, serial: int = 0) -> UOp:
    """`u` over `src`, with the index of a memory access and the numerator of a division in normal form.

    `serial` masks the ids of ranges that become loops.
    """
    if u.op in ACCESSES:
        src = (src[0], normalise(src[1], serial), *src[2:])
        return u.replace(src=src)
    if src == u.src:
        return u
    out = u.replace(src=src)
    if out.dtype is _I32 and out.op in (Op.IDIV, Op.MOD):
        out = normalise(out, serial)
    return out


def merged(sink: UOp, groups: Iterable[Src]) -> tuple[UOp, dict[Src, UOp]]:
    """The kernel with one range for each group of ranges, which become its digits; and those ranges by group. Each
    reduce runs over a group."""
    table: Known = {}
    wholes = {}
    for group in groups:
        sizes = [extent(r) for r in group]
        wholes[group] = group[0]
        if len(group) > 1:
            wholes[group] = whole = ranged(math.prod(sizes), group[-1].arg)
            table.update(zip(group, unflatten(whole, sizes), strict=True))

    def visit(u: UOp, src: Src) -> UOp:
        return u.replace(src=(src[0], wholes[u.src[1:]])) if u.op is Op.REDUCE else with_sources(u, src)

    return rebuild(sink, visit, table), wholes


def substituted(root: UOp, table: Known, serial: int = 0) -> UOp:
    """The graph with the nodes in `table` replaced, also below reduces, and the indices that change in normal form.

    `table` also gets what became of the other nodes: another graph shares the work.
    """
    return rebuild(root, lambda u, src: u if src == u.src else with_sources(u, src, serial), table)
