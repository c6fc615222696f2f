"""A plan's kernels one by one on their device, each beside its own graph and beside the graph as it was written."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from anneal.backend import AnyDevice

from anneal.inspect.checking.blame import (  # isort: skip
    CheckLimits, CheckRun, Finding, HeldValue, StoredValue, again, kernel_blame, program_of, suspects,
)  # fmt: skip
from anneal.inspect.checking.bounds import Array, Bounded, Compared, beside, exactly, shown, ulps
from anneal.inspect.checking.kernel_values import KernelValues, chosen
from anneal.inspect.checking.not_finite import look
from anneal.inspect.checking.records import CheckedKernel, Difference, Report, Suspect
from anneal.inspect.checking.tensor_values import PointValues, TensorValues, TooLarge, base
from anneal.inspect.kernel_list import Line, label_of, lines_of, modules_of, placed
from anneal.progress import told
from anneal.runtime import Execution, Launch, compiled, new_outputs, seen
from anneal.schedule import Call, Origin
from anneal.uop import Op, UOp


def check_launch(
    sink: UOp, step: Launch, device: AnyDevice, number: int, limits: CheckLimits, report: Report, found: list[Finding]
) -> None:
    """Run the plan of `step`, which computed `sink`, once more, kernel by kernel, and add what that shows to `report`
    and `found`.

    What a kernel reads is copied out before it starts. It is judged by these values, right or wrong, so that a kernel
    that differs is at fault itself, whatever happened before.
    """
    program = program_of(sink, step.plan, device.cost_model)
    again = Launch(step.plan, step.inputs, new_outputs(step.plan, device), step.values)
    with device.lock:
        execution = Execution(again, device, compiled(step.plan, device))
        try:
            leaves: dict[Any, Array] = {}
            r = CheckRun(
                sink, number, program, device, execution, TensorValues(leaves, limits.tensor), limits, report, found
            )
            inputs = device.download_all(r.pieces(range(step.plan.inputs)))
            for v, (storage, content) in enumerate(zip(step.inputs, inputs)):
                leaves[storage] = content
                r.held[v] = HeldValue(content, sources=frozenset((v,)))
            for u in program.nodes:
                if u.op is Op.BUFFER and u.arg not in leaves:  # of no elements, or read by no kernel
                    s = u.arg
                    leaves[s] = s.host if s.host is not None else device.download(s.ensure(), s.size, s.dtype)
            for n in told(range(len(step.plan.calls)), "checking kernels", len(step.plan.calls)):
                _check_call(r, n)
            _check_batch(r, step)
        finally:
            execution.close()


def _check_call(r: CheckRun, n: int) -> None:
    call: Call = r.plan.calls[n]
    program = r.execution.programs[n]
    buffers = [r.execution.buffers[v] for v in call.args]
    pieces = r.pieces(call.args)
    before = r.device.download_all(pieces)
    origins = placed(call.places, r.program.origins)
    opts = program.opts
    note: list[str] = []
    failed: list[Difference] = []
    if (wrong := _changed(r, n, call, before)) is not None:
        failed.append(wrong)
    r.device.prepare([(program, buffers)], r.execution.values).run()
    after = r.device.download_all(pieces[: call.outputs])
    own, expected = _beside_kernel(r, n, call, before, after, failed, note)
    tensor = _beside_tensors(r, n, call, before, after, failed, own, note)
    elements = sum(int(r.plan.values[v].size) for v in call.args[: call.outputs])
    judged = [c for c in (*own, *tensor) if c is not None]
    r.report.kernels.append(
        CheckedKernel(
            launch=r.number,
            kernel=n,
            name=call.kernel.name,
            label=label_of(origins),
            opts=opts,
            phase=call.phase,
            elements=elements,
            compared=sum(c.judged for c in own),
            tensor_elements=sum(c.judged for c in tensor if c is not None),
            unjudged=max([c.unjudged for c in judged], default=0),
            worst=max([c.worst for c in judged if np.isfinite(c.worst)], default=0.0),
            ok=not failed,
            note="; ".join(dict.fromkeys(note)),
            lines=lines_of(origins),
            modules=modules_of(origins),
        )
    )
    if failed:
        r.report.differences += failed
        r.found.append(Finding(failed[0], call, program, before, expected, dict(r.execution.values)))
    look(r, n, before, after)


def _changed(r: CheckRun, n: int, call: Call, before: Sequence[Array]) -> Difference | None:
    """A value that is not any more what was written: its memory was given to another too early."""
    for slot in range(call.outputs):
        mine = r.execution.buffers[call.args[slot]]
        for v in call.args:
            if v != call.args[slot] and r.execution.buffers[v] is mine and before[slot].size:
                blame = f"it writes v{call.args[slot]} into the memory of v{v}: the memory plan is at fault"
                wrong = _Wrong(
                    0, f"in the memory of v{v}", "memory of its own", 0.0, before[slot].size, before[slot].size
                )
                return _difference(r, n, call.args[slot], "memory", blame, wrong)
    for slot, v in enumerate(call.args):
        held = r.held.get(v)
        if held is None or _bits(held.content) == _bits(before[slot]):
            continue
        size = held.content.size
        same = _bytes(held.content) == _bytes(before[slot])
        changed = ~same.all(axis=1)
        at = int(np.argmax(changed))
        who = f"kernel {held.writer}" if held.writer is not None else "the program"
        blame = (
            f"it reads v{v}, which no longer holds what {who} wrote: the memory plan is at fault, or a kernel writes "
            "beyond its own memory"
        )
        wrong = _Wrong(at, before[slot][at], held.content[at], 0.0, int(changed.sum()), size)
        return _difference(r, n, v, "memory", blame, wrong)
    return None


def _bytes(a: Array) -> Array:
    """The bytes of each element."""
    return np.ascontiguousarray(a).view(np.uint8).reshape(a.size, -1)


def _bits(a: Array) -> bytes:
    return np.ascontiguousarray(a).tobytes()


# -- beside the kernel's own graph -----------------------------------------------------------------------------------


def _beside_kernel(
    r: CheckRun, n: int, call: Call, before: list[Array], after: list[Array], failed: list[Difference], note: list[str]
) -> tuple[list[Compared], list[tuple[Array, Array, Array]]]:
    """The comparison of each output with its kernel graph, and the expected values with their places. Notes which
    elements are read (None: all).
    """
    kernel = KernelValues(call.kernel.sink, before, r.execution.values)
    results: list[Compared] = []
    expected: list[tuple[Array, Array, Array]] = []
    r.lives = []
    for slot, v in enumerate(call.args[: call.outputs]):
        whole, pieces = True, []
        live: Array | None = None
        for store in kernel.stores(slot):
            for piece, complete in kernel.stored(store, r.limits.kernel, n):
                whole &= complete
                pieces.append(piece)
        columns = [(p.places, p.value.value, p.value.whole(), p.live) for p in pieces]
        nothing = np.zeros(0, np.int64), np.zeros(0), np.zeros(0), np.zeros(0, np.bool_)
        index, value, error, alive = map(np.concatenate, zip(*(columns or [nothing])))
        inside = (index >= 0) & (index < after[slot].size)
        got = after[slot][np.where(inside, index, 0)]
        read = alive & inside
        once = _once(index, after[slot].size)
        if not once.all():
            note.append(f"v{v}: stores that write the same elements were left out")
        compared = beside(got, Bounded(value, error), read & once)
        results.append(compared)
        expected.append((index[read], value[read], error[read]))
        if not alive.all():
            live = np.zeros(after[slot].size, np.bool_)
            live[index[read]] = True
        if not whole:
            note.append(f"{compared.judged:,} of {after[slot].size:,} elements of v{v} were drawn")
            if live is not None:
                live = _lives(kernel, slot, after[slot].size)
        r.lives.append(live)
        if not compared.ok:
            at = compared.at
            wrong = _Wrong(int(index[at]), got[at], value[at], error[at], compared.differ, compared.judged)
            failed.append(_difference(r, n, v, "kernel graph", _blame_kernel(r, n, before, expected), wrong))
        if whole and pieces and not r.execution.values:
            stray = _stray(before[slot], after[slot], index)
            if stray.size:
                at = int(stray[0])
                blame = f"the kernel wrote where none of its stores does: {_blame_kernel(r, n, before, expected)}"
                wrong = _Wrong(at, after[slot][at], before[slot][at], 0.0, int(stray.size), after[slot].size)
                failed.append(_difference(r, n, v, "other elements", blame, wrong))
    return results, expected


def _once(index: Array, size: int) -> Array:
    """True for places that one point alone writes: elsewhere the last write wins, in no fixed order."""
    inside = (index >= 0) & (index < size)
    times = np.bincount(index[inside], minlength=1)
    return np.where(inside, times[np.where(inside, index, 0)] == 1, True)


def _lives(kernel: KernelValues, slot: int, size: int) -> Array:
    """The elements of an output that are read."""
    live = np.zeros(size, np.bool_)
    for store in kernel.stores(slot):
        for index, alive in kernel.lives(store):
            live[index[alive]] = True
    return live


def _stray(before: Array, after: Array, index: Array) -> Array:
    """Elements that changed although no store is theirs."""
    if not before.size:
        return np.zeros(0, np.int64)
    changed = (_bytes(before) != _bytes(after)).any(axis=1)
    changed[index[(index >= 0) & (index < before.size)]] = False
    return np.flatnonzero(changed)


def _blame_kernel(r: CheckRun, n: int, before: list[Array], expected: Sequence[tuple[Array, Array, Array]]) -> str:
    """The part at fault, found by running the kernel again, as it is and compiled otherwise."""
    call: Call = r.plan.calls[n]
    sizes = [(r.plan.values[v].size, r.dtype(v)) for v in call.args]

    def right(program: Any) -> bool | None:
        runs = [again(r.device, program, call, sizes, before, r.execution.values) for _ in range(2)]
        if any(_bits(a) != _bits(b) for a, b in zip(*runs, strict=True)):
            return None
        return all(
            beside(got[index], Bounded(value, error)).ok for got, (index, value, error) in zip(runs[0], expected)
        )

    return kernel_blame(r.device, r.execution.programs[n], call.kernel.sink, right)


# -- beside the graph as it was written ------------------------------------------------------------------------------


def _beside_tensors(
    r: CheckRun,
    n: int,
    call: Call,
    before: list[Array],
    after: list[Array],
    failed: list[Difference],
    own: list[Compared],
    note: list[str],
) -> list[Compared | None]:
    reads = [v for slot, v in enumerate(call.args) if slot >= call.outputs or v in r.held]
    sources = frozenset().union(*[r.held[v].sources for v in reads if v in r.held])
    r.tensors.known.clear()
    for v in sources:
        held = r.held[v]
        for at in held.places if held.bounded is not None else ():
            assert held.bounded is not None
            r.tensors.known[base(r.program.nodes[at])] = held.bounded
    results: list[Compared | None] = []
    made: list[tuple[StoredValue, HeldValue]] = []
    for slot, w in enumerate(r.program.written[n]):
        content = after[slot]
        if not w.places:
            made.append((w, HeldValue(content, sources=sources, writer=n)))
            note.append(f"v{w.value} is only a part of a value of the graph as written")
            results.append(None)
            continue
        node = r.program.nodes[w.places[0]]
        got = seen(content, node.shape) if content.size != node.size else content
        live = r.lives[slot] if content.size == node.size else None
        points, expected = _expected(r, n, w, node, note)
        anchor = exactly(got.reshape(-1))
        if expected is None:
            results.append(None)
        else:
            mine = got.reshape(-1) if points is None else got.reshape(-1)[points]
            counted = live if live is None or points is None else live[points]
            compared = beside(mine, expected, counted)
            results.append(compared)
            if not compared.ok and (slot >= len(own) or own[slot].ok):
                failed.append(_rule_difference(r, n, call, w, node, mine, expected, compared, points, before))
        if live is not None and not live.all():
            anchor = _without_dead(anchor, live, expected if points is None else None)
        made.append((w, HeldValue(content, anchor, w.places, frozenset((w.value,)), n)))
    for w, held in made:
        r.held[w.value] = held
    _forget(r, n)
    return results


def _expected(r: CheckRun, n: int, w: StoredValue, node: UOp, note: list[str]) -> tuple[Array | None, Bounded | None]:
    """The values by the graph as written: of all elements (no points); else of drawn ones, with their numbers; or
    (None, None), if even those take too much.
    """
    try:
        return None, r.tensors.value(node)
    except TooLarge:
        r.report.say("some values are too large to compare as a whole with the graph as written: see the kernels")
    some = PointValues(r.tensors)
    try:
        points = chosen(int(node.size), max(64, r.limits.kernel // some.work(node)), n)
        pieces = [value for _, value in some.at(node, points)]
    except TooLarge as e:
        note.append(f"v{w.value} was not compared with the graph as written: that takes {e}")
        return None, None
    note.append(
        f"{points.size:,} of {node.size:,} elements of v{w.value} were drawn to be compared with the graph as written"
    )
    value = np.concatenate([p.value for p in pieces])
    return points, Bounded(value, np.concatenate([p.whole() for p in pieces]))


def _without_dead(anchor: Bounded, live: Array, expected: Bounded | None) -> Bounded:
    """A value in memory, with the expected one where it is not read; anything, if that is unknown."""
    live = live.reshape(-1)
    error = anchor.whole()
    if expected is None:
        return Bounded(anchor.value, np.where(live, error, np.inf))
    flat = expected.value.reshape(-1)
    other = expected.whole().reshape(-1)
    return Bounded(np.where(live, anchor.value, flat).astype(anchor.value.dtype), np.where(live, error, other))


def _forget(r: CheckRun, n: int) -> None:
    """Let go of the bounds of values that no later call needs."""
    later: set[int] = set(r.plan.outputs)
    for call in r.plan.calls[n + 1 :]:
        later.update(call.args)
    for v in list(later):
        if v in r.held:
            later |= r.held[v].sources
    for v in [v for v in r.held if v not in later]:
        del r.held[v]


def _rule_difference(
    r: CheckRun,
    n: int,
    call: Call,
    w: StoredValue,
    node: UOp,
    got: Array,
    expected: Bounded,
    compared: Compared,
    points: Array | None,
    before: list[Array],
) -> Difference:
    at = compared.at
    found = suspects(r.sink, r.program, call, r.device.cost_model, before, r.execution.values)
    blame = (
        "the kernel does what its own graph says: a rule or a pass between the graph as written and the kernel is wrong"
    )
    wrong = _Wrong(
        at if points is None else int(points[at]),
        got.reshape(-1)[at],
        expected.value.reshape(-1)[at],
        expected.whole().reshape(-1)[at],
        compared.differ,
        compared.judged,
    )
    return _difference(r, n, w.value, "tensor graph", blame, wrong, node, found)


class _Wrong(NamedTuple):
    """The worst element that differs, and how many of those that were compared do."""

    element: int
    got: Any
    expected: Any
    bound: float
    differ: int
    compared: int


def _difference(
    r: CheckRun,
    n: int,
    v: int,
    against: str,
    blame: str,
    wrong: _Wrong,
    node: UOp | None = None,
    suspects: Sequence[Suspect] = (),
) -> Difference:
    call = r.plan.calls[n]
    origins = placed(call.places, r.program.origins)
    if node is None:
        written = next((w for w in r.program.written[n] if w.value == v and w.places), None)
        node = r.program.nodes[written.places[0]] if written is not None else None
    dtype = r.dtype(v)
    shape: tuple[int, ...] = node.shape if node is not None else (r.plan.values[v].size,)
    at = tuple(int(i) for i in np.unravel_index(wrong.element, shape)) if wrong.element < math.prod(shape) else ()
    return Difference(
        launch=r.number,
        kernel=n,
        name=call.kernel.name,
        label=label_of(origins),
        opts=r.execution.programs[n].opts,
        device=str(r.device),
        against=against,
        blame=blame,
        value=f"v{v}",
        op=node.op.name if node is not None else "STORE",
        dtype=dtype.name,
        shape=shape,
        element=wrong.element,
        at=at,
        got=shown(wrong.got),
        expected=shown(wrong.expected),
        bound=float(wrong.bound),
        ulps=0.0 if isinstance(wrong.got, str) else ulps(float(wrong.got), float(wrong.expected), dtype),
        count=wrong.differ,
        compared=wrong.compared,
        lines=tuple(dict.fromkeys([*[x for s in suspects for x in s.lines], *_lines(r, node, origins, against)])),
        modules=modules_of(origins),
        suspects=tuple(suspects),
    )


def _lines(r: CheckRun, node: UOp | None, origins: Sequence[Origin], against: str) -> tuple[Line, ...]:
    """The lines of what the kernel computes; beside the graph as written, of all nodes between what it reads and what
    differs, those too that the passes left out.
    """
    if node is None or against != "tensor graph":
        return lines_of(origins)
    cone = set(r.tensors.cone(node))
    between = [o for u, o in zip(r.program.nodes, r.program.origins, strict=True) if u in cone and not _held(r, u)]
    return lines_of(reversed([o for o in between if o.grounded] or between)) or lines_of(origins)


def _held(r: CheckRun, u: UOp) -> bool:
    return u.op in (Op.BUFFER, Op.CONST) or base(u) in r.tensors.known


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
    runs: list[tuple[str, list[Array]]] = [("the program's own run", r.device.download_all(first))]
    for turn in range(3):
        r.execution.run()
        runs.append((f"run {turn + 1} of all kernels as one batch", r.device.download_all(outputs)))
    for what, got in runs:
        for v, a, b in zip(r.plan.outputs, alone, got, strict=True):
            differ = ~((a == b) | ((a != a) & (b != b)))
            if not differ.any():
                continue
            at = int(np.argmax(differ))
            n = max(n for n, c in enumerate(r.plan.calls) if v in c.args[: c.outputs])
            blame = (
                f"{what} differs from its kernels run one by one: kernels that run side by side do not wait for each "
                "other where they must, or one of them has a race"
            )
            wrong = _Wrong(at, b[at], a[at], 0.0, int(differ.sum()), a.size)
            r.report.differences.append(_difference(r, n, v, "one batch", blame, wrong))
            return
