"""The onnx package's schemas of operators: attributes, defaults, numbers of inputs, bodies."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

from anneal.onnx.graph import FileNode, Graph, LocalFunction


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
            value = text_of(default.s)
        elif kind == 6:
            value = list(default.floats)
        elif kind == 7:
            value = list(default.ints)
        elif kind == 8:
            value = [text_of(s) for s in default.strings]
        else:
            continue
        out.append((key, value))
    return tuple(out)


def defaults_of(schema: Any) -> dict[str, Any]:
    """The attributes that have a default, with it."""
    return dict(_defaults_of(schema.name, schema.domain, schema.since_version))


def same(value: Any, default: Any) -> bool:
    """True if an attribute is at its default."""
    return type(value) is type(default) and bool(value == default)


def text_of(data: bytes | str) -> str:
    """Text of a file; bytes that are none are kept in it."""
    return data.decode("utf-8", "surrogateescape") if isinstance(data, bytes) else data


@lru_cache(4096)
def _signature(
    name: str, domain: str, version: int
) -> tuple[dict[str, int], frozenset[str], tuple[int, int, int, int]]:
    """The types of attributes, those that must be there, and the least and most inputs and outputs."""
    schema = schema_of(name, domain, version)
    kinds = {key: int(a.type.value) for key, a in schema.attributes.items()}
    required = frozenset(key for key, a in schema.attributes.items() if a.required)
    return kinds, required, (schema.min_input, schema.max_input, schema.min_output, schema.max_output)


@lru_cache(4096)
def _types(name: str, domain: str, version: int) -> tuple[tuple[tuple[str, str, frozenset[str]], ...], bool]:
    """Name, type variable and types of each input, and whether the last one stands for all that follow, of one type."""
    schema = schema_of(name, domain, version)
    inputs = tuple([(i.name, i.type_str, frozenset(i.types)) for i in schema.inputs])
    return inputs, bool(schema.inputs) and schema.inputs[-1].option.name == "Variadic" and schema.inputs[
        -1
    ].is_homogeneous


_TOLD = {
    "float32": "float",
    "float64": "double",
    "object": "string",
    "float4_e2m1fn": "float4e2m1",
    "float6_e2m3fn": "float6e2m3",
    "float6_e3m2fn": "float6e3m2",
    "float8_e8m0fnu": "float8e8m0",
}
_NARROW = {"int64": "int32", "uint64": "uint32", "float64": "float32"}  # what devices without them have in their place


def wrong_types(node: FileNode, dtypes: list[str | None], narrowed: bool) -> str:
    """The element types of a node's inputs (None: no tensor) that are not as the standard says, or nothing.

    With `narrowed` a type may stand for a wider one.
    """
    if not node.version:
        return ""
    inputs, homogeneous = _types(node.op, node.domain, node.version)
    first: dict[str, tuple[str, str]] = {}
    for n, dtype in enumerate(dtypes):
        if dtype is None or not inputs or (n >= len(inputs) and not homogeneous):
            continue
        name, variable, types = inputs[min(n, len(inputs) - 1)]
        stands_for = [dtype, *[wide for wide, narrow in _NARROW.items() if narrowed and narrow == dtype]]
        if not any(f"tensor({_TOLD.get(d, d.replace('_', ''))})" in types for d in stands_for) and any(
            "tensor" in t for t in types
        ):
            return f"version {node.version} takes no {'text' if dtype == 'object' else dtype} as {name!r}"
        if variable in first and not _one_type(dtype, first[variable][1], narrowed):
            other, was = first[variable]
            return f"{name!r} is {dtype}, but {other!r} is {was}, and they are of one type; cast one of them"
        first.setdefault(variable, (name, dtype))
    return ""


@lru_cache(4096)
def _made_types(name: str, domain: str, version: int) -> tuple[tuple[str, frozenset[str]], ...]:
    """The type variable and the types of each output."""
    return tuple([(o.type_str, frozenset(o.types)) for o in schema_of(name, domain, version).outputs])


_DTYPES = {f"tensor({told})": name for name, told in _TOLD.items()}


def made_types(node: FileNode, dtypes: list[str | None]) -> list[str | None]:
    """The element types of a node's outputs that follow from those of its inputs, or are always the same."""
    if not node.version:
        return []
    inputs, _ = _types(node.op, node.domain, node.version)
    bound = {variable: d for (_, variable, _), d in zip(inputs, dtypes) if d is not None}
    out = []
    for variable, types in _made_types(node.op, node.domain, node.version):
        (only,) = types if len(types) == 1 else (variable,)
        alone = (
            _DTYPES.get(only, only.removeprefix("tensor(").removesuffix(")")) if only.startswith("tensor(") else None
        )
        out.append(bound.get(variable, alone))
    return out


def _one_type(a: str, b: str, narrowed: bool) -> bool:
    return a == b or (narrowed and _NARROW.get(a, a) == _NARROW.get(b, b))


_KINDS = {
    1: "a float",
    2: "an int",
    3: "text",
    4: "a tensor",
    5: "a graph",
    6: "floats",
    7: "ints",
    8: "texts",
    9: "tensors",
    11: "a sparse tensor",
    13: "a type",
}


def fault_of(schema: Any, node: FileNode, kinds: dict[str, int]) -> str:
    """The parts of a node's form that the standard does not allow, or nothing; `kinds` are its attributes' types."""
    wanted, required, (least, most, least_out, most_out) = _signature(schema.name, schema.domain, schema.since_version)
    for name, kind in kinds.items():
        if name in wanted and wanted[name] != kind:
            is_, takes = _KINDS.get(kind, f"of type {kind}"), _KINDS.get(wanted[name], str(wanted[name]))
            return f"its attribute {name!r} is {is_}, not {takes}"
    if missing := sorted(required - kinds.keys()):
        return f"its attribute {', '.join(missing)} is missing"
    if not least <= len(node.inputs) <= most:
        return f"has {len(node.inputs)} inputs, not {least if least == most else f'{least} to {most}'}"
    if not least_out <= len(node.outputs) <= most_out:
        outputs = f"{least_out}" if least_out == most_out else f"{least_out} to {most_out}"
        return f"has {len(node.outputs)} outputs, not {outputs}"
    return ""


def body_of(schema: Any, node: FileNode, proto: Any, read: Callable[[Any, FileNode], Graph]) -> LocalFunction | None:
    """The body that the standard itself gives an operator, or None."""
    if schema.has_function:
        versions = [v for v in schema.function_opset_versions if v <= node.opset]
        if versions:
            data = schema.get_function_with_opset_version(max(versions))
            return LocalFunction(node.op, _parsed(data), read)
    if schema.has_context_dependent_function:
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= node.opset]
        if versions:
            return LocalFunction(node.op, None, read, partial(_body_for, schema, max(versions), proto, node))
    return None


@lru_cache(512)
def _parsed(data: bytes) -> Any:
    from onnx import FunctionProto

    return FunctionProto.FromString(data)


def _body_for(schema: Any, version: int, proto: Any, node: FileNode, types: list[Any]) -> Any:
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
