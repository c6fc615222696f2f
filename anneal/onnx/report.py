"""Reports of a model before anything runs: its needs, and all its gaps at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial

from anneal.frozen import frozen
from anneal.onnx.graph import FileNode, Graph, ModelProgram, ValueInfo, deciding, made_types, schema_of, wrong_types
from anneal.onnx.registry import table
from anneal.onnx.values import element_name

# Attributes that change nothing that is computed, or say again what the weights' shapes say; random numbers are ours
# whatever the seed.
_SILENT = frozenset(("doc_string", "consumed_inputs", "layer_name", "hidden_size", "kernel_shape", "seed"))


@frozen
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


@frozen
class Use:
    """An operator of a model: its version, how many nodes are of it, and who computes it ("anneal", "a function",
    "nobody").
    """

    op: str
    domain: str
    version: int
    count: int
    by: str


@frozen
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
        inputs=tuple(v for v in graph.inputs if v.name not in graph.constants),
        outputs=tuple(graph.outputs),
        parameters=program.numbers,
        bytes=program.bytes,
        nodes=sum(counts.values()),
        uses=tuple(Use(op, domain, v, n, by) for (op, domain, v, by), n in counts.most_common()),
        gaps=gaps_of(program),
        deciding=tuple(v.name for v in graph.inputs if v.name in decides and v.name not in graph.constants),
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
    graph, fix = program.graph, "let the model take a tensor"
    out = [
        Gap("input", "", 0, v.name, graph.path, f"an input of the kind {v.kind!r} is not taken", fix)
        for v in graph.inputs
        if "sparse" in v.kind or "unknown" in v.kind
    ]
    out += _mistyped(graph)
    todo = [graph]
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


def _mistyped(graph: Graph) -> Iterator[Gap]:
    """Nodes of the main graph that are given elements of types which they do not take, as far as types are known."""
    known = {v.name: v.dtype for v in graph.inputs if v.kind == "tensor" and v.dtype}
    known |= {name: str(array.dtype.name) for name, array in graph.constants.items() if array is not None}
    known = {name: "object" if dtype == "string" else dtype for name, dtype in known.items()}
    for node in graph.nodes:
        dtypes = [known.get(x) for x in node.inputs]
        made = made_types(node, dtypes)
        if fault := wrong_types(node, dtypes, False):
            yield _gap_at(node, fault, "export the model again")
            made = []
        if node.op == "Cast" and not node.domain:
            to = node.attributes.get("to")
            made = [element_name(to) if isinstance(to, int) else None]
        known.update((name, dtype) for name, dtype in zip(node.outputs, made) if name and dtype)


def _gap_at(node: FileNode, what: str, fix: str) -> Gap:
    name = node.name or next((x for x in node.outputs if x), "")
    return Gap(node.op, node.domain, node.version, name, node.path, what, fix)


def _gap(node: FileNode) -> Gap | None:
    """The reason why a node cannot be run, if it is known beforehand."""
    gap = partial(_gap_at, node)
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
    lines = "\n".join(f"  {g}" for g in gaps[:200])
    more = f"\n  and {len(gaps) - 200} more" if len(gaps) > 200 else ""
    return f"{len(gaps)} of the model's nodes cannot be run:\n{lines}{more}"
