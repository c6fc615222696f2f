"""A loaded model, which runs by itself, as an `nn.Module` or under onnxruntime's names; `check`, which compares it with
another runtime.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from anneal import progress
from anneal.backend import get_device
from anneal.errors import AnnealError, OnnxError
from anneal.frozen import frozen
from anneal.nn import Module
from anneal.onnx.graph import FileNode, Graph, ValueInfo
from anneal.onnx.loaded import BUDGET, LoadedModel, SizeUse, inside_another
from anneal.onnx.plan import ModelPlan, UnsizedError, is_given, signature
from anneal.onnx.reading import parsed, program_of, reader_of
from anneal.onnx.report import Description, describe, gaps_of, nodes_of, told
from anneal.onnx.values import Feeds, HostStep, device_array
from anneal.tensor import Tensor, default_device, realize, tree_map
from anneal.uop import Ints, Recent

_PLANS = 16  # signatures that a model, or a module, keeps plans for


def load(
    source: str | os.PathLike[str] | bytes,
    device: str | None = None,
    *,
    shapes: Mapping[str, Any] | None = None,
    structure_only: bool = False,
    float64: str = "float32",
    budget: int = BUDGET,
    elements: int | None = None,
) -> Model:
    """The model of an ONNX file, or of its bytes.

    Args:
        source: a path, or what such a file holds.
        device: where it runs; the default device if None.
        shapes: what symbolic sizes may be. `{"batch": (1, 64)}`, bounds for a name in the file: one plan, with the same
            kernels, serves all batches, and memory is laid out for the largest. `{"batch": 8}`, the one number that it
            is. `{"input": {0: (1, 64)}}` for a size without a name, by its input and axis; a text in place of the
            bounds names it. Each value of a name without bounds has a plan of its own. See `Model.sizes`.
        structure_only: leave the weights: what the graph looks like can be asked, and nothing run. Works for files
            whose weights are missing, and for models with gaps.
        float64: what becomes of float64 on a device that has none: "float32", or "error".
        budget: how many nodes one run may execute besides those of the main graph: those of subgraphs and functions are
            counted each time, four that are replayed together as one.
        elements: how many one value may have; 256 for each number in the file and in the inputs if None, or 67 million
            if that is more.

    Raises OnnxError for a file that cannot be read, is broken, or has what cannot be run: all of it is listed; and for
    names in `shapes` that the file does not have.

    >>> from onnx import TensorProto, helper
    >>> x, y = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2]) for n in "xy"]
    >>> graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "same", [x], [y])
    >>> model = load(helper.make_model(graph).SerializeToString())
    >>> model.run({"x": [1.0, 2.0]})
    {'y': Tensor([1., 2.], dtype=float32)}
    """
    if float64 not in ("float32", "error"):
        raise OnnxError(f'load: float64 is "float32" or "error", not {float64!r}')
    device = device or default_device()
    if not structure_only:
        threading.Thread(target=_open, args=(device,)).start()  # it takes as long as reading does
    with progress.work("reading the model"):
        proto, folder, large = parsed(source)
        program = program_of(proto, reader_of(folder, large, structure_only=structure_only))
    model = Model(program, device, budget, float64, elements, shapes)
    if not structure_only and (gaps := model.gaps()):
        raise OnnxError(told(gaps), gaps)
    return model


def _open(device: str) -> None:
    with contextlib.suppress(AnnealError):  # the error comes again when the device is used
        get_device(device)


class Model(LoadedModel):
    """An ONNX model: `run` takes values by name, a call takes them by position. `load` makes one.

    `inputs` and `outputs` say what there is: names, dtypes, shapes with their symbolic names. `optional_inputs` are
    those that have a value in the file. `program` holds the graph.

    Args:
        device: the name of the device.
        budget: the number of nodes that one run may execute.
        float64: the handling of float64 on a device without it: "float32" or "error".
        elements: the largest number of elements of one value; None: by the size of the file and of the inputs.
    """

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name, in their order: tensors on the device, lists of them (sequences), None (empty
        optionals), and NumPy arrays of what no device holds (strings).

        Args:
            feeds: values by the names of inputs: NumPy arrays, tensors, Python numbers and lists; for a sequence a list
                of those, for an empty optional None.

        Raises OnnxError for a name that is no input, a missing input, a value that does not fit its input, and for what
        a node cannot compute.
        """
        kinds = [
            (n, x.dtype, x.shape, None if is_given(x) else x.tobytes())
            for n, x in feeds.items()
            if type(x) is np.ndarray and x.dtype.isnative
        ]
        last, plan, names = self._again
        results = None
        if kinds == last and len(kinds) == len(feeds):  # the checks depend on nothing else, and neither does the plan
            results = plan.again([np.ascontiguousarray(feeds[n]) for n in names])
        if results is None:
            self._again = None, None, ()
            values = self.taken(feeds)
            results = self._results(values)
            names = tuple([n for n, v in values.items() if isinstance(v, Tensor)])
            if all(n in names or v is None or not is_given(v) for n, v in values.items()):
                self._again = kinds, next(reversed(self._plans.values())), names
        return {v.name: r for v, r in zip(self.outputs, results)}

    def _results(self, values: Feeds) -> list[Any]:
        """The outputs by the most general plan that there can be."""
        if not self.bounds.variables or inside_another():
            return self.plan(values).run(values)
        reason = ""
        for names in self._choices():
            plan = self.plan(values, names)
            try:
                results = plan.run(values)
            except UnsizedError as e:
                reason = reason or str(e)
                continue
            with self.lock:
                for name in self.bounds.variables.keys() - names:
                    self._unsized.setdefault(name, reason)
            return results
        raise AssertionError("unreachable: the last plan has no Variables")

    def _choices(self) -> Iterator[frozenset[str]]:
        """The sets of sizes to try as Variables: first all that are known to work, at last none."""
        names = [n for n in self.bounds.variables if n not in self._unsized]
        for count in range(len(names), -1, -1):
            if count in (0, 1, len(names) - 1, len(names)):
                yield from map(frozenset, combinations(names, count))

    def __call__(self, *inputs: Any) -> Any:
        """The outputs for inputs by position: the one output, or a tuple."""
        results = tuple(self.run(self.named(inputs)).values())
        return results[0] if len(results) == 1 else results

    def module(self) -> OnnxModule:
        """The model as an `nn.Module` whose parameters are the initialisers of floats, by their names in the file."""
        return OnnxModule(self)

    def gaps(self) -> tuple[Any, ...]:
        """The nodes of the model that cannot be run: see `anneal.onnx.Gap`."""
        return gaps_of(self.program)

    def describe(self) -> Description:
        """The contents of the file: inputs, outputs, opsets, parameters, operators with their counts, gaps."""
        return describe(self.program)

    def trace(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name as graphs that are not computed yet: for `anneal kernels`, and to go on from.

        Raises OnnxError as `run` does.

        Args:
            feeds: the values of the inputs by name.
        """
        values = self.taken(feeds, detach=False)
        return {v.name: r for v, r in zip(self.outputs, ModelPlan(self, values).lazy(values))}

    @property
    def sizes(self) -> tuple[SizeUse, ...]:
        """The symbolic sizes of the inputs: their bounds, and whether one plan serves all values, as runs showed."""
        names = dict.fromkeys(d for v in self.inputs for d in v.shape or () if isinstance(d, str))
        limits = self.bounds.limits
        return tuple(
            [
                SizeUse(
                    n, limits.get(n), self._unsized.get(n, "") if n in limits else "it has no bounds; give load shapes"
                )
                for n in names
            ]
        )

    @property
    def host_steps(self) -> tuple[HostStep, ...]:
        """Nodes of the last plan that read values from the device in the middle of a run, and why."""
        return next(reversed(self._plans.values())).steps if self._plans else ()

    def plan(self, values: Feeds, names: frozenset[str] = frozenset()) -> ModelPlan:
        """The plan that runs the model for such values, whatever the sizes in `names` are; plans are kept, those used
        last.
        """
        shapes = {
            v.name: self.bounds.shape(v, values[v.name], names)
            for v in self.bounds.inputs
            if names and values.get(v.name) is not None
        }
        key = signature(values, shapes)
        with self.lock:
            plan: ModelPlan | None = self._plans.pop(key, None)
            if plan is None:
                plan = ModelPlan(self, values, shapes)
            self._plans[key] = plan
            if len(self._plans) > _PLANS:
                self._plans.popitem(last=False)[1].close()
        return plan


_TRAINED = ("float16", "bfloat16", "float32", "float64")


class OnnxModule(Module):
    """The network of an ONNX file: `module(*inputs)` gives the one output, or a tuple.

    Initialisers of floats are parameters, with the names that they have in the file; so are Constant nodes of more than
    one element, by the names of their outputs. Running means and variances and single numbers are buffers: saved, not
    trained. What decides shapes stays as the file says. A name that Python's attributes of a module do not allow (it
    begins with an underscore, or a module has one) gets "p" before it.

    Args:
        model: the model that is run.
    """

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self._names: dict[tuple[str, str], str] = {}  # by graph and name in the file
        self._plans: Recent[Any, ModelPlan] = Recent(_PLANS // 2)
        graph = model.program.graph
        statistics = {x for n in nodes_of(graph) if n.op == "BatchNormalization" for x in n.inputs[3:5]}
        for path, name, array in _weights(graph):
            if array is None or array.dtype.name not in _TRAINED or name in model.deciding:
                continue
            own = name if not name.startswith("_") and name and not hasattr(Module, name) else f"p{name}"
            while own in vars(self):
                own += "_"
            tensor = device_array(array, model.device, model.float64, constant=True)
            setattr(self, own, tensor.requires_grad_(array.ndim > 0 and name not in statistics))
            self._names[path, name] = own
        self.realize()

    def forward(self, *inputs: Any) -> Any:
        """The outputs for inputs by position."""
        model = self._model
        values = model.taken(model.named(inputs), detach=False)
        key = signature(values)
        plan = self._plans[key]
        if plan is None:
            plan = self._plans[key] = ModelPlan(model, values)
        results = plan.lazy(values, {at: vars(self)[own] for at, own in self._names.items()})
        return results[0] if len(results) == 1 else tuple(results)

    def extra_repr(self) -> str:
        """The graph's name and what goes in and out."""
        return repr(self._model)


