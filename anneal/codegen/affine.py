"""Integer index expressions as affine forms, and ranges merged where every index allows it.

An affine form is `sum(coefficient * atom) + constant` over int32 atoms. Rebuilding an index from its form puts the terms
that change least often first and the constant last, so that the linear program can lift the former out of loops and
share the sum between registers that differ in the constant alone.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence

from anneal.uop import Op, UOp, const, dtypes, toposort

__all__ = [
    "Substitution",
    "collapse",
    "conjunction",
    "extent",
    "form",
    "normalise",
    "rebuild",
    "replaced",
    "unform",
]

_I32 = dtypes.int32
_LINEAR = frozenset((Op.ADD, Op.SUB, Op.NEG, Op.MUL))
_INT_MIN, _INT_MAX = _I32.min, _I32.max

Form = tuple[dict[UOp, int], int]


def _is_linear(u: UOp) -> bool:
    """Is `u` an int32 node that an affine form looks through?"""
    if u.dtype is not _I32 or u.op not in _LINEAR:
        return False
    return u.op is not Op.MUL or u.src[1].op is Op.CONST or u.src[0].op is Op.CONST


def form(u: UOp) -> Form:
    """The terms and the constant of `u`.

    >>> i = UOp(Op.RANGE, dtypes.int32, (const(dtypes.int32, 8),), (0, "loop"))
    >>> terms, c = form((i * 4 + 3) * 2)
    >>> terms[i], c
    (8, 6)
    """
    terms: dict[UOp, int] = {}
    constant = 0
    stack: list[tuple[UOp, int]] = [(u, 1)]
    while stack:
        n, k = stack.pop()
        op = n.op
        if op is Op.CONST:
            constant += k * int(n.arg)
        elif not _is_linear(n):
            terms[n] = terms.get(n, 0) + k
        elif op is Op.ADD:
            stack.append((n.src[1], k))
            stack.append((n.src[0], k))
        elif op is Op.SUB:
            stack.append((n.src[1], -k))
            stack.append((n.src[0], k))
        elif op is Op.NEG:
            stack.append((n.src[0], -k))
        elif n.src[1].op is Op.CONST:
            stack.append((n.src[0], k * int(n.src[1].arg)))
        else:
            stack.append((n.src[1], k * int(n.src[0].arg)))
    terms = {t: k for t, k in terms.items() if k}
    if any(t.op is Op.MOD for t in terms):
        terms, extra = _join_digits(terms)
        constant += extra
    return terms, constant


def _join_digits(terms: dict[UOp, int]) -> Form:
    """`(x // c) * c*k + (x % c) * k` is `x * k`; likewise with x = y // s, whose quotient reads `y // (s*c)`."""
    work = [t for t in terms if t.op is Op.MOD and t.src[1].op is Op.CONST]
    while work:
        digit = work.pop()
        k = terms.get(digit)
        if k is None:
            continue
        x, c = digit.src[0], int(digit.src[1].arg)
        for t in terms:
            if t.op is not Op.IDIV or t.src[1].op is not Op.CONST or terms[t] != k * c:
                continue
            y, d = t.src[0], int(t.src[1].arg)
            if not (
                y is x
                and d == c
                or x.op is Op.IDIV
                and x.src[0] is y
                and x.src[1].op is Op.CONST
                and d == int(x.src[1].arg) * c
            ):
                continue
            del terms[t], terms[digit]
            terms[x] = terms.get(x, 0) + k
            if x.op is Op.MOD or _is_linear(x):
                # The joined value may itself be a sum or a digit.
                return form(_rebuild(terms.items(), 0))
            work += [t for t in terms if t.op is Op.MOD and t.src[1].op is Op.CONST]
            break
    return terms, 0


def _rebuild(terms: Iterable[tuple[UOp, int]], constant: int) -> UOp:
    out: UOp | None = None
    for t, k in terms:
        piece = t if k == 1 else t * k
        out = piece if out is None else out + piece
    if out is None:
        return const(_I32, constant)
    return out + constant if constant else out


