"""Steps, the values that are executed: a realize is a launch, with calls of the host and exchanges before it.

A captured function is a list of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from anneal.backend import Storage
from anneal.runtime.group import Exchange, Group
from anneal.runtime.host import HostFunction

if TYPE_CHECKING:
    from anneal.schedule import Origin, Plan


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """The calls of a plan, in order. They read `inputs` and write `outputs`; `values` are of the plan's Variables.

    `origins` tell where the nodes come from that it computes, by place (`anneal.schedule.origins`); a step that
    nobody observes has none.
    """

    plan: Plan
    inputs: Sequence[Storage]
    outputs: Sequence[Storage]
    values: Mapping[str, int] = field(default_factory=dict)
    origins: Sequence[Origin] = ()

    @property
    def kernels(self) -> int:
        """The number of kernels that the launch starts."""
        return len(self.plan.calls)


@dataclass(frozen=True, slots=True, eq=False)
class HostCall:
    """A function of the host: it reads `inputs`, arrays of these `shapes`, and writes `outputs`, one for each result.

    `values` are of the Variables in the shapes; `found` are of those whose values the call told.
    """

    function: HostFunction
    inputs: Sequence[Storage]
    shapes: Sequence[tuple[Any, ...]]
    outputs: Sequence[Storage]
    values: Mapping[str, int] = field(default_factory=dict)
    found: Mapping[str, int] = field(default_factory=dict)

    @property
    def kernels(self) -> int:
        """No kernels: it starts none."""
        return 0


@dataclass(frozen=True, slots=True, eq=False)
class Collective(HostCall):
    """An exchange between the participants of a group, of which every one makes the same."""

    @property
    def group(self) -> Group:
        """This participant's view of the group."""
        assert isinstance(self.function, Exchange)
        assert self.function.group is not None
        return self.function.group


Step = Launch | HostCall | Collective
