"""`anneal onnx`: what is in a model file, a run of it, and its values beside another runtime's."""

from __future__ import annotations

import io
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anneal.cli._choices import check_writable, write_file
from anneal.cli._output import data, json_report, message, table
from anneal.errors import AnnealError, DataError, OnnxError, UserError
from anneal.files import opened
from anneal.inspect import random_input
from anneal.onnx import Description, Model, ValueInfo, check, load
from anneal.tensor import Tensor

__all__ = ["Job", "check_model", "feeds_of", "info", "run"]

_RANDOM = "random"


@dataclass(frozen=True)
class Job:
    """A run that was asked for: `inputs` as NAME=FILE.npy or NAME=random, `sizes` as NAME=N, `shapes` as
    NAME=LOW:HIGH.
    """

    file: Path
    inputs: Sequence[str]
    sizes: Sequence[str]
    seed: int
    device: str | None
    as_json: bool
    shapes: Sequence[str] = ()


def info(file: Path, *, sizes: Sequence[str], device: str, as_json: bool) -> int:
    """Print what a model has and needs, every gap, and its cost where all sizes are known; 4 if there are gaps."""
    model = load(file, "cpu", structure_only=True)
    found = model.describe()
    cost = "it cannot be run" if found.gaps else _cost(file, model, sizes, device)
    if as_json:
        known = isinstance(cost, dict)
        json_report({**asdict(found), "cost": cost if known else None, "cost_unknown": None if known else cost})
    else:
        _print(found, cost)
    return OnnxError.exit_code if found.gaps else 0


def _print(found: Description, cost: dict[str, Any] | str) -> None:
    opsets = ", ".join([f"{domain or 'ai.onnx'} {version}" for domain, version in found.opsets])
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


def _cost(file: Path, model: Model, sizes: Sequence[str], device: str) -> dict[str, Any] | str:
    """The cost of a run, or why it is not known: a size is open, or weights are missing."""
    from anneal.backend import planned_cost_model
    from anneal.inspect import kernel_calls
    from anneal.schedule import graph, origins, plan_for

    known = _sizes(sizes)
    if shapeless := [v.name for v in model.inputs if v.shape is None and v.kind == "tensor"]:
        return f"the file says no shape of {', '.join(shapeless)}"
    if unknown := [size for v in model.inputs for size in _open_sizes(v) if not known.keys() & set(size)]:
        return f"give {' '.join(dict.fromkeys([f'--size {size[0]}=N' for size in unknown]))}"
    try:
        whole = load(file, "cpu")
        results = whole.trace(feeds_of(whole, Job(file, (), sizes, 0, "cpu", True)))
    except (OnnxError, UserError) as e:
        return str(e).splitlines()[0]
    tensors = [t for r in results.values() for t in (r if isinstance(r, list) else [r]) if isinstance(t, Tensor)]
    if not tensors:
        return "no device computes its outputs"
    sink = graph([t.uop for t in tensors])
    plan, _, _ = plan_for(sink, planned_cost_model(device))
    calls = kernel_calls(plan, origins(sink), lambda _: "")  # nobody reads the kernels' text
    return {
        "device": device,
        "kernels": len(calls),
        "flops": sum(k.flops for k in calls),
        "bytes": sum(k.bytes for k in calls),
    }


def _open_sizes(info: ValueInfo) -> list[tuple[str, ...]]:
    """The sizes of an input that a file leaves open, each by the names that --size knows it by."""
    names = [(d, f"{info.name}.{i}") for i, d in enumerate(info.shape or ()) if not isinstance(d, int)]
    return [tuple([n for n in both if n]) for both in names]


def run(job: Job, *, output: Path | None, timed: bool) -> None:
    """Run a model and print its outputs' shapes and values, write them, or time it."""
    if output is not None:
        check_writable(output)
    model = load(job.file, job.device, shapes=_bounds(job.shapes))
    feeds = feeds_of(model, job)
    begun = time.perf_counter()
    results = {name: _array(value) for name, value in model.run(feeds).items()}
    first = time.perf_counter() - begun
    report: dict[str, Any] = {
        "device": model.device,
        "seconds": first,
        "outputs": {name: _told(value) for name, value in results.items()},
        "host_steps": [asdict(s) for s in model.host_steps],
        "sizes": [asdict(s) for s in model.sizes],
    }
    if timed:
        report["times"] = _times(model, feeds)
    if output is not None:
        _write(output, results)
    if job.as_json:
        json_report(report)
        return
    for name, value in report["outputs"].items():
        data(f"{name}: {value}")
    for step in model.host_steps:
        message(f"on the host: {step.node}: {step.reason}")
    for size in model.sizes if job.shapes else ():
        message(str(size))
    if timed:
        times = report["times"]
        message(
            f"first run {first * 1e3:.1f} ms; then {times['median'] * 1e3:.3f} ms, the median of {times['runs']}, "
            f"{times['least'] * 1e3:.3f} ms at least, on {model.device}"
        )
    if output is not None:
        message(f"wrote {output}")


