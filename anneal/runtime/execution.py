"""Realize: from lazy graphs to memory. `plan_of` makes the plan alone, `tracing` collects what would run."""

from __future__ import annotations

import math
import sys
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from anneal import settings
from anneal.backend import (
    AnyDevice,
    Array,
    MemoryReport,
    OpaqueBuffer,
    Program,
    Storage,
    cost_models,
    get_device,
    memory_report,
)
from anneal.errors import DeviceError, UserError
from anneal.rewrite import rebuild
from anneal.runtime.context import default_device, here
from anneal.runtime.handle import Handle
from anneal.runtime.host import HostFunction
from anneal.runtime.sizes import needed, seen
from anneal.runtime.steps import HostCall, Launch
from anneal.schedule import BUILDING, Origin, Plan, graph, origins, plan_for
from anneal.uop import SYMBOLIC, DType, Op, UOp, arena, toposort
from anneal.uop.sizes import Values, symbolic_arg, widest

__all__ = [
    "Execution",
    "buffer_leaf",
    "call_host",
    "compiled",
    "execute",
    "host_storage",
    "is_realized",
    "memory",
    "new_outputs",
    "own",
    "plan_of",
    "realize",
    "realize_uops",
    "storage_of",
    "tracing",
    "upload",
    "values",
]

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


def host_storage(values: Array, dtype: DType, device: str) -> Storage:
    """The storage of flat `values`, uploaded when first used. A recording notes it: its values would be frozen."""
    storage = Storage(values.size, dtype, device, host=values)
    if here.made is not None:
        here.made.append(storage)
    return storage


def own(t: Handle) -> None:
    """Note in the storage of a realized tensor that `t` shows it; jit finds its state that way."""
    s = storage_of(t.uop)
    if s is not None:
        s.owner = weakref.ref(t)


class Execution:
    """A launch bound to buffers: `run()` executes it, any number of times.

    Compiling is done under BUILDING, which the maker of one holds or may take; the rest under the device's lock.
    """

    __slots__ = ("_places", "_programs", "batch", "buffers", "device", "plan", "temporaries", "values")

    def __init__(self, step: Launch, device: AnyDevice, programs: Sequence[Program] | None = None) -> None:
        plan = step.plan
        if programs is None:
            programs = compiled(plan, device)
        self.plan, self.device = plan, device
        self.values: dict[str, int] = {v.arg[0]: step.values[v.arg[0]] for v in plan.variables}
        self.temporaries: list[OpaqueBuffer] = []
        buffers: list[OpaqueBuffer] = [None] * len(plan.values)  # type: ignore[list-item]  # the loops below fill it
        try:
            for i, s in enumerate(step.inputs):
                buffers[i] = s.ensure()
            for v, s in zip(plan.outputs, step.outputs, strict=True):
                buffers[v] = s.ensure()
            for size, dtype in plan.temporaries:
                self.temporaries.append(device.alloc(size, dtype))
        except BaseException:
            self.close()  # a traceback may keep this for longer
            raise
        for v, t in plan.memory:
            buffers[v] = self.temporaries[t]
        self.buffers = buffers
        self._places: dict[int, list[int]] = {}  # of swapped buffers, by id
        self._programs = programs
        self._bind()

    def _bind(self) -> None:
        begun = time.perf_counter()
        calls = zip(self._programs, self.plan.calls, strict=True)
        self.batch = self.device.prepare([(p, [self.buffers[v] for v in c.args]) for p, c in calls], self.values)
        here.context.compile_seconds += time.perf_counter() - begun

    def give(self, values: Mapping[str, int]) -> bool:
        """Run with these values of the variables from the next time on; whether what is prepared must be anew."""
        mine = {name: values.get(name, old) for name, old in self.values.items()}
        if mine == self.values:
            return False
        self.values = mine
        return self.batch.give(mine)

    def rebind(self, old: OpaqueBuffer, new: OpaqueBuffer) -> None:
        """Use the buffer `new` in place of `old`."""
        if any(b is old for b in self.buffers):
            self.buffers = [new if b is old else b for b in self.buffers]
            self._places.clear()
            self._bind()

    def run(self, swap: Callable[[], Sequence[tuple[OpaqueBuffer, OpaqueBuffer]]] | None = None) -> None:
        """Launch; from the next time on, use the second buffer of each pair in place of the first.

        `swap` makes the pairs once the launch is under way, and gives the same ones again when it is called again.
        """
        if swap is None:
            self.batch.run()
            return
        self.batch.run_and_swap(swap)
        for old, new in swap():
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
    begun = time.perf_counter()
    with BUILDING:
        programs = device.compile_all([c.kernel for c in plan.calls])
    here.context.compile_seconds += time.perf_counter() - begun
    return programs


