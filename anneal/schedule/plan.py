"""Tensor graph -> plan, by the passes or from the cache."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

from anneal import cache, settings
from anneal.errors import AnnealError, CompilerError, TransformError
from anneal.rewrite import rebuild, rebuilt, unfolded
from anneal.schedule.fusion import CostModel, refusals
from anneal.schedule.passes import nbytes, run_passes, uses
from anneal.schedule.records import Call, Kernel, Origin, Plan, Value
from anneal.schedule.shared import BUILDING, WITH_PLANS

from anneal.uop import (  # isort: skip
    SYMBOLIC, Ints, Known, Op, Src, UOp, Weighed, arena, by_name, decode_graph, encode_graph,
    ranks, toposort, uncollected,
)  # fmt: skip
from anneal.uop.sizes import any_symbolic, mapped, size_node, symbolic_arg, unbound, variable

_WORTH = 0.005  # seconds of scheduling below which a plan is not worth a file

# ---------------------------------------------------------------------------------------------------------------------
# Plans on disk: a process that meets a program again neither schedules it nor builds its kernel graphs.
#
# A plan's key is the program's structure, the target's cost model and the compiler's code, for it depends on nothing
# else. A kernel's graph is kept as text of its own and read only if it is needed: a device that finds its code on
# disk too never does.


def encode_plan(plan: Plan) -> dict[str, Any]:
    """`plan` as what JSON can say."""
    number = ranks(plan.kernels)
    return {
        "values": [[v.size, v.dtype.name, v.kind] for v in plan.values],
        "inputs": plan.inputs,
        "outputs": plan.outputs,
        "calls": [[number[c.kernel], c.args, c.outputs, c.phase, c.places] for c in plan.calls],
        "memory": plan.memory,
        "temporaries": [[size, dtype.name] for size, dtype in plan.temporaries],
        "variables": [v.arg for v in plan.variables],
        "kernels": [[k.name, k.key.hex(), json.dumps(encode_graph(k.sink))] for k in number],
    }


def decode_plan(data: dict[str, Any]) -> Plan:
    """The plan that `encode_plan` wrote down; an exception if this is none: numbers of nothing, memory that is too
    small.
    """
    kernels = [
        Kernel(partial(_graph, str(rows), key), str(name), key)
        for name, text, rows in data["kernels"]
        for key in [bytes.fromhex(text)]
    ]
    values = tuple([Value(_number(size), by_name(dtype), _KINDS[kind]) for size, dtype, kind in data["values"]])
    temporaries = tuple([(_number(size), by_name(dtype)) for size, dtype in data["temporaries"]])
    count = len(values)
    memory = tuple([(_number(value, count), _number(place, len(temporaries))) for value, place in data["memory"]])
    for value, place in memory:
        size, dtype = temporaries[place]
        if values[value].size * values[value].dtype.itemsize > size * dtype.itemsize:
            raise ValueError("a value that its place cannot hold")
    calls = [
        Call(
            kernels[_number(k, len(kernels))],
            tuple([_number(v, count) for v in args]),
            _number(outputs, len(args) + 1),
            phase,
            tuple([_number(at) for at in places]),
        )
        for k, args, outputs, phase, places in data["calls"]
    ]
    return Plan(
        values,
        _number(data["inputs"], count + 1),
        tuple([_number(v, count) for v in data["outputs"]]),
        tuple(calls),
        memory,
        temporaries,
        tuple([variable(*arg) for arg in data["variables"]]),
    )


_KINDS = {kind: kind for kind in ("input", "output", "temp")}


def _number(n: Any, end: int = 1 << 62) -> int:
    """`n`, if it is a number from 0 up to before `end`."""
    if type(n) is not int or not 0 <= n < end:
        raise ValueError(f"{n!r} is no number below {end}")
    return n


def _graph(rows: str, key: bytes) -> UOp:
    wrong = None
    try:
        with arena().untracked():
            found = decode_graph(json.loads(rows))
        if found.key == key:
            return found
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError, AnnealError) as e:
        wrong = e
    message = "a kernel in the cache differs from its entry; empty the cache: anneal cache prune --all"
    raise CompilerError(message) from wrong


# ---------------------------------------------------------------------------------------------------------------------


_plans: Weighed[tuple[UOp, CostModel], Plan] = Weighed(256, 1 << 17)  # by programs, whose nodes are their weight


def clear_cache() -> None:
    """Forget every plan and kernel."""
    _plans.clear()
    for forget in WITH_PLANS:
        forget()


def parametrise(sink: UOp, values: dict[str, int] | None = None) -> tuple[UOp, list[Any]]:
    """Replace each BUFFER by PARAM(slot, (size,)), numbered in structural order; returns the storages by slot.

    Bound variables become VARIABLEs; `values` takes what they are bound to.
    """
    storages = []
    if SYMBOLIC.seen:
        sink = _unbound(sink, {} if values is None else values)

    def visit(u: UOp, src: Src) -> UOp:
        if src:
            return unfolded(u, src)
        if u.op is Op.BUFFER:
            storages.append(u.arg)
            return UOp(Op.PARAM, u.dtype, (), (len(storages) - 1, u.shape))
        if u.op is Op.PARAM:
            if u.tag is not None and u.tag[0] == "input":
                raise TransformError(
                    f"a value that depends on an input (here of shape {u.shape}) was read or realized in a function "
                    "that is exported, where it is not known; use where() instead of if, and return what you need"
                )
            raise TransformError(
                f"a value of a vmapped function, or of a loop's body, was read: inside, a tensor (here of shape "
                f"{u.shape}) stands for the same part of every example, or turn, at once and has no values; use "
                "where() or cond() instead of if, return the values that you want to see, and keep nothing from "
                "inside the function"
            )
        return u

    return rebuild(sink, visit), storages


def _unbound(sink: UOp, values: dict[str, int]) -> UOp:
    """The graph with VARIABLEs for bound variables, whose values are noted."""
    order = toposort(sink)
    if not any_symbolic(order):
        return sink

    def visit(u: UOp, src: Src) -> UOp:
        if u.op is Op.BIND or u.op is Op.VARIABLE:
            size = unbound(u, values)  # a number, if the variable has only one value
            return size_node(size)
        arg = mapped(u.arg, lambda n: unbound(n, values)) if symbolic_arg(u.arg) else u.arg
        return u if src == u.src and arg is u.arg else UOp(u.op, u.dtype, src, arg, u.tag)

    return rebuild(sink, visit, order=order)


def plan_for(sink: UOp, cost_model: CostModel, values: dict[str, int] | None = None) -> tuple[Plan, list[Any], bool]:
    """The plan of `SINK(outputs...)`, the storages of its inputs, and whether this process knew it already.

    A plan is what a program means to a device: kernel calls over numbered values. It depends on structure alone.
    `plan_for` replaces the buffers of a graph by numbered parameters first; since nodes are interned, two graphs of one
    structure become the same object, and the second one finds its plan; a second process finds it on disk.

    `values` takes the values that variables are bound to; a variable that is not bound is a ShapeError. Memory that no
    kernel reads (of a sum over nothing) is no input, where it was numbered last. One thread plans at a time.
    """
    with BUILDING:
        a = arena()
        phase = a.phase
        try:
            with a.untracked():
                program, storages = parametrise(sink, values)
                found = _plans.find((program, cost_model))
                if found is not None:
                    return found, storages[: found.inputs], True
                key = cache.disk_key(program.key, cost_model) if cache.enabled() else None
                # at level 5 the passes are printed
                plan = cache.load("plans", key, decode_plan) if settings.current().debug < 5 else None
                if plan is None:
                    begun = time.perf_counter()
                    with uncollected():
                        plan = run_passes(program, cost_model).plan
                    assert plan is not None
                    if key is not None and time.perf_counter() - begun >= _WORTH:
                        names = [k.name for k in plan.kernels]
                        label = f"{len(plan.calls)} kernels, {len(names)} distinct: {', '.join(names[:3])}"
                        cache.save("plans", key, encode_plan(plan), label + ", ..." * (len(names) > 3))
        finally:
            a.phase = phase
        _plans.keep((program, cost_model), plan, len(toposort(program)))
        return plan, storages[: plan.inputs], False


def live_nodes(sink: UOp) -> list[UOp]:
    """The nodes below `SINK(outputs...)`, numbered as the places of its plan's calls are."""
    if not SYMBOLIC.seen:
        return toposort(sink)  # parameters for buffers change no order
    with arena().untracked(), rebuilt() as walks:
        program, _ = parametrise(sink)
    origin: Known = {}
    for walk in walks:
        for u, v in walk.items():
            origin.setdefault(v, origin.get(u, u))
    return [origin.get(u, u) for u in toposort(program)]


