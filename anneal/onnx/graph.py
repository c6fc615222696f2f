"""A model as records, made by `reading.py`: graphs of nodes with their attributes and what computes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from typing import Any

from anneal.doors import pairs
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

    def reads(self) -> set[str]:
        """The names of the values that it, or a subgraph of it, reads."""
        return {x for x in self.inputs if x} | {x for g in self.subgraphs() for x in g.free}

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
            out.update(dict.fromkeys(node.reads(), n))
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
        """The key that identifies the function."""
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
    bytes: int  # that these tensors take


_Bodies = dict[Any, tuple[frozenset[int], frozenset[int]]]


def deciding(graph: Graph) -> frozenset[str]:
    """The names, of inputs and of what is between, whose values decide shapes."""
    names = set[str]()
    _walk(graph, names, {})
    return frozenset(names)


def _walk(graph: Graph, names: set[str], bodies: _Bodies) -> None:
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
            _walk_inside(node, inner, names, bodies)
        if node.function is not None and (body := node.body()) is not None:
            at = _places(body, node.function.key, bodies)[hit]
            names.update(x for n, x in enumerate(node.inputs) if x and n in at)
        elif hit and of is not None and not of.by_shape and not subgraphs and (of.raw or of.on_host is not None):
            names.update(x for x in node.inputs if x)


def _walk_inside(node: FileNode, graph: Graph, names: set[str], bodies: _Bodies) -> None:
    """The same for a subgraph. An output of a loop that is the next turn's input decides what that does."""
    loop = node.op == "Loop"  # whose body takes the number of the turn and the condition first, and gives this
    outputs = graph.outputs[loop:]
    more = {v.name for v, x in zip(outputs, node.outputs) if x in names}
    while True:
        names |= more
        _walk(graph, names, bodies)
        more = {o.name for o, i in zip(outputs, graph.inputs[2 * loop :]) if i.name in names}
        if more <= names:
            break
    names.update(x for v, x in zip(graph.inputs, node.inputs) if x and v.name in names)


def _places(body: Graph, key: Any, bodies: _Bodies) -> tuple[frozenset[int], frozenset[int]]:
    found = bodies.get(key)
    if found is None:
        bodies[key] = frozenset(), frozenset()  # of a function that calls itself, which is refused when it runs
        both = []
        for names in (set(), {v.name for v in body.outputs}):
            _walk(body, names, bodies)
            both.append(frozenset(n for n, v in enumerate(body.inputs) if v.name in names))
        found = bodies[key] = both[0], both[1]
    return found


@lru_cache(4096)
def schema_of(name: str, domain: str, version: int) -> Any:
    """The schema of an operator in an opset, or None.

    The onnx package's schemas of operators say attributes, defaults, types and numbers of inputs, and bodies.
    """
    from onnx import defs

    try:
        return defs.get_schema(name, min(version, (1 << 31) - 1), domain)
    except (defs.SchemaError, TypeError, ValueError):
        return None


# AttributeProto.AttributeType -> the value of an attribute of numbers or texts
PLAIN: dict[int, Callable[[Any], Any]] = {
    1: lambda a: float(a.f),
    2: lambda a: int(a.i),
    3: lambda a: text_of(a.s),
    6: lambda a: list(a.floats),
    7: lambda a: list(a.ints),
    8: lambda a: [text_of(s) for s in a.strings],
}


@lru_cache(4096)
def defaults_of(schema: Any) -> Mapping[str, Any]:
    """The defaults of the attributes that have one."""
    defaults = {key: a.default_value for key, a in schema.attributes.items() if a.default_value.name}
    return {key: PLAIN[d.type](d) for key, d in defaults.items() if d.type in PLAIN}


def same(value: Any, default: Any) -> bool:
    """True if an attribute is at its default."""
    return type(value) is type(default) and bool(value == default)


def text_of(data: bytes | str) -> str:
    """A text of the file; bytes that are not UTF-8 are kept in it."""
    return data.decode("utf-8", "surrogateescape") if isinstance(data, bytes) else data


@lru_cache(4096)
def _signature(schema: Any) -> tuple[dict[str, int], frozenset[str], tuple[int, int, int, int]]:
    """The types of attributes, those that must be there, and the least and most inputs and outputs."""
    kinds = {key: int(a.type.value) for key, a in schema.attributes.items()}
    required = frozenset(key for key, a in schema.attributes.items() if a.required)
    return kinds, required, (schema.min_input, schema.max_input, schema.min_output, schema.max_output)


