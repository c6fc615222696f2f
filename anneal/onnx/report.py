"""Reports of a model: its needs and all its gaps, before anything runs; and the first node whose value differs from
another runtime's.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from anneal import progress
from anneal.errors import OnnxError
from anneal.onnx.graph import FileNode, Graph, ModelProgram, ValueInfo, deciding, made_types, schema_of, wrong_types
from anneal.onnx.model import load
from anneal.onnx.plan import ModelPlan
from anneal.onnx.reading import parsed
from anneal.onnx.registry import table
from anneal.onnx.values import element_name
from anneal.tensor import Tensor, realize

# Attributes that change nothing that is computed, or say again what the weights' shapes say; random numbers are ours
# whatever the seed.
_SILENT = frozenset(("doc_string", "consumed_inputs", "layer_name", "hidden_size", "kernel_shape", "seed"))


@dataclass(frozen=True)
class Gap:
    """A node that cannot be run, the reason, and the remedy."""

    op: str
    domain: str
    version: int
    node: str  # its name in the file, or the name of its first output
    path: str  # of the graph that it stands in
    what: str
    fix: str

    def __str__(self) -> str:
        name = f"{self.domain}.{self.op}" if self.domain else self.op
        version = f" {self.version}" if self.version else ""
        return f"{name}{version}, node {self.node!r} of {self.path}: {self.what}; {self.fix}"


@dataclass(frozen=True)
class Use:
    """An operator of a model: its version, how many nodes are of it, and who computes it ("anneal", "a function",
    "nobody").
    """

    op: str
    domain: str
    version: int
    count: int
    by: str


@dataclass(frozen=True)
class Description:
    """A model's description: `parameters` counts the numbers of its initialisers and constants, `bytes` their size."""

    name: str
    producer: str
    ir_version: int
    opsets: tuple[tuple[str, int], ...]
    inputs: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]
    parameters: int
    bytes: int
    nodes: int
    uses: tuple[Use, ...]  # the most frequent first
    gaps: tuple[Gap, ...]
    deciding: tuple[str, ...]  # inputs whose values decide shapes


def describe(program: ModelProgram) -> Description:
    """The contents of a model, subgraphs included."""
    graph = program.graph
    counts: Counter[tuple[str, str, int, str]] = Counter()
    for node in nodes_of(graph):
        by = "anneal" if node.implementation else "a function" if node.function else "nobody"
        counts[node.op, node.domain, node.version, by] += 1
    decides = deciding(graph)
    return Description(
        name=graph.name,
        producer=program.producer,
        ir_version=program.ir_version,
        opsets=tuple(sorted(program.opsets.items())),
        inputs=tuple([v for v in graph.inputs if v.name not in graph.constants]),
        outputs=tuple(graph.outputs),
        parameters=program.numbers,
        bytes=program.bytes,
        nodes=sum(counts.values()),
        uses=tuple([Use(op, domain, v, n, by) for (op, domain, v, by), n in counts.most_common()]),
        gaps=gaps_of(program),
        deciding=tuple([v.name for v in graph.inputs if v.name in decides and v.name not in graph.constants]),
    )


def nodes_of(graph: Graph) -> Iterator[FileNode]:
    """The nodes of a graph and of the subgraphs inside it, in order; not those of functions."""
    stack = [iter(graph.nodes)]
    while stack:
        node = next(stack[-1], None)
        if node is None:
            stack.pop()
            continue
        yield node
        stack.extend(iter(g.nodes) for g in sorted(node.subgraphs(), key=lambda g: g.path))


def gaps_of(program: ModelProgram) -> tuple[Gap, ...]:
    """The gaps of a model, those inside functions once for each function."""
    out = [*_untaken(program.graph), *_mistyped(program.graph)]
    todo = [program.graph]
    seen = set()
    while todo:
        for node in nodes_of(todo.pop()):
            if node.function is not None:
                if node.function.proto is not None and node.function.key not in seen:
                    seen.add(node.function.key)
                    body = node.body()
                    todo += [] if body is None else [body]
            elif (gap := _gap(node)) is not None:
                out.append(gap)
    return tuple(out)


def _untaken(graph: Graph) -> Iterator[Gap]:
    """Inputs of kinds that no run takes."""
    for v in graph.inputs:
        if "sparse" in v.kind or "unknown" in v.kind:
            what = f"an input of the kind {v.kind!r} is not taken"
            yield Gap("input", "", 0, v.name, graph.path, what, "let the model take a tensor")


