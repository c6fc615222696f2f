"""The first nan or infinity: its node, its operands, and the elements in memory that it comes from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from anneal.inspect.checking.blame import CheckRun
from anneal.inspect.checking.bounds import EXACT, Array, Bounded
from anneal.inspect.checking.kernel_values import KernelValues
from anneal.inspect.checking.records import NotFinite
from anneal.inspect.checking.tensor_values import TensorValues, TooLarge, base, needed
from anneal.inspect.kernel_list import label_of, lines_of, placed
from anneal.schedule import Call
from anneal.uop import ALU, Op, UOp, toposort

_GIVEN = frozenset((Op.CONST, Op.BUFFER))  # what is infinite there was written so
_MOST = 6  # elements in memory that are named


def look(r: CheckRun, n: int, before: Sequence[Array], after: Sequence[Array]) -> None:
    """Note where a nan or an infinity appears in kernel `n`, if it is the first to make one of other numbers, or the
    first nan; and whether a result of the program has one.
    """
    found = r.report.not_finite
    if found is not None and found.kind == "nan" and found.result:
        return
    call: Call = r.program.plan.calls[n]
    given = set().union(*[_kinds(a) for a in before[call.outputs :]])
    for slot, content in enumerate(after):
        live = r.lives[slot] if slot < len(r.lives) else None
        kinds = _kinds(content if live is None else content[live])
        result = call.args[slot] in r.program.plan.outputs
        bad = result and "nan" in kinds  # whoever made it: a program whose results are nan is not right
        if (kinds - given or bad) and (found is None or (found.kind == "inf" and "nan" in kinds)):
            kind = "nan" if bad or "nan" in kinds - given else "inf"
            mine = _found(r, n, call, slot, kind, before, content)
            if mine is not None and (bad or mine.op != "STORE" or not _written(call, kind)):
                # a nan that begins at no node here is made of what was found before
                found = mine if found is None or mine.op != "STORE" else replace(found, kind="nan")
                if found is mine and mine.op == "STORE" and (places := r.program.written[n][slot].places):
                    found = replace(found, op=base(r.program.nodes[places[0]]).op.name)
        if found is not None and result and found.kind in kinds:
            found = replace(found, result=True)
    r.report.not_finite = found


def _written(call: Call, kind: str) -> bool:
    """True if the kernel has such a number as a constant: -inf starts a maximum, and pads it."""
    test = math.isnan if kind == "nan" else math.isinf
    return any(u.op is Op.CONST and u.dtype.is_float and test(u.arg) for u in toposort((call.kernel.sink,)))


def _kinds(a: Array) -> set[str]:
    if a.dtype.kind in "iub":
        return set()
    with np.errstate(all="ignore"):
        wide = a.astype(np.float64)
    return {name for name, test in (("nan", np.isnan), ("inf", np.isinf)) if bool(test(wide).any())}


def _of_kind(kind: str, value: Array) -> Array:
    if value.dtype.kind in "iub":
        return np.zeros(value.shape, np.bool_)
    return np.isnan(value) if kind == "nan" else np.isinf(value)


def _odd(value: Array) -> Array:
    return np.zeros(value.shape, np.bool_) if value.dtype.kind in "iub" else ~np.isfinite(value)


def _found(
    r: CheckRun, n: int, call: Call, slot: int, kind: str, before: Sequence[Array], content: Array
) -> NotFinite | None:
    with np.errstate(all="ignore"):
        wrong = np.flatnonzero(_of_kind(kind, content.astype(np.float64)))
    if slot < len(r.lives) and (live := r.lives[slot]) is not None:
        wrong = wrong[live[wrong]]
    if not wrong.size:
        return None
    element = int(wrong[0])
    written = r.program.written[n][slot] if slot < len(r.program.written[n]) else None
    begins: list[str] = []
    overflows: list[bool] = []
    births: list[tuple[UOp, int, tuple[str, ...]]] = []

    def seen(u: UOp, value: Bounded, sources: Sequence[Bounded]) -> None:
        if births or u.op in _GIVEN:
            return
        mine = _odd(value.value)
        if mine.any() and not any(_odd(s.value).any() for s in sources):
            at = int(np.flatnonzero(mine)[0])
            births.append((u, at, _told(u, at, sources)))
            overflows.append(_overflows(u, at, sources))
            begins.append("nan" if np.isnan(value.value.reshape(-1)[at]) else "inf")

    if written is not None and written.places:
        try:
            r.tensors.value(r.program.nodes[written.places[0]], seen)
        except TooLarge:
            births.clear()
    origins = placed(call.places, r.program.origins)
    lines, op = lines_of(origins), "STORE"
    shape: tuple[int, ...] = (int(content.size),)
    at: tuple[int, ...] = (element,)
    sources: tuple[str, ...] = ()
    if births:
        u, flat, sources = births[0]
        op, shape = u.op.name, u.shape
        at = tuple(int(i) for i in np.unravel_index(flat, shape)) if shape else ()
        place = next((i for i, x in enumerate(r.program.nodes) if x is u), None)
        if place is not None:
            lines = lines_of([r.program.origins[place]]) or lines
    return NotFinite(
        launch=r.number,
        kernel=n,
        name=call.kernel.name,
        label=label_of(origins),
        kind=kind,
        begins=begins[0] if begins else kind,
        value=f"v{call.args[slot]}",
        element=element,
        op=op,
        shape=shape,
        at=at,
        sources=sources,
        inputs=(_traced(r, *births[0][:2]) if births else ()) or _inputs(r, call, slot, element, before),
        lines=lines,
        overflow=any(overflows) and begins[0] == "inf",
    )


def _overflows(u: UOp, at: int, sources: Sequence[Bounded]) -> bool:
    """True if element `at` of `u`, infinite in its own dtype, is finite in float64."""
    if u.op is Op.CAST:
        return True
    wide = TensorValues({}, 1 << 40, plain=True)
    for s, x in zip(needed(u), sources, strict=True):
        wide.known[base(s)] = Bounded(x.value.reshape(-1), EXACT)
    with np.errstate(all="ignore"):
        return bool(np.isfinite(wide.value(u).value.reshape(-1)[at]))


def _told(u: UOp, at: int, sources: Sequence[Bounded]) -> tuple[str, ...]:
    """The elements of the sources that element `at` of `u` is made of; of a reduction its terms' extremes."""
    out = []
    for s in sources:
        if not s.value.size:
            continue
        if s.value.size == 1:
            out.append(f"{float(s.value.reshape(-1)[0]):.9g}")
        elif s.value.shape == u.shape:
            out.append(f"{float(s.value[np.unravel_index(at, u.shape)]):.9g}")
        else:
            out.append(f"terms from {float(np.nanmin(s.value)):.9g} to {float(np.nanmax(s.value)):.9g}")
    return tuple(out)


