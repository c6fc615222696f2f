"""The notes of runs: the values of a graph by name, fixed values, host calls, and what a node costs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from anneal.onnx.graph import Graph
from anneal.onnx.host_sizes import Items, leaves
from anneal.tensor import Tensor
from anneal.uop import Op, UOp
from anneal.uop.sizes import most


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

    def held(self, tensor: Tensor | None) -> Any:
        """The array on the host that a tensor was made of; None if there is none."""
        return next((array for array, t in self.lifted.values() if t is tensor), None)


class Scope:
    """The values of one graph while it runs, inside those of the graph around it."""

    __slots__ = ("at", "graph", "key", "outer", "values")

    def __init__(self, graph: Graph, key: tuple[Any, ...], outer: Scope | None) -> None:
        self.graph = graph
        self.key = key
        self.outer = outer
        self.values: dict[str, Any] = {}
        self.at = 0  # the place of the node that runs, among those of `graph`

    def waiting(self) -> list[Tensor]:
        """Tensors that a later node reads, here or around: its reader computes them."""
        out: list[Tensor] = []
        scope: Scope | None = self
        while scope is not None:
            last = scope.graph.last_uses
            read = [v for name, v in scope.values.items() if last.get(name, -1) >= scope.at]
            for value in read:
                out += [
                    v for v in (value.fresh if isinstance(value, Items) else leaves(value)) if isinstance(v, Tensor)
                ]
                if isinstance(value, Items):
                    value.fresh = []
            scope = scope.outer
        return out

    def find(self, name: str) -> Any:
        """The value of this name, here or in a graph around. Raises KeyError if there is none."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        raise KeyError(name)


def work_of(results: Iterable[UOp], inputs: Iterable[UOp]) -> int:
    """The elements that the sums and extremes between `inputs` and `results` go through: for a product of matrices
    (n, k) and (k, m) n * m * k, for a convolution the elements of its result times those of its window. A symbolic size
    counts as the largest that it may be.
    """
    total, seen, todo = 0, set(inputs), list(results)
    while todo:
        u = todo.pop()
        if u not in seen:
            seen.add(u)
            todo.extend(u.src)
            if u.op is Op.REDUCE_AXIS:
                total += math.prod([most(n) for n in u.src[0].shape])
    return total
