"""Export: a function or a module becomes an ONNX file that other programs run."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from anneal import files, progress
from anneal.errors import DataError, OnnxError, UserError
from anneal.frozen import frozen
from anneal.nn import Module
from anneal.onnx.exporting.graph_writer import GraphWriter, Sources, carrier, code_of
from anneal.onnx.exporting.lowering import GraphLowering, Leaf, Missing
from anneal.onnx.graph import ValueInfo
from anneal.onnx.values import array_code
from anneal.runtime import Args, Jit, Options, here, realize
from anneal.tensor import Tensor, Variable, tree_leaves, tree_map
from anneal.transforms import Trace, paths_of, stand_in
from anneal.uop import DType, Op, Shape, UOp, dtypes, toposort
from anneal.uop.sizes import is_symbolic, mapped, size_text, variables_of
from anneal.version import __version__

_MOST = 1 << 15  # of a size that is named without bounds

Weights = dict[str, Tensor]  # by the names that the file gives them


class Input(NamedTuple):
    """An argument that a run gives: its name, the node that stands for it (of a size its bound Variable), and its dtype
    and shape."""

    name: str
    node: UOp
    dtype: DType
    shape: Shape


class TracedGraph(NamedTuple):
    """A function that was traced: inputs, results, the tensors with names that it may read, and the nodes it made."""

    name: str
    device: str
    inputs: list[Input]
    results: list[UOp]
    weights: Weights
    made: frozenset[UOp]


def traced(
    function: Callable[..., Any], example: Any, dynamic: Mapping[str, Mapping[int, Any]], names: Sequence[str] | None
) -> TracedGraph:
    """Call `function` on stand-ins for the tensors of `example`.

    It is called on stand-ins for its arguments, which gives the graph that it computes, and the tensors it reads
    besides; `lowering.py` writes that as ONNX. A stand-in is a node without values. Sizes that vary are Variables,
    bound to the sizes of the example.

    Args:
        function: a module or a function of tensors.
        example: its arguments: one tensor, a tuple of arguments, or a dict of them by name.
        dynamic: for inputs by name the axes whose sizes vary: a name, or a Variable with bounds.
        names: of the inputs, in order; those of the function's parameters if None.

    Raises OnnxError for an example or sizes that do not fit, and for a function that changes tensors that outlive it.
    """
    inner = function.function if isinstance(function, Jit) else function
    args, kwargs = _arguments(example)
    weights = named_tensors(inner)
    realize(list(weights.values()))
    (args, kwargs), inputs, originals = _stand_ins(inner, args, kwargs, dynamic, names)
    nodes = {i.node: i.name for i in inputs}
    given = {nodes[t.uop]: t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)}
    device = next((t.device for t in (*originals, *weights.values())), "cpu")
    before = {name: t.uop for name, t in weights.items()}
    trace = Trace("export")
    here.unrolls, here.names = sys.maxsize, True
    try:
        leaves = _results(trace.run(inner, args, kwargs, grad=False))
        _check_unchanged(trace, leaves, weights, given)
    finally:
        here.unrolls, here.names = 0, False
        for name, t in weights.items():
            t.uop = before[name]
            if t._views is not None:
                t._outdate_views()
    return TracedGraph(_name_of(inner), device, inputs, [t.uop for t in leaves], weights, frozenset(trace.made()))


def _arguments(example: Any) -> tuple[Args, Options]:
    if isinstance(example, Mapping):
        return (), dict(example)
    if isinstance(example, tuple) and not hasattr(example, "_fields"):
        return example, {}
    if isinstance(example, list):
        return tuple(example), {}
    return (example,), {}


def _name_of(function: Any) -> str:
    inner = function.func if isinstance(function, functools.partial) else function
    name = type(inner).__name__ if isinstance(inner, Module) else getattr(inner, "__name__", type(inner).__name__)
    return name if name.isidentifier() else "function"


# -- what it reads ----------------------------------------------------------------------------------------------------


def named_tensors(function: Any) -> Weights:
    """The tensors that a function reaches by name: of a module its own, of a function those of its variables."""
    if isinstance(function, Module):
        return _of_module("", function)
    if isinstance(function, functools.partial):
        return named_tensors(function.func) | _of_values(dict(enumerate(function.args)) | function.keywords)
    owner = getattr(function, "__self__", None)
    if isinstance(owner, Module):
        return _of_module("", owner)
    found = _of_values(vars(owner)) if hasattr(owner, "__dict__") and not inspect.ismodule(owner) else {}
    code = getattr(function, "__func__", function)
    if inspect.isfunction(code):
        reached = inspect.getclosurevars(code)
        found |= _of_values({**reached.globals, **reached.nonlocals})
    elif hasattr(function, "__dict__"):
        found |= _of_values(vars(function))
    return found


def _of_values(values: Mapping[Any, Any]) -> Weights:
    found: Weights = {}
    for name, value in values.items():
        for path, part in zip(paths_of(value, str(name)), tree_leaves(value)):
            if isinstance(part, Module):
                found |= _of_module(f"{_as_name(path)}.", part)
            elif isinstance(part, Tensor):
                found[_as_name(path)] = part
    return found


def _of_module(prefix: str, module: Module) -> Weights:
    return {f"{prefix}{n}": t for n, t in (*module.named_parameters(), *module.named_buffers())}


def _as_name(path: str) -> str:
    """The path to a leaf, as one name: `x['a'][0]` is x_a_0."""
    return "_".join("".join(c if c.isalnum() or c == "_" else " " for c in path).split())


# -- stand-ins --------------------------------------------------------------------------------------------------------


def _stand_ins(
    function: Any, args: Args, kwargs: Options, dynamic: Mapping[str, Mapping[int, Any]], names: Sequence[str] | None
) -> tuple[Any, list[Input], list[Tensor]]:
    """The arguments with stand-ins for tensors and arrays, the inputs, and the tensors that they stand for."""
    try:
        bound = inspect.signature(function.forward if isinstance(function, Module) else function).bind(*args, **kwargs)
        parameters = _by_position(bound)
    except (TypeError, ValueError) as e:
        if isinstance(e, TypeError):
            raise OnnxError(f"export: the example's arguments do not fit the function: {e}") from None
        parameters = [f"input_{n}" for n in range(len(args))]
    tree = (tuple(args), kwargs)
    paths = [p for n, a in zip(parameters, args) for p in paths_of(a, n)]
    paths += [p for n, a in kwargs.items() for p in paths_of(a, n)]
    leaves = tree_leaves(tree)
    where = [i for i, v in enumerate(leaves) if isinstance(v, (Tensor, np.ndarray)) or _is_bound(v)]
    if names is not None and len(names) != len(where):
        raise OnnxError(f"export: input_names has {len(names)} names, but the example has {len(where)} inputs")
    chosen = list(names) if names is not None else [_as_name(paths[i]) for i in where]
    unknown = [n for n in dynamic if n not in chosen]
    if unknown:
        raise OnnxError(f"export: dynamic names {unknown[0]!r}, which is no input; the inputs are {', '.join(chosen)}")
    if len(set(chosen)) != len(chosen):
        raise OnnxError(f"export: two inputs have one name in {', '.join(chosen)}; give others as input_names=")
    variables: dict[str, UOp] = {}
    values: dict[str, int] = {}
    inputs, originals, new = [], [], list(leaves)
    for name, i in zip(chosen, where):
        if _is_bound(leaves[i]):
            inputs.append(Input(name, leaves[i], dtypes.int64, ()))
            continue
        t = leaves[i] if isinstance(leaves[i], Tensor) else Tensor(leaves[i])
        shape = _sized(name, t.shape, dynamic.get(name, {}), variables, values)
        node = UOp(
            Op.CONTIGUOUS, t.dtype, (stand_in(t.dtype, shape, "input"),)
        )  # as values in memory are: no op computes it
        inputs.append(Input(name, node, t.dtype, shape))
        originals.append(t)
        new[i] = Tensor._from_uop(node, t.device)
    rest = iter(new)
    return tree_map(lambda _: next(rest), tree), inputs, originals


def _is_bound(leaf: Any) -> bool:
    """True if a leaf is a Variable with a value: a size or a position that a run gives as a number."""
    return isinstance(leaf, UOp) and leaf.op is Op.BIND


def _by_position(bound: inspect.BoundArguments) -> list[str]:
    """The name of each positional argument; those that a parameter collects are numbered."""
    out = []
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            out += [f"{name}_{n}" for n in range(len(value))]
        elif kind is not inspect.Parameter.VAR_KEYWORD and kind is not inspect.Parameter.KEYWORD_ONLY:
            out.append(name)
    return out


def _sized(
    name: str, shape: Shape, axes: Mapping[int, Any], variables: dict[str, UOp], values: dict[str, int]
) -> Shape:
    """The shape with bound Variables for the axes that vary; `variables` and their `values` are noted."""
    out = list(shape)
    if not isinstance(axes, Mapping):
        raise OnnxError(f"export: dynamic[{name!r}] is a dict from axes to names or Variables, not {axes!r}")
    for axis, said in axes.items():
        if not isinstance(axis, int) or not -len(shape) <= axis < len(shape):
            raise OnnxError(f"export: dynamic names axis {axis!r} of {name}, whose shape is {shape}")
        n = out[axis]
        if isinstance(n, UOp):
            raise OnnxError(f"export: axis {axis} of {name} varies already: its size is {n}")
        if isinstance(said, str) and said:
            variable = variables.get(said) or Variable(said, min(1, n), max(n, _MOST))
        elif isinstance(said, UOp) and said.op is Op.VARIABLE:
            variable = said
        else:
            raise OnnxError(f"export: a size that varies is a name or a Variable, not {said!r} (axis {axis} of {name})")
        if variables.setdefault(variable.arg[0], variable) is not variable:
            raise OnnxError(f"export: {variable.arg[0]!r} has two bounds: give the same Variable wherever it is meant")
        if values.setdefault(variable.arg[0], n) != n:
            raise OnnxError(
                f"export: {variable.arg[0]!r} is {values[variable.arg[0]]} and {n} in the example (axis {axis} of "
                f"{name})"
            )
        try:
            out[axis] = variable.bind(n)
        except UserError as e:
            raise OnnxError(f"export: axis {axis} of {name}: {e}") from None
    return tuple(out)


# -- results ----------------------------------------------------------------------------------------------------------


def _results(out: Any) -> list[Tensor]:
    leaves = []
    for where, value in zip(paths_of(out, "the result"), tree_leaves(out)):
        if isinstance(value, (bool, int, float, np.ndarray, np.generic)):
            value = Tensor(value)
        if not isinstance(value, Tensor):
            raise OnnxError(f"export: {where} is a {type(value).__name__}; outputs are tensors, or nests of them")
        leaves.append(value)
    if not leaves:
        raise OnnxError("export: the function returned no tensor, so there is nothing to export")
    return leaves


def _check_unchanged(trace: Trace, results: list[Tensor], weights: Weights, given: Weights) -> None:
    """Raise OnnxError if the function assigned to tensors that others see afterwards."""
    names = {id(t): f"its argument {n}" for n, t in given.items()} | {id(t): n for n, t in weights.items()}
    changed = trace.assigned([t for t in results if id(t) not in names])
    if found := [names.get(id(t), f"a tensor of shape {t.shape} that it reaches") for t in changed]:
        raise OnnxError(
            f"export: the function changes {', '.join(found)}, and a file keeps nothing from one run to the next; "
            "switch a module to .eval(), write x = x + y for x += y, or take the old value as an argument and return "
            "the new one"
        )


def told(shape: Sequence[Any]) -> list[int | str]:
    """A shape as ONNX states it: numbers, and expressions of names."""
    return [n if isinstance(n, int) else size_text(n, values=False) for n in shape]


_OPSETS = (17, 23)  # from the first with LayerNormalization to the newest that this writes
_OPSET = 20
_APART = 1 << 30  # bytes of weights from which they have a file of their own
_SMALL = 1024  # bytes of a tensor that stays in the model's file
_ALIGNED = 4096  # where tensors begin in a file of weights


@frozen
class Exported:
    """The written file: its path, the path of the weights' file if there is one, and counts of its contents."""

    path: Path
    data: Path | None
    opset: int
    inputs: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]
    nodes: int
    operators: dict[str, int]  # nodes by their operator
    bytes: int  # of both files

    def __str__(self) -> str:
        signature = f"{', '.join(map(str, self.inputs))} -> {', '.join(map(str, self.outputs))}"
        return f"{self.path}: {signature}; {self.nodes} nodes, opset {self.opset}, {self.bytes:,} bytes"