def _weights(graph: Graph) -> Any:
    """Arrays that may be trained, of all graphs: the path of the graph, the name, and the values."""
    for g in [graph, *(g for node in nodes_of(graph) for g in node.subgraphs())]:
        yield from ((g.path, name, array) for name, array in g.constants.items())
        for node in g.nodes:
            array = node.attributes.get("value")
            if node.op == "Constant" and not node.domain and isinstance(array, np.ndarray) and array.size > 1:
                yield g.path, node.outputs[0], array


_TYPES = {"float32": "float", "float64": "double"}


@frozen
class _NodeArg:
    """An input or output: `type` as "tensor(float)", `shape` with ints, names and None."""

    name: str
    type: str
    shape: list[int | str | None]


class InferenceSession:
    """A model by onnxruntime's names: `run(names, feeds)` gives NumPy arrays.

    Args:
        path_or_bytes: a path, or what such a file holds.
        sess_options: not read.
        providers: not read; `device` says where the model runs.
        device: "cpu", "webgpu", or None for the default device.
        shapes: bounds of symbolic sizes, as `anneal.onnx.load` takes them.

    Raises OnnxError as `anneal.onnx.load` does.
    """

    def __init__(
        self,
        path_or_bytes: str | os.PathLike[str] | bytes,
        sess_options: Any = None,
        providers: Sequence[Any] | None = None,
        device: str | None = None,
        shapes: Mapping[str, Any] | None = None,
    ) -> None:
        self.model = load(path_or_bytes, device, shapes=shapes)

    def get_inputs(self) -> list[_NodeArg]:
        """The inputs that must be given."""
        return [_argument(v) for v in self.model.inputs]

    def get_outputs(self) -> list[_NodeArg]:
        """The outputs."""
        return [_argument(v) for v in self.model.outputs]

    def get_providers(self) -> list[str]:
        """The device on which the model runs."""
        return [f"anneal:{self.model.device}"]

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[Any]:
        """The outputs with these names, all of them for None, as NumPy arrays (lists of arrays, None).

        Args:
            output_names: the names of the outputs; None: all.
            input_feed: the values of the inputs by name.
            run_options: ignored.
        """
        results = self.model.run(input_feed)
        names = list(results) if output_names is None else list(output_names)
        for name in names:
            if name not in results:
                raise OnnxError(f"run: the model has no output {name!r}; its outputs are {', '.join(results)}")
        return list(tree_map(lambda v: v.numpy() if isinstance(v, Tensor) else v, [results[n] for n in names]))


