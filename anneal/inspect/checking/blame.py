"""The part at fault for a value that differs: the driver, an opt, the text, a rule or a pass."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import Any

import numpy as np

from anneal import schedule
from anneal.backend import AnyDevice, numpy_dtype
from anneal.codegen import GeneratedKernel, Opt, generate
from anneal.errors import AnnealError
from anneal.frozen import Json, frozen
from anneal.inspect.checking.bounds import Array, Bounded, beside
from anneal.inspect.checking.kernel_values import KernelValues
from anneal.inspect.checking.records import Difference, Finding, Report, Suspect, Trial
from anneal.inspect.checking.tensor_values import TensorValues, TooLarge, base
from anneal.inspect.derivations import compiling
from anneal.inspect.kernel_list import Lines, label_of, lines_of, placed
from anneal.rewrite import Event, Pass, forget, rebuilt, tracing
from anneal.runtime import Execution, sized
from anneal.uop import ALU, MOVEMENT, SYMBOLIC, DType, Ints, Op, Src, UOp, arena, const, toposort

_TIMES = 16  # that a rule is looked at while a graph is made
_SECONDS = 20  # for which rules are evaluated
_SIDES = 1 << 16  # elements of one side of a rule
_NUMBERS = {*ALU, *MOVEMENT, Op.CONST, Op.IOTA}
Suspects = dict[tuple[str, str], Suspect]  # by the text of the rule and its place
Sides = Callable[[UOp, UOp], tuple[Bounded, Bounded] | None]  # the values of both sides of a rule


def kernel_blame(r: CheckRun) -> str:
    """The part at fault for a kernel that does not do what its graph says, found by running it again, as it is and
    compiled otherwise.
    """
    program: Any = r.execution.programs[r.n]
    device, sink = r.device, r.call.kernel.sink

    def run(program: Any) -> bool | None:
        """True if the program is right; None if its bits differ from run to run."""
        first, second = [r.trial.run(device, program) for _ in range(2)]
        if any(a.tobytes() != b.tobytes() for a, b in zip(first, second, strict=True)):
            return None
        return all(compared.ok for compared in r.trial.compared(first))

    once = run(program)
    if once is None:
        return (
            "its bits differ from run to run: threads do not wait for each other (a missing barrier), or the driver "
            "is wrong"
        )
    if once:
        return (
            "run once more on the same inputs it is right: suspect the driver, the device, or memory that others write "
            "meanwhile"
        )
    load = getattr(device, "load", None)
    if load is None:
        return f"the program that device {device.name} made of the kernel is wrong"
    kernel = program.kernel
    target = device.target  # type: ignore[attr-defined]
    fresh = generate(sink, target)
    if fresh.source != kernel.source and run(load(program.name, fresh)):
        return "the text that ran differs from the text that code generation writes for this kernel, which is right"
    waiting = with_barriers(kernel.source)
    with suppress(AnnealError):  # a driver refuses a barrier that not all threads reach
        if waiting is not None and run(load(program.name, replace(kernel, source=waiting))):
            return "it is right with barriers around each use of shared memory: the code of its opts lacks a barrier"
    plain = _plain(sink, target)
    if plain is not None and plain.source != kernel.source and run(load(program.name, plain)):
        return "without its opts the kernel is right: an opt, or the code that is written for it, is wrong"
    return "code generation or the driver is wrong: the kernel is wrong without its opts too"


def with_barriers(source: str) -> str | None:
    """The text of a kernel with a barrier before and after each statement on shared memory; None if it shares none.

    Statements are those of the function and of its loops: within an `if` not all threads would wait.
    """
    names = re.findall(r"^var<workgroup> (\w+)", source, re.M)
    if not names:
        return None
    shared = re.compile(rf"\b(?:{'|'.join(names)})\b")
    out = []
    inside: list[str] = []  # the lines that opened the blocks around a line
    block: list[str] = []  # the statement so far, of one line or an `if` with all that it encloses
    for line in source.splitlines():
        opens, loop = line.count("{") - line.count("}"), line.lstrip().startswith(("for ", "fn main"))
        if not block and (not inside or loop or line.strip() == "}"):
            out.append(line)
            inside = [*inside, line] if opens > 0 else inside[: len(inside) + opens]
            continue
        block.append(line)
        if sum(x.count("{") - x.count("}") for x in block) == 0:
            wait = ["workgroupBarrier();"] if shared.search("\n".join(block)) else []
            out += [*wait, *block, *wait]
            block = []
    return "\n".join([*out, *block]) + "\n"


def _plain(sink: UOp, target: Any) -> GeneratedKernel | None:
    """The kernel with one thread for each element and no other opt."""
    if len(schedule.members_of(sink)) > 1:
        return None
    try:
        return generate(sink, target, (Opt("FLAT", 0, min(64, target.max_threads)),))
    except AnnealError:
        return None


# -- rules ------------------------------------------------------------------------------------------------------------


def suspects(r: CheckRun) -> list[Suspect]:
    """Rules that changed the value of a node while the kernel of the call was made, and the passes between which it
    changed.

    The kernel is made once more, and both sides of each rule that fires are evaluated: of the tensor graph on random
    numbers in the place of what both sides have in common, of the kernel's on its ranges and memory.
    """
    found: Suspects = {}
    with compiling():
        forget()
        with tracing() as events:
            s = schedule.run_passes(schedule.parametrise(r.sink, {})[0], r.device.cost_model, until="kernel-split")
        _look_at(events, found, "", _tensor_sides, {u: lines_of([r.known[n]]) for u, n in s.places.items()})
        for piece in [c.graph for c in s.cuts if c.places == r.call.places][:1]:
            forget()
            with tracing() as events:
                graph = schedule.kernel_graph(piece)
            memory = KernelValues(graph, r.trial.before, r.trial.values)
            _look_at(events, found, "range-propagation", partial(_kernel_sides, memory), {})
    return list(found.values())


def wrong_rules(events: list[Event], times: Counter[tuple[str, str]]) -> list[Suspect]:
    """The rules among `events`, of a program that makes its graph, whose two sides differ by themselves; empties
    `events`.

    Such a rule is part of the graph as it was written: no kernel differs from it. Each is looked at a few times, which
    `times` counts.
    """
    some = []
    for e in events:
        if e.table == "fold" and times[e.rule, e.place] < _TIMES:
            times[e.rule, e.place] += 1
            some.append(e)
    events.clear()
    found: Suspects = {}
    with arena().untracked():
        _look_at(some, found, "", _tensor_sides, {e.before: lines_of([e.before]) for e in some})
    return list(found.values())


def _look_at(
    events: Iterable[Event],
    found: Suspects,
    where: str,
    sides: Sides,
    lines: Mapping[UOp, Lines],
) -> None:
    seen = set()
    begun = time.monotonic()
    for e in events:
        key = (e.rule, e.place)
        if time.monotonic() - begun > _SECONDS:
            return
        if key in found or not isinstance(e.after, UOp) or (e.before, e.after) in seen:
            continue
        seen.add((e.before, e.after))
        try:
            pair = sides(e.before, e.after) if e.before.dtype is e.after.dtype else None
        except (AnnealError, TooLarge, KeyError, ValueError, IndexError, MemoryError):
            continue
        if pair is not None and (example := _apart(*pair)) is not None:
            found[key] = Suspect(e.rule, e.table, e.place, e.pass_name or where, example, lines.get(e.before, ()))


def _apart(a: Bounded, b: Bounded) -> str | None:
    """An element in which two sides of a rule differ by more than their bounds, in words."""
    x, y = np.broadcast_arrays(a.value, b.value)
    compared = beside(np.asarray(x), Bounded(y, np.broadcast_to(a.error + b.error, x.shape)))
    if compared.ok:
        return None
    at = compared.at
    return f"{x.ravel()[at].item()} became {y.ravel()[at].item()}"


def _common(a: UOp, b: UOp) -> set[UOp]:
    """The topmost nodes that both sides have."""
    below = set(toposort(b))
    return {s for u in toposort(a, lambda u: u in below and u is not a) for s in u.src if s in below}


def _tensor_sides(before: UOp, after: UOp) -> tuple[Bounded, Bounded] | None:
    """The values of both sides of a rule on random numbers, which replace their common nodes; elements that are not
    determined by them are left out.
    """
    if before.size > _SIDES or before.shape != after.shape:
        return None
    values = TensorValues({}, 1 << 22)
    rng = np.random.default_rng(0)
    common = _common(before, after)
    # nodes made of constants and indices alone keep their values
    taken = [u for u in common if not all(x.op in _NUMBERS for x in toposort(u)) and not common & {*toposort(u.src)}]
    taken += [u for u in toposort((before, after)) if not u.src and u.op not in _NUMBERS]  # beside what is common
    for u in taken:
        if base(u) not in values.known:
            values.known[base(u)] = Bounded(_random(u, rng).ravel())
    return values.value(before), values.value(after)


def _random(u: UOp, rng: np.random.Generator) -> Array:
    if u.dtype.is_float:
        return rng.normal(size=u.shape).astype(np.float32).astype(float)
    if u.dtype.kind == "bool":
        return rng.integers(0, 2, u.shape).astype(bool)
    low = max(int(u.vmin), -8) if u.vmin is not None else -8
    high = min(int(u.vmax), low + 16) if u.vmax is not None else low + 16
    return rng.integers(low, max(high, low) + 1, u.shape).astype(numpy_dtype(u.dtype))


def _kernel_sides(memory: KernelValues, before: UOp, after: UOp) -> tuple[Bounded, Bounded] | None:
    if any(u.op in (Op.STORE, Op.SINK, Op.REDUCE, Op.BUFFERIZE) for u in toposort((before, after))):
        return None
    return _tensor_sides(before, after) if before.shape or after.shape else memory.sides(before, after)


# -- a check of one launch --------------------------------------------------------------------------------------------


@frozen
class CheckLimits:
    """The limits of a check's work: elements of arithmetic for each store of a kernel, and elements in all arrays of an
    evaluation of the graph. Elements beyond are sampled at random, or left out, and the report says so.
    """

    kernel: int = 1 << 21
    tensor: int = 1 << 26


@dataclass(slots=True)
class HeldValue:
    """A value of the plan: its content as it was written, and its place in the graph."""

    content: Array
    bounded: Bounded | None = None
    places: Ints = ()
    sources: frozenset[int] = frozenset()  # the values in memory that it is computed of
    writer: int | None = None


@dataclass(slots=True)
class CheckRun:
    """The state of a check of one launch, and of its call `n`: what it read and wrote, what is wrong with that, and
    what was left out. `lives` are the elements of the call's outputs that are read.

    `nodes` are those of the graph as written by place, without symbolic sizes, `known` their origins. `written` has for
    each value that a call writes the places of the nodes that it is, the call's first; none for a partial one.
    """

    sink: UOp
    number: int
    plan: schedule.Plan
    nodes: Src
    known: Sequence[schedule.Origin]
    written: list[dict[int, Ints]]
    device: AnyDevice
    execution: Execution
    tensors: TensorValues
    limits: CheckLimits
    report: Report
    found: list[Finding]
    held: dict[int, HeldValue] = field(default_factory=dict)
    n: int = 0
    trial: Trial = field(init=False)
    after: list[Array] = field(default_factory=list)
    lives: list[Array | None] = field(default_factory=list)
    failed: list[Difference] = field(default_factory=list)
    note: list[str] = field(default_factory=list)

    @property
    def call(self) -> schedule.Call:
        return self.plan.calls[self.n]

    @property
    def origins(self) -> list[schedule.Origin]:
        return placed(self.call.places, self.known)

    @property
    def facts(self) -> Json:
        """The launch and its kernel, as records have them."""
        label = label_of(self.origins)
        return {"launch": self.number, "kernel": self.n, "name": self.call.kernel.name, "label": label}

    def node(self, v: int) -> UOp | None:
        """The node whose value the call writes as `v`; None for a partial value."""
        places = self.written[self.n].get(v)
        return self.nodes[places[0]] if places else None

    def dtype(self, v: int) -> DType:
        return self.plan.values[v].dtype

    def pieces(self, values: Sequence[int]) -> list[tuple[Any, int, DType]]:
        """The memory of some of the plan's values, as `download_all` takes it."""
        return [(self.execution.buffers[v], self.plan.values[v].size, self.dtype(v)) for v in values]