def new_outputs(plan: Plan, device: AnyDevice) -> list[Storage]:
    """Storages for what a plan computes; they get memory when it is bound."""
    return [Storage(plan.values[v].size, plan.values[v].dtype, device.name) for v in plan.outputs]


def execute(
    plan: Plan,
    device: AnyDevice,
    inputs: Sequence[Storage],
    values: Mapping[str, int] | None = None,
    origins: Sequence[Origin] = (),
) -> list[Storage]:
    """Run a plan once; returns the storages of its outputs. `origins` is for those who observe.

    Raises DeviceError for an output that the device can never hold.
    """
    for v in plan.outputs:
        device.check_size(plan.values[v].size, plan.values[v].dtype)
    programs = compiled(plan, device)
    outputs = new_outputs(plan, device)
    step = Launch(plan, inputs, outputs, values or {}, origins)
    with device.lock:
        run = Execution(step, device, programs)
        try:
            run.run()
        finally:
            run.close()
    for observe in here.observers:
        observe(step)
    return outputs


def realize_uops(uops: Sequence[UOp], device_name: str) -> list[UOp]:
    """Compute `uops` together on one device; each comes back as a buffer leaf of the same shape."""
    lazy = [u for u in dict.fromkeys(uops) if not is_realized(u)]
    if lazy and here.context.tensors.host_calls:
        return _around_host_calls(uops, lazy, device_name)
    return _launched(uops, lazy, device_name)


def _launched(uops: Sequence[UOp], lazy: list[UOp], device_name: str) -> list[UOp]:
    """`realize_uops` of graphs without a HOST_CALL; `lazy` are those of `uops` that are not in memory."""
    done: dict[UOp, UOp] = {}
    if lazy:
        device = get_device(device_name)
        context = here.context
        begun = time.perf_counter()
        values = Values()
        sink = graph(lazy)
        plan, inputs, hit = plan_for(sink, device.cost_model, values)
        planned = time.perf_counter()
        if hit:
            context.plans_found += 1
        else:
            context.plans_made += 1
        context.compile_seconds += planned - begun
        found = origins(sink) if here.observers else ()
        for u, storage in zip(lazy, execute(plan, device, inputs, values, found), strict=True):
            storage.line = u.provenance[1:3]
            done[u] = buffer_leaf(storage, u.shape)
        if (level := settings.current().debug) >= 2:
            _tell(level, plan, device, inputs, values, hit, planned - begun, time.perf_counter() - planned)
    return [done.get(u, u) for u in uops]


def _around_host_calls(uops: Sequence[UOp], lazy: list[UOp], device_name: str) -> list[UOp]:
    """`realize_uops`, the calls of the host first. Those that need no other's results have their inputs computed
    together.
    """
    depth: dict[UOp, int] = {}
    waves: list[dict[tuple[HostFunction, tuple[UOp, ...]], list[UOp]]] = []
    for u in toposort(lazy):
        depth[u] = at = max([depth[s] for s in u.src], default=0)
        if u.op is Op.HOST_CALL:
            depth[u] = at + 1
            if at == len(waves):
                waves.append({})
            waves[at].setdefault((u.arg[0], u.src), []).append(u)
    computed: dict[UOp, UOp] = {}  # the results of calls as leaves, and the nodes over them
    for wave in waves:
        sources = [[rebuild(s, _in_its_place, computed) for s in src] for _, src in wave]
        flat = list(dict.fromkeys([s for src in sources for s in src]))
        leaves = dict(zip(flat, _launched(flat, [s for s in flat if not is_realized(s)], device_name), strict=True))
        for ((function, _), nodes), src in zip(wave.items(), sources, strict=True):
            outputs = _call_host(function, [leaves[s] for s in src], device_name)
            for u in nodes:
                outputs[u.arg[1]].line = u.provenance[1:3]
                computed[u] = buffer_leaf(outputs[u.arg[1]], u.shape)
    final = {u: rebuild(u, _in_its_place, computed) for u in lazy}
    shown: set[Storage] = set()
    for n, (old, u) in enumerate(final.items()):
        # each has memory of its own, as everything that is realized: a jit may update one of them in place
        s = storage_of(u)
        if s is not None and (s in shown or s.owner is not None):
            final[old] = UOp(Op.CONTIGUOUS, u.dtype, (u,), tag=("host", n))
        elif s is not None:
            shown.add(s)
    wanted = [final.get(u, u) for u in uops]
    return _launched(wanted, [u for u in dict.fromkeys(wanted) if not is_realized(u)], device_name)


def _in_its_place(u: UOp, src: tuple[UOp, ...]) -> UOp:
    """`u` over memory that was not there before, with the line that `u` has."""
    return u if src == u.src else arena().again(u, src, u.arg)