def _traced(r: CheckRun, u: UOp, at: int) -> tuple[str, ...]:
    """The elements in memory that element `at` of a node is made of, the largest first; nothing where a sum or a
    choice of places lies between.
    """
    known = r.tensors.known
    named = {base(r.program.nodes[p]): w.value for some in r.program.written for w in some for p in w.places}
    numbers = {s: v for v, s in enumerate(r.tensors.leaves)}
    found: dict[tuple[int, int], float] = {}
    seen: set[tuple[UOp, int]] = set()
    stack = [(u, at)]
    while stack:
        x, i = stack.pop()
        b = base(x)
        if (b, i) in seen or b.op is Op.CONST:
            continue
        seen.add((b, i))
        if b.op is Op.BUFFER and b.arg in numbers:
            found[numbers[b.arg], i] = float(r.tensors.leaves[b.arg][i])
        elif b in known and b in named:
            found[named[b], i] = float(known[b].value[i])
        elif b.op is Op.EXPAND:
            [s], where = b.src, np.unravel_index(i, b.shape)
            inside = tuple([0 if n == 1 else int(k) for k, n in zip(where, s.shape, strict=True)])
            stack.append((s, int(np.ravel_multi_index(inside, s.shape)) if s.shape else 0))
        elif b.op in ALU and all(s.shape == b.shape or s.size == 1 for s in b.src):
            stack += [(s, i if s.shape == b.shape else 0) for s in b.src]
        else:
            return ()
    ranked = sorted(found.items(), key=lambda item: -abs(item[1]))
    return tuple([f"v{v}[{i}] = {value:.9g}" for (v, i), value in ranked[:_MOST]])


def _inputs(r: CheckRun, call: Call, slot: int, element: int, before: Sequence[Array]) -> tuple[str, ...]:
    """The elements that the kernel reads for an element that it stores, the largest first."""
    kernel = KernelValues(call.kernel.sink, before, r.execution.values)
    for store in [s for s in call.kernel.sink.src if s.src[0].arg[0] == slot]:
        point = kernel.point_of(store, element)
        if point is None:
            continue
        kernel.reads = []
        for _ in kernel.stored(store, 1 << 20, only=np.array([point])):
            pass
        found: dict[tuple[int, int], float] = {}
        for load, index, value in kernel.reads:
            if not load.dtype.is_float:
                continue
            which, of = np.broadcast_arrays(index, value.value)
            for i in np.argsort(-np.abs(np.nan_to_num(of.reshape(-1), nan=np.inf)), kind="stable")[:_MOST]:
                at = int(which.reshape(-1)[i])
                if at >= 0:
                    found[load.src[0].arg[0], at] = float(of.reshape(-1)[i])
        ranked = sorted(found.items(), key=lambda item: -abs(item[1]))
        return tuple([f"v{call.args[s]}[{at}] = {value:.9g}" for (s, at), value in ranked[:_MOST]])
    return ()
