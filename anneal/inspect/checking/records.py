"""The findings of a check, as values that a command and a page show; a kernel that differs, run here or from a file."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import IO, Any

import numpy as np

from anneal.backend import AnyDevice, get_device, numpy_dtype
from anneal.codegen import decode_kernel, encode_kernel
from anneal.errors import AnnealError, DataError
from anneal.frozen import Texts, frozen
from anneal.inspect.checking.bounds import Array, Bounded, Compared, beside, shown, ulps
from anneal.inspect.kernel_list import Lines
from anneal.schedule import Call, Kernel
from anneal.uop import Ints, Op, UOp, by_name, decode_graph, encode_graph, toposort


@frozen
class Suspect:
    """A rule that changed a node's value: its text, its place, the pass, an example of both sides, and the user's lines
    of the nodes that it met.
    """

    rule: str
    table: str
    place: str
    pass_name: str
    example: str
    lines: Lines = ()

    def __str__(self) -> str:
        where = f" in {self.pass_name}" if self.pass_name else ""
        user = f", for {', '.join(map(str, self.lines[:3]))}" if self.lines else ""
        return f"{self.rule}   [{self.place}]{where}: {self.example}{user}"


@frozen
class Difference:
    """A value that differs from the expected one: its worst element, what memory has there, and the part that made it.

    `against` says beside what: "tensor graph", "kernel graph", "memory" (what a kernel read is not what was written),
    "other elements" (a kernel wrote where it has no store) or "one batch" (all kernels together gave something else).
    `element` is the number in memory, `at` the place in the tensor. `expected` is in float64, `bound` the most that a
    right result may be away from it. `blame` says in words who is at fault.
    """

    launch: int
    kernel: int
    name: str
    label: str
    opts: str
    device: str
    against: str
    blame: str
    value: str  # the plan's number of it: "v12"
    op: str
    dtype: str
    shape: Ints
    element: int
    at: Ints
    got: float | int | bool | str
    expected: float | int | bool | str
    bound: float
    ulps: float
    count: int
    compared: int
    lines: Lines
    modules: Texts
    suspects: tuple[Suspect, ...] = ()

    def __str__(self) -> str:
        where = ", ".join(map(str, self.lines[:3])) or "no line of yours"
        at = f"[{', '.join(map(str, self.at))}]" if self.at else f"element {self.element}"
        text = (
            f"kernel {self.kernel} {self.name} ({self.label}) on {self.device}: {self.op} {self.dtype}"
            f"[{', '.join(map(str, self.shape))}] at {at} is {self.got}, {self.against} says {self.expected}"
        )
        if isinstance(self.got, float):
            text += f" (within {self.bound:.3g}; {self.ulps:.3g} ULP away)"
        text += f"; {self.count} of {self.compared} elements differ\n  from {where}\n  {self.blame}"
        if self.opts:
            text += f"\n  opts: {self.opts}"
        for s in self.suspects[:3]:
            text += f"\n  rule: {s}"
        return text


@frozen
class NotFinite:
    """The first nan or infinity, by its `kind`: the node that makes it, or an infinity that becomes it (`begins`), of
    finite values, and these values.
    """

    launch: int
    kernel: int
    name: str
    label: str
    kind: str  # "nan" or "inf"
    begins: str
    value: str
    element: int
    op: str
    shape: Ints
    at: Ints
    sources: Texts  # "EXP [0, 3] = 0.0"
    inputs: Texts  # the elements in memory that these come from
    lines: Lines
    overflow: bool = False
    result: bool = False

    @property
    def short(self) -> str:
        """A line of text: where it begins, and its operands."""
        at = f" ({self.lines[0]})" if self.lines else ""
        of = f" of {', '.join(self.sources[:2])}" if self.sources else ""
        comes = f", from {self.inputs[0]}" if self.inputs else ""
        begins = self.kind if self.begins == self.kind else f"{self.begins} that becomes {self.kind}"
        return f"the first {begins} is {self.op}{of}{at} in kernel {self.kernel} {self.name}{comes}"

    def __str__(self) -> str:
        where = ", ".join(map(str, self.lines[:3])) or "no line of yours"
        text = (
            f"the first {self.kind} appears in kernel {self.kernel} {self.name} ({self.label}): {self.op} is "
            f"{self.begins} at [{', '.join(map(str, self.at))}], from {where}"
        )
        if self.sources:
            text += f"\n  of {'; '.join(self.sources)}"
        if self.inputs:
            text += f"\n  which come from {'; '.join(self.inputs[:6])}"
        return text


@frozen
class CheckedKernel:
    """One launch of a plan and how it was checked.

    `compared` of `elements` were held against its own graph, `tensor_elements` against the graph as it was written;
    of `unjudged` ones nothing can be said: their bound is infinite. `worst` is the largest error as a part of what is
    allowed. `note` says what was left out, and why.
    """

    launch: int
    kernel: int
    name: str
    label: str
    opts: str
    phase: str
    elements: int
    compared: int
    tensor_elements: int
    unjudged: int
    worst: float
    ok: bool
    note: str
    lines: Lines
    modules: Texts


@frozen
class GradientCheck:
    """The gradient of one leaf beside central differences in float64, along one direction or for one element."""

    name: str
    shape: Ints
    at: Ints
    got: float
    expected: float
    bound: float
    ok: bool
    blame: str
    lines: Lines

    def __str__(self) -> str:
        where = f" from {', '.join(map(str, self.lines[:3]))}" if self.lines else ""
        at = f" at [{', '.join(map(str, self.at))}]" if self.at else ""
        text = f"the gradient of {self.name}{at} is {self.got:.9g}, differences say {self.expected:.9g}"
        return f"{text} (within {self.bound:.3g})" + (f"\n  {self.blame}{where}" if self.blame else "")


@dataclass(slots=True)
class Report:
    """The outcome of a check; `first` is the first difference, or None.

    `rules` are those that fired while the program made its graph and change what a node says: the graph as written is
    wrong with them, and no kernel differs from it.
    """

    device: str = ""
    launches: int = 0
    kernels: list[CheckedKernel] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    not_finite: NotFinite | None = None
    gradients: list[GradientCheck] = field(default_factory=list)
    rules: list[Suspect] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """True if nothing differs, something was compared, and no result is nan, or infinite where float64 is not."""
        return not self.reason

    @property
    def reason(self) -> str:
        """The reason why `ok` is False, in one line; "" if it is True."""
        found, first = self.not_finite, self.first
        if isinstance(first, Difference):
            return f"{first.op} differs in kernel {first.kernel} {first.name}"
        if isinstance(first, Suspect):
            return f"the rule {first.rule} is wrong"
        if first is not None:
            return f"the gradient of {first.name} differs"
        if found is not None and found.result and (found.kind == "nan" or found.overflow):
            return found.short
        if self.elements and not self.compared and not self.tensor_elements:
            return "nothing was compared: no value has a finite bound"
        return ""

    @property
    def first(self) -> Difference | GradientCheck | Suspect | None:
        """The first difference: of values, else a rule that is wrong by itself, else of gradients."""
        if self.differences:
            return self.differences[0]
        if self.rules:
            return self.rules[0]
        return next((g for g in self.gradients if not g.ok), None)

    @property
    def elements(self) -> int:
        """The number of elements that the kernels wrote."""
        return sum(k.elements for k in self.kernels)

    @property
    def compared(self) -> int:
        """The number of elements that were compared with the kernel's own graph in float64."""
        return sum(k.compared for k in self.kernels)

    @property
    def tensor_elements(self) -> int:
        """The number of elements that were compared with the graph as it was written."""
        return sum(k.tensor_elements for k in self.kernels)

    @property
    def unjudged(self) -> int:
        """The number of elements that have no finite error bound."""
        return sum(k.unjudged for k in self.kernels)

    def say(self, message: str) -> None:
        """Note a message once."""
        if message not in self.messages:
            self.messages.append(message)

    def __str__(self) -> str:
        compared = f"{self.compared:,} of {self.elements:,} elements compared with the kernels' graphs"
        text = [] if self.not_finite is None else [str(self.not_finite)]
        if self.not_finite is not None and self.not_finite.overflow:
            text[0] += f"\n  it is finite in float64: {self.not_finite.op} overflows its dtype"
        if self.unjudged:
            text.append(f"{self.unjudged:,} elements have no finite bound and were not judged")
        text += [
            f"{len(self.kernels)} kernels of {self.launches} launches on {self.device or 'no device'}: {compared}",
            f"{self.tensor_elements:,} elements compared with the graph as written",
        ]
        if self.gradients:
            text.append(f"{len(self.gradients)} gradients compared with differences in float64")
        text += self.messages
        if self.differences:
            text.append(f"values that differ: {len(self.differences)}; the first:")
            text.append(str(self.differences[0]))
        text += [f"a rule is wrong: {s}" for s in self.rules[:3]]
        text += [str(g) for g in self.gradients if not g.ok][:3]
        if self.ok:
            own = " (the infinity is the program's own, in float64 too)"
            text.append("nothing differs" + own * (self.not_finite is not None and self.not_finite.result))
        elif self.first is None:
            text.append(f"not ok: {self.reason}")
        return "\n".join(text)


# -- a kernel that is run elsewhere -----------------------------------------------------------------------------------


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
        """Compare the stored values with the expected ones."""
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
    """Run the kernel of a file on a device. Raises DataError for a file of another kind, DeviceError for a device that
    does not open.

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
    for u in toposort(sink):
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
