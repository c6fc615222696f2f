"""The notes of runs: fixed values, host calls, and captures."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from anneal.onnx.graph import Graph
from anneal.onnx.values import leaves
from anneal.tensor import Tensor

if TYPE_CHECKING:
    from anneal.onnx.execute import Run, Scope

__all__ = ["HostStep", "Memo", "NeedsHostError", "Pieces"]


class NeedsHostError(Exception):
    """A value is wanted on the host, where a run is to be made of device work alone.

    `number` is that of the node that wants it, or that the graph which does is in, in the outermost graph.
    """

    number = -1


@dataclass(frozen=True)
class HostStep:
    """A node that reads values from the device in the middle of a run, and why."""

    node: str
    reason: str

    def __str__(self) -> str:
        return f"{self.node}: {self.reason}"


@dataclass(eq=False)
class Memo:
    """The results of nodes that are fixed for one set of input shapes, and arrays that are on the device as well."""

    results: dict[Any, tuple[Any, ...]] = field(default_factory=dict)
    lifted: dict[int, tuple[Any, Tensor]] = field(default_factory=dict)  # by the id of the array, which is kept
    read: dict[int, tuple[Tensor, Any]] = field(default_factory=dict)  # tensors that are on the host as well
    fixed: dict[int, Any] = field(default_factory=dict)  # by id
    used: dict[int, Tensor] = field(default_factory=dict)  # fixed tensors that each run reads
    numbers: dict[Any, Any] = field(default_factory=dict)  # turns of loops
    unrolled: set[Any] = field(default_factory=set)  # nodes that cannot be loops on the device

    def fix(self, value: Any) -> None:
        """Remember that a value is fixed."""
        for v in leaves(value):
            self.fixed[id(v)] = v


class Pieces(Protocol):
    """The runs of a graph whose nodes do not all work on the device alone: see `anneal.onnx.segments`."""

    def run(self, run: Run, scope: Scope) -> bool:
        """Run the nodes of a graph in pieces; False, if that cannot be, and nothing ran."""

    def note(self, graph: Graph, number: int, needs_host: bool) -> None:
        """Note of a node that has run whether it needed the host."""
