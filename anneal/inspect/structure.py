"""The graph of a program with what became of each node, and the graph after each pass with what that pass changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anneal import codegen, schedule
from anneal.codegen import Target
from anneal.errors import UserError
from anneal.inspect.derivations import FiredRule, made_by
from anneal.inspect.graphs import PassInfo, passes
from anneal.inspect.lines import launch
from anneal.inspect.names import Line
from anneal.rewrite import Event
from anneal.schedule import BUILDING, CostModel, Plan, Schedule, live_nodes, parametrise
from anneal.uop import Op, UOp, arena, toposort


@dataclass(frozen=True, slots=True)
class GraphNode:
    """One node of the tensor graph. `id` is its place, by which the calls of a plan name it; `src` are the ids of its
    sources.

    `phase` is "forward", "backward" or "update", `module` the path of the module that was called, `function` the
    function of anneal. `low` and `high` are the bounds of a whole number. `kernels` are the launches that compute it,
    and `rule` is the one that made it, if one did.
    """

    id: int
    op: str
    dtype: str
    shape: tuple[int | str, ...]
    arg: str | None
    src: tuple[int, ...]
    phase: str
    module: str
    function: str
    line: Line | None
    low: int | None
    high: int | None
    rule: FiredRule | None
    kernels: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PassNode:
    """One node after a pass. `place` is the node of the tensor graph that it stands for, None for one that stands for
    none; `changed`: the pass made it, rather than that something below it changed.
    """

    id: int
    op: str
    dtype: str
    shape: tuple[int | str, ...]
    arg: str | None
    src: tuple[int, ...]
    place: int | None
    changed: bool


@dataclass(frozen=True, slots=True)
class PassGraph:
    """The result of a pass: nodes, sources first, or lines of text, or both. `changed` counts the nodes (or the lines)
    that it made, `removed` those that the pass took away.
    """

    info: PassInfo
    nodes: tuple[PassNode, ...]
    text: tuple[str, ...]
    changed: int
    removed: int


def graph_nodes(sink: UOp, plan: Plan | None = None, fired: Iterable[Event] = ()) -> tuple[GraphNode, ...]:
    """The nodes of `SINK(outputs...)` by place. `plan` is the graph's; `fired` the rules that fired while it was made.

    Args:
        sink: the node `SINK(outputs...)`.

    >>> from anneal.schedule import graph
    >>> from anneal.tensor import Tensor
    >>> found = graph_nodes(graph([(Tensor([1.0, 2.0]) + 1.0).uop]))
    >>> [(n.id, n.op, n.src) for n in found]
    [(0, 'BUFFER', ()), (1, 'CONST', ()), (2, 'ADD', (0, 1)), (3, 'SINK', (2,))]
    """
    order = live_nodes(sink)
    numbers = {u: n for n, u in enumerate(order)}
    made = made_by(fired)
    kernels: dict[int, list[int]] = {}
    for n, call in enumerate(plan.calls if plan is not None else ()):
        for at in call.places:
            kernels.setdefault(at, []).append(n)
    return tuple([_node(u, numbers, made.get(u), tuple(kernels.get(n, ()))) for n, u in enumerate(order)])


def _node(u: UOp, numbers: Mapping[UOp, int], rule: FiredRule | None, kernels: tuple[int, ...]) -> GraphNode:
    phase, code, line, module, function = u.provenance
    whole = u.vmin if isinstance(u.vmin, int) and not isinstance(u.vmin, bool) else None
    return GraphNode(
        id=numbers[u],
        op=u.op.name,
        dtype=u.dtype.name,
        shape=_shape(u),
        arg=_arg(u),
        src=tuple([numbers[s] for s in u.src if s in numbers]),
        phase=phase,
        module=module or "",
        function="" if function is None else function.co_name.strip("_"),
        line=None if code is None else Line(code.co_filename, line, code.co_qualname),
        low=whole,
        high=u.vmax if whole is not None and isinstance(u.vmax, int) else None,
        rule=rule,
        kernels=kernels,
    )


def _shape(u: UOp) -> tuple[int | str, ...]:
    return tuple([n if isinstance(n, int) else repr(n) for n in u.shape])


def _arg(u: UOp) -> str | None:
    return None if u.arg is None else repr(u.arg)[:400]


def pass_graphs(sink: UOp, cost_model: CostModel) -> list[PassGraph]:
    """The results of the scheduler's passes for `SINK(outputs...)`, in order.

    Args:
        sink: the node `SINK(outputs...)`.
        cost_model: the prices by which the scheduler decides (`anneal.backend.planned_cost_model`).
    """
    found: list[PassGraph] = []
    with BUILDING, arena().untracked():
        program = parametrise(sink)[0]
        before = _State(toposort((program,)), (), {u: n for n, u in enumerate(toposort((program,)))})

        def see(p: Any, s: Schedule) -> None:
            nonlocal before
            views = list(p.view(s))
            before, graph = _after(_info(p.name), views, before, s.places)
            found.append(graph)

        schedule.PASSES.run(Schedule(program, cost_model), hook=see)
    return found


def kernel_pass_graphs(
    sink: UOp, cost_model: CostModel, kernel: int, target: Target | None = None, part: int = 0
) -> list[PassGraph]:
    """The results of the code generator's passes for launch `kernel` of the plan of `sink`, or for its part `part`.

    Raises UserError for a launch, or a part, that there is not.

    Args:
        cost_model: the prices by which the scheduler decides (`anneal.backend.planned_cost_model`).
        target: the limits of the device that kernels are made for.
    """
    found: list[PassGraph] = []
    target = target or Target()
    with BUILDING, arena().untracked():
        bodies = codegen.bodies_of(launch(sink, cost_model, kernel).kernel.sink, target)
        if not 0 <= part < len(bodies):
            raise UserError(f"kernel {kernel} has no part {part}: it has {len(bodies)}, from 0")
        body = bodies[part]
        order = toposort((body.kernel,))
        before = _State(order, (), {})
        for p in codegen.PASSES:
            s = codegen.run_passes(body.kernel, target, body.opts, until=p.name)
            before, graph = _after(_info(p.name), list(p.view(s)), before, {})
            found.append(graph)
    return found


@dataclass(slots=True)
class _State:
    """The nodes, the lines and the places of nodes after a pass."""

    order: Sequence[UOp]
    text: tuple[str, ...]
    places: Mapping[UOp, int]


def _info(name: str) -> PassInfo:
    return next(p for p in passes() if p.name == name)


def _after(
    info: PassInfo, views: Sequence[UOp | str], before: _State, places: Mapping[UOp, int]
) -> tuple[_State, PassGraph]:
    graphs = [x for x in views if isinstance(x, UOp)]
    text = tuple([line for x in views if isinstance(x, str) for line in x.rstrip("\n").split("\n")])
    order = toposort(tuple(dict.fromkeys(graphs))) if graphs else []
    numbers = {u: n for n, u in enumerate(order)}
    changed = _changed(order, before, places)
    nodes = tuple(
        [
            PassNode(
                numbers[u], u.op.name, u.dtype.name, _shape(u), _arg(u), tuple([numbers[s] for s in u.src]),
                places.get(u), u in changed,
            )
            for u in order
        ]
    )  # fmt: skip
    if order:
        there = set(order)
        kept = {at for u in order if (at := places.get(u)) is not None}
        removed = sum(u not in there and before.places.get(u) not in kept for u in before.order)
        state = _State(order, text, dict(places))
        return state, PassGraph(info, nodes, text, len(changed), removed)
    was, now = set(before.text), set(text)
    fresh = sum(t not in was for t in text)
    gone = sum(t not in now for t in before.text)
    return _State(before.order, text, before.places), PassGraph(info, (), text, fresh, gone)


def _changed(order: Iterable[UOp], before: _State, places: Mapping[UOp, int]) -> set[UOp]:
    """Nodes that are not merely those of before over other sources."""
    there = set(before.order)
    of_place: dict[int, UOp] = {}
    for u in before.order:
        if (at := before.places.get(u)) is not None:
            of_place.setdefault(at, u)
    shapes: set[tuple[Any, ...]] = set()
    if not before.places:  # of a kernel: by what the node is, over whatever sources
        shapes = {(u.op, u.dtype, _arg(u), len(u.src)) for u in before.order}
    found = set()
    for u in order:
        if u in there or u.op in (Op.SINK, Op.CONST, Op.PARAM):
            continue
        at = places.get(u)
        old = of_place.get(at) if at is not None else None
        if old is not None and (old.op, old.dtype, _arg(old), len(old.src)) == (u.op, u.dtype, _arg(u), len(u.src)):
            if all(places.get(a) == before.places.get(b) for a, b in zip(u.src, old.src, strict=True)):
                continue
        if (u.op, u.dtype, _arg(u), len(u.src)) in shapes:
            continue
        found.add(u)
    return found
