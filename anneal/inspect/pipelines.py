"""The state after a pass as values, nodes or lines of text, for the scheduler's passes and a kernel's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from anneal import codegen, schedule
from anneal.codegen import Target
from anneal.errors import UserError
from anneal.inspect.graphs import Node, nodes
from anneal.inspect.lines import launch
from anneal.rewrite import Pass
from anneal.schedule import BUILDING, CostModel, parametrise
from anneal.uop import UOp, arena, toposort

PIPELINES = (schedule.PASSES, codegen.PASSES)


@dataclass(frozen=True, slots=True)
class PassInfo:
    """A pass: its pipeline, its name, the reason for it, and the stage whose table the graphs that it makes obey."""

    pipeline: str
    name: str
    reason: str
    stage: str | None


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that a pass has made: a graph, with its text and its nodes, sources first; or text without nodes."""

    text: str
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class PassState:
    """The graph after the pass `info`, in parts; of launch `kernel`, if it is a pass of the code generator."""

    info: PassInfo
    kernel: int | None
    parts: tuple[Part, ...]


def passes() -> tuple[PassInfo, ...]:
    """The scheduler's passes, which have the whole graph, then the code generator's, which have a kernel, in order."""
    return tuple([_info(line.name, p) for line in PIPELINES for p in line])


def after_pass(
    sink: UOp, cost_model: CostModel, until: str, kernel: int | None = None, target: Target | None = None
) -> PassState:
    """The graph that the passes up to `until` make of `sink` (`SINK(outputs...)`), or of launch `kernel` of its plan.

    Raises UserError for a name that is no pass, with the names of all; for a pass of the code generator without a
    kernel, and for one of the scheduler with a kernel.

    Args:
        cost_model: the prices by which the scheduler decides (`anneal.backend.planned_cost_model`).
        target: the limits of the device that kernels are made for.
    """
    known = {p.name: p for p in passes()}
    info = known.get(until)
    if info is None:
        scheduler, generator = (", ".join(line.names) for line in PIPELINES)
        raise UserError(
            f"there is no pass called {until!r}. Of the whole graph: {scheduler}. Of one kernel (--kernel N): "
            f"{generator}"
        )
    if info.pipeline == schedule.PASSES.name:
        if kernel is not None:
            raise UserError(f"{until} is a pass of the whole graph, before there are kernels; leave --kernel out")
        with BUILDING, arena().untracked():
            s = schedule.run_passes(parametrise(sink)[0], cost_model, until=until)
        return PassState(info, None, _parts(schedule.PASSES, until, s))
    if kernel is None:
        raise UserError(f"{until} is a pass of the code generator, which has one kernel at a time: add --kernel N")
    with BUILDING, arena().untracked():
        bodies = codegen.bodies_of(launch(sink, cost_model, kernel).kernel.sink, target)
        states = [codegen.run_passes(b.kernel, target, b.opts, until=until) for b in bodies]
    parts: list[Part] = []
    for n, state in enumerate(states):
        if len(states) > 1:
            parts.append(Part(f"// ==== part {n} of {len(states)}, for workgroups of its own", ()))
        parts += _parts(codegen.PASSES, until, state)
    return PassState(info, kernel, tuple(parts))


def _info(pipeline: str, p: Pass[Any]) -> PassInfo:
    return PassInfo(pipeline, p.name, p.reason, p.stage)


def _parts(pipeline: Iterable[Pass[Any]], name: str, state: Any) -> tuple[Part, ...]:
    [view] = [p.view for p in pipeline if p.name == name]
    return tuple([Part(str(x), tuple(nodes(toposort((x,)))) if isinstance(x, UOp) else ()) for x in view(state)])