def unform(terms: Mapping[UOp, int], constant: int) -> UOp:
    """The expression of an affine form."""
    return _rebuild(terms.items(), constant)


def _bounded(u: UOp) -> bool:
    # Interval arithmetic falls back to the dtype's whole range when a value might wrap.
    return u.vmin is not None and u.vmax is not None and u.vmin > _INT_MIN and u.vmax < _INT_MAX


def _serial_last(serial: int) -> Callable[[tuple[UOp, int]], tuple[int, int]]:
    def key(term: tuple[UOp, int]) -> tuple[int, int]:
        return (term[0].ranges & serial).bit_length(), -abs(term[1])

    return key


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
        rest = {t: k for t, k in terms.items() if k % c}
        key = _serial_last(serial)
        left = _rebuild(sorted(rest.items(), key=key), constant % c)
        if u.op is Op.MOD:
            return left % c if _bounded(left) else u
        inner = left // c
        if inner.op is not Op.CONST:
            whole[inner] = 1
        outer = _rebuild(sorted(whole.items(), key=key), constant // c)
        return outer if _bounded(left) and _bounded(outer) else u
    if not _is_linear(u):
        return u
    terms, constant = form(u)
    return _rebuild(sorted(terms.items(), key=_serial_last(serial)), constant)


class Substitution:
    """Replaces nodes in one graph after another; what these share is rewritten once, and indices are normalised.

    Only nodes whose `ranges` meet `mask` are visited: the others cannot hold what is replaced.
    """

    __slots__ = ("_mask", "_new", "_serial")

    def __init__(self, table: Mapping[UOp, UOp], mask: int, serial: int = 0) -> None:
        self._new: dict[UOp, UOp] = dict(table)
        self._mask, self._serial = mask, serial

    def __call__(self, root: UOp) -> UOp:
        new, mask, serial = self._new, self._mask, self._serial

        def untouched(u: UOp) -> bool:
            return u in new or not u.ranges & mask and u.op not in _VISITED

        for u in toposort((root,), until=untouched):
            if u not in new:
                new[u] = rebuild(u, tuple([new.get(s, s) for s in u.src]), serial)
        return new.get(root, root)


_VISITED = frozenset((Op.SINK, Op.STORE, Op.REDUCE))  # their `ranges` do not tell what is below


def replaced(sink: UOp, table: Mapping[UOp, UOp]) -> UOp:
    """The whole graph with the nodes in `table` replaced, also below reduces; indices are normalised on the way."""
    new: dict[UOp, UOp] = dict(table)
    for u in toposort((sink,), until=lambda u: u in new):
        new[u] = rebuild(u, tuple([new[s] for s in u.src]))
    return new[sink]


def extent(r: UOp) -> int:
    """How many values a range takes, if no data decide it."""
    return int(r.src[0].arg)


def conjunction(conditions: Sequence[UOp]) -> tuple[UOp, ...]:
    """The gate that asks for all of `conditions`, as the last source of an access: none for none."""
    return (functools.reduce(operator.and_, conditions),) if conditions else ()


def rebuild(u: UOp, src: tuple[UOp, ...], serial: int = 0) -> UOp:
    """`u` over `src`, with the index of a memory access and the numerator of a division in normal form."""
    op = u.op
    if op is Op.LOAD or op is Op.STORE:
        src = (src[0], normalise(src[1], serial), *src[2:])
        return u if src == u.src else UOp(op, u.dtype, src, u.arg, u.tag)
    if src == u.src:
        return u
    out = u.replace(src=src)
    if out.dtype is _I32 and out.op in (Op.IDIV, Op.MOD):
        out = normalise(out, serial)
    return out


# -- merging ranges ---------------------------------------------------------------------------------------------------


def _roots(order: list[UOp]) -> list[UOp]:
    """The int32 expressions over ranges that something other than affine arithmetic uses."""
    found: dict[UOp, None] = {}
    for u in order:
        if _is_linear(u) or u.op is Op.RANGE:
            continue
        sources = u.src[:1] if u.op is Op.REDUCE else u.src
        for s in sources:
            if s.ranges and s.dtype is _I32 and (s.op is Op.RANGE or _is_linear(s)):
                found[s] = None
    return list(found)


def collapse(sink: UOp) -> UOp:
    """Merge neighbouring ranges wherever every index uses them as one: `i*N + j` over (M, N) is `f` over M*N.

    Only ranges of constant extent take part. Of the loop ranges all neighbours are candidates, of the reduce ranges
    those that stand side by side in every reduce that has one of them.
    """
    order = toposort((sink,))
    ranges = sorted([u for u in order if u.op is Op.RANGE and u.src[0].op is Op.CONST], key=lambda r: r.arg[0])
    if len(ranges) < 2:
        return sink
    data_dependent = {u for r in order if r.op is Op.RANGE and r.src[0].op is not Op.CONST for u in (r,)}
    forms = [form(r)[0] for r in _roots(order)]
    reduces = {u.src[1:] for u in order if u.op is Op.REDUCE}
    for r in data_dependent:
        forms.append(form(r.src[0])[0])
    pairs: list[tuple[UOp, UOp]] = []
    loops = [r for r in ranges if r.arg[1] == "loop"]
    pairs += zip(loops, loops[1:], strict=False)
    for group in reduces:
        pairs += zip(group, group[1:], strict=False)
    users: dict[UOp, list[dict[UOp, int]]] = {r: [] for r in ranges}
    for f in forms:
        for t in f:
            if t in users:
                users[t].append(f)
    parent: dict[UOp, UOp] = {}  # merged-away range -> the range that took it in
    extent = {r: int(r.src[0].arg) for r in ranges}
    # Innermost pairs first: after (b, c) became c with extent b*c, (a, b) asks about (a, c).
    for a, b in reversed(pairs):
        if a not in extent or b not in extent or a in parent or a is b:
            continue
        while b in parent:
            b = parent[b]
        if a.arg[1] != b.arg[1]:
            continue
        n = extent[b]
        if a.arg[1] == "reduce" and not _always_adjacent(a, b, reduces, parent):
            continue
        if all(f.get(a, 0) == n * f.get(b, 0) for f in users[a]) and all(
            f.get(a, 0) == n * f.get(b, 0) for f in users[b]
        ):
            if not users[a]:
                continue
            parent[a] = b
            extent[b] = n * extent[a]
    if not parent:
        return sink
    table: dict[UOp, UOp] = {a: const(_I32, 0) for a in parent}
    mask = 0
    for b in set(parent.values()):
        if b not in parent:
            table[b] = UOp(Op.RANGE, _I32, (const(_I32, extent[b]),), b.arg)
    for r in table:
        mask |= 1 << r.arg[0]
    return _merge(sink, table, parent, mask)


def _always_adjacent(a: UOp, b: UOp, reduces: set[tuple[UOp, ...]], parent: dict[UOp, UOp]) -> bool:
    for group in reduces:
        live = [r for r in group if r not in parent]
        if (a in live) != (b in live):
            return False
        if a in live and live.index(b) - live.index(a) != 1:
            return False
    return True


def _merge(sink: UOp, table: dict[UOp, UOp], parent: dict[UOp, UOp], mask: int) -> UOp:
    new: dict[UOp, UOp] = dict(table)
    for u in toposort((sink,), until=lambda u: u in new):
        if u.op is Op.REDUCE:
            src = (new[u.src[0]], *[new[r] for r in u.src[1:] if r not in parent])
            new[u] = UOp(Op.REDUCE, u.dtype, src, u.arg, u.tag)
        elif u.ranges & mask or u.op is Op.SINK or u.op is Op.STORE:
            new[u] = rebuild(u, tuple([new[s] for s in u.src]))
        else:
            # A node outside the mask can still hold a closed reduce whose ranges merged.
            new[u] = rebuild(u, tuple([new[s] for s in u.src]))
    return new[sink]