def refused(sink: UOp, cost_model: CostModel) -> list[tuple[int, int, str]]:
    """The reasons why neighbouring calls of `SINK(outputs...)`'s plan are not fused.

    Each is (writing call, reading call, reason). The passes run once more for it.
    """
    with BUILDING, arena().untracked(), refusals() as found:
        s = run_passes(parametrise(sink)[0], cost_model)
    assert s.plan is not None
    stores = {}  # place -> the call that stores it
    wrote: dict[int, int] = {}  # value -> the call that wrote it last
    neighbours: set[tuple[int | None, int | None]] = set()
    for n, c in enumerate(s.plan.calls):
        neighbours.update((wrote[v], n) for v in c.args[c.outputs :] if v in wrote)
        stores.update(dict.fromkeys(c.places[: c.outputs], n))
        wrote.update(dict.fromkeys(c.args[: c.outputs], n))
    reasons = {}
    for r in found:
        producers, readers = ({stores.get(s.places.get(u, -1)) for u in roots} for roots in r[:2])
        for a, b in neighbours.intersection((p, g) for p in producers for g in readers):
            if a is not None and b is not None and a != b:
                reasons[a, b] = r.reason
    return [(a, b, reason) for (a, b), reason in sorted(reasons.items())]


def origins(sink: UOp) -> list[Origin]:
    """The origin of each node below `SINK(outputs...)`, by place: it outlives the graph."""
    nodes = live_nodes(sink)
    # memory as a tensor shows it: nothing is computed there
    leaves = {u for u in nodes if u.op is Op.BUFFER or (u.op is Op.RESHAPE and u.src[0].op is Op.BUFFER)}
    return [Origin(u.op, u.weak and u not in leaves, u.provenance) for u in nodes]


