"""Comparison of each node's value with another runtime's: the first node that differs, with both values."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from anneal import progress
from anneal.errors import OnnxError
from anneal.onnx.graph import FileNode
from anneal.onnx.model import load
from anneal.onnx.plan import ModelPlan
from anneal.onnx.reading import parsed
from anneal.progress import told
from anneal.tensor import Tensor, realize


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
    for node, name, result in told(ours, "comparing values", len(ours)):
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