def export(
    function: Callable[..., Any],
    example_args: Any,
    path: str | os.PathLike[str],
    *,
    dynamic: Mapping[str, Mapping[int, Any]] | None = None,
    opset: int = _OPSET,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    external_data: bool | None = None,
) -> Exported:
    """Write what a module or a function of tensors computes as an ONNX file of standard operators.

    The function is called once, on stand-ins of the examples' dtypes and shapes, and what it computes is written.
    Tensors and arrays among the arguments are inputs, with the names of the parameters, and so is a Variable with a
    value (`at.bind(3)`, an int64 of shape ()); other arguments are fixed.
    A module is exported in the mode that it is in. The weights that are used are initialisers with their own names.

    Args:
        function: a module, or a function of tensors to tensors, or nests of them.
        example_args: its arguments: a tuple, a dict by name, or one tensor.
        path: the file.
        dynamic: for inputs by name, the axes whose sizes vary, each with a name or a Variable: `{"x": {0: "batch"}}`.
        opset: the version of the operators, 17 to 23.
        input_names: names of the inputs in place of the parameters'.
        output_names: names of the outputs; `output`, `output_1`, ... if None.
        external_data: whether the weights go to a file beside it, PATH.data; if they take over 1 GiB, if None.

    Returns:
        What was written.

    Raises OnnxError for what has no form in ONNX, with the line of each; DataError for a file that cannot be written.

    >>> import tempfile
    >>> from anneal import nn, onnx
    >>> from anneal.tensor import Tensor
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = export(nn.Linear(3, 2), Tensor.zeros(4, 3), f"{folder}/layer.onnx", dynamic={"x": {0: "batch"}})
    ...     onnx.load(made.path)
    Model('Linear': x: float32[batch, 3] -> output: float32[batch, 2])
    """
    least, most = _OPSETS
    if isinstance(opset, bool) or not isinstance(opset, int) or not least <= opset <= most:
        raise OnnxError(f"export: opset is {least} to {most}, not {opset!r}")
    with progress.work("tracing the model"):
        trace = traced(function, example_args, dynamic or {}, input_names)
    writer, outputs = _written(trace, _output_names(trace, output_names), opset)
    return _put(Path(path), trace, writer, outputs, external_data)