def _mistyped(graph: Graph) -> Iterator[Gap]:
    """Nodes of the main graph that are given elements of types which they do not take, as far as types are known."""
    known: dict[str, str | None] = {v.name: v.dtype for v in graph.inputs if v.kind == "tensor" and v.dtype}
    known |= {name: str(array.dtype.name) for name, array in graph.constants.items() if array is not None}
    known = {name: "object" if dtype == "string" else dtype for name, dtype in known.items()}
    for node in graph.nodes:
        dtypes = [known.get(x) for x in node.inputs]
        made = made_types(node, dtypes)
        if fault := wrong_types(node, dtypes, False):
            name = node.name or next((x for x in node.outputs if x), "")
            yield Gap(node.op, node.domain, node.version, name, node.path, fault, "export the model again")
            made = []
        if node.op == "Cast" and not node.domain:
            to = node.attributes.get("to")
            made = [element_name(to) if isinstance(to, int) else None]
        known.update((name, dtype) for name, dtype in zip(node.outputs, made) if name and dtype)


def _gap(node: FileNode) -> Gap | None:
    """The reason why a node cannot be run, if it is known beforehand."""
    name = node.name or next((x for x in node.outputs if x), "")

    def gap(what: str, fix: str) -> Gap:
        return Gap(node.op, node.domain, node.version, name, node.path, what, fix)

    if node.implementation is None:
        if not node.opset:
            return gap(
                f"the model imports no opset of its domain {node.domain or 'ai.onnx'!r}",
                "add an opset_import, or functions that define it",
            )
        known = table().get((node.domain, node.op), [])
        if known:
            since = known[0].since
            return gap(f"anneal has it from version {since} on", f"convert the model to opset {since} or newer")
        if schema_of(node.op, node.domain, node.opset) is None:
            return gap(
                "neither ONNX nor anneal has this operator", "define it as a function in the model, or replace it"
            )
        return gap("anneal does not have this operator", "replace it in the model, or add it to anneal/onnx/ops")
    for attribute in ("to", "dtype", "output_dtype"):
        code = node.attributes.get(attribute)
        if isinstance(code, int) and "complex" in element_name(code):
            return gap(f"makes elements of {element_name(code)}, which no tensor has", "use pairs of floats")
    schema = schema_of(node.op, node.domain, node.opset)
    unknown = sorted(a for a in node.given if schema is not None and a not in schema.attributes and a not in _SILENT)
    if unknown:
        return gap(
            f"has the attribute {', '.join(unknown)}, which version {node.version} of it does not have",
            "export the model again, or take the attribute away",
        )
    unread = sorted(node.unusual - set(node.implementation.attributes) - _SILENT)
    if unread:
        return gap(f"anneal does not read its attribute {', '.join(unread)}", "leave the attribute at its default")
    return None


def told(gaps: tuple[Gap, ...]) -> str:
    """The gaps as the text of an error."""
    lines = "\n".join([f"  {g}" for g in gaps[:200]])
    more = f"\n  and {len(gaps) - 200} more" if len(gaps) > 200 else ""
    return f"{len(gaps)} of the model's nodes cannot be run:\n{lines}{more}"


@dataclass(frozen=True)
class NodeDifference:
    """A node whose value is another than the reference's: where it is worst, and what stands there."""

    node: str
    output: str
    what: str  # "values", "shape", "dtype"
    at: tuple[int, ...]
    ours: str
    theirs: str
    error: float  # the largest difference, by the largest value of the reference

    def __str__(self) -> str:
        place = f" at {list(self.at)}" if self.at else ""
        return (
            f"{self.node}: {self.what} of {self.output!r} differ{place}: {self.ours}, the reference has {self.theirs}"
        )


@dataclass(frozen=True)
class Checked:
    """The outcome of `check`: `values` were compared with `reference`, `missing` are those that it does not give,
    `first` is the first node that differs, or None, and `worst` the largest error.
    """

    reference: str
    values: int
    missing: int  # values that the reference does not tell
    worst: float
    first: NodeDifference | None


