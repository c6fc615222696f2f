"""Which memory is read and written by whole vectors.

A value that depends on a "vector" range is a vector, one lane for every value of the range. Where such an access runs
through neighbouring elements from a multiple of the lanes on, it becomes one access to an array of vectors: its index
becomes LANES(index counted in vectors, range). Other elements of the same memory are then lanes of its vectors: where one
is stored, the index becomes LANES(index counted in vectors, which lane). Where four accesses read the four elements of a
vector (a transpose whose registers are neighbours in memory), so do they. An access that is not aligned, or not to
neighbours, stays as it is, and is made lane by lane.
"""

from __future__ import annotations

from collections.abc import Sequence

from anneal.codegen.affine import form, normalise, unform
from anneal.codegen.packed import per_word
from anneal.codegen.ranges import SERIAL, mask_of
from anneal.uop import Op, UOp, const, dtypes, toposort

__all__ = ["is_whole", "memory_of", "to_vectors"]


class _Indices:
    """Affine forms of indices, and indices counted in vectors; what differs in a constant alone is worked out once."""

    def __init__(self, serial: int) -> None:
        self.serial = serial
        self.forms: dict[UOp, tuple[dict[UOp, int], int]] = {}
        self.bases: dict[tuple[UOp, int], UOp] = {}

    def split(self, index: UOp) -> tuple[UOp, int]:
        """The part without its constant, and the constant."""
        if index.op is Op.ADD and index.src[1].op is Op.CONST:
            return index.src[0], int(index.src[1].arg)
        return index, 0

    def form(self, index: UOp) -> tuple[dict[UOp, int], int]:
        base, constant = self.split(index)
        found = self.forms.get(base)
        if found is None:
            found = self.forms[base] = form(base)
        return found[0], found[1] + constant

    def is_aligned(self, index: UOp, v: UOp) -> bool:
        """Whether the terms other than the lane are whole vectors."""
        n, bit = int(v.src[0].arg), v.arg[0]
        return not any(t is not v and (k % n or t.ranges >> bit & 1) for t, k in self.form(index)[0].items())

    def vectors(self, index: UOp, v: UOp) -> UOp:
        """LANES for the vector that an aligned index falls into."""
        n = int(v.src[0].arg)
        base, _ = self.split(index)
        terms, constant = self.form(index)
        whole = self.bases.get((base, n))
        if whole is None:
            rest = {t: k // n for t, k in terms.items() if t is not v}
            whole = self.bases[base, n] = normalise(unform(rest, 0), self.serial)
        return UOp(Op.LANES, index.dtype, (whole + constant // n, v))

    def each(self, index: UOp, n: int) -> tuple[UOp, int]:
        """An index counted in vectors of `n`, and the lane."""
        base, _ = self.split(index)
        terms, constant = self.form(index)
        whole = self.bases.get((base, -n))
        if whole is None:
            whole = self.bases[base, -n] = normalise(unform({t: k // n for t, k in terms.items()}, 0), self.serial)
        return whole + constant // n, constant % n


def to_vectors(sink: UOp) -> UOp:
    """The kernel with aligned accesses by whole vectors."""
    order = toposort((sink,))
    ranges = [u for u in order if u.op is Op.RANGE]
    vectors = [r for r in ranges if r.arg[1] == "vector"]
    indices = _Indices(mask_of([r for r in ranges if r.arg[1] in SERIAL]))
    mask = mask_of(vectors)
    accesses = [
        u for u in order if (u.op is Op.LOAD or u.op is Op.STORE) and memory_of(u.src[0]).dtype.bits in (8, 16, 32)
    ]
    wide: dict[UOp, UOp] = {}  # memory -> the range its vectors span
    direct: set[UOp] = set()
    for u in accesses:
        for v in vectors:
            if int(v.src[0].arg) % per_word(memory_of(u.src[0]).dtype):
                continue
            if u.src[1].ranges >> v.arg[0] & 1 and _is_whole(u, v, indices):
                if wide.setdefault(memory_of(u.src[0]), v) is v:
                    direct.add(u)
    # A store of a part of a word needs memory of single words.
    parted = {memory_of(u.src[0]) for u in accesses if u.op is Op.STORE and u not in direct}
    parted = {memory for memory in parted if per_word(memory.dtype) > 1}
    wide = {memory: v for memory, v in wide.items() if memory not in parted}
    direct = {u for u in direct if memory_of(u.src[0]) in wide}
    fours = [memory for memory in _quads(accesses, indices, mask) if memory not in wide and memory not in parted]
    if fours:
        fresh = 1 + max((r.arg[0] for r in ranges), default=-1)
        own = UOp(Op.RANGE, dtypes.int32, (const(dtypes.int32, 4),), (fresh, "vector"))
        wide |= dict.fromkeys(fours, next((v for v in vectors if int(v.src[0].arg) == 4), own))
    if not wide:
        return sink
    lanes: dict[UOp, UOp] = {}
    each: set[UOp] = set()
    for u in accesses:
        over = wide.get(memory_of(u.src[0]))
        if over is not None and (
            u in direct or (u.op is Op.LOAD and not u.ranges & mask and indices.is_aligned(u.src[1], over))
        ):
            lanes[u] = over
        elif over is not None and u.op is Op.LOAD and _is_lane_of_each(u, over, indices):
            each.add(u)
    new: dict[UOp, UOp] = {}
    for u in order:
        src = tuple([new[s] for s in u.src])
        over = lanes.get(u)
        if u in each:
            # Each lane reads a vector for itself, and takes from it what the load's arg says.
            index, lane = indices.each(u.src[1], int(wide[memory_of(u.src[0])].src[0].arg))
            new[u] = UOp(Op.LOAD, u.dtype, (src[0], index), lane, u.tag)
            continue
        if over is None:
            new[u] = u if src == u.src else u.replace(src=src)
            if u.op is Op.STORE and memory_of(u.src[0]) in wide:
                at = _element(src[1], wide[memory_of(u.src[0])], indices)
                new[u] = new[u].replace(src=(src[0], at, *src[2:]))
            continue
        whole = UOp(u.op, u.dtype, (src[0], indices.vectors(u.src[1], over), *src[2:]), u.arg, u.tag)
        lane = indices.form(u.src[1])[1] % int(over.src[0].arg)
        new[u] = whole if u in direct else UOp(Op.LANE, u.dtype, (whole, over), lane)
    return new[sink]


def is_whole(u: UOp) -> bool:
    """Is `u` the index of a whole vector?"""
    return u.op is Op.LANES and u.src[1].op is Op.RANGE and u.src[1].arg[1] == "vector"


def memory_of(u: UOp) -> UOp:
    """The PARAM, or the SHARED memory that a BUFFERIZE fills, of an access."""
    return u.src[0].src[0].src[0] if u.op is Op.BUFFERIZE else u


def _quads(accesses: Sequence[UOp], indices: _Indices, mask: int) -> list[UOp]:
    """Memory that is read, where it is read by scalars, four aligned neighbours at a time."""
    groups: dict[UOp, dict[tuple[object, ...], set[int]]] = {}
    for u in accesses:
        if u.op is Op.LOAD:
            terms, constant = indices.form(u.src[1])
            aligned = not u.ranges & mask and not any(k % 4 for k in terms.values())
            key = (indices.split(u.src[1])[0], constant // 4, u.src[2:]) if aligned else (u,)
            groups.setdefault(memory_of(u.src[0]), {}).setdefault(key, set()).add(constant % 4)
    return [m for m, mine in groups.items() if all(len(found) == 4 for found in mine.values())]


def _is_whole(u: UOp, v: UOp, indices: _Indices) -> bool:
    """Does an access run through whole aligned vectors along `v`?"""
    gates = u.src[2 if u.op is Op.LOAD else 3 :]
    if any(g.ranges >> v.arg[0] & 1 for g in gates):
        return False
    terms, constant = indices.form(u.src[1])
    return terms.get(v) == 1 and not constant % int(v.src[0].arg) and indices.is_aligned(u.src[1], v)


def _is_lane_of_each(u: UOp, v: UOp, indices: _Indices) -> bool:
    """The same of a load whose index has lanes of its own, each of them in another vector."""
    n = int(v.src[0].arg)
    return len(u.src) == 2 and not any(k % n for k in indices.form(u.src[1])[0].values())


def _element(index: UOp, v: UOp, indices: _Indices) -> UOp:
    """LANES for an index into memory of vectors along `v`, if all lanes of a value go to the same lane."""
    n = int(v.src[0].arg)
    terms, constant = indices.form(index)
    rest = normalise(unform({t: k for t, k in terms.items() if k % n}, constant % n), indices.serial)
    if any(u.op is Op.RANGE and u.arg[1] == "vector" for u in toposort((rest,))):
        return index
    # The vector range comes last and the constant after it: the four stores differ in a constant.
    lanes = 1 << v.arg[0]
    whole = {t: k // n for t, k in terms.items() if k % n == 0}
    out = normalise(unform({t: k for t, k in whole.items() if not t.ranges & lanes}, 0), indices.serial)
    out = out + normalise(rest // n, indices.serial)
    out = out + unform({t: k for t, k in whole.items() if t.ranges & lanes}, constant // n)
    return UOp(Op.LANES, index.dtype, (out, normalise(rest % n, indices.serial)))
