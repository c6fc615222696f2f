"""Kernels that store a result over what they read: whether one may, and the kernel that does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from anneal.rewrite import over, rebuild, substitute
from anneal.schedule.memory import nbytes, peak_bytes, uses
from anneal.schedule.records import Call, Kernel, Value, name_of
from anneal.uop import Op, UOp, toposort

# A temporary is given to what is made of it where it is more than this part of all that lives at once.
_SHARE = 16
_LEAST = 16 << 20


def shared_temporaries(values: Sequence[Value], calls: Sequence[Call]) -> list[Call]:
    """The calls, with large temporaries that one call alone reads overwritten by a result of that call, where it reads
    an element, or a row, only to store it: a softmax, or the gradient of logits, takes the place of what it is made of.
    """
    large = {v for c in calls for v in c.args if values[v].kind == "temp" and nbytes(values[v]) >= _LEAST}
    if not large:
        return list(calls)
    least = max(_LEAST, peak_bytes(values, calls) // _SHARE)
    large = {v for v in large if nbytes(values[v]) >= least}
    writers, readers = uses(calls)
    renamed: dict[int, int] = {}
    out: list[Call] = []
    for c in calls:
        args = [renamed.get(v, v) for v in c.args]
        pairs: dict[int, int] = {}
        for slot in range(c.outputs):
            new = values[c.args[slot]]
            if c.args[slot] not in large or len(writers[c.args[slot]]) > 1:
                continue
            for n in range(c.outputs, len(args)):
                v = c.args[n]
                if v not in large or n in pairs or len(readers[v]) > 1 or len(writers[v]) > 1:
                    continue
                if values[v].size != new.size or values[v].dtype is not new.dtype:
                    continue
                if reads_in_place(c.kernel.sink, slot, n) or _reads_its_row(c.kernel.sink, slot, n):
                    pairs[n] = slot
                    renamed[c.args[slot]] = args[slot] = args[n]
                    break
        call = c._replace(args=tuple(args))
        out.append(merged(call, pairs) if pairs else call)
    return out


def reads_in_place(sink: UOp, store_slot: int, load_slot: int) -> bool:
    """True if a kernel reads one array only at the index at which it stores another."""
    where = _stored_at(sink, store_slot)
    for u in toposort((sink,)):
        if u.op is Op.LOAD and u.src[0].arg[0] == load_slot and (u.src[1] is not where or len(u.src) == 3):
            return False
        if u.op is Op.ARGSORT and u.src[0].arg[0] == load_slot:
            return False
    return True


def _stored_at(sink: UOp, slot: int) -> UOp:
    return next(s.src[1] for s in sink.src if s.src[0].arg[0] == slot)


def _reads_its_row(sink: UOp, store_slot: int, load_slot: int) -> bool:
    """True if a kernel reduces rows, and reads of one array only the row into whose place in another it stores.

    All its reduces run over one row then, so that code generation fuses them into the loop of the stores (opt
    FUSE_REDUCE): each element is read and stored by one thread, which stores it after the last reduce.
    """
    if any(s.op is not Op.STORE or len(s.src) != 3 for s in sink.src):
        return False
    where = _stored_at(sink, store_slot)
    order = toposort((sink,))
    reduces = [u for u in order if u.op is Op.REDUCE]
    over = {r for u in reduces for r in u.src[1:]}
    if not over or any(len(u.src) != 2 or u.dtype.itemsize < 4 for u in reduces):
        return False
    for row in [u for u in toposort((where,)) if u.op is Op.RANGE and u.arg[1] == "loop"]:
        bits = sum(1 << r.arg[0] for r in (row, *over))
        if any(r.src[0] is not row.src[0] or r.arg[1] != "reduce" for r in over):
            continue
        if any(u.src[0].ranges & bits & ~(1 << u.src[1].arg[0]) for u in reduces):
            continue
        places = {where, *[_with(where, row, r) for r in over]}
        loads = [u for u in order if u.op is Op.LOAD and u.src[0].arg[0] == load_slot]
        return all(len(u.src) == 2 and u.src[1] in places for u in loads)
    return False


def _with(index: UOp, old: UOp, new: UOp) -> UOp:
    """An index with one range in the place of another."""
    return substitute(index, {old: new})


def overwrites_rows(sink: UOp) -> bool:
    """True if a kernel stores into memory that it reads at other places too: rows, over which one workgroup has to
    run.
    """
    where = {s.src[0]: s.src[1] for s in sink.src if s.op is Op.STORE}
    return any(u.op is Op.LOAD and where.get(u.src[0], u.src[1]) is not u.src[1] for u in toposort((sink,)))


_MAX_MERGED = 1 << 12
_merged: dict[tuple[Kernel, tuple[tuple[int, int], ...]], Kernel] = {}


def merged(call: Call, pairs: Mapping[int, int]) -> Call:
    """The call with each slot of `pairs` replaced by the slot it is paired with; the slots left are renumbered."""
    key = (call.kernel, tuple(sorted(pairs.items())))
    keep = [s for s in range(len(call.args)) if s not in pairs]
    kernel = _merged.get(key)
    if kernel is None:
        number = {s: n for n, s in enumerate(keep)}

        def visit(u: UOp, src: tuple[UOp, ...]) -> UOp:
            if u.op is not Op.PARAM:
                return over(u, src)
            slot, shape = u.arg
            return UOp(Op.PARAM, u.dtype, (), (number[pairs.get(slot, slot)], shape))

        sink = rebuild(call.kernel.sink, visit)
        if len(_merged) >= _MAX_MERGED:
            _merged.clear()
        kernel = _merged[key] = Kernel(sink, name_of(sink))
    return call._replace(kernel=kernel, args=tuple([call.args[s] for s in keep]))
