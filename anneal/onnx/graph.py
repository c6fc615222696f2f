"""A model file as records: graphs of nodes, with the implementation of each node found.

What enters is a parsed ModelProto (`files.py`); what leaves knows nothing of protobuf. The file is not to be trusted:
whatever is wrong in it is an OnnxError that names the place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import numpy as np

from anneal.errors import OnnxError
from anneal.onnx.registry import Implementation, find
from anneal.onnx.types import element_name

__all__ = ["Function", "Graph", "Node", "Program", "ValueInfo", "program_of", "schema_of"]

_NESTING = 32  # graphs inside graphs, functions that call functions


@dataclass(frozen=True)
class ValueInfo:
    """What a file says of an input or output: a tensor of an element type and shape, or another kind of value.

    `shape` has an int, a symbolic name or None for each axis; it is None where the file says nothing.
    """

    name: str
    kind: str = "tensor"  # or "sequence", "optional", "map", "sparse tensor", "unknown"
    dtype: str = ""  # the element type, of a sequence's items as well
    shape: tuple[int | str | None, ...] | None = None

    def __str__(self) -> str:
        shape = "" if self.shape is None else "[" + ", ".join("?" if d is None else str(d) for d in self.shape) + "]"
        inner = f"{self.dtype or '?'}{shape}"
        return f"{self.name}: {inner if self.kind == 'tensor' else f'{self.kind} of {inner}'}"


@dataclass(eq=False)
class Node:
    """One node of a graph: what it computes, its attributes with the schema's defaults, and who computes it."""

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
    implementation: Implementation | None = None
    function: Function | None = None  # a body of other nodes, where there is no implementation
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
    nodes: list[Node] = field(default_factory=list)
    free: frozenset[str] = frozenset()  # names that come from the graphs outside


@dataclass(eq=False)
class Function:
    """A function's body, which is read when it is first needed; `graph` for the attributes of one call.

    The standard has bodies that depend on the types of a call's inputs: `proto` is None then, and `of_types` gives one.
    """

    name: str
    proto: Any
    read: Callable[[Any, Node], Graph]  # reads a FunctionProto for the attributes of a node
    of_types: Callable[[list[Any]], Any] | None = None  # from the types of the inputs (TypeProto) to a FunctionProto

    @property
    def key(self) -> Any:
        """What tells it from other functions."""
        return id(self.proto)

    def graph(self, node: Node, types: list[Any] | None = None) -> Graph:
        """The body as a graph, with the attributes of `node` in place of those it refers to.

        Raises OnnxError if the body is broken, or if there is none for these types.
        """
        if self.proto is not None:
            return self.read(self.proto, node)
        assert self.of_types is not None
        assert types is not None
        return self.read(self.of_types(types), node)


@dataclass(eq=False)
class Program:
    """A model: its main graph and what the file says of itself."""

    graph: Graph
    opsets: dict[str, int]
    ir_version: int
    producer: str
    metadata: dict[str, str]


def program_of(proto: Any, array: Callable[[Any, str], Any]) -> Program:
    """The records of a ModelProto; `array(tensor, where)` gives the values of a TensorProto.

    Raises OnnxError for what is broken.
    """
    opsets: dict[str, int] = {}
    for entry in proto.opset_import:
        opsets[_domain(entry.domain)] = max(opsets.get(_domain(entry.domain), 0), entry.version)
    if "" not in opsets and not proto.functions and any(not _domain(n.domain) for n in proto.graph.node):
        opsets[""] = 1  # what files of the first versions leave out
    functions = {(_domain(f.domain), f.name, getattr(f, "overload", "")): f for f in proto.functions}
    reader = _Reader(opsets, functions, array)
    graph = reader.graph(proto.graph, "main graph", frozenset(), 0)
    return Program(
        graph,
        opsets,
        proto.ir_version,
        f"{proto.producer_name} {proto.producer_version}".strip(),
        {p.key: p.value for p in proto.metadata_props},
    )


