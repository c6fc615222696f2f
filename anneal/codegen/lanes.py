"""Which memory is read and written by whole vectors.

A value that depends on a "vector" range is a vector, one lane for every value of the range. Where such an access runs
through neighbouring elements from a multiple of the lanes on, it becomes one access to an array of vectors: its index
becomes LANES(index counted in vectors, range). Other elements of the same memory are then lanes of its vectors. An access
that is not aligned, or not to neighbours, stays as it is, and is made lane by lane.
"""

from __future__ import annotations

from collections.abc import Sequence

from anneal.codegen.affine import form, normalise, unform
from anneal.uop import Op, UOp, const, dtypes, toposort

__all__ = ["memory_of", "to_vectors"]


def to_vectors(sink: UOp, serial: int) -> UOp:
    """The kernel with aligned accesses by whole vectors. `serial` masks the ids of ranges that become loops."""
    order = toposort((sink,))
    ranges = [u for u in order if u.op is Op.RANGE]
    vectors = [r for r in ranges if r.arg[1] == "vector"]
    wide: dict[UOp, UOp] = {}  # memory -> the range its vectors span
    direct: dict[UOp, UOp] = {}  # access -> LANES
    for u in order:
        if u.op is not Op.LOAD and u.op is not Op.STORE:
            continue
        for v in vectors:
            bit = 1 << v.arg[0]
            if not u.src[1].ranges & bit:
                continue
            memory = memory_of(u.src[0])
            index = _whole(u, v, serial)
            if index is not None and wide.setdefault(memory, v) is v:
                direct[u] = index
    four = next((v for v in vectors if int(v.src[0].arg) == 4), None)
    for memory in _quads(order):
        if four is None:
            fresh = 1 + max((r.arg[0] for r in ranges), default=-1)
            four = UOp(Op.RANGE, dtypes.int32, (const(dtypes.int32, 4),), (fresh, "vector"))
        wide.setdefault(memory, four)
    if not wide:
        return sink
    new: dict[UOp, UOp] = {}
    for u in order:
        src = tuple([new[s] for s in u.src])
        if u in direct:
            new[u] = UOp(u.op, u.dtype, (src[0], direct[u], *src[2:]), u.arg, u.tag)
            continue
        if u.op is Op.LOAD:
            over = wide.get(memory_of(u.src[0]))
            lane = None if over is None else _lane(UOp(Op.LOAD, u.dtype, src, u.arg, u.tag), over, serial)
            if lane is not None:
                new[u] = lane
                continue
        new[u] = u if src == u.src else u.replace(src=src)
    return new[sink]


def _quads(order: Sequence[UOp]) -> list[UOp]:
    """Memory that is read, where it is read by scalars, four aligned neighbours at a time."""
    groups: dict[UOp, dict[tuple[object, ...], set[int]]] = {}
    for u in order:
        if u.op is Op.LOAD and u.dtype.bits in (16, 32):
            memory = memory_of(u.src[0])
            mine = groups.setdefault(memory, {})
            terms, constant = form(u.src[1])
            aligned = not any(k % 4 for k in terms.values())
            key = (frozenset(terms.items()), constant // 4, u.src[2:]) if aligned else (u,)
            mine.setdefault(key, set()).add(constant % 4)
    return [m for m, mine in groups.items() if all(len(found) == 4 for found in mine.values())]


def memory_of(u: UOp) -> UOp:
    """The PARAM, or the SHARED memory that a BUFFERIZE fills, of an access."""
    return u.src[0].src[0].src[0] if u.op is Op.BUFFERIZE else u


def _whole(u: UOp, v: UOp, serial: int) -> UOp | None:
    """LANES for an access that runs through whole aligned vectors along `v`, else None."""
    if u.dtype.bits not in (16, 32) or len(u.src) > (2 if u.op is Op.LOAD else 3) and u.src[-1].ranges >> v.arg[0] & 1:
        return None
    n = int(v.src[0].arg)
    terms, constant = form(u.src[1])
    if terms.pop(v, 0) != 1 or constant % n:
        return None
    if any(k % n or t.ranges >> v.arg[0] & 1 for t, k in terms.items()):
        return None
    return _lanes(terms, constant, v, serial)


def _lanes(terms: dict[UOp, int], constant: int, v: UOp, serial: int) -> UOp:
    n = int(v.src[0].arg)
    index = normalise(unform({t: k // n for t, k in terms.items()}, constant // n), serial)
    return UOp(Op.LANES, index.dtype, (index, v))


def _lane(u: UOp, v: UOp, serial: int) -> UOp | None:
    """A scalar load as a lane of a vector load, if which lane is known."""
    if u.ranges >> v.arg[0] & 1:
        return None
    n = int(v.src[0].arg)
    terms, constant = form(u.src[1])
    if any(k % n for k in terms.values()):
        return None
    whole = UOp(
        Op.LOAD, u.dtype, (u.src[0], _lanes(terms, constant - constant % n, v, serial), *u.src[2:]), u.arg, u.tag
    )
    return UOp(Op.LANE, u.dtype, (whole, v), constant % n)
