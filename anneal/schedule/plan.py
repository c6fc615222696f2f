"""Tensor graph -> plan: the pass pipeline and the cache.

A plan is what a program means to a device: kernel calls over numbered values. It depends on structure alone. `plan_for`
replaces the buffers of a graph by numbered parameters first; since nodes are interned, two graphs of one structure
become the same object, and the second one finds its plan; a second process finds it on disk (`saved.py`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from anneal.errors import ShapeError, TransformError
from anneal.rewrite import Pass, Pipeline, rebuild
from anneal.schedule import show
from anneal.schedule.again import is_scarce, with_values_again
from anneal.schedule.apart import take_apart
from anneal.schedule.early import early_rewrites
from anneal.schedule.fusion import CostModel, realize_map
from anneal.schedule.groups import Group, group_kernels, refusals
from anneal.schedule.inplace import shared_temporaries
from anneal.schedule.masks import Mask, masks_of, nested
from anneal.schedule.memory import arrange
from anneal.schedule.places import Origin, carried, complete, live_order, places_of
from anneal.schedule.rangeify import CONCATENATION, rangeify, renumber, simplify_indices, split_ranges
from anneal.schedule.records import Call, Cut, Kernel, Plan, Schedule, Value, name_of
from anneal.schedule.saved import keep, recall
from anneal.schedule.sorting import sort_by_digits
from anneal.schedule.split import split_reduces
from anneal.uop import MOVEMENT, SYMBOLIC, Op, UOp, arena, const, dtypes, toposort, uncollected
from anneal.uop.sizes import mapped, symbolic_arg, unbound, variables_of

__all__ = [
    "BUILDING",
    "PASSES",
    "clear_cache",
    "live_nodes",
    "origins",
    "parametrise",
    "plan_for",
    "refused",
    "run_passes",
]


# Held by whoever plans, compiles, takes gradients or captures a function: these read and fill what all threads share. A
# thread that holds a device's lock never waits for this one.
BUILDING = threading.RLock()


def _early(s: Schedule) -> Schedule:
    def change() -> UOp:
        return sort_by_digits(early_rewrites(s.sink, s.cost_model.masks), s.cost_model)

    return replace(s, sink=carried(s.places, s.sink, change))


def _take_apart(s: Schedule) -> Schedule:
    return replace(s, sink=carried(s.places, s.sink, lambda: take_apart(s.sink, s.cost_model)))


def _split_reduces(s: Schedule) -> Schedule:
    return replace(s, sink=carried(s.places, s.sink, lambda: split_reduces(s.sink, s.cost_model)))


def _realize(s: Schedule) -> Schedule:
    order = toposort((s.sink,))[:-1]
    cost_model = s.cost_model.fit_to(u for u in order if u.op not in MOVEMENT)
    return replace(s, order=order, cost_model=cost_model, real=realize_map(order, s.sink.src, cost_model))


def _group(s: Schedule) -> Schedule:
    cost_model = s.cost_model
    if cost_model.concurrent and is_scarce(s.real):
        # of a product itself more can be computed again than of what others make of it
        cost_model = replace(cost_model, keeps_functions=False)
    return replace(s, cost_model=cost_model, groups=group_kernels(s.order, s.real, s.sink.src, cost_model))


def _again(s: Schedule) -> Schedule:
    if s.cost_model.concurrent:
        return replace(s, groups=with_values_again(s.groups, s.real, s.sink.src, s.cost_model))
    return s


def _split(s: Schedule) -> Schedule:
    masks = masks_of(s.order, s.real) if s.cost_model.masks else {}
    unread = {u: m for u, m in masks.items() if u not in s.sink.src}
    complete(s.places, s.real, s.order)
    return replace(s, cuts=[cut(g, s.real, masks, unread, s.places) for g in s.groups])


def _rangeify(s: Schedule) -> Schedule:
    return replace(s, kernels=[_kernel_of(c.graph) for c in s.cuts])


def _memory(s: Schedule) -> Schedule:
    return replace(s, plan=_assemble(s))


PASSES: Pipeline[Schedule] = Pipeline(
    "schedule",
    (
        Pass(
            name="early-rewrites",
            run=_early,
            view=show.sink,
            stage="tensor",
            reason="drop what moves nothing, make compound ops simple",
        ),
        Pass(
            name="take-apart",
            run=_take_apart,
            view=show.sink,
            stage="tensor",
            reason="products with one vector that are read in pieces become a product for each",
        ),
        Pass(
            name="split-reduces",
            run=_split_reduces,
            view=show.sink,
            stage="tensor",
            reason="long reductions for few results in two stages",
        ),
        Pass(
            name="realize-map",
            run=_realize,
            view=show.realized,
            reason="choose the nodes that must exist in memory",
        ),
        Pass(
            name="kernel-groups",
            run=_group,
            view=show.groups,
            reason="join kernels that share ranges and inputs: several stores, one launch",
        ),
        Pass(
            name="compute-again",
            run=_again,
            view=show.groups,
            reason="where memory is scarce: kernels that make a second time what need not be kept",
        ),
        Pass(
            name="kernel-split",
            run=_split,
            view=show.cuts,
            reason="cut the graph at those nodes; equal pieces become the same object",
        ),
        Pass(
            name="range-propagation",
            run=_rangeify,
            view=show.kernels,
            stage="kernel",
            reason="each distinct piece: movement becomes index arithmetic, indices simplify",
        ),
        Pass(
            name="memory-plan",
            run=_memory,
            view=show.calls,
            reason="order calls, share temporaries whose lives do not overlap",
        ),
    ),
)


def run_passes(sink: UOp, cost_model: CostModel, until: str | None = None) -> Schedule:
    """Run PASSES over a parametrised tensor graph, up to and including the pass called `until`.

    Raises UserError for an `until` that is no pass, with the names of all.
    """
    return PASSES.run(Schedule(sink, cost_model), until)


def cut(
    group: Group,
    real: dict[UOp, None],
    masks: Mapping[UOp, Mask],
    unread: Mapping[UOp, Mask],
    places: Mapping[UOp, int],
) -> Cut:
    """The group's own graph with numbered parameters for everything it reads, what those parameters are, and the
    places of what it computes.

    Masked parameters are read through their masks; what is `unread` is stored for readers who do so.
    """
    roots = group.roots
    mine = set(roots)
    new: dict[UOp, UOp] = {}
    inputs: list[UOp] = []

    def outside(u: UOp) -> bool:
        if u in mine:
            return False
        if u in new:
            return True
        if u.op is Op.PARAM or u in real:
            if u not in new:
                param = UOp(Op.PARAM, u.dtype, (), (len(roots) + len(inputs), u.shape))
                new[u] = masks[u].on(param) if u in masks else param
                inputs.append(u)
            return True
        return False

    for n, r in enumerate(roots):
        if r.op is Op.UPDATE:
            new[r.src[0]] = UOp(Op.PARAM, r.dtype, (), (n, r.shape))
    order = [u for u in toposort(roots, until=outside) if u not in new]
    where = places_of(roots, order, places)
    rebuild(roots[-1], _cut, new, order)
    d = roots[0].dtype
    kept = {r: unread[r].on(new[r], unread=True) if r in unread else new[r] for r in roots}
    parts = [
        UOp(Op.SINK, d, tuple([kept[r] for r in g.roots]), CONCATENATION if g.concatenates else None)
        for g in group.parts or (group,)
    ]
    return Cut(parts[0] if len(parts) == 1 else UOp(Op.SINK, d, tuple(parts)), tuple(inputs), group, where)


def _cut(u: UOp, src: tuple[UOp, ...]) -> UOp:
    if u.op is Op.CONTIGUOUS:
        return src[0]
    return u if src == u.src else UOp(u.op, u.dtype, src, u.arg)


_kernels: dict[UOp, Kernel] = {}
_plans: dict[tuple[UOp, CostModel], Plan] = {}
_MAX_KERNELS = 4096
_MAX_PLANS = 256


def clear_cache() -> None:
    """Forget every plan and kernel."""
    _kernels.clear()
    _plans.clear()


def _kernel_of(piece: UOp) -> Kernel:
    found = _kernels.get(piece)
    if found is None:
        with arena().untracked():
            sink = renumber(nested(simplify_indices(split_ranges(rangeify(piece)))))
        while len(_kernels) >= _MAX_KERNELS:
            del _kernels[next(iter(_kernels))]
        # pieces that differ only in the shapes of their leaves become one kernel
        found = _kernels.get(sink) or Kernel(sink, name_of(sink))
        _kernels[piece] = _kernels[sink] = found
    return found


def _assemble(s: Schedule) -> Plan:
    values: list[Value] = []
    number: dict[UOp, int] = {}
    params = sorted((u for u in s.order if u.op is Op.PARAM), key=lambda u: int(u.arg[0]))
    count = 1 + max((u.arg[0] for u in params), default=-1)
    sizes = {u.arg[0]: u for u in params}
    for i in range(count):
        u = sizes.get(i)
        values.append(Value(int(u.size), u.dtype, "input") if u is not None else Value(0, dtypes.float32, "input"))
        if u is not None:
            number[u] = i
    wanted = set(s.sink.src)

    def numbered(r: UOp) -> None:
        kind = "output" if r in wanted else "temp"
        if r.op is Op.UPDATE:  # in the memory that it changes
            number[r] = number[r.src[0]]
            if r in wanted:
                values[number[r]] = Value(int(r.size), r.dtype, kind)
            return
        number[r] = len(values)
        values.append(Value(int(r.size), r.dtype, kind))

    for u in s.order:
        if u in s.real and not u.size:  # no kernel computes it
            numbered(u)
    second: dict[UOp, int] = {}
    for g in s.groups:
        if g.again:
            for r in g.roots:
                second[r] = len(values)
                values.append(Value(int(r.size), r.dtype, "temp"))
            continue
        for r in g.roots:
            numbered(r)
    calls = []
    for (_, inputs, group, places), kernel in zip(s.cuts, s.kernels, strict=True):
        results = [(second if group.again else number)[r] for r in group.roots]
        args = (*results, *[(second if u in group.second else number)[u] for u in inputs])
        phase = "backward" if group.again else phase_of(group.roots[-1])
        calls.append(Call(kernel, args, len(results), phase, places))
    if s.cost_model.concurrent:
        calls = shared_temporaries(values, calls)
    ordered, (memory, temporaries) = arrange(values, calls, s.cost_model.concurrent)
    outputs = tuple([number[u] for u in s.sink.src])
    return Plan(tuple(values), count, outputs, tuple(ordered), memory, temporaries, _variables(s.kernels))


def _variables(kernels: Iterable[Kernel]) -> tuple[UOp, ...]:
    """The variables of all kernels, by name. Raises ShapeError for one name with two ranges of values."""
    if not SYMBOLIC.seen:
        return ()
    found: dict[str, UOp] = {}
    for k in dict.fromkeys(kernels):
        for v in variables_of(k.sink):
            if found.setdefault(v.arg[0], v) is not v:
                a, b = (f"{x.arg[1]} to {x.arg[2]}" for x in (found[v.arg[0]], v))
                raise ShapeError(f"two Variables {v.arg[0]} in one program, from {a} and from {b}: give them two names")
    return tuple([found[name] for name in sorted(found)])


def phase_of(u: UOp) -> str:
    return u.provenance[0]


def parametrise(sink: UOp, values: dict[str, int] | None = None) -> tuple[UOp, list[Any]]:
    """Replace each BUFFER by PARAM(slot, (size,)), numbered in structural order; returns the storages by slot.

    Bound variables become VARIABLEs; `values` takes what they are bound to.
    """
    storages: list[Any] = []
    if SYMBOLIC.seen:
        sink = _unbound(sink, {} if values is None else values)

    def visit(u: UOp, src: tuple[UOp, ...]) -> UOp:
        if src:
            return u if src == u.src else UOp(u.op, u.dtype, src, u.arg, u.tag)
        if u.op is Op.BUFFER:
            storages.append(u.arg)
            return UOp(Op.PARAM, u.dtype, (), (len(storages) - 1, u.shape))
        if u.op is Op.PARAM:
            raise TransformError(
                f"a value of a vmapped function was read: inside, a tensor (here of shape {u.shape}) stands for the same "
                "part of every example at once and has no values; choose with where() instead of if, return what you want "
                "to look at, and keep nothing from inside the function"
            )
        return u

    return rebuild(sink, visit), storages


def _unbound(sink: UOp, values: dict[str, int]) -> UOp:
    """The graph with VARIABLEs for bound variables, whose values are noted."""
    order = toposort((sink,))
    if not any(u.op is Op.BIND or u.op is Op.VARIABLE or symbolic_arg(u.arg) for u in order):
        return sink

    def visit(u: UOp, src: tuple[UOp, ...]) -> UOp:
        if u.op is Op.BIND or u.op is Op.VARIABLE:
            size = unbound(u, values)  # a number, if the variable has only one value
            return size if isinstance(size, UOp) else const(dtypes.int32, size)
        arg = mapped(u.arg, lambda n: unbound(n, values)) if symbolic_arg(u.arg) else u.arg
        return u if src == u.src and arg is u.arg else UOp(u.op, u.dtype, src, arg, u.tag)

    return rebuild(sink, visit, order=order)


def plan_for(sink: UOp, cost_model: CostModel, values: dict[str, int] | None = None) -> tuple[Plan, list[Any], bool]:
    """The plan of `SINK(outputs...)`, the storages of its inputs, and whether this process knew it already. One thread plans
    at a time.

    `values` takes the values that variables are bound to; one that is not bound is a ShapeError. Memory that the passes found nobody reads (a sum over nothing) is no input, where it was numbered last.
    """
    with BUILDING:
        a = arena()
        phase = a.phase
        try:
            with a.untracked():
                program, storages = parametrise(sink, values)
                found = _plans.get((program, cost_model))
                if found is not None:
                    return found, storages[: found.inputs], True
                plan = recall(program, cost_model)
                if plan is None:
                    begun = time.perf_counter()
                    with uncollected():
                        plan = run_passes(program, cost_model).plan
                    assert plan is not None
                    keep(program, cost_model, plan, time.perf_counter() - begun)
        finally:
            a.phase = phase
        if len(_plans) >= _MAX_PLANS:
            del _plans[next(iter(_plans))]
        _plans[program, cost_model] = plan
        return plan, storages[: plan.inputs], False


def live_nodes(sink: UOp) -> list[UOp]:
    """The nodes below `SINK(outputs...)`, numbered as the places of its plan's calls are."""
    return live_order(sink, lambda u: parametrise(u)[0])


