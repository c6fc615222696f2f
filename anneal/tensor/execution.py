"""Realize: from lazy graphs to memory."""

from __future__ import annotations

import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from anneal import settings
from anneal.backend import (
    AnyDevice,
    Array,
    MemoryReport,
    Program,
    Storage,
    cost_models,
    get_device,
    memory_report,
)
from anneal.errors import DeviceError
from anneal.schedule import BUILDING, Plan, graph, plan_for
from anneal.tensor._sizes import needed, seen
from anneal.uop import SYMBOLIC, Op, UOp
from anneal.uop.sizes import Values, symbolic_arg, widest

if TYPE_CHECKING:
    from anneal.tensor._tensor import Tensor

__all__ = [
    "Execution",
    "execute",
    "is_realized",
    "memory",
    "own",
    "plan_of",
    "realize",
    "realize_uops",
    "storage_of",
    "tracing",
    "upload",
    "values",
]

# Told of every plan that runs, while a jit captures: (plan, input storages, output storages).
Observer = Callable[[Plan, list[Storage], list[Storage]], None]


class _Watching(threading.local):
    """What is noted of a thread's work, while it captures a function, traces or counts."""

    def __init__(self) -> None:
        self.observers: list[Observer] = []
        # lists that get a weak reference to every tensor that is realized
        self.realized: list[list[weakref.ref[Tensor]]] = []
        # lists that get a weak reference to every tensor that is assigned
        self.assigned: list[list[weakref.ref[Tensor]]] = []
        # while `tracing`: lists of what would have been realized
        self.tracing: list[list[Tensor]] = []
        # the values of variables with which the plan ran that observers are told of
        self.given: dict[str, int] = {}


watching = _Watching()


def given_values() -> dict[str, int]:
    """What the variables of the plan are that an observer is told of."""
    return dict(watching.given)


_cache_hits = 0
_cache_misses = 0
_compiling = 0.0


def cache_statistics() -> tuple[int, int]:
    """How often a realize found its plan, and how often it had to make one."""
    return _cache_hits, _cache_misses


def compile_seconds() -> float:
    """How long this process has spent so far on making plans, or reading them from disk, and on compiling and binding
    their kernels. Pipelines that a driver makes meanwhile in other threads count as far as they were waited for."""
    return _compiling


_WHOLE = "whole"  # the tag of a SHRINK that shows all of a tensor of symbolic shape in memory for the largest


def storage_of(u: UOp) -> Storage | None:
    """The storage that `u` shows whole and in order, or None if it is lazy."""
    if u.tag == _WHOLE:
        u = u.src[0]
    while u.op is Op.RESHAPE:
        u = u.src[0]
    return u.arg if u.op is Op.BUFFER else None


def is_realized(u: UOp) -> bool:
    return storage_of(u) is not None


def buffer_leaf(storage: Storage, shape: tuple[Any, ...]) -> UOp:
    """The leaf that shows `storage` as an array of `shape`."""
    flat = UOp(Op.BUFFER, storage.dtype, (), storage)
    if SYMBOLIC.seen and symbolic_arg(shape):
        largest = buffer_leaf(storage, widest(shape))
        return UOp(Op.SHRINK, storage.dtype, (largest,), tuple([(0, n) for n in shape]), _WHOLE)
    return flat if shape == flat.shape else UOp(Op.RESHAPE, storage.dtype, (flat,), shape)


def own(t: Tensor) -> None:
    """Note in the storage of a realized tensor that `t` shows it; jit finds its state that way."""
    s = storage_of(t.uop)
    if s is not None:
        s.owner = weakref.ref(t)