def graph(outputs: Iterable[UOp]) -> UOp:
    """`SINK` over distinct output nodes."""
    src = tuple(dict.fromkeys(outputs))
    return UOp(Op.SINK, src[0].dtype, src)


# -- a plan in parts, and in stages ------------------------------------------------------------------------------------
# In parts: the calls that some of its outputs need, then those that the next ones need as well, and so on. An exchange
# of the first gradients goes on while the kernels of the others run. Each part is a plan of its own; what one part
# computes and a later one reads is an output of the first and an input of the second. In stages: these need less memory
# one after another than the plan at once.


class PlanPart(NamedTuple):
    """A plan over some of a whole plan's values: `inputs` and `outputs` are their numbers in the whole plan."""

    plan: Plan
    inputs: Ints
    outputs: Ints


def in_parts(plan: Plan, wanted: Sequence[Sequence[int]]) -> list[PlanPart]:
    """The parts of a plan, in order: one for each entry of `wanted`, and a last one with the rest of its calls.

    Args:
        wanted: for each part the positions in `plan.outputs` of the results that are ready after it.
    """
    return _split(plan, tuple(map(tuple, wanted)))


class Stage(NamedTuple):
    """The calls `begin` to `end` of a plan: the outputs that they write first, by value, the pieces of memory for
    temporaries that they use first, and those that no later call uses."""

    begin: int
    end: int
    outputs: Ints
    taken: Ints
    left: Ints


_LARGE = 64 << 20  # bytes: launches of less run at once
_STAGE = 1 / 16  # of a launch's memory is left after each stage