def _times(model: Model, feeds: dict[str, Any]) -> dict[str, Any]:
    """The seconds of runs, host array to host array, after the first ones."""
    taken: list[float] = []
    begun = time.perf_counter()
    for n in range(1000):
        before = time.perf_counter()
        for value in model.run(feeds).values():
            _array(value)
        if n >= 2:  # the ones before are captured
            taken.append(time.perf_counter() - before)
        if len(taken) >= 5 and time.perf_counter() - begun > 2:
            break
    return {"median": float(np.median(taken)), "least": min(taken), "runs": len(taken)}


def check_model(job: Job, *, tolerance: float) -> None:
    """Compare every node's value with another runtime's; AnnealError if one differs."""
    model = load(job.file, job.device, structure_only=True)
    found = check(job.file, feeds_of(model, job), job.device, tolerance=tolerance)
    if job.as_json:
        json_report(asdict(found))
    else:
        data(f"{found.values} values compared with {found.reference}, {found.missing} that it does not tell")
        data(f"largest difference {found.worst:.2e} of the largest value")
    if found.first:
        raise AnnealError(f"the first that differs: {found.first}")
    if not job.as_json:
        data("no node differs")


def feeds_of(model: Model, job: Job) -> dict[str, Any]:
    """The inputs that a command line names; random ones where it names none."""
    given = {}
    for text in job.inputs:
        name, equals, what = text.rpartition("=")
        if not equals:
            raise UserError(f"--input takes NAME=FILE.npy or NAME=random, not {text!r}")
        given[name] = what
    known = {v.name for v in (*model.inputs, *model.optional_inputs)}
    for name in given:
        if name not in known:
            raise UserError(f"--input: the model has no input {name!r}; its inputs are {', '.join(sorted(known))}")
    sizes = {name: low for name, (low, _) in model.bounds.limits.items()} | _sizes(job.sizes)
    generator = np.random.default_rng(job.seed)
    out = {}
    for v in model.inputs:
        what = given.pop(v.name, _RANDOM)
        out[v.name] = random_input(v, sizes, generator) if what == _RANDOM else _read(what)
    out.update({name: _read(what) for name, what in given.items()})
    return out


def _sizes(texts: Sequence[str]) -> dict[str, int]:
    out = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        if not name or not number.isdigit():
            raise UserError(
                f"--size takes NAME=N, a symbolic size of the model or INPUT.AXIS, and a number, not {text!r}"
            )
        out[name] = int(number)
    return out


def _bounds(texts: Sequence[str]) -> dict[str, Any]:
    """Bounds as `load` takes them."""
    out: dict[str, Any] = {}
    for text in texts:
        name, _, what = text.rpartition("=")
        ends = what.split(":")
        if not name or len(ends) > 2 or not all(end.isdigit() for end in ends):
            raise UserError(f"--shape takes NAME=LOW:HIGH or NAME=N, a symbolic size and its bounds, not {text!r}")
        out[name] = int(what) if len(ends) == 1 else (int(ends[0]), int(ends[1]))
    return out


def _read(file: str) -> Any:
    try:
        with opened(file) as f:
            return np.load(f, allow_pickle=False)
    except OSError as e:
        raise DataError(f"{file} cannot be read: {e.strerror or e}") from None
    except (ValueError, EOFError) as e:
        raise DataError(f"{file}: is no .npy file of numbers: {e}") from None


def _array(value: Any) -> Any:
    if isinstance(value, list):
        return [_array(v) for v in value]
    return value.numpy() if isinstance(value, Tensor) else value


def _told(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, list):
        return f"a sequence of {len(value)}: {', '.join([_told(v) for v in value[:4]])}"
    some = value.ravel()[:4].tolist()
    shown = ", ".join([f"{x:.6g}" if isinstance(x, float) else str(x) for x in some])
    return f"{value.dtype}{list(value.shape)}  {shown}{', ...' if value.size > 4 else ''}"


def _write(file: Path, results: dict[str, Any]) -> None:
    arrays = {}
    for name, value in results.items():
        items = {f"{name}.{n}": v for n, v in enumerate(value)} if isinstance(value, list) else {name: value}
        for key, array in items.items():
            if not isinstance(array, np.ndarray) or array.dtype.kind == "O":
                raise DataError(f"{file}: output {key!r} is no array of numbers, so it cannot be written")
            arrays[key] = array
    packed = io.BytesIO()
    np.savez(packed, allow_pickle=False, **arrays)
    write_file(file, packed.getvalue())
