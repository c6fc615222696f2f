"""A model file: parsed, with its tensors' values, and as records (`graph.py`), which know nothing of protobuf."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Container
from pathlib import Path
from typing import Any

import numpy as np

from anneal.errors import OnnxError
from anneal.files import opened
from anneal.onnx import graph as records
from anneal.onnx.graph import FileNode, Graph, LocalFunction, ModelProgram, ValueInfo, text_of
from anneal.onnx.registry import find
from anneal.onnx.values import PACKED_BITS, array_dtype, element_bits, element_name

Large = dict[bytes, memoryview]  # elements by the tokens that stand in their place


def parsed(source: str | os.PathLike[str] | bytes, *, whole: bool = False) -> tuple[Any, Path | None, Large]:
    """The ModelProto of a file or of its bytes, the folder that external data may come from, and large elements.

    The file is not to be trusted: whatever is wrong in it is an OnnxError that names the place. Nothing is read outside
    the model's folder.

    Large ones are tokens in the ModelProto, see `without_large`; none are if it is to be `whole`.

    Raises OnnxError for a file that is missing or is no ONNX model.
    """
    from google.protobuf.message import DecodeError
    from onnx import ModelProto

    folder = None
    if isinstance(source, (bytes, bytearray, memoryview)):
        data, what = bytes(source), "these bytes"
    else:
        path = Path(source)
        what = str(path)
        try:
            with opened(path) as f:
                data = f.read()
        except OSError as e:
            raise OnnxError(f"{what} cannot be read: {e.strerror or e}") from None
        folder = path.resolve().parent
    proto = ModelProto()
    small, large = (data, {}) if whole else without_large(data)
    try:
        proto.ParseFromString(small)
    except DecodeError as e:
        raise OnnxError(
            f"{what}: is no ONNX model ({e}); a text file or another format must be converted first"
        ) from None
    if not proto.HasField("graph"):
        raise OnnxError(f"{what}: has no graph, so it is no ONNX model")
    return proto, folder, large


def reader_of(folder: Path | None, large: Large, *, structure_only: bool = False) -> Callable[[Any, str], Any]:
    """A function `(TensorProto, where) -> array`; with `structure_only` large tensors and missing ones are None.

    `folder` and `large` are what `parsed` gave.
    """

    def read(tensor: Any, where: str) -> Any:
        external = tensor.data_location == 1
        if structure_only and (external or _elements(tensor, where) > 1024):
            return None
        if external:
            return _array(tensor, where, _external(tensor, where, folder))
        raw = tensor.raw_data if tensor.HasField("raw_data") else None
        return _array(tensor, where, None if raw is None else np.frombuffer(large.get(raw, raw), np.uint8))

    return read


def _elements(tensor: Any, where: str) -> int:
    if any(d < 0 for d in tensor.dims):
        raise OnnxError(f"{where}: has a negative size in its shape {tuple(tensor.dims)}")
    return math.prod(tensor.dims)


def _array(tensor: Any, where: str, raw: Any) -> np.ndarray[Any, Any]:
    """The elements of a TensorProto; `raw` are the bytes that it has as such, here or in another file."""
    from onnx import helper

    code = tensor.data_type
    dtype = array_dtype(code)
    if dtype is None:
        raise OnnxError(f"{where}: has elements of {element_name(code)}, which ONNX does not have")
    size, shape = _elements(tensor, where), tuple(tensor.dims)
    if len(shape) > 64:
        raise OnnxError(f"{where}: has {len(shape)} axes; at most 64 are possible")
    if dtype.kind == "O":
        _check(where, len(tensor.string_data), size, shape)
        out = np.empty(size, object)
        out[:] = [s.decode("utf-8", "surrogateescape") for s in tensor.string_data]
        return out.reshape(shape)
    bits = PACKED_BITS.get(code, dtype.itemsize * 8)
    if raw is not None:
        _check(where, len(raw), -(-size * bits // 8), shape, "bytes")
        if code not in PACKED_BITS:
            return raw.view(dtype).reshape(shape) if size else np.empty(shape, dtype)
    else:
        count = len(getattr(tensor, helper.tensor_dtype_to_field(code)))
        each = 2 if code in (14, 15) else 1
        _check(where, count, size * each if code not in PACKED_BITS else -(-size * bits // 8), shape)
    return _packed(tensor, where, raw)


def _packed(tensor: Any, where: str, raw: Any) -> np.ndarray[Any, Any]:
    """Elements that the onnx package knows how to unpack; their number has been checked."""
    from onnx import TensorProto, numpy_helper

    try:
        if raw is not None:
            tensor = TensorProto(data_type=tensor.data_type, dims=tensor.dims, raw_data=raw.tobytes())
        return np.asarray(numpy_helper.to_array(tensor))
    except (ValueError, TypeError, OverflowError, AttributeError) as e:
        raise OnnxError(f"{where}: its elements do not make an array: {e}") from None


def _check(where: str, have: int, want: int, shape: tuple[int, ...], unit: str = "elements") -> None:
    if have != want:
        raise OnnxError(f"{where}: has {have} {unit}, but its shape {shape} needs {want}")


def _external(tensor: Any, where: str, folder: Path | None) -> Any:
    """The bytes that a tensor has in another file, which lies in the model's folder or below."""
    said = {text_of(e.key): text_of(e.value) for e in tensor.external_data}
    location = said.get("location", "")
    if folder is None:
        raise OnnxError(f"{where}: its values are in the file {location!r}; load the model by its path, not from bytes")
    try:
        path = Path(os.path.realpath(folder / location))
    except (OSError, ValueError) as e:
        raise OnnxError(f"{where}: its values are in {location!r}, which is no path: {e}") from None
    if not location or os.path.isabs(location) or not path.is_relative_to(folder):
        raise OnnxError(
            f"{where}: its values are in {location!r}, which is outside the model's folder; move the file there"
        )
    try:
        offset, length = int(said.get("offset") or 0), int(said.get("length") or -1)
    except ValueError:
        raise OnnxError(f"{where}: its offset or length in {location!r} is no number") from None
    if not path.is_file():
        raise OnnxError(f"{where}: its values are in {location!r}, which is missing from the model's folder")
    have = path.stat().st_size
    if length < 0:
        length = have - offset
    if offset < 0 or length < 0 or offset + length > have:
        raise OnnxError(f"{where}: asks for bytes {offset} to {offset + length} of {location!r}, which has {have}")
    if not length:
        return np.empty(0, np.uint8)
    return np.memmap(path, np.uint8, "r", offset, (length,))


