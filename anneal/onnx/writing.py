"""Export: a function or a module becomes an ONNX file that other programs run."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anneal import files, progress
from anneal.errors import DataError, OnnxError
from anneal.onnx import exporting
from anneal.onnx.graph import ValueInfo
from anneal.onnx.types import array_code
from anneal.uop import Op, UOp, toposort
from anneal.uop.sizes import is_symbolic, variables_of
from anneal.version import __version__

_OPSETS = (17, 23)  # from the first with LayerNormalization to the newest that this writes
_OPSET = 20
_APART = 1 << 30  # bytes of weights from which they have a file of their own
_SMALL = 1024  # bytes of a tensor that stays in the model's file
_ALIGNED = 4096  # where tensors begin in a file of weights


@dataclass(frozen=True, slots=True)
class Exported:
    """The written file: its path and that of its weights, if they have one; how much of what is in it."""

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
        trace = exporting.traced(function, example_args, dynamic or {}, input_names)
    names = _output_names(trace, output_names)
    writer, outputs = _written(trace, names, opset)
    return _put(Path(path), _Parts(trace, writer, outputs, opset), external_data)


def _output_names(trace: exporting.TracedGraph, names: Sequence[str] | None) -> list[str]:
    count = len(trace.results)
    if names is None:
        names = ["output" if not n else f"output_{n}" for n in range(count)]
    if len(names) != count:
        raise OnnxError(f"export: output_names has {len(names)} names, but the function returned {count} tensors")
    every = [*[i.name for i in trace.inputs], *names]
    twice = [name for name, n in Counter(every).items() if n > 1]
    if twice:
        raise OnnxError(f"export: {twice[0]!r} is the name of two inputs or outputs; each has its own")
    return list(names)


# -- the graph --------------------------------------------------------------------------------------------------------


def _written(trace: exporting.TracedGraph, names: list[str], opset: int) -> tuple[exporting.GraphWriter, list[Any]]:
    """The written graph, and name, dtype and shape of each output."""
    writer = exporting.GraphWriter(opset, _sources(trace.inputs))
    writer.names.update([*[i.name for i in trace.inputs], *names])
    leaves = {i.node: exporting.Leaf(i.name, i.dtype, None) for i in trace.inputs if i.node.op is not Op.BIND}
    for name, t in trace.weights.items():
        if t.uop not in leaves:
            leaves[t.uop] = exporting.Leaf(writer.unique(name), t.dtype, t)
    _check_sizes(trace.results, writer.sources)
    lowering = exporting.GraphLowering(writer, leaves, exporting.Constants(trace.device, leaves, trace.made))
    values = lowering.lower(trace.results)
    if lowering.missing:
        raise _refused(lowering.missing)
    writer.path = ""
    taken: dict[str, str] = {}
    outputs = []
    for name, u, v in zip(names, trace.results, values, strict=True):
        _give(writer, v, name, taken)
        outputs.append((name, u.dtype, u.shape))
    return writer, outputs


def _sources(inputs: list[exporting.Input]) -> dict[str, tuple[str, int | None]]:
    """A source for each Variable: an axis of an input that is as long, or the input that is its value."""
    found: dict[str, tuple[str, int | None]] = {i.node.arg[0]: (i.name, None) for i in inputs if i.node.op is Op.BIND}
    for i in inputs:
        for axis, n in enumerate(i.shape):
            if isinstance(n, UOp) and n.op is Op.BIND:
                found.setdefault(n.arg[0], (i.name, axis))
    return found


def _check_sizes(results: list[UOp], sources: Collection[str]) -> None:
    """Raise OnnxError for a Variable whose value no input tells."""
    found = dict.fromkeys(x for u in toposort(results) for x in _variables((u, u.shape, u.arg)))
    for x in found:
        if x.arg[0] not in sources:
            raise OnnxError(
                f"export: no input tells the Variable {x.arg[0]!r}: have it as the size of an axis of an input, or "
                f"pass {x.arg[0]}.bind(value) as an argument of its own"
            )


def _variables(arg: Any) -> Iterator[UOp]:
    """The Variables of the sizes in an arg, a shape, or a node that is a size."""
    if isinstance(arg, tuple):
        for part in arg:
            yield from _variables(part)
    elif isinstance(arg, UOp) and is_symbolic(arg):
        yield from variables_of(arg)


def _give(w: exporting.GraphWriter, v: exporting.GraphValue, name: str, taken: dict[str, str]) -> None:
    """Have an output be a value, in its dtype; `taken` has those that are outputs already, and under which name."""
    found = v.name if exporting.carrier(v.dtype) is v.dtype else w.cast(v.name, v.dtype)
    if found in taken or not any(found in n.output for n in reversed(w.nodes)):
        found = w.Identity(taken.get(found, found))
    w.rename(found, name)
    taken[found] = name


def _refused(missing: list[exporting.Missing]) -> OnnxError:
    """The error that lists all that has no form in ONNX, with the lines and modules that it comes from."""
    found: Counter[str] = Counter()
    for u, reason in missing:
        _, code, line, path, named = u.provenance
        where = f" at {code.co_filename.rsplit('/', 1)[-1]}:{line}" if code is not None else ""
        what = f"{named.co_name}" if named is not None else u.op.name
        found[f"{what}{where}{f', in {path}' if path else ''}: {reason}"] += 1
    lines = [f"  {text}{f' ({n} times)' if n > 1 else ''}" for text, n in found.items()]
    return OnnxError("export: ONNX has no form for\n" + "\n".join(lines), tuple(found))


# -- the file ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Parts:
    trace: exporting.TracedGraph
    writer: exporting.GraphWriter
    outputs: list[Any]
    opset: int


def _put(path: Path, parts: _Parts, external: bool | None) -> Exported:
    from onnx import helper

    arrays = parts.writer.initialisers
    apart = sum(a.nbytes for _, a in arrays) > _APART if external is None else external
    data = path.with_name(f"{path.name}.data") if apart else None
    inputs = [(i.name, i.dtype, i.shape) for i in parts.trace.inputs]
    graph = helper.make_graph(
        parts.writer.nodes,
        parts.trace.name,
        [helper.make_tensor_value_info(n, exporting.code_of(d), exporting.told(s)) for n, d, s in inputs],
        [helper.make_tensor_value_info(n, exporting.code_of(d), exporting.told(s)) for n, d, s in parts.outputs],
    )
    opsets = [helper.make_opsetid("", parts.opset)]
    model = helper.make_model(
        graph,
        producer_name="anneal",
        producer_version=__version__,
        opset_imports=opsets,
        ir_version=helper.find_min_ir_version_for(opsets),
    )
    written = _fill(model.graph.initializer, arrays, data)  # at the end: what makes models copies them
    content = model.SerializeToString(deterministic=True)
    try:
        with progress.work(f"writing {path.name}"):
            if data is not None:
                files.replace(data, lambda f: _write_rows(f, [a for _, a in arrays]))
            files.replace(path, lambda f: f.write(content))
    except OSError as e:
        raise DataError(f"{path} cannot be written: {e.strerror or e}") from None
    operators = Counter(n.op_type for n in parts.writer.nodes)
    infos = [
        tuple([ValueInfo(n, "tensor", d.name, tuple(exporting.told(s))) for n, d, s in rows])
        for rows in (inputs, parts.outputs)
    ]
    total = len(content) + written
    nodes = len(parts.writer.nodes)
    return Exported(path, data, parts.opset, infos[0], infos[1], nodes, dict(operators.most_common()), total)


def _fill(initialisers: Any, arrays: list[tuple[str, Any]], data: Path | None) -> int:
    """Add the initialisers to a graph; how many bytes they have in a file of their own."""
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
