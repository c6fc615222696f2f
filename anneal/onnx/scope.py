"""The values of a graph that runs, by name, inside those of the graphs around it."""

from __future__ import annotations

from typing import Any

from anneal.onnx.graph import Graph
from anneal.onnx.values import Items, leaves
from anneal.tensor import Tensor

__all__ = ["Scope"]


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
