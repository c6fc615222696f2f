"""A kernel with the values that it reads and those that it has to write, run elsewhere: here, or from a file."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from typing import IO, Any

import numpy as np

from anneal.backend import AnyDevice, get_device, numpy_dtype
from anneal.codegen import decode_kernel, encode_kernel
from anneal.errors import AnnealError, DataError
from anneal.frozen import frozen
from anneal.inspect.checking.bounds import Array, Bounded, Compared, beside, shown, ulps
from anneal.inspect.checking.records import Difference
from anneal.schedule import Call, Kernel
from anneal.uop import Op, UOp, by_name, decode_graph, encode_graph, toposort

Expected = list[tuple[Array, Array, Array]]  # by output: places in memory, values, bounds


@frozen
class Trial:
    """A call with the values that it reads, and what it has to write."""

    call: Call
    before: list[Array]
    expected: Expected
    values: dict[str, int]

    def run(self, device: AnyDevice, program: Any) -> list[Array]:
        """The values that a program of the call stores, run on memory of its own."""
        with ExitStack() as stack:
            memory = []
            for content in self.before:
                kind = content.size, by_name(content.dtype.name)
                memory.append((device.alloc(*kind), *kind))
                stack.callback(device.free, memory[-1][0])
                device.upload(memory[-1][0], content)
            device.prepare([(program, [buffer for buffer, *_ in memory])], self.values).run()
            return device.download_all(memory[: self.call.outputs])

    def compared(self, got: Sequence[Array]) -> list[Compared]:
        """The values that were stored, beside those that are expected."""
        pairs = zip(got, self.expected)
        return [beside(content[index], Bounded(value, error)) for content, (index, value, error) in pairs]


@frozen
class Finding:
    """A difference, with everything to show it again."""

    difference: Difference
    trial: Trial
    program: Any


# -- as a file ---------------------------------------------------------------------------------------------------------


_FORMAT = "anneal check 1"
_MOST_BYTES = 1 << 32  # bytes that a file may unpack to


@frozen
class Replayed:
    """A kernel from a file, run here: as it was recorded, and as this version makes it of the same graph.

    Each is "right", "wrong: ..." or why it was not run.
    """

    name: str
    device: str
    recorded: str
    fresh: str
    was: str  # what was found where the file was made

    @property
    def ok(self) -> bool:
        """True if nothing that ran is wrong."""
        return not (self.recorded.startswith("wrong") or self.fresh.startswith("wrong"))

    def __str__(self) -> str:
        return (
            f"kernel {self.name} on {self.device}\n  as recorded: {self.recorded}\n  as this version makes it: "
            f"{self.fresh}\n"
            f"  where it was recorded: {self.was}"
        )


def repro_of(finding: Finding, file: IO[bytes]) -> None:
    """Write a file that shows a difference again.

    Args:
        finding: the difference.
        file: the path of the file that is written.
    """
    kernel, trial = getattr(finding.program, "kernel", None), finding.trial
    arrays = {f"memory{n}": np.ascontiguousarray(a).view(np.uint8) for n, a in enumerate(trial.before)}
    for n, (index, value, error) in enumerate(trial.expected):
        arrays[f"index{n}"], arrays[f"value{n}"], arrays[f"error{n}"] = index, value, np.ascontiguousarray(error)
    d = finding.difference
    said = {
        "format": _FORMAT,
        "name": trial.call.kernel.name,
        "outputs": trial.call.outputs,
        "dtypes": [content.dtype.name for content in trial.before],
        "values": trial.values,
        "graph": encode_graph(trial.call.kernel.sink),
        "kernel": None if kernel is None else encode_kernel(kernel),
        "wgsl": None if kernel is None else kernel.source,
        "found": str(d),
        "device": d.device,
        "lines": [asdict(line) for line in d.lines],
    }
    arrays["check"] = np.frombuffer(json.dumps(said).encode(), np.uint8)
    np.savez_compressed(file, allow_pickle=False, **arrays)


def replayed(raw: bytes, source: str, device_name: str) -> Replayed:
    """Run the kernel of a file on a device. Raises DataError for what is no such file, DeviceError where there is no
    such device.

    Args:
        raw: the contents of the file.
        source: the name of the file in messages.
        device_name: the device that runs it.
    """
    try:
        said, arrays = _read(raw)
        sink = decode_graph(said["graph"])
        before = [
            np.frombuffer(arrays[f"memory{n}"].tobytes(), numpy_dtype(by_name(name)))
            for n, name in enumerate(said["dtypes"])
        ]
        expected = [(arrays[f"index{n}"], arrays[f"value{n}"], arrays[f"error{n}"]) for n in range(said["outputs"])]
        kernel = None if said["kernel"] is None else decode_kernel(said["kernel"])
        values = {str(k): int(v) for k, v in said["values"].items()}
        _fits(sink, before, expected)
    except (KeyError, ValueError, TypeError, IndexError, AttributeError, EOFError, zipfile.BadZipFile, OSError) as e:
        raise DataError(f"{source}: is no file of `anneal check --repro`: {e}") from None
    device = get_device(device_name)
    call = Call(Kernel(sink, str(said["name"])), tuple(range(len(before))), int(said["outputs"]), "forward")
    trial = Trial(call, before, expected, values)

    def run(program: Any) -> str:
        got = trial.run(device, program)
        for n, compared in enumerate(trial.compared(got)):
            if not compared.ok:
                index, value, error = (a[compared.at] for a in expected[n])
                mine, dtype = got[n][index], by_name(said["dtypes"][n])
                return (
                    f"wrong: output {n}, element {int(index)} is {shown(mine)}, not {shown(value)} (within "
                    f"{float(error):.3g}; {ulps(float(mine), float(value), dtype):.3g} ULP away); {compared.differ} of "
                    f"{compared.judged} elements differ"
                )
        return "right"

    def made() -> str:
        programs = dict.fromkeys((device.compile(sink), device.compile_all([call.kernel], often=True)[0]))
        return next((found for found in map(run, programs) if found != "right"), "right")

    load = getattr(device, "load", None)
    if kernel is None:
        recorded = "its device had no text"
    elif load is None:
        recorded = f"device {device.name} runs no WGSL"
    else:
        recorded = _tried(lambda: run(load(call.kernel.name, kernel)))
    return Replayed(call.kernel.name, str(device), recorded, _tried(made), said["found"])


def _tried(run: Any) -> str:
    try:
        return str(run())
    except AnnealError as e:
        return f"not run: {str(e).splitlines()[0]}"


def _read(raw: bytes) -> tuple[Mapping[str, Any], dict[str, Array]]:
    with zipfile.ZipFile(io.BytesIO(raw)) as z:
        if sum(i.file_size for i in z.infolist()) > _MOST_BYTES:
            raise ValueError("it unpacks to too much")
    with np.load(io.BytesIO(raw), allow_pickle=False) as found:
        arrays = {name: found[name] for name in found.files}
    said = json.loads(arrays["check"].tobytes().decode())
    if not isinstance(said, dict) or said.get("format") != _FORMAT:
        raise ValueError("it has another format")
    return said, arrays


def _fits(sink: UOp, before: list[Array], expected: list[tuple[Array, Array, Array]]) -> None:
    """Raises ValueError where graph and arrays do not belong together: memory would be read past its end."""
    if sink.op is not Op.SINK:
        raise ValueError("its graph is no kernel")
    for u in toposort((sink,)):
        if u.op is Op.PARAM:
            slot, (size,) = u.arg
            content = before[slot]
            if content.size != size or content.dtype != numpy_dtype(u.dtype):
                raise ValueError(f"memory {slot} is not what the kernel takes")
    for n, (index, value, error) in enumerate(expected):
        whole = index.dtype.kind in "iu" and index.ndim == 1
        if not whole or value.shape != index.shape or error.shape != index.shape or n >= len(before):
            raise ValueError("what is expected is incomplete")
        if index.size and (int(index.min()) < 0 or int(index.max()) >= before[n].size):
            raise ValueError("what is expected lies outside of memory")
