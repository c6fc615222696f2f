"""A plan's kernels one by one on their device, each beside its own graph and beside the graph as it was written."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from anneal import schedule
from anneal.backend import AnyDevice
from anneal.frozen import Json, Texts
from anneal.inspect.checking.blame import CheckLimits, CheckRun, HeldValue, kernel_blame, numbered, places_of, suspects
from anneal.inspect.checking.bounds import Array, Bounded, Compared, beside, exactly, shown, ulps, unheard
from anneal.inspect.checking.kernel_values import KernelValues, chosen
from anneal.inspect.checking.records import CheckedKernel, Difference, Finding, NotFinite, Report, Suspect, Trial
from anneal.inspect.checking.tensor_values import TensorValues, TooLarge, base, needed
from anneal.inspect.kernel_list import Lines, lines_of, modules_of
from anneal.progress import told
from anneal.runtime import Execution, Launch, compiled, new_outputs, seen
from anneal.uop import ALU, Op, UOp, ranks, toposort


def check_launch(
    sink: UOp, step: Launch, device: AnyDevice, number: int, limits: CheckLimits, report: Report, found: list[Finding]
) -> None:
    """Run the plan of `step`, which computed `sink`, once more, kernel by kernel, and add the findings to `report` and
    `found`.

    What a kernel reads is copied out before it starts. It is judged by these values, right or wrong, so that a kernel
    that differs is at fault itself, whatever happened before.
    """
    nodes, plan = numbered(schedule.live_nodes(sink)), step.plan
    written = places_of(sink, plan, device.cost_model)
    again = Launch(plan, step.inputs, new_outputs(plan, device), step.values)
    with device.lock:
        execution = Execution(again, device, compiled(plan, device))
        try:
            leaves: dict[Any, Array] = {}
            r = CheckRun(
                sink, number, plan, nodes, schedule.origins(sink), written, device, execution,
                TensorValues(leaves, limits.tensor), limits, report, found,
            )  # fmt: skip
            inputs = device.download_all(r.pieces(range(plan.inputs)))
            for v, (storage, content) in enumerate(zip(step.inputs, inputs)):
                leaves[storage] = content
                r.held[v] = HeldValue(content, sources=frozenset((v,)))
            for u in nodes:
                if u.op is Op.BUFFER and u.arg not in leaves:  # of no elements, or read by no kernel
                    s = u.arg
                    leaves[s] = s.host if s.host is not None else device.download(s.ensure(), s.size, s.dtype)
            for r.n in told(range(len(plan.calls)), "checking kernels"):
                _check_call(r)
            _check_batch(r, step)
        finally:
            execution.close()


def _check_call(r: CheckRun) -> None:
    call, program = r.call, r.execution.programs[r.n]
    pieces = r.pieces(call.args)
    r.trial = Trial(call, r.device.download_all(pieces), [], dict(r.execution.values))
    r.failed, r.note = list(_changed(r)), []
    r.device.prepare([(program, [r.execution.buffers[v] for v in call.args])], r.execution.values).run()
    r.after = r.device.download_all(pieces[: call.outputs])
    own = _beside_kernel(r)
    tensor = _beside_tensors(r, own)
    r.report.kernels.append(
        CheckedKernel(
            **r.facts,
            opts=program.opts,
            phase=call.phase,
            elements=sum(int(r.plan.values[v].size) for v in call.args[: call.outputs]),
            compared=sum(c.judged for c in own),
            tensor_elements=sum(c.judged for c in tensor),
            unjudged=max([c.unjudged for c in (*own, *tensor)], default=0),
            worst=max([c.worst for c in (*own, *tensor) if np.isfinite(c.worst)], default=0.0),
            ok=not r.failed,
            note="; ".join(dict.fromkeys(r.note)),
            lines=lines_of(r.origins),
            modules=modules_of(r.origins),
        )
    )
    if r.failed:
        r.report.differences += r.failed
        r.found.append(Finding(r.failed[0], r.trial, program))
    look(r)


def _changed(r: CheckRun) -> Iterator[Difference]:
    """The first value that has changed since it was written: its memory was given to another value too early."""
    call = r.call
    for slot, mine in enumerate(call.args[: call.outputs]):
        size = r.trial.before[slot].size
        for v in call.args if size else ():
            if v != mine and r.execution.buffers[v] is r.execution.buffers[mine]:
                blame = f"it writes v{mine} into the memory of v{v}: the memory plan is at fault"
                got, expected = [f"in the memory of v{v}"], Bounded(np.array(["memory of its own"]))
                yield _difference(r, mine, "memory", blame, got, expected, Compared(size, 0, size, 0.0, 0))
                return
    for v, before in zip(call.args, r.trial.before, strict=True):
        held = r.held.get(v)
        if held is None or held.content.tobytes() == before.tobytes():
            continue
        changed = (_bytes(held.content) != _bytes(before)).any(axis=1)
        who = f"kernel {held.writer}" if held.writer is not None else "the program"
        blame = (
            f"it reads v{v}, which no longer holds what {who} wrote: the memory plan is at fault, or a kernel writes "
            "beyond its own memory"
        )
        yield _difference(r, v, "memory", blame, before, Bounded(held.content), _first_of(changed))
        return


def _bytes(a: Array) -> Array:
    """The bytes of each element."""
    return np.ascontiguousarray(a).view(np.uint8).reshape(a.size, -1)


# -- beside the kernel's own graph -----------------------------------------------------------------------------------


def _beside_kernel(r: CheckRun) -> list[Compared]:
    """The comparison of each output with its kernel graph. Notes the expected values with their places, and which
    elements are read (None: all).
    """
    kernel = KernelValues(r.call.kernel.sink, r.trial.before, r.trial.values)
    results = []
    r.lives = []
    for slot, (v, before, after) in enumerate(zip(r.call.args, r.trial.before, r.after)):
        index, value, read, whole = kernel.written(slot, r.limits.kernel, r.n)
        got = after[index]
        # where several points write, the last write wins, in no fixed order
        once = np.bincount(index, minlength=1)[index] == 1
        if not once.all():
            r.note.append(f"v{v}: stores that write the same elements were left out")
        compared = beside(got, value, read & once)
        results.append(compared)
        r.trial.expected.append((index[read], value.value[read], value.error[read]))
        live = None if read.all() else np.zeros(after.size, bool)
        if live is not None:
            pieces = [(index, read)] if whole else [x[1:] for s in kernel.stores(slot) for x in kernel.lives(s)]
            for all_, here in pieces:
                live[all_[here]] = True
        if not whole:
            r.note.append(f"{compared.judged:,} of {after.size:,} elements of v{v} were drawn")
        r.lives.append(live)
        if not compared.ok:
            blame = kernel_blame(r)
            r.failed.append(_difference(r, v, "kernel graph", blame, got, value, compared, index))
        if whole and not r.trial.values and before.size:
            stray = (_bytes(before) != _bytes(after)).any(axis=1)
            stray[index] = False
            if stray.any():
                blame = f"the kernel wrote where none of its stores does: {kernel_blame(r)}"
                r.failed.append(_difference(r, v, "other elements", blame, after, Bounded(before), _first_of(stray)))
    return results


# -- beside the graph as it was written ------------------------------------------------------------------------------


def _beside_tensors(r: CheckRun, own: list[Compared]) -> list[Compared]:
    sources = frozenset().union(*[r.held[v].sources for v in r.call.args if v in r.held])
    r.tensors.known.clear()
    for held in [r.held[v] for v in sources]:
        if held.bounded is not None:
            r.tensors.known.update((base(r.nodes[at]), held.bounded) for at in held.places)
    results = []
    made = {}
    for v, content, live, kernels in zip(r.call.args, r.after, r.lives, own):
        node = r.node(v)
        if node is None:
            made[v] = HeldValue(content, sources=sources, writer=r.n)
            r.note.append(f"v{v} is only a part of a value of the graph as written")
            continue
        got = content
        if content.size != node.size:
            got, live = seen(content, node.shape), None
        got = got.ravel()
        points, expected = _expected(r, v, node)
        if expected is not None:
            mine = slice(None) if points is None else points
            compared = beside(got[mine], expected, None if live is None else live[mine])
            results.append(compared)
            if not compared.ok and kernels.ok:
                blame = (
                    "the kernel does what its own graph says: a rule or a pass between the graph as written and the "
                    "kernel is wrong"
                )
                told_of = got[mine], expected, compared, points, suspects(r)
                r.failed.append(_difference(r, v, "tensor graph", blame, *told_of))
        anchor = exactly(got)
        if live is not None:  # where it is not read it has the expected value, and anything if that is unknown
            value, error = anchor.value, np.where(live, anchor.whole(), np.inf)
            if points is None and expected is not None:
                value = np.where(live, value, expected.value.ravel()).astype(value.dtype)
                error = np.where(live, error, expected.whole().ravel())
            anchor = Bounded(value, error)
        made[v] = HeldValue(content, anchor, r.written[r.n][v], frozenset((v,)), r.n)
    r.held |= made
    # let go of the bounds of values that no later call needs
    later = {*r.plan.outputs, *[v for call in r.plan.calls[r.n + 1 :] for v in call.args]}
    later |= {s for v in later & r.held.keys() for s in r.held[v].sources}
    r.held = {v: held for v, held in r.held.items() if v in later}
    return results


def _expected(r: CheckRun, v: int, node: UOp) -> tuple[Array | None, Bounded | None]:
    """The values by the graph as written: of all elements (no points); else of drawn ones, with their numbers; or
    (None, None), if even those take too much.
    """
    try:
        return None, r.tensors.value(node)
    except TooLarge:
        r.report.say("some values are too large to compare as a whole with the graph as written: see the kernels")
    try:
        points = chosen(int(node.size), max(64, r.limits.kernel // r.tensors.work(node)), r.n)
        value = r.tensors.elements(node, points)
    except TooLarge as e:
        r.note.append(f"v{v} was not compared with the graph as written: that takes {e}")
        return None, None
    r.note.append(
        f"{points.size:,} of {node.size:,} elements of v{v} were drawn to be compared with the graph as written"
    )
    return points, value


def _first_of(differ: Array) -> Compared:
    """The comparison of memory that is to be equal bit for bit, by the elements that differ: the first one counts."""
    return Compared(differ.size, 0, int(differ.sum()), math.inf, int(np.argmax(differ)))


def _difference(
    r: CheckRun,
    v: int,
    against: str,
    blame: str,
    got: Any,
    expected: Bounded,
    compared: Compared,
    places: Array | None = None,
    suspects: Sequence[Suspect] = (),
) -> Difference:
    """The element of `got` that is worst; `places` has the numbers of the elements, where they are not all in order."""
    node, dtype = r.node(v), r.dtype(v)
    shape = node.shape if node is not None else (r.plan.values[v].size,)
    worst = compared.at
    element, mine, want = worst if places is None else int(places[worst]), got[worst], expected.value.ravel()[worst]
    at = tuple(int(i) for i in np.unravel_index(element, shape)) if element < math.prod(shape) else ()
    return Difference(
        **r.facts,
        opts=r.execution.programs[r.n].opts,
        device=str(r.device),
        against=against,
        blame=blame,
        value=f"v{v}",
        op=node.op.name if node is not None else "STORE",
        dtype=dtype.name,
        shape=shape,
        element=element,
        at=at,
        got=shown(mine),
        expected=shown(want),
        bound=float(expected.whole().ravel()[worst]),
        ulps=0.0 if isinstance(mine, str) else ulps(float(mine), float(want), dtype),
        count=compared.differ,
        compared=compared.judged,
        lines=tuple(dict.fromkeys([*[x for s in suspects for x in s.lines], *_lines(r, node, against)])),
        modules=modules_of(r.origins),
        suspects=tuple(suspects),
    )


def _lines(r: CheckRun, node: UOp | None, against: str) -> Lines:
    """The lines of what the kernel computes; beside the graph as written, of all nodes between what it reads and what
    differs, those too that the passes left out.
    """
    if node is None or against != "tensor graph":
        return lines_of(r.origins)
    cone = {u for u in r.tensors.cone(node) if u.op not in (Op.BUFFER, Op.CONST) and base(u) not in r.tensors.known}
    between = [o for u, o in zip(r.nodes, r.known, strict=True) if u in cone]
    return lines_of(reversed([o for o in between if o.grounded] or between)) or lines_of(r.origins)


# -- all kernels together --------------------------------------------------------------------------------------------


def _check_batch(r: CheckRun, step: Launch) -> None:
    """Run all calls as one batch, three times, and compare these runs and the original one, bit for bit, with the calls
    one by one.
    """
    if any(d.launch == r.number for d in r.report.differences):
        return
    outputs = r.pieces(r.plan.outputs)
    if not outputs:
        return
    alone = r.device.download_all(outputs)
    first = [(s.ensure(), s.size, s.dtype) for s in step.outputs]
    runs = [("the program's own run", r.device.download_all(first))]
    for turn in range(3):
        r.execution.run()
        runs.append((f"run {turn + 1} of all kernels as one batch", r.device.download_all(outputs)))
    for what, got in runs:
        for v, a, b in zip(r.plan.outputs, alone, got, strict=True):
            differ = (a != b) & ((a == a) | (b == b))
            if not differ.any():
                continue
            r.n = max(n for n, c in enumerate(r.plan.calls) if v in c.args[: c.outputs])
            blame = (
                f"{what} differs from its kernels run one by one: kernels that run side by side do not wait for each "
                "other where they must, or one of them has a race"
            )
            r.report.differences.append(_difference(r, v, "one batch", blame, b, Bounded(a), _first_of(differ)))
            return


# -- the first nan or infinity, with the elements that it comes from ---------------------------------------------------


_GIVEN = frozenset((Op.CONST, Op.BUFFER))  # an infinity in these nodes is the program's own
_MOST = 6  # elements in memory that are named
_TESTS = {"nan": np.isnan, "inf": np.isinf}


def look(r: CheckRun) -> None:
    """Note where a nan or an infinity appears in the kernel, if it is the first to make one of other numbers, or the
    first nan; and whether a result of the program has one.
    """
    found = r.report.not_finite
    if found is not None and found.kind == "nan" and found.result:
        return
    given = set().union(*[_kinds(a) for a in r.trial.before[r.call.outputs :]])
    for slot, (v, content, live) in enumerate(zip(r.call.args, r.after, r.lives)):
        kinds = _kinds(content if live is None else content[live])
        result = v in r.plan.outputs
        bad = result and "nan" in kinds  # whichever kernel made it: a program with nan in its results is not right
        if (kinds - given or bad) and (found is None or (found.kind == "inf" and "nan" in kinds)):
            kind = "nan" if bad or "nan" in kinds - given else "inf"
            mine = _found(r, slot, kind)
            if bad or mine.op != "STORE" or not _written(r, kind):
                # a nan that begins at no node here is made of what was found before
                found = mine if found is None or mine.op != "STORE" else replace(found, kind="nan")
                if found is mine and mine.op == "STORE" and (node := r.node(v)) is not None:
                    found = replace(found, op=base(node).op.name)
        if found is not None and result and found.kind in kinds:
            found = replace(found, result=True)
    r.report.not_finite = found


def _written(r: CheckRun, kind: str) -> bool:
    """True if the kernel has such a number as a constant: -inf starts a maximum, and pads it."""
    return any(u.is_const and u.dtype.is_float and _TESTS[kind](u.arg) for u in toposort(r.call.kernel.sink))


@unheard()
def _kinds(a: Array) -> set[str]:
    wide = a.astype(float)
    return {kind for kind, test in _TESTS.items() if test(wide).any()}


def _found(r: CheckRun, slot: int, kind: str) -> NotFinite:
    content, live = r.after[slot], r.lives[slot]
    with unheard():
        wrong = _TESTS[kind](content.astype(float))
    element = int(np.flatnonzero(wrong if live is None else wrong & live)[0])
    found: Json = {
        "begins": kind, "op": "STORE", "shape": (int(content.size),), "at": (element,), "sources": (), "inputs": (),
        "lines": lines_of(r.origins),
    }  # fmt: skip

    def note(u: UOp, value: Bounded, sources: Sequence[Bounded]) -> None:
        if found["op"] != "STORE" or u.op in _GIVEN:
            return
        odd = np.flatnonzero(~np.isfinite(value.value))
        if odd.size and all(np.isfinite(s.value).all() for s in sources):
            at = int(odd[0])
            begins = "nan" if np.isnan(value.value.ravel()[at]) else "inf"
            found.update(
                begins=begins,
                op=u.op.name,
                shape=u.shape,
                at=tuple(int(i) for i in np.unravel_index(at, u.shape)),
                sources=_told(u, at, sources),
                inputs=_traced(r, u, at),
                lines=lines_of({u}.intersection(r.nodes)) or found["lines"],
                overflow=begins == "inf" and _overflows(u, at, sources),
            )

    if (node := r.node(r.call.args[slot])) is not None:
        with suppress(TooLarge):
            r.tensors.value(node, note)
    found["inputs"] = found["inputs"] or _inputs(r, slot, element)
    return NotFinite(**r.facts, **found, kind=kind, value=f"v{r.call.args[slot]}", element=element)


def _overflows(u: UOp, at: int, sources: Sequence[Bounded]) -> bool:
    """True if element `at` of `u`, infinite in its own dtype, is finite in float64."""
    if u.op is Op.CAST:
        return True
    wide = TensorValues({}, 1 << 40, plain=True)
    for s, x in zip(needed(u), sources, strict=True):
        wide.known[base(s)] = Bounded(x.value.ravel())
    with unheard():
        return bool(np.isfinite(wide.value(u).value.ravel()[at]))


def _told(u: UOp, at: int, sources: Sequence[Bounded]) -> Texts:
    """The elements of the sources that element `at` of `u` is made of; of a reduction its terms' extremes."""
    out = []
    for s in sources:
        if s.value.size == 1 or s.value.shape == u.shape:
            out.append(f"{float(s.value.ravel()[at if s.value.size > 1 else 0]):.9g}")
        elif s.value.size:
            out.append(f"terms from {float(np.nanmin(s.value)):.9g} to {float(np.nanmax(s.value)):.9g}")
    return tuple(out)