def check(
    source: str | os.PathLike[str] | bytes,
    feeds: Mapping[str, Any],
    device: str | None = None,
    *,
    tolerance: float = 1e-3,
) -> Checked:
    """Run a model here and by onnxruntime, or else by the onnx package's own reference, and compare every node's value.

    Args:
        source: a path, or what such a file holds.
        feeds: inputs by name, NumPy arrays.
        device: where ours runs.
        tolerance: of a difference, by the largest value of the reference's.

    Raises OnnxError for a model that cannot be loaded, or that the reference cannot run.
    """
    model = load(source, device)
    ours: list[tuple[FileNode, str, Any]] = []

    graph = model.program.graph
    inner = (g for n in graph.nodes for g in n.subgraphs())
    # Some outputs are nobody's, and runtimes leave them as they happen to be.
    read = (
        {x for n in graph.nodes for x in n.inputs}
        | {v.name for v in graph.outputs}
        | {x for g in inner for x in g.free}
    )

    def watch(node: FileNode, results: tuple[Any, ...]) -> None:
        if node.path == graph.path:
            ours.extend((node, name, r) for name, r in zip(node.outputs, results) if name in read and name)

    values = model.taken(feeds)
    ModelPlan(model, values).lazy(values, watch=watch)
    realize([r for _, _, r in ours if isinstance(r, Tensor)])
    arrays = {name: np.asarray(feeds[name]) for name in feeds}
    with progress.work("running the reference"):
        reference, theirs = _reference(source, arrays, [name for _, name, _ in ours])
    worst, compared, first = 0.0, 0, None
    for node, name, result in progress.told(ours, "comparing values", len(ours)):
        wanted = theirs.get(name)
        if not isinstance(wanted, np.ndarray) or result is None or isinstance(result, list):
            continue
        compared += 1
        found = _difference(node, name, result.numpy() if isinstance(result, Tensor) else result, wanted)
        worst = max(worst, found.error)
        if first is None and not found.error <= tolerance:
            first = found
    return Checked(reference, compared, len(ours) - compared, worst, first)


def _difference(node: FileNode, name: str, ours: Any, theirs: Any) -> NodeDifference:
    """The distance between two arrays."""

    def of(what: str, a: object, b: object, at: tuple[int, ...] = (), error: float = float("inf")) -> NodeDifference:
        return NodeDifference(str(node), name, what, at, str(a), str(b), error)

    if ours.shape != theirs.shape:
        return of("shape", list(ours.shape), list(theirs.shape))
    if ours.dtype.kind == "O" or theirs.dtype.kind in "OUS":
        same = ours.astype(str).tolist() == theirs.astype(str).tolist()
        return of("values", ours.ravel()[:4], theirs.ravel()[:4], error=0.0 if same else float("inf"))
    if not ours.size:
        return of("values", "", "", error=0.0)
    kind = np.complex128 if "complex" in theirs.dtype.name else np.float64
    a, b = ours.astype(kind), theirs.astype(kind)
    with np.errstate(all="ignore"):
        apart = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
        finite = np.abs(b[np.isfinite(b)])
        apart = np.where(np.isnan(apart), np.inf, apart) / max(float(finite.max(initial=0.0)), 1e-6)
    at = np.unravel_index(int(apart.argmax()), apart.shape)
    place = tuple([int(i) for i in at])
    return of("values", ours[place], theirs[place], place, float(apart[place]))


def _reference(source: Any, feeds: dict[str, Any], names: list[str]) -> tuple[str, dict[str, Any]]:
    """The name of the reference, and its values by name."""
    proto, folder, _ = parsed(source, whole=True)
    if folder is not None:
        import onnx

        onnx.load_external_data_for_model(proto, str(folder))
    faults = []
    try:
        return "onnxruntime", _onnxruntime(proto, feeds, names)
    except ImportError:
        faults.append("onnxruntime is not installed")
    except Exception as e:
        faults.append(f"onnxruntime: {_first_line(e)}")
    from onnx.reference import ReferenceEvaluator

    try:
        found = ReferenceEvaluator(proto).run(None, feeds, intermediate=True)
    except Exception as e:
        faults.append(f"the onnx package's reference: {_first_line(e)}")
        raise OnnxError(f"check: no reference runs this model: {'; '.join(faults)}") from None
    return f"onnx's reference ({faults[0]})", dict(found)


def _onnxruntime(proto: Any, feeds: dict[str, Any], names: list[str]) -> dict[str, Any]:
    import onnxruntime
    from onnx import ValueInfoProto

    have = {o.name for o in proto.graph.output}
    for name in names:
        if name not in have:
            proto.graph.output.append(ValueInfoProto(name=name))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    results = session.run(None, feeds)
    return {o.name: r for o, r in zip(session.get_outputs(), results)}


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
