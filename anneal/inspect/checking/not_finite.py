"""The first nan or infinity, with the elements that it comes from; and a kernel that differs as one file."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import IO, Any

import numpy as np

from anneal.backend import get_device, numpy_dtype
from anneal.codegen import decode_kernel, encode_kernel
from anneal.errors import AnnealError, DataError
from anneal.frozen import Json, Texts, frozen
from anneal.inspect.checking.blame import CheckRun, Finding, Trial
from anneal.inspect.checking.bounds import Array, Bounded, shown, ulps, unheard
from anneal.inspect.checking.kernel_values import KernelValues
from anneal.inspect.checking.records import NotFinite
from anneal.inspect.checking.tensor_values import TensorValues, TooLarge, base, needed
from anneal.inspect.kernel_list import lines_of
from anneal.schedule import Call, Kernel
from anneal.uop import ALU, Op, UOp, by_name, decode_graph, encode_graph, toposort

_GIVEN = frozenset((Op.CONST, Op.BUFFER))  # what is infinite there was written so
_MOST = 6  # elements in memory that are named
_TESTS = {"nan": np.isnan, "inf": np.isinf}


def look(r: CheckRun) -> None:
    """Note where a nan or an infinity appears in the kernel, if it is the first to make one of other numbers, or the
    first nan; and whether a result of the program has one.
    """
    found = r.report.not_finite
    if found is not None and found.kind == "nan" and found.result:
        return
    given = set().union(*[_kinds(a) for a in r.trial.before[r.call.outputs :]])
    for slot, (v, content, live) in enumerate(zip(r.call.args, r.after, r.lives)):
        kinds = _kinds(content if live is None else content[live])
        result = v in r.plan.outputs
        bad = result and "nan" in kinds  # whoever made it: a program whose results are nan is not right
        if (kinds - given or bad) and (found is None or (found.kind == "inf" and "nan" in kinds)):
            kind = "nan" if bad or "nan" in kinds - given else "inf"
            mine = _found(r, slot, kind)
            if bad or mine.op != "STORE" or not _written(r.call, kind):
                # a nan that begins at no node here is made of what was found before
                found = mine if found is None or mine.op != "STORE" else replace(found, kind="nan")
                if found is mine and mine.op == "STORE" and (node := r.node(v)) is not None:
                    found = replace(found, op=base(node).op.name)
        if found is not None and result and found.kind in kinds:
            found = replace(found, result=True)
    r.report.not_finite = found


def _written(call: Call, kind: str) -> bool:
    """True if the kernel has such a number as a constant: -inf starts a maximum, and pads it."""
    return any(u.op is Op.CONST and u.dtype.is_float and _TESTS[kind](u.arg) for u in toposort((call.kernel.sink,)))


@unheard()
def _kinds(a: Array) -> set[str]:
    wide = a.astype(float)
    return {kind for kind, test in _TESTS.items() if test(wide).any()}


def _found(r: CheckRun, slot: int, kind: str) -> NotFinite:
    content, live = r.after[slot], r.lives[slot]
    with unheard():
        wrong = _TESTS[kind](content.astype(float))
    element = int(np.flatnonzero(wrong if live is None else wrong & live)[0])
    found: Json = {
        "begins": kind, "op": "STORE", "shape": (int(content.size),), "at": (element,), "sources": (), "inputs": (),
        "lines": lines_of(r.origins),
    }  # fmt: skip

    def seen(u: UOp, value: Bounded, sources: Sequence[Bounded]) -> None:
        if found["op"] != "STORE" or u.op in _GIVEN:
            return
        odd = np.flatnonzero(~np.isfinite(value.value))
        if odd.size and all(np.isfinite(s.value).all() for s in sources):
            at = int(odd[0])
            begins = "nan" if np.isnan(value.value.ravel()[at]) else "inf"
            found.update(
                begins=begins,
                op=u.op.name,
                shape=u.shape,
                at=tuple(int(i) for i in np.unravel_index(at, u.shape)),
                sources=_told(u, at, sources),
                inputs=_traced(r, u, at),
                lines=lines_of({u}.intersection(r.program.nodes)) or found["lines"],
                overflow=begins == "inf" and _overflows(u, at, sources),
            )

    if (node := r.node(r.call.args[slot])) is not None:
        with suppress(TooLarge):
            r.tensors.value(node, seen)
    found["inputs"] = found["inputs"] or _inputs(r, slot, element)
    return NotFinite(**r.facts, **found, kind=kind, value=f"v{r.call.args[slot]}", element=element)


def _overflows(u: UOp, at: int, sources: Sequence[Bounded]) -> bool:
    """True if element `at` of `u`, infinite in its own dtype, is finite in float64."""
    if u.op is Op.CAST:
        return True
    wide = TensorValues({}, 1 << 40, plain=True)
    for s, x in zip(needed(u), sources, strict=True):
        wide.known[base(s)] = Bounded(x.value.ravel())
    with unheard():
        return bool(np.isfinite(wide.value(u).value.ravel()[at]))


def _told(u: UOp, at: int, sources: Sequence[Bounded]) -> Texts:
    """The elements of the sources that element `at` of `u` is made of; of a reduction its terms' extremes."""
    out = []
    for s in sources:
        if s.value.size == 1 or s.value.shape == u.shape:
            out.append(f"{float(s.value.ravel()[at if s.value.size > 1 else 0]):.9g}")
        elif s.value.size:
            out.append(f"terms from {float(np.nanmin(s.value)):.9g} to {float(np.nanmax(s.value)):.9g}")
    return tuple(out)