LARGE = 1 << 16  # bytes

_Fields = dict[int, object]  # the fields of a message to look into, by their numbers
_TENSOR: _Fields = {9: None}  # raw_data
_ATTRIBUTE: _Fields = {5: _TENSOR}
_NODE: _Fields = {5: _ATTRIBUTE}
_GRAPH: _Fields = {1: _NODE, 5: _TENSOR}
_ATTRIBUTE[6] = _GRAPH
_MODEL: _Fields = {7: _GRAPH}
_MESSAGES = 64  # messages inside messages
_VARINT, _BYTES = 0, 2
_FIXED = {1: 8, 5: 4}  # the bytes of numbers of one size, by their kinds


class _NotARowError(Exception):
    """Bytes are no row of fields."""


def without_large(data: bytes) -> tuple[bytes, Large]:
    """The bytes of a ModelProto with a token in place of each large `raw_data`, and what each token stands for.

    Tokens are of 24 random bytes, so no file holds one.
    """
    found: Large = {}
    if len(data) < LARGE:
        return data, found
    try:
        pieces = _message(memoryview(data), _MODEL, found, 0)
    except _NotARowError:
        return data, {}
    return (b"".join(pieces), found) if found else (data, found)


def _message(data: memoryview, fields: _Fields, found: Large, depth: int) -> list[bytes]:
    """The pieces of a message anew; `fields` are those to look into, by their numbers."""
    if depth > _MESSAGES:
        raise _NotARowError
    out = []
    at = kept = 0  # where the next field begins, and up to where the message is in `out`
    end = len(data)
    while at < end:
        tag, begin = _varint(data, at)
        kind = tag & 7
        if kind == _BYTES:
            length, begin = _varint(data, begin)
            next_at = begin + length
            if length >= LARGE and next_at <= end and tag >> 3 in fields:
                inner = fields[tag >> 3]
                if isinstance(inner, dict):
                    value = _message(data[begin:next_at], inner, found, depth + 1)
                else:
                    token = os.urandom(24)
                    found[token] = data[begin:next_at]
                    value = [token]
                out += [bytes(data[kept:at]), _as_varint(tag), _as_varint(sum(map(len, value))), *value]
                kept = next_at
        elif kind == _VARINT:
            next_at = _varint(data, begin)[1]
        elif kind in _FIXED:
            next_at = begin + _FIXED[kind]
        else:
            raise _NotARowError
        if next_at > end:
            raise _NotARowError
        at = next_at
    out.append(bytes(data[kept:]))
    return out


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, the low ones first, and where it ends."""
    n = 0
    for shift, byte in enumerate(data[at : at + 10]):
        n |= (byte & 127) << 7 * shift
        if byte < 128:
            return n, at + shift + 1
    raise _NotARowError


def _as_varint(n: int) -> bytes:
    return bytes([n & 127 | 128]) + _as_varint(n >> 7) if n > 127 else bytes([n])


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

    graph = _Reader(opsets, functions, counted).graph(proto.graph, "main graph", (), 0)
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
        free = set[str]()
        made = {text_of(x): n for n, proto in enumerate(protos) for x in proto.output}
        visible = (*outer, known | made.keys())
        nodes = [self.node(proto, out.path, visible, depth) for proto in protos]
        before = {n: {made[x] for x in node.reads() & made.keys()} for n, node in enumerate(nodes)}
        if any(m >= n for n, found in before.items() for m in found):  # onnxruntime's converters write such files
            from contextlib import suppress
            from graphlib import TopologicalSorter

            with suppress(ValueError):  # a circle, which is refused below
                nodes = [nodes[n] for n in TopologicalSorter(before).static_order()]
        for node in nodes:
            for x in node.reads() - known:
                if not any(x in names for names in outer):
                    raise node.fault(f"nothing before it computes its input {x!r}")
                free.add(x)
            for x in node.outputs:
                if x in known:
                    raise node.fault(f"its output {x!r} has the name of another value of the same graph")
            known.update(filter(None, node.outputs))
        out.nodes += nodes
        return free

    def node(self, proto: Any, path: str, visible: _Names, depth: int) -> FileNode:
        """A NodeProto with its attributes, the schema's defaults among them, and its implementation."""
        domain, op = _domain(proto.domain), text_of(proto.op_type)
        opset = self.opsets.get(domain, 0)
        local = self.functions.get((domain, op, text_of(getattr(proto, "overload", ""))))
        schema = records.schema_of(op, domain, opset) if opset and local is None else None
        node = FileNode(
            name=text_of(proto.name),
            op=op,
            domain=domain,
            opset=opset,
            version=0 if schema is None else schema.since_version,
            inputs=tuple(text_of(x) for x in proto.input),
            outputs=tuple(text_of(x) for x in proto.output),
            attributes={} if schema is None else dict(records.defaults_of(schema)),
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
            node.function = records.body_of(schema, node, proto, self.function)
        return node

    def attributes(self, node: FileNode, proto: Any, schema: Any, visible: _Names) -> None:
        """Put the attributes that a file gives into a node."""
        defaults = dict(node.attributes)
        kinds = {}
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
        if schema is not None and (fault := records.fault_of(schema, node, kinds)):
            raise node.fault(fault)
        node.given = frozenset(kinds.keys() & node.attributes.keys())
        node.unusual = frozenset(
            a for a in node.given if a not in defaults or not records.same(node.attributes[a], defaults[a])
        )

    def attribute(self, a: Any, kind: int, node: FileNode, visible: _Names) -> Any:
        """An attribute as a Python value: numbers, text, lists of them, arrays, graphs."""
        where = f"attribute {text_of(a.name)!r} of {node}"
        if kind in records.PLAIN:
            return records.PLAIN[kind](a)
        if kind == 4:
            return self.array(a.t, where)
        if kind == 5:
            return self.graph(a.g, f"{node.path} / {node.op} {node.name!r} {text_of(a.name)}", visible, node.depth + 1)
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
        size = math.prod(dims)
        if any(d < 0 for d in dims) or size > _DENSE or values.ndim != 1:
            raise OnnxError(f"{where}: a sparse tensor of shape {dims} is not possible")
        if indices.dtype != np.int64:
            raise OnnxError(f"{where}: indices of a sparse tensor are int64, not {indices.dtype}")
        linear = indices.ndim == 1
        if not linear and (indices.ndim != 2 or indices.shape[1] != len(dims)):
            raise OnnxError(f"{where}: indices of shape {indices.shape} do not fit a sparse tensor of shape {dims}")
        if len(indices) != len(values):
            raise OnnxError(
                f"{where}: {len(values)} values and indices of shape {indices.shape}: each value has one index"
            )
        if ((indices < 0) | (indices >= (size if linear else dims))).any():
            raise OnnxError(f"{where}: an index is outside the shape {dims}")
        steps = np.array([math.prod(dims[axis + 1 :]) for axis in range(len(dims))], np.int64)
        out = np.zeros(size, values.dtype)
        out[indices if linear else indices @ steps] = values
        return out.reshape(dims)

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


# the fields of an attribute by its type, counted from 1
_FIELDS = "f i s t g floats ints strings tensors graphs sparse_tensor sparse_tensors tp type_protos"


def _kind_of_old(a: Any) -> int:
    """The type of an attribute of a file of ir_version 1, which does not say it."""
    given = {field.name for field, _ in a.ListFields()}
    return next((kind for kind, name in enumerate(_FIELDS.split(), 1) if name in given), 7)  # an empty list


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
        shape = None
        if tensor.HasField("shape"):
            shape = tuple(_size(d) for d in tensor.shape.dim)
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
