"""Memory that is read and written by whole vectors.

A value that depends on a "vector" range is a vector, one lane for every value of the range. Where such an access runs
through neighbouring elements from a multiple of the lanes on, it becomes one access to an array of vectors: its index
becomes LANES(index counted in vectors, range). Other elements of the same memory are then lanes of its vectors: the
index of a store to one becomes LANES(index counted in vectors, lane). Where four accesses read the four elements of
a vector (a transpose whose registers are neighbours in memory), so do they. An access that is not aligned, or not to
neighbours, stays as it is, and is made lane by lane.
"""

from __future__ import annotations

from anneal.codegen.ranges import ACCESSES, Form, extent, form, is_fragment, mask_of  # isort: skip
from anneal.codegen.ranges import normalise, of_kind, predicate_of, serial_of, unform, unused  # isort: skip
from anneal.codegen.target import per_word
from anneal.rewrite import over, rebuild
from anneal.uop import Known, Nodes, Op, Src, UOp, of_op, ranged, toposort

_Forms = dict[UOp, Form]  # of indices


def to_vectors(sink: UOp) -> UOp:
    """The kernel with aligned accesses by whole vectors."""
    order = toposort(sink)
    ranges = of_op(order, Op.RANGE)
    vectors = of_kind(ranges, "vector")
    serial = serial_of(ranges)
    mask = mask_of(vectors)
    accesses = [u for u in order if u.op in ACCESSES and memory_of(u.src[0]).dtype.bits in (8, 16, 32)]
    # Matrices are read from, and stored to, memory of scalars.
    scalars = {memory_of(u.src[0]) for u in accesses if is_fragment(u.src[1])}
    accesses = [u for u in accesses if memory_of(u.src[0]) not in scalars] if scalars else accesses
    forms = {index: form(index) for index in dict.fromkeys([u.src[1] for u in accesses])}
    wide, direct = _along_vectors(accesses, vectors, forms)
    # A sub-word store needs memory of single words.
    sub_word = {memory_of(u.src[0]) for u in accesses if u.op is Op.STORE and u not in direct}
    sub_word = {memory for memory in sub_word if per_word(memory.dtype) > 1}
    wide = {memory: v for memory, v in wide.items() if memory not in sub_word}
    fours = [memory for memory in _quads(accesses, forms, mask) if memory not in wide and memory not in sub_word]
    if fours:
        own = ranged(4, (unused(ranges), "vector"))
        wide |= dict.fromkeys(fours, next((v for v in vectors if extent(v) == 4), own))
    if not wide:
        return sink

    def visit(u: UOp, src: Src) -> UOp:
        v = wide.get(memory_of(u.src[0])) if u.op in ACCESSES else None
        if v is None:
            return over(u, src)
        if u.op is Op.STORE and u not in direct:
            return over(u, (src[0], _element(src[1], v, serial), *src[2:]))
        n, (terms, constant) = extent(v), forms[u.src[1]]
        is_one = u in direct or not u.ranges & mask and _is_aligned(forms[u.src[1]], v)  # for all threads
        if not is_one and (len(u.src) > 2 or any(k % n for k in terms.values())):
            return over(u, src)
        whole, number = divmod(constant, n)  # of the index: counted in vectors, and the lane
        index = unform({t: k // n for t, k in terms.items() if k // n}, whole, serial)
        if not is_one:
            # Each lane reads a vector for itself, and takes from it the lane that the load's arg tells.
            return UOp(Op.LOAD, u.dtype, (src[0], index), number, u.tag)
        out = u.replace(src=(src[0], UOp(Op.LANES, index.dtype, (index, v)), *src[2:]))
        return out if u in direct else UOp(Op.LANE, u.dtype, (out, v), number)

    return rebuild(sink, visit, order=order)


def to_runs(sink: UOp) -> UOp:
    """The kernel in which the index of an access along a vector range, in even steps, is LANES(index of the first
    element, range) with the step as its arg: for memory that vectors may begin anywhere in.
    """
    order = toposort(sink)
    ranges = of_op(order, Op.RANGE)
    vectors = of_kind(ranges, "vector")
    serial = serial_of(ranges)

    def visit(u: UOp, src: Src) -> UOp:
        if u.op in ACCESSES:
            terms, constant = form(src[1])
            for v in vectors:
                step = terms.pop(v, 0)
                if step and not any(t.varies_over(v) for t in terms):
                    first = normalise(unform(terms, constant), serial)
                    src = (src[0], UOp(Op.LANES, src[1].dtype, (first, v), step), *src[2:])
        return over(u, src)

    return rebuild(sink, visit, order=order) if vectors else sink


def _along_vectors(accesses: Nodes, vectors: Nodes, forms: _Forms) -> tuple[Known, set[UOp]]:
    """A map from each memory that is accessed along a vector range to that range; and those accesses."""
    wide: Known = {}
    direct = set()
    for u in accesses:
        memory, (terms, constant) = memory_of(u.src[0]), forms[u.src[1]]
        for v in vectors:
            n = extent(v)
            if terms.get(v) != 1 or constant % n or n % per_word(memory.dtype) or not _is_aligned(forms[u.src[1]], v):
                continue
            if not any(p.varies_over(v) for p in predicate_of(u)) and wide.setdefault(memory, v) is v:
                direct.add(u)
    return wide, direct


def is_whole(u: UOp) -> bool:
    """True if `u` is the index of a whole vector."""
    return u.op is Op.LANES and u.src[1].op is Op.RANGE and u.src[1].arg[1] == "vector"


def memory_of(u: UOp) -> UOp:
    """The PARAM, or the SHARED memory that a BUFFERIZE fills, of an access."""
    return u.src[0].src[0].src[0] if u.op is Op.BUFFERIZE else u


def _quads(accesses: Nodes, forms: _Forms, mask: int) -> Nodes:
    """Memory that is read, where it is read by scalars, four aligned neighbours at a time."""
    groups: dict[UOp, dict[tuple[object, ...], set[int]]] = {}
    for u in accesses:
        if u.op is Op.LOAD:
            terms, constant = forms[u.src[1]]
            aligned = terms and not u.ranges & mask and not any(k % 4 for k in terms.values())
            key = (frozenset(terms.items()), constant // 4, u.src[2:]) if aligned else (u,)
            groups.setdefault(memory_of(u.src[0]), {}).setdefault(key, set()).add(constant % 4)
    return [m for m, mine in groups.items() if all(len(found) == 4 for found in mine.values())]


def _is_aligned(index: Form, v: UOp) -> bool:
    """True if the terms other than the lane are whole vectors."""
    return not any(t is not v and (k % extent(v) or t.varies_over(v)) for t, k in index[0].items())


def _element(index: UOp, v: UOp, serial: int) -> UOp:
    """LANES for an index into memory of vectors along `v`, if all lanes of a value go to the same lane."""
    n = extent(v)
    terms, constant = form(index)
    rest = normalise(unform({t: k for t, k in terms.items() if k % n}, constant % n), serial)
    if any(u.op is Op.RANGE and u.arg[1] == "vector" for u in toposort(rest)):
        return index
    # The vector range comes last and the constant after it: the four stores differ in a constant.
    lanes = 1 << v.arg[0]
    whole = {t: k // n for t, k in terms.items() if k % n == 0}
    out = normalise(unform({t: k for t, k in whole.items() if not t.ranges & lanes}, 0), serial)
    out = out + normalise(rest // n, serial)
    out = out + unform({t: k for t, k in whole.items() if t.ranges & lanes}, constant // n)
    return UOp(Op.LANES, index.dtype, (out, normalise(rest % n, serial)))