def _traced(r: CheckRun, u: UOp, at: int) -> Texts:
    """The elements in memory that element `at` of a node is made of, the largest first; nothing where a sum or a
    choice of places lies between.
    """
    known = r.tensors.known
    named = {base(r.nodes[p]): v for some in r.written for v, places in some.items() for p in places}
    numbers = ranks(r.tensors.leaves)
    found = {}
    seen = set()
    stack = [(u, at)]
    while stack:
        x, i = stack.pop()
        b = base(x)
        if (b, i) in seen or b.is_const:
            continue
        seen.add((b, i))
        if b.op is Op.BUFFER and b.arg in numbers:
            found[numbers[b.arg], i] = float(r.tensors.leaves[b.arg][i])
        elif b in known and b in named:
            found[named[b], i] = float(known[b].value[i])
        elif b.op is Op.EXPAND:
            [s], where = b.src, np.unravel_index(i, b.shape)
            inside = tuple(0 if n == 1 else int(k) for k, n in zip(where, s.shape, strict=True))
            stack.append((s, int(np.ravel_multi_index(inside, s.shape)) if s.shape else 0))
        elif b.op in ALU and all(s.shape == b.shape or s.size == 1 for s in b.src):
            stack += [(s, i if s.shape == b.shape else 0) for s in b.src]
        else:
            return ()
    return _largest(found)


def _largest(found: dict[tuple[int, int], float]) -> Texts:
    """The largest elements in memory, by the number of the value and the place in it."""
    ranked = sorted(found, key=lambda at: -abs(found[at]))[:_MOST]
    return tuple(f"v{v}[{i}] = {found[v, i]:.9g}" for v, i in ranked)


def _inputs(r: CheckRun, slot: int, element: int) -> Texts:
    """The elements that the kernel reads for an element that it stores, the largest first."""
    kernel = KernelValues(r.call.kernel.sink, r.trial.before, r.trial.values)
    for store in kernel.stores(slot):
        hits = [n for points, places, _ in kernel.lives(store) for n in points[places == element][:1]]
        if not hits:
            continue
        kernel.reads = []
        list(kernel.at(store, np.array(hits[:1])))
        found = {}
        for load, index, value in kernel.reads:
            which, of = [a.ravel() for a in np.broadcast_arrays(index, value.value)]
            for i in np.argsort(-np.abs(np.nan_to_num(of, nan=np.inf)), kind="stable")[:_MOST]:
                if load.dtype.is_float and which[i] >= 0:
                    found[r.call.args[load.slot], int(which[i])] = float(of[i])
        return _largest(found)
    return ()
