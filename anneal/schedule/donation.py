"""Donation: let an output take the memory of an input that is no longer needed (a parameter's update in place)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from anneal.schedule.inplace import merged, reads_in_place
from anneal.schedule.memory import arrange, uses
from anneal.schedule.records import Call, Plan
from anneal.uop import Op


def donate(plan: Plan, wanted: Mapping[int, int], concurrent: bool = False) -> tuple[Plan, dict[int, int]]:
    """A plan in which outputs overwrite inputs, for those of `wanted` (output value -> input value) where that is safe.

    Safe means: the call that writes the output comes after every other reader of the input, and reads the input only
    at the index it stores. A call is moved behind those readers first, if all that read its results come later still.
    Returns the plan and the pairs that were accepted.
    """
    reader = {v: n for n, c in enumerate(plan.calls) for v in c.args[c.outputs :]}
    needed = [len(plan.calls)] * len(plan.calls)  # the first call after each that touches its results
    touched: dict[int, int] = {}
    for n, c in reversed(list(enumerate(plan.calls))):
        needed[n] = min([touched[v] for v in c.args[: c.outputs] if v in touched], default=len(plan.calls))
        touched.update(dict.fromkeys(c.args, n))
    # An update waits for the last reader of what it overwrites, and no longer: what it reads takes memory meanwhile.
    when: list[tuple[int, bool]] = []
    for n, c in enumerate(plan.calls):
        after = max([reader.get(wanted[v], -1) for v in c.args[: c.outputs] if v in wanted], default=-1)
        when.append((after, True) if n < after < needed[n] else (n, False))
    order = [plan.calls[n] for n in sorted(range(len(when)), key=when.__getitem__)]
    final_reader: dict[int, int] = {}
    for n, c in enumerate(order):
        for v in c.args[c.outputs :]:
            final_reader[v] = n
    updated = _updated(order, wanted)
    accepted: dict[int, int] = {v: source for v, (source, _) in updated.items() if source is not None}
    calls: list[Call] = []
    for n, c in enumerate(order):
        pairs: dict[int, int] = {}
        if c.args[0] in accepted and _is_copy_of(c, accepted[c.args[0]]):
            continue  # of memory to itself: an update writes its part into it
        for slot, v in enumerate(c.args[: c.outputs]):
            source = wanted.get(v)
            if v in updated:
                source, first = updated[v]
                if n == first and source in c.args[c.outputs :]:
                    pairs[c.args.index(source, c.outputs)] = slot
                continue
            if source is None or final_reader.get(source, -1) > n or source in accepted.values():
                continue
            old, new = plan.values[source], plan.values[v]
            if old.size != new.size or old.dtype is not new.dtype:
                continue
            if source in c.args:
                twin = c.args.index(source, c.outputs)
                if not reads_in_place(c.kernel.sink, slot, twin):
                    continue
                pairs[twin] = slot
            accepted[v] = source
        calls.append(merged(c, pairs) if pairs else c)
    calls, (memory, temporaries) = arrange(plan.values, calls, concurrent, accepted)
    donated = replace(plan, calls=tuple(calls), memory=memory, temporaries=temporaries)
    return donated, accepted


def _updated(order: list[Call], wanted: Mapping[int, int]) -> dict[int, tuple[int | None, int]]:
    """Values that are a copy at first, into which updates then write their parts.

    For each: the input that it may overwrite, so that nothing need be copied, or None; and the first update. It may if
    nobody reads the input any more by then, but that update itself where it writes.
    """
    writers, readers = uses(order)
    out: dict[int, tuple[int | None, int]] = {}
    for v, at in writers.items():
        if len(at) < 2:
            continue
        copy, first = at[:2]
        source = wanted.get(v)
        if source is not None:
            last = max([n for n in readers[source] if n != copy], default=-1)
            c = order[first]
            fits = last < first or (
                last == first and reads_in_place(c.kernel.sink, c.args.index(v), c.args.index(source, c.outputs))
            )
            taken = any(source == other for other, _ in out.values())
            if not fits or taken or not _is_copy_of(order[copy], source):
                source = None
        out[v] = source, first
    return out


def _is_copy_of(call: Call, source: int) -> bool:
    """True if a call stores one array as it reads it from `source`."""
    sink = call.kernel.sink
    value = sink.src[0].src[2]
    if len(sink.src) != 1 or value.op is not Op.LOAD or value.src != (value.src[0], sink.src[0].src[1]):
        return False
    return call.args[1:] == (source,)
