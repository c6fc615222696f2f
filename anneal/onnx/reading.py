"""A model file as records (`graph.py`).

What enters is a parsed ModelProto (`files.py`); what leaves knows nothing of protobuf. The file is not to be trusted:
whatever is wrong in it is an OnnxError that names the place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container
from typing import Any

import numpy as np

from anneal.errors import OnnxError
from anneal.onnx.graph import FileNode, Graph, LocalFunction, ModelProgram, ValueInfo
from anneal.onnx.registry import find
from anneal.onnx.schemas import body_of, defaults_of, fault_of, same, schema_of, text_of
from anneal.onnx.types import element_bits, element_name

_NESTING = 32  # graphs inside graphs, functions that call functions
_DENSE = 1 << 26  # elements of a sparse tensor, whose shape its file does not justify

_Names = tuple[Container[str], ...]  # names of the graphs outside, a set each


def program_of(proto: Any, array: Callable[[Any, str], Any]) -> ModelProgram:
    """The records of a ModelProto; `array(tensor, where)` gives the values of a TensorProto.

    Raises OnnxError for a broken model.
    """
    opsets: dict[str, int] = {}
    for entry in proto.opset_import:
        opsets[_domain(entry.domain)] = max(opsets.get(_domain(entry.domain), 0), entry.version)
        if entry.version < 1 and not _domain(entry.domain):
            raise OnnxError(f"the model imports opset {entry.version} of ai.onnx; the first is 1")
    if "" not in opsets and not proto.functions and any(not _domain(n.domain) for n in proto.graph.node):
        opsets[""] = 1  # what files of the first versions leave out
    functions = {(_domain(f.domain), text_of(f.name), text_of(getattr(f, "overload", ""))): f for f in proto.functions}
    elements = numbers = size = 0

    def counted(tensor: Any, where: str) -> Any:
        nonlocal elements, numbers, size
        found = array(tensor, where)
        elements += 0 if found is None else found.size
        count = math.prod(tensor.dims) if found is None else found.size
        numbers += count
        size += -(-count * element_bits(tensor.data_type) // 8)
        return found

    reader = _Reader(opsets, functions, counted)
    graph = reader.graph(proto.graph, "main graph", (), 0)
    return ModelProgram(
        graph,
        opsets,
        proto.ir_version,
        f"{text_of(proto.producer_name)} {text_of(proto.producer_version)}".strip(),
        {text_of(p.key): text_of(p.value) for p in proto.metadata_props},
        elements,
        numbers,
        size,
    )


class _Reader:
    """Reads the graphs of one model, or of one function with opsets of its own."""

    def __init__(self, opsets: dict[str, int], functions: dict[Any, Any], array: Callable[[Any, str], Any]) -> None:
        self.opsets = opsets
        self.functions = functions
        self.array = array
        self.bound: dict[str, Any] | None = None  # inside a function: the attributes of the call

    def graph(self, proto: Any, path: str, outer: _Names, depth: int) -> Graph:
        """A GraphProto, with the names that it may take from outside."""
        if depth > _NESTING:
            raise OnnxError(f"{path}: graphs are nested more than {_NESTING} deep")
        out = Graph(text_of(proto.name), path)
        out.inputs = [_value_info(v) for v in proto.input]
        out.outputs = [_value_info(v) for v in proto.output]
        for tensor in proto.initializer:
            name = text_of(tensor.name)
            out.constants[name] = self.array(tensor, f"initialiser {name!r} of {path}")
        for sparse in proto.sparse_initializer:
            out.constants[text_of(sparse.values.name)] = self.dense(sparse, f"sparse initialiser of {path}")
        known = {v.name for v in out.inputs} | set(out.constants)
        free = self.nodes(out, proto.node, known, outer, depth)
        for v in out.outputs:
            if v.name not in known:
                if not any(v.name in names for names in outer):
                    raise OnnxError(f"{path}: nothing computes its output {v.name!r}")
                free.add(v.name)
        out.free = frozenset(free)
        return out

    def nodes(self, out: Graph, protos: Any, known: set[str], outer: _Names, depth: int) -> set[str]:
        """Read the nodes of a graph and add what they make to `known`; gives the names that they take from outside."""
        free: set[str] = set()
        visible = (*outer, known)
        for n in protos:
            node = self.node(n, out.path, visible, depth)
            used = {x for x in node.inputs if x} | {x for g in node.subgraphs() for x in g.free}
            for x in used - known:
                if not any(x in names for names in outer):
                    raise node.fault(f"nothing before it computes its input {x!r}", "the nodes must be in order")
                free.add(x)
            for x in node.outputs:
                if x in known:
                    raise node.fault(f"its output {x!r} has the name of another value of the same graph")
            known.update(x for x in node.outputs if x)
            out.nodes.append(node)
        return free

    def node(self, proto: Any, path: str, visible: _Names, depth: int) -> FileNode:
        """A NodeProto with its attributes, the schema's defaults among them, and its implementation."""
        domain, op = _domain(proto.domain), text_of(proto.op_type)
        opset = self.opsets.get(domain, 0)
        local = self.functions.get((domain, op, text_of(getattr(proto, "overload", ""))))
        schema = schema_of(op, domain, opset) if opset and local is None else None
        node = FileNode(
            name=text_of(proto.name),
            op=op,
            domain=domain,
            opset=opset,
            version=0 if schema is None else schema.since_version,
            inputs=tuple([text_of(x) for x in proto.input]),
            outputs=tuple([text_of(x) for x in proto.output]),
            attributes={} if schema is None else defaults_of(schema),
            given=frozenset(),
            unusual=frozenset(),
            path=path,
            depth=depth,
        )
        self.attributes(node, proto, schema, visible)
        if local is not None:
            node.function = LocalFunction(f"{domain}.{op}", local, self.function)
            return node
        node.implementation = find(op, domain, opset or 1 << 30)
        if node.implementation is None and schema is not None:
            node.function = body_of(schema, node, proto, self.function)
        return node

    def attributes(self, node: FileNode, proto: Any, schema: Any, visible: _Names) -> None:
        """Put the attributes that a file gives into a node."""
        defaults = dict(node.attributes)
        kinds: dict[str, int] = {}
        for a in proto.attribute:
            name = text_of(a.name)
            if name in kinds:
                raise node.fault(f"has its attribute {name!r} twice")
            kinds[name] = a.type or _kind_of_old(a)
            if a.ref_attr_name:
                if self.bound is None:
                    raise node.fault(f"attribute {name!r} refers to {a.ref_attr_name!r}, but it stands in no function")
                if text_of(a.ref_attr_name) in self.bound:
                    node.attributes[name] = self.bound[text_of(a.ref_attr_name)]
                continue
            node.attributes[name] = self.attribute(a, kinds[name], node, visible)
        if schema is not None and (fault := fault_of(schema, node, kinds)):
            raise node.fault(fault)
        node.given = frozenset(kinds.keys() & node.attributes.keys())
        node.unusual = frozenset(
            a for a in node.given if a not in defaults or not same(node.attributes[a], defaults[a])
        )

    def attribute(self, a: Any, kind: int, node: FileNode, visible: _Names) -> Any:
        """An attribute as a Python value: numbers, text, lists of them, arrays, graphs."""
        where = f"attribute {text_of(a.name)!r} of {node}"
        if kind == 1:
            return float(a.f)
        if kind == 2:
            return int(a.i)
        if kind == 3:
            return text_of(a.s)
        if kind == 4:
            return self.array(a.t, where)
        if kind == 5:
            return self.graph(a.g, f"{node.path} / {node.op} {node.name!r} {text_of(a.name)}", visible, node.depth + 1)
        if kind == 6:
            return [float(x) for x in a.floats]
        if kind == 7:
            return [int(x) for x in a.ints]
        if kind == 8:
            return [text_of(x) for x in a.strings]
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
        if any(d < 0 for d in dims) or size > _DENSE or values.ndim != 1:
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

    def function(self, proto: Any, node: FileNode) -> Graph:
        """The body of a function for one call of it."""
        if node.depth >= _NESTING:
            raise node.fault(f"functions and graphs are nested more than {_NESTING} deep")
        opsets = {_domain(e.domain): e.version for e in proto.opset_import}
        inner = _Reader({**self.opsets, **opsets}, self.functions, self.array)
        inner.bound = {}
        for a in proto.attribute_proto:
            inner.bound[text_of(a.name)] = inner.attribute(a, a.type or _kind_of_old(a), node, ())
        inner.bound.update(node.attributes)
        path = f"{node.path} / function {text_of(proto.name)}"
        out = Graph(text_of(proto.name), path, [ValueInfo(text_of(n)) for n in proto.input])
        known = {v.name for v in out.inputs}
        inner.nodes(out, proto.node, known, (), node.depth + 1)
        for n, name in enumerate(map(text_of, proto.output)):
            if name in known:
                out.outputs.append(ValueInfo(name))
            elif n < len(node.outputs) and node.outputs[n]:
                raise OnnxError(f"{path}: nothing computes its output {name!r}")
            else:
                out.outputs.append(ValueInfo(""))
        return out


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
    return _value_info_of_type(text_of(proto.name), proto.type)


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
        kinds += ["sparse tensor"] if which == "sparse_tensor_type" else []
        shape: tuple[int | str | None, ...] | None = None
        if tensor.HasField("shape"):
            shape = tuple([_size(d) for d in tensor.shape.dim])
        return ValueInfo(
            name, " of ".join(kinds) or "tensor", element_name(tensor.elem_type) if tensor.elem_type else "", shape
        )
    if which == "map_type":
        value = proto.map_type.value_type.tensor_type.elem_type
        return ValueInfo(
            name, " of ".join([*kinds, "map"]), element_name(value), None, element_name(proto.map_type.key_type)
        )
    return ValueInfo(name, " of ".join([*kinds, "unknown"]))


def _size(d: Any) -> int | str | None:
    """An axis of a declared shape. Exporters write -1 and 0 where they mean that they do not know."""
    if d.WhichOneof("value") == "dim_value":
        return int(d.dim_value) if d.dim_value >= 0 else None
    return text_of(d.dim_param) or None


def _domain(name: bytes | str) -> str:
    return "" if name == "ai.onnx" else text_of(name)
