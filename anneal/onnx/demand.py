"""Demand: the inputs of a model whose values decide shapes (`Reshape`'s sizes, `Range`'s end, `If`'s condition).

They are known on the host when a run is planned, so a small one is part of what a plan is made for, like a shape. What
is missed here is still right: it is read back from the device when it is needed.
"""

from __future__ import annotations

from typing import Any

from anneal.onnx.graph import Graph, Node

__all__ = ["deciding"]


def deciding(graph: Graph) -> frozenset[str]:
    """The names, of inputs and of what is between, whose values decide shapes."""
    names: set[str] = set()
    _walk(graph, names, {})
    return frozenset(names)


def _walk(graph: Graph, names: set[str], bodies: dict[Any, tuple[frozenset[int], frozenset[int]]]) -> None:
    """Add to `names` what decides shapes in this graph, where those that are in it already do.

    `bodies`: of each function, the places of the inputs that always decide, and of those that do if its outputs do.
    """
    for node in reversed(graph.nodes):
        hit = any(x in names for x in node.outputs)
        of = node.implementation
        if of is not None:
            names.update(x for n, x in enumerate(node.inputs) if x and of.wants_value(n))
        subgraphs = node.subgraphs()
        for inner in subgraphs:
            _walk_inside(node, inner, hit, names, bodies)
        if node.function is not None and (body := node.body()) is not None:
            at = _places(body, node.function.key, bodies)[hit]
            names.update(x for n, x in enumerate(node.inputs) if x and n in at)
        elif hit and of is not None and not of.by_shape and not subgraphs and (of.raw or of.on_host is not None):
            names.update(x for x in node.inputs if x)


def _walk_inside(
    node: Node, graph: Graph, hit: bool, names: set[str], bodies: dict[Any, tuple[frozenset[int], frozenset[int]]]
) -> None:
    """The same for a subgraph. If its inputs decide shapes, so may its outputs: they are the next turn's inputs."""
    own = {v.name for v in graph.inputs}
    if hit:
        names.update(v.name for v in graph.outputs)
    _walk(graph, names, bodies)
    if own & names and not hit:
        names.update(v.name for v in graph.outputs)
        _walk(graph, names, bodies)
    names.update(x for v, x in zip(graph.inputs, node.inputs) if x and v.name in names)


def _places(
    body: Graph, key: Any, bodies: dict[Any, tuple[frozenset[int], frozenset[int]]]
) -> tuple[frozenset[int], frozenset[int]]:
    found = bodies.get(key)
    if found is None:
        bodies[key] = frozenset(), frozenset()  # of a function that calls itself, which is refused when it runs
        both = []
        for names in (set(), {v.name for v in body.outputs}):
            _walk(body, names, bodies)
            both.append(frozenset(n for n, v in enumerate(body.inputs) if v.name in names))
        found = bodies[key] = both[0], both[1]
    return found