def stages(plan: Plan) -> list[Stage]:
    """The stages of a launch that runs once: after each a good part of its memory is needed no more, and what is
    written later may take that. Nothing for a launch that needs little memory, or all of it to the end.

    A training step's activations are gone when the optimiser writes new parameters and moments beside the old ones.
    """
    sizes = {("output", v): nbytes(plan.values[v]) for v in dict.fromkeys(plan.outputs)}
    if sum(sizes.values()) < _LARGE * _STAGE:
        return []
    sizes |= {("temp", n): size * dtype.itemsize for n, (size, dtype) in enumerate(plan.temporaries)}
    whole = sum(sizes.values())
    if whole < _LARGE:
        return []
    piece = dict(plan.memory)
    first: dict[tuple[str, int], int] = {}
    last = {}
    for n, c in enumerate(plan.calls):
        for v in c.args:
            what = ("temp", piece[v]) if v in piece else ("output", v)
            if what in sizes:
                first.setdefault(what, n)
                last[what] = n
    leaves = [0] * len(plan.calls)
    for what, n in last.items():
        leaves[n] += sizes[what] if what[0] == "temp" else 0
    ends, left = [], 0
    for n, size in enumerate(leaves[:-1]):
        left += size
        if left >= _STAGE * whole:
            ends.append(n + 1)
            left = 0
    made = []
    for begin, end in zip([0, *ends], [*ends, len(plan.calls)], strict=True):
        new = [what for what, n in first.items() if begin <= n < end]
        gone = tuple([n for (kind, n), at in last.items() if kind == "temp" and begin <= at < end])
        outputs, taken = ([n for kind, n in new if kind == wanted] for wanted in ("output", "temp"))
        made.append(Stage(begin, end, tuple(outputs), tuple(taken), gone))
    return made if ends else []


@lru_cache(32)  # an exchange in each step asks for the same parts each time
def _split(plan: Plan, wanted: tuple[Ints, ...]) -> list[PlanPart]:
    numbers = _numbers(plan, wanted)
    count = len(wanted) + 1
    parts = [[c for c, n in zip(plan.calls, numbers, strict=True) if n == part] for part in range(count)]
    written = [{v for c in calls for v in c.args[: c.outputs]} for calls in parts]
    touched = [{v for c in calls for v in c.args} for calls in parts]
    results = set(plan.outputs)
    made = []
    for n in range(count):
        later = set[int]().union(*touched[n + 1 :])
        inputs = sorted(touched[n] - written[n])
        outputs = sorted(v for v in written[n] if v in results or v in later)
        made.append(PlanPart(_part(plan, parts[n], inputs, outputs), tuple(inputs), tuple(outputs)))
    return made


WITH_PLANS.append(_split.cache_clear)


def _numbers(plan: Plan, wanted: Sequence[Sequence[int]]) -> list[int]:
    """The part of each call: the first one in which something is wanted that needs the call.

    Calls that write one value together, piece by piece or one over the other's result, stay in one part.
    """
    writers, readers = uses(plan.calls)
    numbers = [len(wanted)] * len(plan.calls)
    for part, outputs in enumerate(wanted):
        stack = [c for n in outputs for c in writers.get(plan.outputs[n], ())]
        while stack:
            c = stack.pop()
            if numbers[c] <= part:
                continue
            numbers[c] = part
            for v in plan.calls[c].args:
                several = writers.get(v, ())
                stack += several
                if len(several) > 1:
                    stack += readers.get(v, ())
    return numbers


def _part(plan: Plan, calls: Sequence[Call], inputs: Sequence[int], outputs: Sequence[int]) -> Plan:
    """The plan of some calls; its values are numbered anew, inputs first."""
    order = list(dict.fromkeys([*inputs, *[v for c in calls for v in c.args]]))
    place = ranks(order)
    kinds = {**dict.fromkeys(outputs, "output"), **dict.fromkeys(inputs, "input")}
    values = [Value(plan.values[v].size, plan.values[v].dtype, kinds.get(v, "temp")) for v in order]
    memory = [(v, piece) for v, piece in plan.memory if v in place and v not in kinds]
    pieces = ranks(dict.fromkeys([piece for _, piece in memory]))
    return Plan(
        tuple(values),
        len(inputs),
        tuple([place[v] for v in outputs]),
        tuple([c._replace(args=tuple([place[v] for v in c.args])) for c in calls]),
        tuple([(place[v], pieces[piece]) for v, piece in memory]),
        tuple([plan.temporaries[piece] for piece in pieces]),
        plan.variables,
    )