def _output_names(trace: TracedGraph, names: Sequence[str] | None) -> list[str]:
    count = len(trace.results)
    if names is None:
        names = ["output" if not n else f"output_{n}" for n in range(count)]
    if len(names) != count:
        raise OnnxError(f"export: output_names has {len(names)} names, but the function returned {count} tensors")
    twice = [name for name, n in Counter([*[i.name for i in trace.inputs], *names]).items() if n > 1]
    if twice:
        raise OnnxError(f"export: {twice[0]!r} is the name of two inputs or outputs; each has its own")
    return list(names)


# -- the graph --------------------------------------------------------------------------------------------------------


def _written(trace: TracedGraph, names: list[str], opset: int) -> tuple[GraphWriter, list[Any]]:
    """The written graph, and name, dtype and shape of each output."""
    writer = GraphWriter(opset, _sources(trace.inputs))
    writer.names.update([*[i.name for i in trace.inputs], *names])
    leaves = {i.node: Leaf(i.name, i.dtype, None) for i in trace.inputs if i.node.op is not Op.BIND}
    for name, t in trace.weights.items():
        if t.uop not in leaves:
            leaves[t.uop] = Leaf(writer.unique(name), t.dtype, t)
    _check_sizes(trace.results, writer.sources)
    lowering = GraphLowering(writer, leaves, trace.device, trace.made)
    values = lowering.lower(trace.results)
    if lowering.missing:
        raise _refused(lowering.missing)
    writer.path = ""
    taken: dict[str, str] = {}
    outputs = []
    for name, u, v in zip(names, trace.results, values):
        _give(writer, v.name, u.dtype, name, taken)
        outputs.append((name, u.dtype, u.shape))
    return writer, outputs


