"""`anneal onnx`."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from anneal import settings
from anneal.cli import _flags as flags
from anneal.cli._flags import command, option
from anneal.cli._output import data, json_report, message, table
from anneal.cli.commands.gpt2 import training_places
from anneal.errors import AnnealError, DataError, OnnxError, SettingError, UserError
from anneal.frozen import Json, Texts, frozen
from anneal.training import Trainable, check_model, load_example

if TYPE_CHECKING:
    from anneal.onnx import Description, Model as OnnxModel, ValueInfo

app = flags.group("onnx", "Import, run, check and export ONNX models.")

_RANDOM = "random"
_BATCH = 4  # of the example that a model for any batch is traced with
_MOST = 1 << 15  # examples of a batch

OnnxFile = Annotated[Path, flags.argument("ONNX model.", "FILE.onnx", callback=flags.openable)]


@frozen
class _Question(flags.Reporting):
    """The flags of `anneal onnx info`."""

    file: OnnxFile
    size: flags.Sizes = None
    device: flags.DeviceName = flags.switch(
        "--device", "Device to plan for; none is opened.", default=flags.DeviceName.cpu
    )


@command(app)
def info(asked: _Question) -> None:
    """Print inputs, outputs, operators, cost, and what is not supported. Exit code 4: something is not
    supported."""
    from anneal.onnx import load

    model = load(asked.file, "cpu", structure_only=True)
    found = model.describe()
    cost = "it cannot be run" if found.gaps else _cost(asked, model)
    if asked.as_json:
        known = isinstance(cost, dict)
        json_report({**asdict(found), "cost": cost if known else None, "cost_unknown": None if known else cost})
    else:
        _print(found, cost)
    raise typer.Exit(OnnxError.exit_code if found.gaps else 0)


def _print(found: Description, cost: Json | str) -> None:
    opsets = ", ".join(f"{domain or 'ai.onnx'} {version}" for domain, version in found.opsets)
    data(f"{found.name or 'a graph without a name'}, by {found.producer or 'an unknown program'}")
    data(f"ir_version {found.ir_version}, opsets {opsets or 'none'}")
    for v in found.inputs:
        data(f"input   {v}{'  (its values decide shapes)' if v.name in found.deciding else ''}")
    for v in found.outputs:
        data(f"output  {v}")
    data(f"{found.parameters:,} numbers in initialisers and constants, {found.bytes:,} bytes; {found.nodes} nodes")
    if isinstance(cost, str):
        data(f"what a run costs is not known: {cost}")
    else:
        data(
            f"at the sizes given, on {cost['device']}: {cost['kernels']} kernels, {cost['flops']:,} flops, "
            f"{cost['bytes']:,} bytes"
        )
    rows = [[str(u.count), str(u.version or "?"), u.op, u.domain or "ai.onnx", u.by] for u in found.uses]
    table(["nodes", "version", "op", "domain", "by"], rows, words=2)
    if found.gaps:
        data(f"{len(found.gaps)} of the nodes cannot be run:")
        for gap in found.gaps:
            data(f"  {gap}")
    else:
        data("no gaps: every node can be run")


def _cost(asked: _Question, model: OnnxModel) -> Json | str:
    """The cost of a run, or why it is not known: a size is open, or weights are missing."""
    from anneal.backend import planned_cost_model
    from anneal.codegen import kernel_info
    from anneal.onnx import load
    from anneal.schedule import graph, plan_for
    from anneal.tensor import Tensor, tree_leaves

    known = _sizes(asked.size, model, {})
    if shapeless := [v.name for v in model.inputs if v.shape is None and v.kind == "tensor"]:
        return f"the file says no shape of {', '.join(shapeless)}"
    if unknown := [size for v in model.inputs for size in _open_sizes(v) if not known.keys() & set(size)]:
        return f"give {' '.join(dict.fromkeys(f'--size {size[0]}=N' for size in unknown))}"
    try:
        whole = load(asked.file, "cpu")
        results = whole.trace(feeds_of(whole, None, asked.size, 0))
    except (OnnxError, UserError) as e:
        return str(e).splitlines()[0]
    outputs = [t.uop for t in tree_leaves(results) if isinstance(t, Tensor)]
    if not outputs:
        return "no device computes its outputs"
    calls = plan_for(graph(outputs), planned_cost_model(asked.device))[0].calls
    costs = [kernel_info(call.kernel.sink) for call in calls]
    nbytes = sum(k.bytes_read + k.bytes_written for k in costs)
    return {"device": asked.device, "kernels": len(calls), "flops": sum(k.flops for k in costs), "bytes": nbytes}


def _open_sizes(info: ValueInfo) -> list[Texts]:
    """The sizes of an input that a file leaves open, each by the names that --size knows it by."""
    names = [(d, f"{info.name}.{i}") for i, d in enumerate(info.shape or ()) if not isinstance(d, int)]
    return [tuple(n for n in both if n) for both in names]


@frozen
class _Run(flags.Reporting, flags.OnDevice):
    """The flags of `anneal onnx run`."""

    file: OnnxFile
    input: flags.Inputs = None
    size: flags.Sizes = None
    shape: list[str] | None = option(
        "Bounds of a symbolic size, for one plan that serves all; or NAME=N.", "NAME=LOW:HIGH"
    )
    output: Path | None = option("Write the outputs to this file, by name.", "FILE.npz")
    timed: bool = flags.switch("--time", "Run repeatedly and print the time of a run.")
    seed: int = flags.seed("inputs", default=0)


@command(app)
def run(asked: _Run) -> None:
    """Run a model and print its outputs: dtype, shape, the first values."""
    from anneal.onnx import load

    output = asked.output
    with flags.on_device(asked.device, asked.adapter):
        flags.check_writable(output)
        model = load(asked.file, None, shapes=_bounds(asked.shape))
        feeds = feeds_of(model, asked.input, asked.size, asked.seed)
        begun = perf_counter()
        results = _arrays(model.run(feeds))
        first = perf_counter() - begun
        report: Json = {
            "device": model.device,
            "seconds": first,
            "outputs": {name: _told(value) for name, value in results.items()},
            "host_steps": [asdict(s) for s in model.host_steps],
            "sizes": [asdict(s) for s in model.sizes],
        }
        if asked.timed:
            report["times"] = _times(model, feeds)
        if output is not None:
            _write(output, results)
        if asked.as_json:
            json_report(report)
            return
        for name, value in report["outputs"].items():
            data(f"{name}: {value}")
        for step in model.host_steps:
            message(f"on the host: {step.node}: {step.reason}")
        for use in model.sizes if asked.shape else ():
            message(str(use))
        if asked.timed:
            times = report["times"]
            message(
                f"first run {first * 1e3:.1f} ms; then {times['median'] * 1e3:.3f} ms, the median of {times['runs']}, "
                f"{times['least'] * 1e3:.3f} ms at least, on {model.device}"
            )
        if output is not None:
            message(f"wrote {output}")


def _times(model: OnnxModel, feeds: Json) -> Json:
    """The seconds of runs, host array to host array, after the first ones."""
    import numpy as np

    taken = []
    begun = perf_counter()
    for n in range(1000):
        before = perf_counter()
        _arrays(model.run(feeds))
        if n >= 2:  # the ones before are captured
            taken.append(perf_counter() - before)
        if len(taken) >= 5 and perf_counter() - begun > 2:
            break
    return {"median": float(np.median(taken)), "least": min(taken), "runs": len(taken)}


@frozen
class _Comparison(flags.Reporting, flags.OnDevice):
    """The flags of `anneal onnx check`."""

    file: OnnxFile
    input: flags.Inputs = None
    size: flags.Sizes = None
    tolerance: float = option(
        "Largest difference allowed, relative to the reference's largest value.", "X", min=0, default=1e-3
    )
    seed: int = flags.seed("inputs", default=0)


@command(app)
def check(asked: _Comparison) -> None:
    """Compare every node's value with onnxruntime's, or with the onnx package's reference. Exit code 1: one
    differs.
    """
    from anneal.onnx import check as compare, load

    with flags.on_device(asked.device, asked.adapter):
        feeds = feeds_of(load(asked.file, None, structure_only=True), asked.input, asked.size, asked.seed)
        found = compare(asked.file, feeds, None, tolerance=asked.tolerance)
    asked.tell(
        asdict(found),
        f"{found.values} values compared with {found.reference}, {found.missing} that it does not give",
        f"largest difference {found.worst:.2e} of the largest value",
    )
    if found.first:
        raise AnnealError(f"the first that differs: {found.first}")
    if not asked.as_json:
        data("no node differs")


def feeds_of(model: OnnxModel, inputs: Sequence[str] | None, sizes: Sequence[str] | None, seed: int) -> Json:
    """The inputs that a command line names, as NAME=FILE.npy or NAME=random; random ones where it names none."""
    import numpy as np

    from anneal.inspect import random_input

    given = {}
    for text in inputs or ():
        name, equals, what = text.rpartition("=")
        if not equals:
            raise UserError(f"--input takes NAME=FILE.npy or NAME=random, not {text!r}")
        given[name] = what
    known = {v.name for v in (*model.inputs, *model.optional_inputs)}
    for name in given:
        if name not in known:
            raise UserError(f"--input: the model has no input {name!r}; its inputs are {', '.join(sorted(known))}")
    read = {name: _read(what) for name, what in given.items() if what != _RANDOM}
    known_sizes = _sizes(sizes, model, read)
    generator = np.random.default_rng(seed)
    return {v.name: random_input(v, known_sizes, generator) for v in model.inputs if v.name not in read} | read


def _sizes(texts: Sequence[str] | None, model: OnnxModel, read: Json) -> dict[str, int]:
    """The sizes that are known: those of --size and of files, and the least of those with bounds."""
    out = {name: low for name, (low, _) in model.bounds.limits.items()}
    open_sizes = {str(name): None for v in model.inputs for names in _open_sizes(v) for name in names} | out
    found = {
        name: n
        for v in model.inputs
        for i, (d, n) in enumerate(zip(v.shape or (), read[v.name].shape if v.name in read else ()))
        for name in (str(d), f"{v.name}.{i}")
    }
    for text in texts or ():
        name, _, number = text.rpartition("=")
        if not name or not number.isdigit():
            raise UserError(
                f"--size takes NAME=N, a symbolic size of the model or INPUT.AXIS, and a number, not {text!r}"
            )
        if name not in open_sizes:
            raise UserError(f"--size: the model has no open size {name!r}; it has {', '.join(open_sizes) or 'none'}")
        out[name] = int(number)
        if found.get(name, out[name]) != out[name]:
            raise UserError(f"--size {text}: {name} is {found[name]} in the file that --input names; leave --size out")
    return out | found


def _bounds(texts: Sequence[str] | None) -> Json:
    """Bounds as `load` takes them."""
    out = {}
    for text in texts or ():
        name, _, what = text.rpartition("=")
        ends = what.split(":")
        if not name or len(ends) > 2 or not all(end.isdigit() for end in ends):
            raise UserError(f"--shape takes NAME=LOW:HIGH or NAME=N, a symbolic size and its bounds, not {text!r}")
        low, high = int(ends[0]), int(ends[-1])
        if not 1 <= low <= high < 2**31:
            raise UserError(
                f"--shape {text}: bounds are 1 <= LOW <= HIGH < 2**31, such as {name}=1:{max(low, high, 1)}"
            )
        out[name] = low if len(ends) == 1 else (low, high)
    return out


def _read(file: str) -> Any:
    import numpy as np

    try:
        with flags.reading(file) as f:
            return np.lib.format.read_array(f, allow_pickle=False)
    except DataError:
        raise
    except (ValueError, EOFError) as e:
        raise DataError(f"{file}: is no .npy file of numbers: {e}") from None


def _arrays(values: Json) -> Any:
    from anneal.tensor import Tensor, tree_map

    return tree_map(lambda v: v.numpy() if isinstance(v, Tensor) else v, values)


def _told(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, list):
        return f"a sequence of {len(value)}: {', '.join(_told(v) for v in value[:4])}"
    shown = ", ".join(f"{x:.6g}" if isinstance(x, float) else str(x) for x in value.ravel()[:4].tolist())
    return f"{value.dtype}{list(value.shape)}  {shown}{', ...' * (value.size > 4)}"


def _write(file: Path, results: Json) -> None:
    import numpy as np

    arrays = {}
    for name, value in results.items():
        items = {f"{name}.{n}": v for n, v in enumerate(value)} if isinstance(value, list) else {name: value}
        for key, array in items.items():
            if not isinstance(array, np.ndarray) or array.dtype.kind == "O":
                raise DataError(f"{file}: output {key!r} is no array of numbers, so it cannot be written")
            arrays[key] = array
    packed = io.BytesIO()
    np.savez(packed, allow_pickle=False, **arrays)
    flags.write_file(file, packed.getvalue())


@frozen
class _Export(flags.Reporting):
    """The flags of `anneal onnx export`."""

    model: flags.Model
    output: Annotated[Path, option("File to write.", "FILE.onnx", "--output", "-o")]
    batch: int | None = flags.number("Fixed batch size; default: any.", most=flags.MOST_AT_ONCE)
    opset: int = flags.number("Opset version of the operators.", 17, 23, default=20)
    weights: flags.Weights = None
    model_dir: Path | None = option("gpt2: directory of another checkpoint.", "DIR")
    scratch: flags.Scratch = False


@command(app, "export")
def export_model(order: _Export) -> None:
    """Export an example model, in evaluation mode, as an ONNX file."""
    from anneal.onnx import export
    from anneal.tensor.io import safe_load

    check_model(order.model)
    if order.model != "gpt2" and (order.model_dir or order.scratch):
        raise SettingError(f"--model-dir and --scratch are for gpt2, not for {order.model}")
    flags.check_writable(order.output)
    with settings.override(device="cpu"):
        example = load_example(order.model)
        training = example.make(
            steps=example.STEPS,
            batch=order.batch or _BATCH,
            seed=1,
            lr=example.LR,
            **training_places(order.model, order.model_dir, order.scratch),
        )
        arguments = example_arguments(training, order.batch is None)
        if order.weights is not None:
            training.model.load_state_dict(safe_load(order.weights))
        made = export(training.model.eval(), arguments, order.output, opset=order.opset)
    order.tell({**asdict(made), "path": str(made.path), "data": made.data and str(made.data)}, made)


def example_arguments(training: Trainable, any_batch: bool) -> tuple[Any, ...]:
    """Zeros like the arguments that the loss of a batch gives the model; with `any_batch` their first axes vary."""
    from anneal.pages import arguments_of
    from anneal.runtime import bound_shape
    from anneal.tensor import Tensor, Variable, tree_map

    batch = Variable("batch", 1, _MOST)

    def zeros(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        first, *rest = bound_shape(leaf.shape)
        return Tensor.zeros(batch.bind(first) if any_batch else first, *rest, dtype=leaf.dtype)

    found: tuple[Any, ...] = tree_map(zeros, arguments_of(training, training.next_batch()))
    return found
