"""What is executed, as values: a realize is one step, a captured function a list of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from anneal.backend import Storage
from anneal.schedule import Plan

__all__ = ["Launch", "Step"]


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """The calls of a plan, in order. They read `inputs` and write `outputs`; `values` are of the plan's Variables."""

    plan: Plan
    inputs: Sequence[Storage]
    outputs: Sequence[Storage]
    values: Mapping[str, int] = field(default_factory=dict)


Step = Launch
