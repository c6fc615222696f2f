"""The whole way from a kernel graph to WGSL, in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from anneal.codegen.affine import collapse
from anneal.codegen.heuristics import choose
from anneal.codegen.linear import Param, linearise
from anneal.codegen.lower import Launch, Target, legalise, to_hardware
from anneal.codegen.opts import Opt, apply_opts
from anneal.codegen.wgsl import grid, render
from anneal.uop import UOp, arena

__all__ = ["Kernel", "generate", "prepare"]


@dataclass(frozen=True, slots=True)
class Kernel:
    """Generated code: WGSL text, the bindings it declares, its launch, and the opts that made it."""

    source: str
    params: tuple[Param, ...]
    launch: Launch
    grid: tuple[int, int, int]
    opts: tuple[Opt, ...]


def prepare(sink: UOp, target: Target) -> UOp:
    """The kernel in ops and dtypes that WGSL has, with ranges merged: what opts are applied to."""
    return collapse(legalise(sink, target))


def generate(sink: UOp, target: Target | None = None, opts: Sequence[Opt] | None = None) -> Kernel:
    """WGSL for the kernel graph `sink`; `opts` are the heuristic's unless given.

    Raises DTypeError for a dtype the target lacks.
    """
    target = target or Target()
    a = arena()
    track, a.track = a.track, False  # whose line a node comes from is told by the tensor graph
    try:
        ready = prepare(sink, target)
        chosen = tuple(opts) if opts is not None else choose(ready, target)
        lowered, launch = to_hardware(apply_opts(ready, chosen))
        program = linearise(lowered, launch)
    finally:
        a.track = track
    size = grid(launch.workgroups, target.max_workgroups)
    return Kernel(render(program, target), program.params, launch, size, chosen)