@lru_cache(4096)
def _types(schema: Any) -> tuple[tuple[tuple[str, str, frozenset[str]], ...], bool]:
    """Name, type variable and types of each input, and whether the last one stands for all that follow, of one type."""
    homogeneous = any(i.option.name == "Variadic" and i.is_homogeneous for i in schema.inputs[-1:])
    return tuple((i.name, i.type_str, frozenset(i.types)) for i in schema.inputs), homogeneous


_TOLD = pairs("""
    float32=float float64=double object=string float4_e2m1fn=float4e2m1 float6_e2m3fn=float6e2m3
    float6_e3m2fn=float6e3m2 float8_e8m0fnu=float8e8m0
""")
NARROW = pairs("int64=int32 uint64=uint32 float64=float32")  # what devices without them have in their place


def wrong_types(node: FileNode, dtypes: list[str | None], narrowed: bool) -> str:
    """A text about the element types of a node's inputs (None: no tensor) that the standard does not allow, or "".

    With `narrowed` a type may stand for a wider one.
    """
    if not node.version:
        return ""
    inputs, homogeneous = _types(schema_of(node.op, node.domain, node.version))
    first = dict[str, tuple[str, str]]()
    narrower = NARROW if narrowed else {}
    for n, dtype in enumerate(dtypes):
        if dtype is None or not inputs or (n >= len(inputs) and not homogeneous):
            continue
        name, variable, types = inputs[min(n, len(inputs) - 1)]
        stands_for = [dtype, *[wide for wide, narrow in narrower.items() if narrow == dtype]]
        if not any(f"tensor({_TOLD.get(d, d.replace('_', ''))})" in types for d in stands_for) and any(
            "tensor" in t for t in types
        ):
            return f"version {node.version} takes no {'text' if dtype == 'object' else dtype} as {name!r}"
        other, was = first.setdefault(variable, (name, dtype))
        if narrower.get(dtype, dtype) != narrower.get(was, was):
            return f"{name!r} is {dtype}, but {other!r} is {was}, and they are of one type; cast one of them"
    return ""


_DTYPES = {f"tensor({told})": name for name, told in _TOLD.items()}


def made_types(node: FileNode, dtypes: list[str | None]) -> list[str | None]:
    """The element types of a node's outputs that follow from those of its inputs, or are always the same."""
    if not node.version:
        return []
    schema = schema_of(node.op, node.domain, node.version)
    bound = {variable: d for (_, variable, _), d in zip(_types(schema)[0], dtypes) if d is not None}
    out = []
    for o in schema.outputs:
        (only,) = o.types if len(o.types) == 1 else (o.type_str,)
        alone = (
            _DTYPES.get(only, only.removeprefix("tensor(").removesuffix(")")) if only.startswith("tensor(") else None
        )
        out.append(bound.get(o.type_str, alone))
    return out


# AttributeProto.AttributeType, counted from 1
_TYPES = (
    "a float, an int, text, a tensor, a graph, floats, ints, texts, tensors, graphs, a sparse tensor, sparse tensors, "
    "a type, types"
)
_KINDS = dict(enumerate(_TYPES.split(", "), 1))


def fault_of(schema: Any, node: FileNode, kinds: dict[str, int]) -> str:
    """The parts of a node's form that the standard does not allow, or nothing; `kinds` are its attributes' types."""
    wanted, required, (least, most, least_out, most_out) = _signature(schema)
    for name, kind in kinds.items():
        if name in wanted and wanted[name] != kind:
            return f"its attribute {name!r} is {_KINDS.get(kind, f'of type {kind}')}, not {_KINDS[wanted[name]]}"
    if missing := sorted(required - kinds.keys()):
        return f"its attribute {', '.join(missing)} is missing"
    if not least <= len(node.inputs) <= most:
        return f"has {len(node.inputs)} inputs, not {least if least == most else f'{least} to {most}'}"
    if not least_out <= len(node.outputs) <= most_out:
        outputs = f"{least_out}" if least_out == most_out else f"{least_out} to {most_out}"
        return f"has {len(node.outputs)} outputs, not {outputs}"
    return ""