class _Reader:
    """Reads the graphs of one model, or of one function with opsets of its own."""

    def __init__(self, opsets: dict[str, int], functions: dict[Any, Any], array: Callable[[Any, str], Any]) -> None:
        self.opsets = opsets
        self.functions = functions
        self.array = array
        self.bound: dict[str, Any] | None = None  # inside a function: the attributes of the call
        self.nesting = 0

    def graph(self, proto: Any, path: str, outer: frozenset[str], depth: int) -> Graph:
        """A GraphProto, with the names that it may take from outside."""
        if depth > _NESTING:
            raise OnnxError(f"{path}: graphs are nested more than {_NESTING} deep")
        out = Graph(proto.name, path)
        out.inputs = [_value_info(v) for v in proto.input]
        out.outputs = [_value_info(v) for v in proto.output]
        for tensor in proto.initializer:
            out.constants[tensor.name] = self.array(tensor, f"initialiser {tensor.name!r} of {path}")
        for sparse in proto.sparse_initializer:
            out.constants[sparse.values.name] = self.dense(sparse, f"sparse initialiser of {path}")
        known = {v.name for v in out.inputs} | set(out.constants)
        out.free = self.nodes(out, proto.node, known, outer, depth)
        for v in out.outputs:
            if v.name not in known:
                if v.name not in outer:
                    raise OnnxError(f"{path}: nothing computes its output {v.name!r}")
                out.free |= {v.name}
        return out

    def nodes(self, out: Graph, protos: Any, known: set[str], outer: frozenset[str], depth: int) -> frozenset[str]:
        """Read the nodes of a graph and add what they make to `known`; gives the names that they take from outside."""
        free: set[str] = set()
        made = set(known)
        for n in protos:
            node = self.node(n, out.path, outer | known, depth)
            used = {x for x in node.inputs if x} | {x for g in node.subgraphs() for x in g.free}
            for x in used - known:
                if x not in outer:
                    raise node.fault(f"nothing before it computes its input {x!r}", "the nodes must be in order")
                free.add(x)
            for x in node.outputs:
                if x and x in made and (x in known):
                    raise node.fault(f"its output {x!r} has the name of another value of the same graph")
            known.update(x for x in node.outputs if x)
            out.nodes.append(node)
        return frozenset(free)

    def node(self, proto: Any, path: str, visible: frozenset[str] | set[str], depth: int) -> Node:
        """A NodeProto with its attributes, the schema's defaults among them, and its implementation."""
        domain = _domain(proto.domain)
        opset = self.opsets.get(domain, 0)
        schema = schema_of(proto.op_type, domain, opset) if opset else None
        version = schema.since_version if schema is not None else 0
        node = Node(
            proto.name,
            proto.op_type,
            domain,
            opset,
            version,
            tuple(proto.input),
            tuple(proto.output),
            {},
            frozenset(),
            frozenset(),
            path,
        )
        local = self.functions.get((domain, proto.op_type, getattr(proto, "overload", "")))
        attributes = {} if schema is None or local is not None else dict(_defaults(schema))
        given = set()
        for a in proto.attribute:
            if a.ref_attr_name:
                if self.bound is None:
                    raise node.fault(
                        f"attribute {a.name!r} refers to {a.ref_attr_name!r}, but it stands in no function"
                    )
                if a.ref_attr_name in self.bound:
                    attributes[a.name] = self.bound[a.ref_attr_name]
                    given.add(a.name)
                continue
            attributes[a.name] = self.attribute(a, node, frozenset(visible), depth)
            given.add(a.name)
        defaults = {} if schema is None else dict(_defaults(schema))
        node.attributes, node.given = attributes, frozenset(given)
        node.unusual = frozenset(a for a in given if a not in defaults or not _same(attributes[a], defaults[a]))
        if local is not None:
            node.function = Function(f"{domain}.{proto.op_type}", local, self.function)
        else:
            node.implementation = find(proto.op_type, domain, opset or 1 << 30)
            if node.implementation is None and schema is not None:
                node.function = self.of_schema(schema, node, proto)
        return node

    def of_schema(self, schema: Any, node: Node, proto: Any) -> Function | None:
        """The body that the standard itself gives an operator."""
        if schema.has_function:
            versions = [v for v in schema.function_opset_versions if v <= node.opset]
            if versions:
                data = schema.get_function_with_opset_version(max(versions))
                return Function(node.op, _function_of(schema, max(versions), data), self.function)
        if schema.has_context_dependent_function:
            versions = [v for v in schema.context_dependent_function_opset_versions if v <= node.opset]
            if versions:
                return Function(node.op, None, self.function, partial(_body_for, schema, max(versions), proto, node))
        return None

    def attribute(self, a: Any, node: Node, visible: frozenset[str], depth: int) -> Any:
        """An attribute as a Python value: numbers, text, lists of them, arrays, graphs."""
        where = f"attribute {a.name!r} of {node}"
        kind = a.type or _kind_of_old(a)
        if kind == 1:
            return float(a.f)
        if kind == 2:
            return int(a.i)
        if kind == 3:
            return _text(a.s)
        if kind == 4:
            return self.array(a.t, where)
        if kind == 5:
            return self.graph(a.g, f"{node.path} / {node.op} {node.name!r} {a.name}", visible, depth + 1)
        if kind == 6:
            return [float(x) for x in a.floats]
        if kind == 7:
            return [int(x) for x in a.ints]
        if kind == 8:
            return [_text(x) for x in a.strings]
        if kind == 9:
            return [self.array(t, where) for t in a.tensors]
        if kind == 11:
            return self.dense(a.sparse_tensor, where)
        if kind == 13:
            return _value_info_of_type("", a.tp)
        raise OnnxError(f"{where}: has type {kind}, which no operator takes")

    def dense(self, sparse: Any, where: str) -> Any:
        """A SparseTensorProto as an array."""
        values, indices = self.array(sparse.values, where), self.array(sparse.indices, where)
        dims = tuple(sparse.dims)
        if values is None or indices is None:
            return None
        size = 1
        for d in dims:
            size *= d
        if any(d < 0 for d in dims) or size > 1 << 28 or values.ndim != 1:
            raise OnnxError(f"{where}: a sparse tensor of shape {dims} is not possible")
        out = np.zeros(dims, values.dtype)
        if indices.ndim == 1:
            flat = indices
        elif indices.ndim == 2 and indices.shape[1] == len(dims):
            flat = np.zeros(len(indices), np.int64)
            for axis, d in enumerate(dims):
                column = indices[:, axis]
                if ((column < 0) | (column >= d)).any():
                    raise OnnxError(f"{where}: an index is outside the shape {dims}")
                flat = flat * d + column
        else:
            raise OnnxError(f"{where}: indices of shape {indices.shape} do not fit a sparse tensor of shape {dims}")
        if flat.shape != values.shape or ((flat < 0) | (flat >= size)).any():
            raise OnnxError(f"{where}: an index is outside the shape {dims}")
        out.reshape(-1)[flat] = values
        return out

    def function(self, proto: Any, node: Node) -> Graph:
        """The body of a function for one call of it."""
        if node.path.count(" / ") > _NESTING:
            raise node.fault(f"functions and graphs are nested more than {_NESTING} deep")
        opsets = {_domain(e.domain): e.version for e in proto.opset_import} or self.opsets
        inner = _Reader({**self.opsets, **opsets}, self.functions, self.array)
        inner.bound = {}
        for a in proto.attribute_proto:
            inner.bound[a.name] = inner.attribute(a, node, frozenset(), 0)
        inner.bound.update(node.attributes)
        path = f"{node.path} / function {proto.name}"
        out = Graph(proto.name, path, [ValueInfo(n) for n in proto.input])
        known = set(proto.input)
        inner.nodes(out, proto.node, known, frozenset(), 0)
        for n, name in enumerate(proto.output):
            if name in known:
                out.outputs.append(ValueInfo(name))
            elif n < len(node.outputs) and node.outputs[n]:
                raise OnnxError(f"{path}: nothing computes its output {name!r}")
            else:
                out.outputs.append(ValueInfo(""))
        return out