def _argument(info: ValueInfo) -> _NodeArg:
    kind = f"tensor({_TYPES.get(info.dtype, info.dtype)})"
    if info.kind != "tensor":
        for part in reversed(info.kind.split(" of ")):
            kind = f"map({info.key},{kind})" if part == "map" else f"{part[:3]}({kind})"
    return _NodeArg(info.name, kind, list(info.shape or ()))


@frozen
class NodeDifference:
    """A node whose value is another than the reference's: where it is worst, and what stands there."""

    node: str
    output: str
    what: str  # "values", "shape", "dtype"
    at: Ints
    ours: str
    theirs: str
    error: float  # the largest difference, by the largest value of the reference

    def __str__(self) -> str:
        place = f" at {list(self.at)}" if self.at else ""
        return (
            f"{self.node}: {self.what} of {self.output!r} differ{place}: {self.ours}, the reference has {self.theirs}"
        )


@frozen
class Checked:
    """The outcome of `check`: `values` were compared with `reference`, `missing` are those that it does not give,
    `first` is the first node that differs, or None, and `worst` the largest error.
    """

    reference: str
    values: int
    missing: int  # values that the reference does not give
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
    ours = list[tuple[FileNode, str, Any]]()

    graph = model.program.graph
    # Unused outputs of a node are undefined: runtimes leave anything in them.
    read = {x for n in graph.nodes for x in n.reads()} | {v.name for v in graph.outputs}

    def watch(node: FileNode, results: tuple[Any, ...]) -> None:
        if node.path == graph.path:
            ours.extend((node, name, r) for name, r in zip(node.outputs, results) if name in read)

    values = model.taken(feeds)
    ModelPlan(model, values).lazy(values, watch=watch)
    realize([r for _, _, r in ours if isinstance(r, Tensor)])
    arrays = {name: np.asarray(feeds[name]) for name in feeds}
    with progress.work("running the reference"):
        reference, theirs = _reference(source, arrays, [name for _, name, _ in ours])
    worst, compared, first = 0.0, 0, None
    for node, name, result in progress.told(ours, "comparing values"):
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

    def of(what: str, a: object, b: object, at: Ints = (), error: float = float("inf")) -> NodeDifference:
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
    place = tuple(int(i) for i in at)
    return of("values", ours[place], theirs[place], place, float(apart[place]))


def _reference(source: Any, feeds: Feeds, names: list[str]) -> tuple[str, dict[str, Any]]:
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


def _onnxruntime(proto: Any, feeds: Feeds, names: list[str]) -> dict[str, Any]:
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
    return {o.name: r for o, r in zip(session.get_outputs(), session.run(None, feeds))}


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:300]