# The words, or numbers, that an attribute may be, which schemas do not say: of one operator, or of all that have it.
_WORDS = {
    "Attention.qk_matmul_output_mode TreeEnsemble.aggregate_function": "0 1 2 3",
    "BitShift.direction": "LEFT RIGHT",
    "CausalConvWithState.activation": "none silu swish",
    "CropAndResize.mode": "bilinear nearest",
    "DepthToSpace.mode SpaceToDepth.mode": "DCR CRD",
    "GRU.direction": "forward reverse bidirectional foward",  # the default of version 1
    "GatedRMSNorm.activation": "silu swish sigmoid",
    "GridSample.mode": "linear nearest cubic bilinear bicubic",
    "LpNormalization.p": "1 2",
    "Momentum.mode": "standard nesterov",
    "NegativeLogLikelihoodLoss.reduction SoftmaxCrossEntropyLoss.reduction": "none sum mean",
    "Pad.mode": "constant reflect edge wrap",
    "Resize.mode": "nearest linear cubic",
    "RoiAlign.coordinate_transformation_mode": "half_pixel output_half_pixel",
    "RoiAlign.mode": "avg max",
    "TensorScatter.mode": "linear circular",
    "TfIdfVectorizer.mode": "TF IDF TFIDF",
    "TreeEnsemble.post_transform": "0 1 2 3 4",
    "Upsample.mode": "nearest linear bilinear",
    "activation_type": "swiglu relu gelu silu identity",
    "aggregate_function": "AVERAGE SUM MIN MAX",
    "approximate": "none tanh",
    "auto_pad": "NOTSET VALID SAME_UPPER SAME_LOWER",
    "case_change_action": "LOWER UPPER NONE",
    "cast_to": "TO_FLOAT TO_STRING TO_INT64",
    "coordinate_transformation_mode": "half_pixel half_pixel_symmetric pytorch_half_pixel align_corners "
    "asymmetric tf_crop_and_resize tf_half_pixel_for_nn",
    "direction": "forward reverse bidirectional",
    "keep_aspect_ratio_policy": "stretch not_larger not_smaller",
    "kernel_type": "LINEAR POLY RBF SIGMOID",
    "map_form": "DENSE SPARSE",
    "metric": "sqeuclidean euclidean",
    "nearest_mode": "round_prefer_floor round_prefer_ceil floor ceil",
    "norm": "MAX L1 L2",
    "padding_mode": "zeros border reflection",
    "pixel_format": "RGB BGR Grayscale",
    "post_transform": "NONE SOFTMAX LOGISTIC SOFTMAX_ZERO PROBIT",
    "reduction": "none add mul max min",
    "round_mode": "up down nearest",
    "update_rule": "linear gated delta gated_delta",
}
_ALLOWED = {place: words.split() for places, words in _WORDS.items() for place in places.split()}
_COUNTS = (
    "blocksize dilations group hidden_size kernel_shape n_targets ngram_size num_groups num_outputs offset_group "
    "output_height output_width strides LRN.size LpPool.p"
)
_FROM_0 = (
    "block_size kv_num_heads max_skip_count ngram_counts ngram_indexes num_heads q_num_heads rotary_embedding_dim "
    "sampling_ratio"
)
_LEAST = dict.fromkeys(_COUNTS.split(), 1) | dict.fromkeys(_FROM_0.split(), 0)


def allowed_values(op: str, name: str) -> list[str]:
    """The words that an attribute of an operator may be; none if it is not restricted to a few."""
    return _ALLOWED.get(f"{op}.{name}") or _ALLOWED.get(name, [])


def wrong_value(node: FileNode) -> str:
    """The attribute that has a value that it may not have, or nothing."""
    for name, value in node.attributes.items() if node.implementation or node.version else ():
        words, least = allowed_values(node.op, name), _LEAST.get(f"{node.op}.{name}", _LEAST.get(name))
        if words and str(value or "NOTSET" if name == "auto_pad" else value) not in words:
            return f"{name} is {', '.join(words[:-1])} or {words[-1]}, not {value!r}"
        if least is not None and min([least, *value] if isinstance(value, list) else [value]) < least:
            return f"{name} is at least {least}, not {value}"
    rule = node.attributes.get("update_rule")  # of a linear attention, whose inputs go with it
    if rule and [bool(x) for x in (*node.inputs, "", "", "")[4:6]] != ["gated" in rule, "delta" in rule]:
        return f"update_rule {rule!r} and the inputs decay and beta do not go together"
    return ""


def body_of(schema: Any, node: FileNode, proto: Any, read: Callable[[Any, FileNode], Graph]) -> LocalFunction | None:
    """The body that the standard itself gives an operator, or None."""
    plain, by_types = [
        max([v for v in versions if v <= node.opset], default=0)
        for versions in (schema.function_opset_versions, schema.context_dependent_function_opset_versions)
    ]
    if plain:
        return LocalFunction(node.op, _parsed(schema.get_function_with_opset_version(plain)), read)
    return LocalFunction(node.op, None, read, partial(_body_for, schema, by_types, proto, node)) if by_types else None


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
        body = FunctionProto.FromString(data)
        if not body.node:
            raise ValueError(f"it makes none of {node.attributes}")
    except Exception as e:
        raise node.fault(f"the standard has no body of it for these inputs: {e}") from None
    return body
