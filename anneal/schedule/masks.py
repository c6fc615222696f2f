"""Masks: elements of a materialised value that are one number because indices alone say so (those above a diagonal)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from anneal.rewrite import over, rebuild
from anneal.schedule.fusion import LEAVES, REORDERED, WHOLE, base
from anneal.uop import ALU, MOVEMENT, Nodes, Numbers, Op, Src, UOp, alu, dtypes, toposort

# Tags of a stored `where`: the lanes are dead for which it chooses its first value, or its second.
DEAD = ("dead if", "dead else")
_OPAQUE = WHOLE | {Op.SEGMENT_SUM}  # they read memory as it lies
_INDICES = ALU | MOVEMENT | {Op.IOTA, Op.CONST}
_MOST = 64  # nodes of a condition, and ops on what it chooses

Choice = tuple[UOp, bool]  # a condition, and its result


class Mask(NamedTuple):
    """A value is the constant `number` wherever `condition`, made of IOTAs and constants, is `when`."""

    condition: UOp
    when: bool
    number: UOp

    def on(self, u: UOp, dead: bool = False) -> UOp:
        """`u` with the number where the mask says so: the same values, if the mask is that of `u`."""
        first, second = (self.number, u) if self.when else (u, self.number)
        return UOp(Op.WHERE, u.dtype, (self.condition, first, second), tag=DEAD[not self.when] if dead else None)


def dead_side(value: UOp) -> int | None:
    """The source of a stored `where` whose lanes are dead, if it is tagged so."""
    return 1 + DEAD.index(value.tag) if value.op is Op.WHERE and value.tag in DEAD else None


def where(condition: UOp, a: UOp, b: UOp, tag: object) -> UOp:
    """`where(condition, a, b)`; if it is tagged, so is what it is simplified to, as long as that is the same choice."""
    out = alu(Op.WHERE, (condition, a, b), tag)
    if tag is not None and out.tag is None and out.op is Op.WHERE and out.src[0] is condition:
        return UOp(Op.WHERE, out.dtype, out.src, None, tag)
    return out


def masks_of(order: Nodes, kept: Iterable[UOp]) -> dict[UOp, Mask]:
    """The masks of those nodes of `kept` that have one and that only kernels with loops of their own read.

        a = where(i < j, 0, x), materialised    consumers read where(i < j, 0, a) in a's place

    A consumer's kernel then shows the elements that it need not read, and a product over masked elements its zero
    terms, so that code generation leaves both out (`anneal/codegen/skip.py`). The masked elements are dead lanes, since
    no kernel reads them any more: their producer need not compute or store them, and stores a `where` tagged DEAD. A
    `where` that is simplified hands its tag on.
    """
    if not any(u.op is Op.WHERE for u in order):
        return {}
    opaque = {base(s) for u in order if u.op in _OPAQUE for s in u.src}
    return {u: m for u in kept if u not in opaque and base(u) not in opaque and (m := _mask(u)) is not None}


def _mask(u: UOp) -> Mask | None:
    # what is made of the choice: other numbers, another order, choices of the same number (dropout)
    chain: list[UOp] = []
    x = u
    while len(chain) <= _MOST:
        others = [s for s in x.src if not s.is_const]
        if x.op is Op.WHERE:
            if len(others) != 2 or x.src[0].is_const:
                return None
            if _is_pattern(x.src[0]):
                break
        elif x.op not in REORDERED and x.op not in ALU or len(others) != 1 or x.op in (Op.CAST, Op.BITCAST):
            return None
        chain.append(x)
        x = others[-1]
    else:
        return None
    condition, a, b = x.src
    number = a if a.is_const else b
    for v in reversed(chain):
        if v.op is Op.WHERE:
            if number not in v.src:
                return None
        elif v.op in ALU:
            number = alu(v.op, tuple([s if s.is_const else number for s in v.src]))
        elif v.op is not Op.CONTIGUOUS:
            condition = UOp(v.op, dtypes.bool_, (condition,), v.arg)
    return Mask(condition, a.is_const, number) if number.is_const and number.dtype is u.dtype else None


def _is_pattern(condition: UOp) -> bool:
    """True if indices alone decide it."""
    if not condition.shape or condition.op in LEAVES:
        return False
    seen, stack = {condition}, [condition]
    while stack:
        u = stack.pop()
        if u.op not in _INDICES or u.dtype.is_float:
            return False
        for s in u.src:
            if s not in seen:
                seen.add(s)
                stack.append(s)
        if len(seen) > _MOST:
            return False
    return True


def read_elements(sink: UOp) -> UOp | None:
    """A kernel that stores 1 where the results of `sink` are read, and 0 elsewhere; None if all are read."""
    if all(dead_side(s.src[2]) is None for s in sink.src):
        return None
    stores = []
    for s in sink.src:
        one = s.src[2].const_like(1)
        dead = dead_side(s.src[2])
        if dead is not None:
            zero = one.const_like(0)
            one = Op.WHERE(s.src[2].src[0], *((zero, one) if dead == 1 else (one, zero)))
        stores.append(s.replace(src=(*s.src[:2], one, *s.src[3:])))
    return UOp(Op.SINK, sink.dtype, tuple(stores), sink.arg)


def wishes(order: Nodes, asked: Collection[UOp] | None = None) -> dict[UOp, frozenset[Choice]]:
    """The conditions that hold, or do not, wherever each value is looked at: all, or those that are `asked` for."""
    out: dict[UOp, frozenset[Choice]] = {}

    def note(u: UOp, wanted: frozenset[Choice]) -> None:
        known = out.get(u)
        out[u] = wanted if known is None else known & wanted

    for u in reversed(order):
        mine = out.setdefault(u, frozenset())
        sources = u.src
        if u.op is Op.WHERE and (asked is None or u.src[0] in asked):
            condition, *chosen = u.src
            for s, value in zip(chosen, (True, False), strict=True):
                note(s, mine | {(condition, value)})
            sources = (condition,)
        elif u.op is Op.RANGE:
            mine = frozenset()
        elif u.op is Op.REDUCE and mine:
            # below it its ranges take all their values: a condition on one of them outside says nothing there
            mine = frozenset([w for w in mine if not any(w[0].varies_over(r) for r in u.src[1:])])
        for s in sources:
            note(s, mine)
    return out


def nested(sink: UOp) -> UOp:
    """The kernel without choices under the same choice: in `where(c, a, f(where(c, b, x)))` the inner one is x.

    Kernels whose reduces have choices stay as they are: what a row is reduced of and what is stored of it are alike.
    """
    order = toposort(sink)
    times: Numbers = {}
    chosen: set[UOp] = set()
    for u in order:
        if u.op is Op.WHERE or not chosen.isdisjoint(u.src):
            if u.op is Op.REDUCE:
                return sink
            chosen.add(u)
        if u.op is Op.WHERE:
            times[u.src[0]] = times.get(u.src[0], 0) + 1
    twice = {c for c, n in times.items() if n > 1}
    if not twice:
        return sink
    known = wishes(order, twice)

    def visit(u: UOp, src: Src) -> UOp:
        if u.op is Op.WHERE:
            for n, value in enumerate((True, False), 1):
                if (u.src[0], value) in known[u]:
                    return src[n]
        return over(u, src)

    return rebuild(sink, visit, order=order)