@lru_cache(512)
def _function_of(schema: Any, version: int, data: bytes) -> Any:
    from onnx import FunctionProto

    return FunctionProto.FromString(data)


def _body_for(schema: Any, version: int, proto: Any, node: Node, types: list[Any]) -> Any:
    """The body that the standard gives an operator for inputs of these types."""
    from onnx import FunctionProto, NodeProto, helper

    known = NodeProto()
    known.CopyFrom(proto)
    del known.attribute[:]
    for a in proto.attribute:  # inside another function they may refer to the attributes of its call
        if not a.ref_attr_name:
            known.attribute.append(a)
        elif a.name in node.attributes:
            known.attribute.append(helper.make_attribute(a.name, node.attributes[a.name]))
    try:
        data = schema.get_context_dependent_function_with_opset_version(
            version, known.SerializeToString(), [t.SerializeToString() for t in types]
        )
    except Exception as e:
        raise node.fault(f"the standard has no body of it for these inputs: {e}") from None
    return FunctionProto.FromString(data)


@lru_cache(4096)
def schema_of(name: str, domain: str, version: int) -> Any:
    """The schema of an operator in an opset, or None."""
    from onnx import defs

    try:
        return defs.get_schema(name, min(version, (1 << 31) - 1), domain)
    except (defs.SchemaError, TypeError, ValueError):
        return None