def _call_host(function: HostFunction, inputs: Sequence[UOp], device_name: str) -> list[Storage]:
    """The storages of the results of a function of the host."""
    given = [s for u in inputs if (s := storage_of(u)) is not None]
    outputs = [Storage(math.prod(shape), dtype, device_name) for shape, dtype in function.results]
    step = HostCall(function, given, [u.shape for u in inputs], outputs)
    kinds = [(u.shape, u.dtype) for u in inputs]
    call_host(function, kinds, get_device(device_name), [s.ensure() for s in given], [s.ensure() for s in outputs])
    for observe in here.observers:
        observe(step)
    return outputs


def call_host(
    function: HostFunction,
    kinds: Sequence[tuple[tuple[int, ...], DType]],
    device: AnyDevice,
    inputs: Sequence[OpaqueBuffer],
    outputs: Sequence[OpaqueBuffer],
) -> None:
    """Read the inputs, of these shapes and dtypes, call the function and write the outputs. What it raises is
    raised.
    """
    with device.lock:
        pieces = [(b, math.prod(shape), dtype) for b, (shape, dtype) in zip(inputs, kinds, strict=True)]
        given = device.download_all(pieces)
    before, here.in_host_call = here.in_host_call, True
    try:
        made = function.arrays([a.reshape(shape) for a, (shape, _) in zip(given, kinds, strict=True)])
    finally:
        here.in_host_call = before
    with device.lock:
        for buffer, array in zip(outputs, made, strict=True):
            device.upload(buffer, array.reshape(-1))


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
    if plan not in here.context.profiled:
        from anneal.runtime.profile import profile

        here.context.profiled.add(plan)
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
def tracing() -> Iterator[list[Handle]]:
    """Within the block nothing runs: what would have been computed is collected, lazy as it is."""
    noted: list[Handle] = []
    here.tracing.append(noted)
    try:
        yield noted
    finally:
        here.tracing.pop()


def realize(tensors: Sequence[Handle]) -> None:
    """Compute every lazy tensor of `tensors`; afterwards each is a leaf that shows its own memory."""
    if here.tracing:
        here.tracing[-1].extend(t for t in tensors if not is_realized(t.uop))
        return
    if here.in_host_call:
        raise UserError("a function of host_call gets arrays, and computes no tensors: its device waits for it")
    by_device: dict[str, list[Handle]] = {}
    for t in tensors:
        if not is_realized(t.uop):
            by_device.setdefault(t.device, []).append(t)
    for name, group in by_device.items():
        wanted: dict[UOp, None] = {}
        lazy = [t.uop for t in group]
        for n, old in enumerate(lazy):
            # two tensors of one node get memory of their own: a jit may update one of them in place
            u = old if old not in wanted else UOp(Op.CONTIGUOUS, old.dtype, (old,), tag=n)
            wanted[u] = None
        for t, old, u in zip(group, lazy, realize_uops(list(wanted), name), strict=True):
            if t.uop is not old:
                continue  # another thread has computed it, or assigned to it, meanwhile
            t._settle(u)
            own(t)
            for watch in here.realized:
                watch.append(weakref.ref(t))


def upload(tensors: Sequence[Handle]) -> None:
    """Realize `tensors`, and put values that wait on the host, an array's or a file's, into the device's memory now."""
    realize(tensors)
    for t in tensors:
        s = storage_of(t.uop)
        if s is not None and s.size:
            s.ensure()


def values(tensors: Sequence[Handle]) -> list[Array]:
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
        shapes = [tensors[n].uop.shape for n in numbers]
        pieces = [(s.ensure(), needed(x), s.dtype) for s, x in zip(storages, shapes, strict=True) if s is not None]
        device = get_device(name)
        with device.lock:
            arrays = device.download_all(pieces)
        for n, shape, array in zip(numbers, shapes, arrays, strict=True):
            out[n] = seen(array, shape)
    return [a for a in out if a is not None]


def memory(device: str | None = None) -> MemoryReport:
    """What holds the memory of a device: bytes in use and cached, the peak, and who holds how much, by user's lines.

    `device` is "cpu" or "webgpu"; None is the default device of this thread.

    >>> from anneal.tensor import Tensor
    >>> x = Tensor.ones(1000, device="cpu").realize()
    >>> report = memory("cpu")
    >>> report.use.in_use >= 4000, report.device
    (True, 'cpu')
    """
    return memory_report(default_device() if device is None else get_device(device).name)


def plan_of(tensors: Sequence[Handle], max_buffers: int = 128) -> Plan:
    """The plan that realizing `tensors` would run on an adapter with `max_buffers` storage buffers.

    No device is opened.
    """
    roots = [t.uop for t in tensors]
    if here.context.tensors.host_calls and any(u.op is Op.HOST_CALL for u in toposort(roots)):
        raise UserError(
            "plan_of: the host is called between plans, so there are several; realize what goes into the call"
        )
    plan, _, _ = plan_for(graph(roots), cost_models.gpu(max_buffers))
    return plan
