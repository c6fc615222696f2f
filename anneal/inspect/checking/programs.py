"""The nodes of the graph as written that a plan's values stand for.

The passes run once more, and what each walk puts in the place of which node is followed from the program to the nodes
that get memory. Partial results, and what else the passes invent, are no node's value.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from anneal.backend import AnyDevice
from anneal.inspect.checking.bounds import Array, Bounded
from anneal.inspect.checking.records import Difference, Report
from anneal.inspect.checking.tensor_values import TensorValues, base
from anneal.rewrite import Pass, rebuilt
from anneal.runtime import Execution
from anneal.schedule import BUILDING, PASSES, Call, CostModel, Origin, Plan, Schedule, live_nodes, origins, parametrise
from anneal.uop import SYMBOLIC, DType, Op, UOp, arena, const, toposort
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


@dataclass(frozen=True, slots=True)
class CheckLimits:
    """The limits of a check's work: elements of arithmetic for each store of a kernel, and elements in all arrays of an
    evaluation of the graph. Elements beyond are sampled at random, or left out, and the report says so.
    """

    kernel: int = 1 << 21
    tensor: int = 1 << 26


@dataclass(slots=True)
class Finding:
    """A difference, with everything to show it again: the call, its program and the values that it read."""

    difference: Difference
    call: Call
    program: Any
    before: list[Array]
    after: list[Array]
    expected: list[tuple[Array, Array, Array]]  # by output: places in memory, values, bounds
    values: dict[str, int]


@dataclass(slots=True)
class HeldValue:
    """A value of the plan: its content as it was written, and what stands for it in the graph."""

    content: Array
    bounded: Bounded | None = None
    places: tuple[int, ...] = ()
    sources: frozenset[int] = frozenset()  # the values in memory that it is computed of
    writer: int | None = None


@dataclass(slots=True)
class CheckRun:
    """The state of a check of one launch; `lives` are the elements of the call's outputs that are read."""

    sink: UOp
    number: int
    program: CheckedProgram
    device: AnyDevice
    execution: Execution
    tensors: TensorValues
    limits: CheckLimits
    report: Report
    found: list[Finding]
    held: dict[int, HeldValue] = field(default_factory=dict)
    lives: list[Array | None] = field(default_factory=list)

    @property
    def plan(self) -> Plan:
        return self.program.plan

    def dtype(self, v: int) -> DType:
        return self.plan.values[v].dtype


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
        for v, root, at in zip(call.args[: call.outputs], roots, call.places):
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