def _traced(r: CheckRun, u: UOp, at: int) -> Texts:
    """The elements in memory that element `at` of a node is made of, the largest first; nothing where a sum or a
    choice of places lies between.
    """
    known = r.tensors.known
    named = {base(r.program.nodes[p]): v for some in r.program.written for v, places in some.items() for p in places}
    numbers = {s: v for v, s in enumerate(r.tensors.leaves)}
    found = {}
    seen = set()
    stack = [(u, at)]
    while stack:
        x, i = stack.pop()
        b = base(x)
        if (b, i) in seen or b.op is Op.CONST:
            continue
        seen.add((b, i))
        if b.op is Op.BUFFER and b.arg in numbers:
            found[numbers[b.arg], i] = float(r.tensors.leaves[b.arg][i])
        elif b in known and b in named:
            found[named[b], i] = float(known[b].value[i])
        elif b.op is Op.EXPAND:
            [s], where = b.src, np.unravel_index(i, b.shape)
            inside = tuple(0 if n == 1 else int(k) for k, n in zip(where, s.shape, strict=True))
            stack.append((s, int(np.ravel_multi_index(inside, s.shape)) if s.shape else 0))
        elif b.op in ALU and all(s.shape == b.shape or s.size == 1 for s in b.src):
            stack += [(s, i if s.shape == b.shape else 0) for s in b.src]
        else:
            return ()
    return _largest(found)


def _largest(found: dict[tuple[int, int], float]) -> Texts:
    """The largest elements in memory, by the number of the value and the place in it."""
    ranked = sorted(found, key=lambda at: -abs(found[at]))[:_MOST]
    return tuple(f"v{v}[{i}] = {found[v, i]:.9g}" for v, i in ranked)


def _inputs(r: CheckRun, slot: int, element: int) -> Texts:
    """The elements that the kernel reads for an element that it stores, the largest first."""
    kernel = KernelValues(r.call.kernel.sink, r.trial.before, r.trial.values)
    for store in kernel.stores(slot):
        point = kernel.point_of(store, element)
        if point is None:
            continue
        kernel.reads = []
        list(kernel.at(store, np.array([point])))
        found = {}
        for load, index, value in kernel.reads:
            which, of = [a.ravel() for a in np.broadcast_arrays(index, value.value)]
            for i in np.argsort(-np.abs(np.nan_to_num(of, nan=np.inf)), kind="stable")[:_MOST]:
                if load.dtype.is_float and which[i] >= 0:
                    found[r.call.args[load.src[0].arg[0]], int(which[i])] = float(of[i])
        return _largest(found)
    return ()


# -- a kernel as a file ------------------------------------------------------------------------------------------------


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