def _sources(inputs: list[Input]) -> Sources:
    """A source for each Variable: an axis of an input that is as long, or the input that is its value."""
    found: Sources = {i.node.arg[0]: (i.name, None) for i in inputs if i.node.op is Op.BIND}
    for i in inputs:
        for axis, n in enumerate(i.shape):
            if isinstance(n, UOp) and n.op is Op.BIND:
                found.setdefault(n.arg[0], (i.name, axis))
    return found


def _check_sizes(results: list[UOp], sources: Collection[str]) -> None:
    """Raise OnnxError for a Variable whose value no input tells."""
    found = {}
    for u in toposort(results):
        mapped((u, u.shape, u.arg), lambda n: found.update(dict.fromkeys(variables_of(n) if is_symbolic(n) else ())))
    for x in found:
        if x.arg[0] not in sources:
            raise OnnxError(
                f"export: no input tells the Variable {x.arg[0]!r}: have it as the size of an axis of an input, or "
                f"pass {x.arg[0]}.bind(value) as an argument of its own"
            )


def _give(w: GraphWriter, value: str, dtype: DType, name: str, taken: dict[str, str]) -> None:
    """Make a value, in a dtype, an output; `taken` maps the values that are outputs already to their names."""
    found = value if carrier(dtype) is dtype else w.cast(value, dtype)
    if found in taken or not any(found in n.output for n in reversed(w.nodes)):
        found = w.Identity(taken.get(found, found))
    w.rename(found, name)
    taken[found] = name