def refused(sink: UOp, cost_model: CostModel) -> list[tuple[int, int, str]]:
    """Why neighbours among the calls of `SINK(outputs...)`'s plan are no one kernel: (writing call, reading call, reason).

    The passes run once more for it.
    """
    with BUILDING, arena().untracked(), refusals() as found:
        s = run_passes(parametrise(sink)[0], cost_model)
    assert s.plan is not None
    stores: dict[int, int] = {}  # place -> the call that stores it
    wrote: dict[int, int] = {}  # value -> the call that wrote it last
    neighbours: set[tuple[int | None, int | None]] = set()
    for n, c in enumerate(s.plan.calls):
        neighbours.update((wrote[v], n) for v in c.args[c.outputs :] if v in wrote)
        stores.update(dict.fromkeys(c.places[: c.outputs], n))
        wrote.update(dict.fromkeys(c.args[: c.outputs], n))
    reasons: dict[tuple[int, int], str] = {}
    for r in found:
        producers, readers = ({stores.get(s.places.get(u, -1)) for u in roots} for roots in r[:2])
        for a, b in neighbours.intersection((p, g) for p in producers for g in readers):
            if a is not None and b is not None and a != b:
                reasons[a, b] = r.reason
    return [(a, b, reason) for (a, b), reason in sorted(reasons.items())]


def origins(sink: UOp) -> list[Origin]:
    """Where each node below `SINK(outputs...)` comes from, by place: what is left of it when the graph is gone."""
    return [Origin(u.op, u.weak and not _is_leaf(u), u.provenance) for u in live_nodes(sink)]


def _is_leaf(u: UOp) -> bool:
    """Whether `u` is memory as a tensor shows it: nothing is computed there."""
    return u.op is Op.BUFFER or (u.op is Op.RESHAPE and u.src[0].op is Op.BUFFER)


def graph(outputs: Iterable[UOp]) -> UOp:
    """`SINK` over distinct output nodes."""
    src: Sequence[UOp] = tuple(dict.fromkeys(outputs))
    return UOp(Op.SINK, src[0].dtype, tuple(src))