class Execution:
    """A plan bound to buffers: `run()` launches it, any number of times.

    Compiling is done under BUILDING, which the maker of one holds or may take; the rest under the device's lock.
    """

    __slots__ = ("_places", "_programs", "batch", "buffers", "device", "plan", "temporaries", "values")

    def __init__(
        self,
        plan: Plan,
        device: AnyDevice,
        inputs: Sequence[Storage],
        outputs: Sequence[Storage],
        values: Mapping[str, int] | None = None,
        programs: Sequence[Program] | None = None,
    ) -> None:
        if programs is None:
            programs = compiled(plan, device)
        self.plan, self.device = plan, device
        self.values: dict[str, int] = {v.arg[0]: (values or {})[v.arg[0]] for v in plan.variables}
        self.temporaries: list[Any] = []
        buffers: list[Any] = [None] * len(plan.values)
        try:
            for i, s in enumerate(inputs):
                buffers[i] = s.ensure()
            for v, s in zip(plan.outputs, outputs, strict=True):
                buffers[v] = s.ensure()
            for size, dtype in plan.temporaries:
                self.temporaries.append(device.alloc(size, dtype))
        except BaseException:
            self.close()  # a traceback may keep this for longer
            raise
        for v, t in plan.memory:
            buffers[v] = self.temporaries[t]
        self.buffers = buffers
        self._places: dict[int, list[int]] = {}  # of exchanged buffers, by id
        self._programs = programs
        self._bind()

    def _bind(self) -> None:
        global _compiling
        begun = time.perf_counter()
        calls = zip(self._programs, self.plan.calls, strict=True)
        self.batch = self.device.prepare([(p, [self.buffers[v] for v in c.args]) for p, c in calls], self.values)
        _compiling += time.perf_counter() - begun

    def give(self, values: Mapping[str, int]) -> bool:
        """Run with these values of the variables from the next time on; whether what is prepared must be anew."""
        mine = {name: values.get(name, old) for name, old in self.values.items()}
        if mine == self.values:
            return False
        self.values = mine
        return self.batch.give(mine)

    def rebind(self, old: Any, new: Any) -> None:
        """Use the buffer `new` in place of `old`."""
        if any(b is old for b in self.buffers):
            self.buffers = [new if b is old else b for b in self.buffers]
            self._places.clear()
            self._bind()

    def run(self, exchange: Callable[[], Sequence[tuple[Any, Any]]] | None = None) -> None:
        """Launch; from the next time on, use the second buffer of each pair in place of the first.

        `exchange` makes the pairs once the launch is under way, and gives the same ones again when it is called again.
        """
        if exchange is None:
            self.batch.run()
            return
        self.batch.run_and_exchange(exchange)
        for old, new in exchange():
            places = self._places.pop(id(old), None)
            if places is None:
                places = [v for v, b in enumerate(self.buffers) if b is old]
            self._places[id(new)] = places
            for v in places:
                self.buffers[v] = new

    def close(self) -> None:
        """Give the temporaries back."""
        temporaries, self.temporaries = self.temporaries, []
        for t in temporaries:
            self.device.free(t)

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if not ending():
            self.close()


def compiled(plan: Plan, device: AnyDevice) -> list[Program]:
    """The programs of a plan's calls."""
    global _compiling
    begun = time.perf_counter()
    with BUILDING:
        programs = device.compile_all([c.kernel for c in plan.calls])
    _compiling += time.perf_counter() - begun
    return programs


def execute(
    plan: Plan, device: AnyDevice, inputs: list[Storage], values: Mapping[str, int] | None = None
) -> list[Storage]:
    """Run a plan once; returns the storages of its outputs. Raises DeviceError for one that the device can never hold."""
    for v in plan.outputs:
        device.check_size(plan.values[v].size, plan.values[v].dtype)
    programs = compiled(plan, device)
    outputs = [Storage(plan.values[v].size, plan.values[v].dtype, device.name) for v in plan.outputs]
    with device.lock:
        run = Execution(plan, device, inputs, outputs, values, programs)
        try:
            run.run()
        finally:
            run.close()
    watching.given = run.values
    for observe in watching.observers:
        observe(plan, inputs, outputs)
    return outputs


def realize_uops(uops: Sequence[UOp], device_name: str) -> list[UOp]:
    """Compute `uops` together on one device; each comes back as a buffer leaf of the same shape."""
    global _cache_hits, _cache_misses, _compiling
    lazy = [u for u in dict.fromkeys(uops) if not is_realized(u)]
    done: dict[UOp, UOp] = {}
    if lazy:
        device = get_device(device_name)
        begun = time.perf_counter()
        values = Values()
        plan, inputs, hit = plan_for(graph(lazy), device.cost_model, values)
        planned = time.perf_counter()
        _cache_hits, _cache_misses = _cache_hits + hit, _cache_misses + (not hit)
        _compiling += planned - begun
        for u, storage in zip(lazy, execute(plan, device, inputs, values), strict=True):
            storage.line = u.provenance[1:]
            done[u] = buffer_leaf(storage, u.shape)
        if (level := settings.current().debug) >= 2:
            _tell(level, plan, device, inputs, values, hit, planned - begun, time.perf_counter() - planned)
    return [done.get(u, u) for u in uops]


_profiled: weakref.WeakSet[Plan] = weakref.WeakSet()