def _refused(missing: list[Missing]) -> OnnxError:
    """The error that lists the nodes without a form in ONNX, with the lines and modules that they come from."""
    found: Counter[str] = Counter()
    for u, reason in missing:
        _, code, line, path, named = u.provenance
        where = f" at {code.co_filename.rsplit('/', 1)[-1]}:{line}" if code is not None else ""
        what = f"{named.co_name}" if named is not None else u.op.name
        found[f"{what}{where}{f', in {path}' if path else ''}: {reason}"] += 1
    lines = [f"  {text}{f' ({n} times)' if n > 1 else ''}" for text, n in found.items()]
    return OnnxError("export: ONNX has no form for\n" + "\n".join(lines), tuple(found))


# -- the file ---------------------------------------------------------------------------------------------------------


def _put(path: Path, trace: TracedGraph, writer: GraphWriter, outputs: list[Any], external: bool | None) -> Exported:
    from onnx import helper

    arrays = writer.initialisers
    apart = sum(a.nbytes for _, a in arrays) > _APART if external is None else external
    data = path.with_name(f"{path.name}.data") if apart else None
    sides = [(i.name, i.dtype, i.shape) for i in trace.inputs], outputs
    infos = [[helper.make_tensor_value_info(n, code_of(d), told(s)) for n, d, s in rows] for rows in sides]
    graph = helper.make_graph(writer.nodes, trace.name, *infos)
    opsets = [helper.make_opsetid("", writer.opset)]
    model = helper.make_model(
        graph,
        producer_name="anneal",
        producer_version=__version__,
        opset_imports=opsets,
        ir_version=helper.find_min_ir_version_for(opsets),
    )
    written = _fill(model.graph.initializer, arrays, data)  # at the end: the functions that build models copy them
    content = model.SerializeToString(deterministic=True)
    try:
        with progress.work(f"writing {path.name}"):
            if data is not None:
                files.replace(data, lambda f: _write_rows(f, [a for _, a in arrays]))
            files.replace(path, lambda f: f.write(content))
    except OSError as e:
        raise DataError(f"{path} cannot be written: {e.strerror or e}") from None
    operators = Counter(n.op_type for n in writer.nodes)
    taken, given = [tuple(ValueInfo(n, "tensor", d.name, tuple(told(s))) for n, d, s in rows) for rows in sides]
    total = len(content) + written
    nodes = len(writer.nodes)
    return Exported(path, data, writer.opset, taken, given, nodes, dict(operators.most_common()), total)


def _fill(initialisers: Any, arrays: list[tuple[str, Any]], data: Path | None) -> int:
    """Add the initialisers to a graph; returns the bytes that they take in a file of their own."""
    from onnx import TensorProto

    at = 0
    for name, array in arrays:
        tensor = initialisers.add(name=name, data_type=array_code(array.dtype.name), dims=array.shape)
        if data is None or array.nbytes < _SMALL:
            tensor.raw_data = array.tobytes()
            continue
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", data.name), ("offset", at), ("length", array.nbytes)):
            tensor.external_data.add(key=key, value=str(value))
        at += -(-array.nbytes // _ALIGNED) * _ALIGNED
    return at


def _write_rows(file: Any, arrays: list[Any]) -> None:
    for array in arrays:
        if array.nbytes >= _SMALL:
            file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
            file.write(bytes(-array.nbytes % _ALIGNED))
