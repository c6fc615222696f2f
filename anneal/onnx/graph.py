"""A model as records: graphs of nodes, each with its attributes and who computes it. `reading.py` makes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from anneal.errors import OnnxError
from anneal.onnx.registry import Operator


@dataclass(frozen=True)
class ValueInfo:
    """The type of an input or output as a file states it: a tensor's element type and shape, or another kind of value.

    `shape` has an int, a symbolic name or None for each axis; it is None where the file says nothing.
    """

    name: str
    kind: str = "tensor"  # or "sequence", "optional", "map", "sparse tensor", "unknown"
    dtype: str = ""  # the element type, of a sequence's items as well
    shape: tuple[int | str | None, ...] | None = None
    key: str = ""  # the type of a map's keys; `dtype` is that of its values then

    def __str__(self) -> str:
        shape = "" if self.shape is None else "[" + ", ".join("?" if d is None else str(d) for d in self.shape) + "]"
        inner = f"{self.key} to {self.dtype}" if self.key else f"{self.dtype or '?'}{shape}"
        return f"{self.name}: {inner if self.kind == 'tensor' else f'{self.kind} of {inner}'}"


@dataclass(eq=False)
class FileNode:
    """A node of a graph: its operator, its attributes with the schema's defaults, and the function that computes it."""

    name: str
    op: str
    domain: str
    opset: int  # of its domain, as the model (or the function that it stands in) imports it
    version: int  # of the operator: the opset that it was last changed in; 0 where there is no schema
    inputs: tuple[str, ...]  # "" for an absent one
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    given: frozenset[str]  # names of the attributes that the file gives
    unusual: frozenset[str]  # those of them that are not at the schema's default
    path: str  # of the graph that it stands in: "main graph", "main graph / If 'x' then_branch"
    depth: int  # how many graphs and functions are around that
    implementation: Operator | None = None
    function: LocalFunction | None = None  # a body of other nodes, where there is no implementation
    _body: Graph | None = None

    def subgraphs(self) -> list[Graph]:
        """The graphs among its attributes."""
        return [a for a in self.attributes.values() if isinstance(a, Graph)]

    def body(self) -> Graph | None:
        """The body of its function for its attributes; None where that depends on the types of its inputs."""
        if self._body is None and self.function is not None and self.function.proto is not None:
            self._body = self.function.graph(self)
        return self._body

    def __str__(self) -> str:
        what = f"{self.domain}.{self.op}" if self.domain else self.op
        version = f" (version {self.version})" if self.version else ""
        name = repr(self.name) if self.name else f"that makes {self.outputs[0]!r}" if self.outputs else "without a name"
        return f"{what}{version}, node {name} of {self.path}"

    def fault(self, message: str, fix: str = "") -> OnnxError:
        """The error that says what is wrong with this node, and what to do."""
        return OnnxError(f"{self}: {message}" + (f"; {fix}" if fix else ""))


@dataclass(eq=False)
class Graph:
    """Nodes in an order in which they can run, and the values that they start from."""

    name: str
    path: str
    inputs: list[ValueInfo] = field(default_factory=list)
    outputs: list[ValueInfo] = field(default_factory=list)
    constants: dict[str, Any] = field(default_factory=dict)  # initialisers: arrays; None where weights are missing
    nodes: list[FileNode] = field(default_factory=list)
    free: frozenset[str] = frozenset()  # names that come from the graphs outside
    numbers: list[int] | None = None  # of its nodes in the graph that it is a part of

    @cached_property
    def last_uses(self) -> dict[str, int]:
        """The place of the last node that reads a value, by its name; outputs are read behind all nodes."""
        out = {}
        for n, node in enumerate(self.nodes):
            out.update(dict.fromkeys(node.inputs, n))
            for inner in node.subgraphs():
                out.update(dict.fromkeys(inner.free, n))
        out.update({v.name: len(self.nodes) for v in self.outputs})
        return out


@dataclass(eq=False)
class LocalFunction:
    """A function's body, which is read when it is first needed; `graph` for the attributes of one call.

    The standard has bodies that depend on the types of a call's inputs: `proto` is None then, and `of_types` gives one.
    """

    name: str
    proto: Any
    read: Callable[[Any, FileNode], Graph]  # reads a FunctionProto for the attributes of a node
    of_types: Callable[[list[Any]], Any] | None = None  # from the types of the inputs (TypeProto) to a FunctionProto

    @property
    def key(self) -> Any:
        """The key that tells it from other functions."""
        return id(self.proto)

    def graph(self, node: FileNode, types: list[Any] | None = None) -> Graph:
        """The body as a graph, with the attributes of `node` in place of those it refers to.

        Raises OnnxError if the body is broken, or if there is none for these types.
        """
        if self.proto is not None:
            return self.read(self.proto, node)
        assert self.of_types is not None
        assert types is not None
        return self.read(self.of_types(types), node)


@dataclass(eq=False)
class ModelProgram:
    """A model: its main graph and what the file says of itself."""

    graph: Graph
    opsets: dict[str, int]
    ir_version: int
    producer: str
    metadata: dict[str, str]
    elements: int  # of all tensors of the file that were read
    numbers: int  # of all tensors of the file: initialisers, and attributes of nodes
    bytes: int  # that these take


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
    node: FileNode, graph: Graph, hit: bool, names: set[str], bodies: dict[Any, tuple[frozenset[int], frozenset[int]]]
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