def _tell(
    level: int,
    plan: Plan,
    device: AnyDevice,
    inputs: list[Storage],
    values: Mapping[str, int],
    hit: bool,
    planning: float,
    running: float,
) -> None:
    """ANNEAL_DEBUG=2: the times of a realize and, once for each plan, of its kernels; 3: what they read and write."""
    known = "known" if hit else f"{planning * 1e3:.1f} ms"
    print(
        f"anneal: realize on {device.name}: {len(plan.calls)} kernels, plan {known}, launch {running * 1e3:.1f} ms",
        file=sys.stderr,
    )
    if plan not in _profiled:
        from anneal.tensor.profile import profile

        _profiled.add(plan)
        try:
            lines = profile(plan, device, inputs, values, heat=0.02, rounds=3).text()
        except DeviceError as e:
            lines = [str(e)]
        for line in lines:
            print(f"anneal:   {line}", file=sys.stderr)
    if level >= 3:
        for c in plan.calls:
            print(
                f"anneal:   {c.kernel.name} {c.args[: c.outputs]} <- {c.args[c.outputs :]} ({c.phase})", file=sys.stderr
            )


@contextmanager
def tracing() -> Iterator[list[Tensor]]:
    """Within the block nothing runs: what would have been computed is collected, lazy as it is."""
    noted: list[Tensor] = []
    watching.tracing.append(noted)
    try:
        yield noted
    finally:
        watching.tracing.pop()


def realize(tensors: Sequence[Tensor]) -> None:
    """Compute every lazy tensor of `tensors`; afterwards each is a leaf that shows its own memory."""
    if watching.tracing:
        watching.tracing[-1].extend(t for t in tensors if not is_realized(t.uop))
        return
    by_device: dict[str, list[Tensor]] = {}
    for t in tensors:
        if not is_realized(t.uop):
            by_device.setdefault(t.device, []).append(t)
    for name, group in by_device.items():
        wanted: dict[UOp, None] = {}
        lazy = [t.uop for t in group]
        for n, (t, old) in enumerate(zip(group, lazy, strict=True)):
            # two tensors of one node get memory of their own: a jit may update one of them in place
            u = old if old not in wanted else UOp(Op.CONTIGUOUS, t.dtype, (old,), tag=n)
            wanted[u] = None
        for t, old, u in zip(group, lazy, realize_uops(list(wanted), name), strict=True):
            if t.uop is not old:
                continue  # another thread has computed it, or assigned to it, meanwhile
            t._settle(u)
            own(t)
            for watch in watching.realized:
                watch.append(weakref.ref(t))


def upload(tensors: Sequence[Tensor]) -> None:
    """Realize `tensors`, and put values that wait on the host, an array's or a file's, into the device's memory now."""
    realize(tensors)
    for t in tensors:
        s = storage_of(t.uop)
        if s is not None and s.size:
            s.ensure()


def values(tensors: Sequence[Tensor]) -> list[Array]:
    """The values of several tensors as fresh arrays, computed together and read with one wait for each device."""
    realize(tensors)
    out: list[Array | None] = [None] * len(tensors)
    by_device: dict[str, list[int]] = {}
    for n, t in enumerate(tensors):
        s = storage_of(t.uop)
        if s is None or s.host is not None or s.size == 0:
            out[n] = t.numpy()
        else:
            by_device.setdefault(s.device, []).append(n)
    for name, numbers in by_device.items():
        storages = [storage_of(tensors[n].uop) for n in numbers]
        shapes = [tensors[n].shape for n in numbers]
        pieces = [(s.ensure(), needed(x), s.dtype) for s, x in zip(storages, shapes, strict=True) if s is not None]
        device = get_device(name)
        with device.lock:
            arrays = device.download_all(pieces)
        for n, shape, array in zip(numbers, shapes, arrays, strict=True):
            out[n] = seen(array, shape)
    return [a for a in out if a is not None]


def memory(device: str | None = None) -> MemoryReport:
    """What holds the memory of a device: bytes in use and cached, the peak, and who holds how much, by the user's lines.

    `device` is "cpu" or "webgpu"; None is the default device of this thread.

    >>> from anneal.tensor import Tensor
    >>> x = Tensor.ones(1000, device="cpu").realize()
    >>> report = memory("cpu")
    >>> report.use.in_use >= 4000, report.device
    (True, 'cpu')
    """
    from anneal.tensor._base import default_device

    return memory_report(default_device() if device is None else get_device(device).name)


def plan_of(tensors: Sequence[Tensor], max_buffers: int = 128) -> Plan:
    """The plan that realizing `tensors` would run on an adapter with `max_buffers` storage buffers; no device is opened."""
    plan, _, _ = plan_for(graph([t.uop for t in tensors]), cost_models.gpu(max_buffers))
    return plan