@lru_cache(4096)
def _defaults_of(name: str, domain: str, version: int) -> tuple[tuple[str, Any], ...]:
    schema = schema_of(name, domain, version)
    out = []
    for key, attribute in schema.attributes.items():
        default = attribute.default_value
        if not default.name:
            continue
        kind = default.type
        value: Any
        if kind == 1:
            value = float(default.f)
        elif kind == 2:
            value = int(default.i)
        elif kind == 3:
            value = _text(default.s)
        elif kind == 6:
            value = list(default.floats)
        elif kind == 7:
            value = list(default.ints)
        elif kind == 8:
            value = [_text(s) for s in default.strings]
        else:
            continue
        out.append((key, value))
    return tuple(out)


def _defaults(schema: Any) -> tuple[tuple[str, Any], ...]:
    return _defaults_of(schema.name, schema.domain, schema.since_version)


def _same(value: Any, default: Any) -> bool:
    return type(value) is type(default) and bool(value == default)


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _kind_of_old(a: Any) -> int:
    """The type of an attribute of a file of ir_version 1, which does not say it."""
    for kind, name in ((4, "t"), (5, "g"), (11, "sparse_tensor"), (13, "tp")):
        if a.HasField(name):
            return kind
    for kind, name in ((6, "floats"), (7, "ints"), (8, "strings"), (9, "tensors")):
        if len(getattr(a, name)):
            return kind
    for kind, name in ((1, "f"), (2, "i"), (3, "s")):
        if a.HasField(name):
            return kind
    return 7  # an empty list


def _value_info(proto: Any) -> ValueInfo:
    return _value_info_of_type(proto.name, proto.type)


def _value_info_of_type(name: str, proto: Any) -> ValueInfo:
    """A ValueInfo of a TypeProto; of sequences and optionals the items' type is told."""
    kinds = []
    while (which := proto.WhichOneof("value")) in ("sequence_type", "optional_type"):
        kinds.append(which.removesuffix("_type"))
        proto = getattr(proto, which).elem_type
        if len(kinds) > _NESTING:
            raise OnnxError(f"{name}: a type is nested more than {_NESTING} deep")
    if which in ("tensor_type", "sparse_tensor_type"):
        tensor = getattr(proto, which)
        shape: tuple[int | str | None, ...] | None = None
        if tensor.HasField("shape"):
            shape = tuple([_size(d) for d in tensor.shape.dim])
        return ValueInfo(
            name, " of ".join(kinds) or "tensor", element_name(tensor.elem_type) if tensor.elem_type else "", shape
        )
    return ValueInfo(name, " of ".join([*kinds, "map" if which == "map_type" else "unknown"]))


def _size(d: Any) -> int | str | None:
    """An axis of a declared shape. Exporters write -1 and 0 where they mean that they do not know."""
    if d.WhichOneof("value") == "dim_value":
        return int(d.dim_value) if d.dim_value >= 0 else None
    return d.dim_param or None