def places_of(sink: UOp, plan: schedule.Plan, cost_model: schedule.CostModel) -> list[dict[int, Ints]]:
    """The places of the nodes of the graph as written that each value is which a call of the plan of `sink`
    (`SINK(outputs...)`) writes.

    The passes run once more, up to the kernels' cuts, and what each walk puts in the place of which node is followed
    from the program to the nodes that get memory. Partial results, and what else the passes invent, are no node's
    value.
    """
    with compiling():
        program, _ = schedule.parametrise(sink, {})
        order = toposort(program)
        ends: dict[UOp, list[int]] = {}

        def follow(p: Pass[Any], s: schedule.Schedule) -> None:
            if p.name == "split-reduces":  # the last that changes the graph: those behind it choose
                for n, u in enumerate(order):
                    end = reduce(lambda v, walk: walk.get(v, v), walks, u)
                    ends.setdefault(base(end), []).append(n)

        with rebuilt() as walks:
            s = schedule.PASSES.run(schedule.Schedule(program, cost_model), "kernel-split", follow)
    waiting: dict[Ints, list[Src]] = {}
    for cut in s.cuts:
        waiting.setdefault(cut.places, []).append(tuple(cut.group.roots))
    written = []
    for call in plan.calls:
        several = waiting[call.places]
        roots = several.pop(0) if len(several) > 1 else several[0]
        found = {}
        for v, root, at in zip(call.args[: call.outputs], roots, call.places):
            kind = root.dtype, root.size
            same = [n for n in ends.get(base(root), ()) if (order[n].dtype, order[n].size) == kind]
            found[v] = tuple(sorted(same, key=lambda n: (n != at, -n)))
        written.append(found)
    return written


def numbered(nodes: list[UOp]) -> Src:
    """The nodes with the values of bound variables in their place."""
    with arena().untracked():
        return sized(nodes, lambda u: const(u.dtype, u.arg[3]), {}) if SYMBOLIC.seen else tuple(nodes)
