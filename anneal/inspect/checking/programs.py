"""The nodes of the graph as written that a plan's values stand for.

The passes run once more, and what each walk puts in the place of which node is followed from the program to the nodes
that get memory. Partial results, and what else the passes invent, are no node's value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from anneal.inspect.checking.tensor_values import base
from anneal.rewrite import Pass, rebuilt
from anneal.schedule import BUILDING, PASSES, CostModel, Origin, Plan, Schedule, live_nodes, origins, parametrise
from anneal.uop import SYMBOLIC, Op, UOp, arena, const, toposort
from anneal.uop.sizes import evaluator, mapped, symbolic_arg, unbound


@dataclass(frozen=True, slots=True)
class StoredValue:
    """A value that a call stores: the places of the nodes that it is, the call's first; none for a partial one."""

    value: int
    places: tuple[int, ...]
    place: int  # where the call says that it belongs


@dataclass(frozen=True, slots=True)
class CheckedProgram:
    """A plan beside its graph: `nodes` by place, without symbolic sizes, and what each call writes."""

    plan: Plan
    nodes: tuple[UOp, ...]
    origins: tuple[Origin, ...]
    written: tuple[tuple[StoredValue, ...], ...]


def program_of(sink: UOp, plan: Plan, cost_model: CostModel) -> CheckedProgram:
    """The plan of `sink` (`SINK(outputs...)`) beside the graph; the passes run again up to the kernels' cuts."""
    with BUILDING, arena().untracked():
        program, _ = parametrise(sink, {})
        order = toposort((program,))
        ends: dict[UOp, list[int]] = {}

        def follow(p: Pass[Any], s: Schedule) -> None:
            if p.name == "split-reduces":  # the last that changes the graph: those behind it choose
                for n, u in enumerate(order):
                    v = u
                    for walk in walks:
                        v = walk.get(v, v)
                    ends.setdefault(base(v), []).append(n)

        with rebuilt() as walks:
            s = PASSES.run(Schedule(program, cost_model), "kernel-split", follow)
    waiting: dict[tuple[int, ...], list[tuple[UOp, ...]]] = {}
    for cut in s.cuts:
        waiting.setdefault(cut.places, []).append(tuple(cut.group.roots))
    written = []
    for call in plan.calls:
        several = waiting[call.places]
        roots = several.pop(0) if len(several) > 1 else several[0]
        found = []
        for v, root, at in zip(call.args[: call.outputs], roots, call.places, strict=False):
            places = ends.get(base(root), [])
            size = root.size
            same = [n for n in places if order[n].dtype is root.dtype and order[n].size == size]
            found.append(StoredValue(v, tuple(sorted(same, key=lambda n: (n != at, -n))), at))
        written.append(tuple(found))
    return CheckedProgram(plan, _with_numbers(live_nodes(sink)), tuple(origins(sink)), tuple(written))


def _with_numbers(nodes: list[UOp]) -> tuple[UOp, ...]:
    """The nodes with the values of bound variables in their place."""
    if not SYMBOLIC.seen:
        return tuple(nodes)
    new: dict[UOp, UOp] = {}

    def number(u: UOp) -> int:
        values: dict[str, int] = {}
        return evaluator((unbound(u, values),))(values)[0]

    with arena().untracked():
        for u in nodes:
            src = tuple([new[s] for s in u.src])
            arg = mapped(u.arg, number) if symbolic_arg(u.arg) else u.arg
            if u.op is Op.BIND:
                new[u] = const(u.dtype, u.arg[3])
            else:
                new[u] = u if src == u.src and arg is u.arg else UOp(u.op, u.dtype, src, arg, u.tag)
    return tuple([new[u] for u in nodes])
