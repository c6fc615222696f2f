"""What a device is: memory, compiled kernels, and batches of calls that can be replayed.

    get_device("cpu")  ->  Device.alloc / upload / download / free
                           Device.compile(sink) -> Program
                           Device.prepare([(program, buffers), ...]) -> Batch;  Batch.run()

A `Storage` is the memory behind a tensor: it knows its device, and gives its buffer back to the device's pool when the
last tensor that needs it goes away.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import ml_dtypes
import numpy as np
import numpy.typing as npt

from anneal import settings
from anneal.errors import DeviceError, OutOfMemoryError
from anneal.schedule import BUILDING, Kernel
from anneal.uop import DType, UOp, arena, dtypes

__all__ = [
    "DEVICE_NAMES",
    "Batch",
    "BufferPool",
    "Device",
    "Limits",
    "MemoryUse",
    "Program",
    "Storage",
    "get_device",
    "numpy_dtype",
    "open_devices",
]

DEVICE_NAMES = ("auto", "cpu", "webgpu")

Array = npt.NDArray[Any]
Call = tuple["Program", Sequence[Any]]

_NUMPY: dict[DType, np.dtype[Any]] = {
    d: np.dtype(getattr(ml_dtypes, d.name, d.name)) for d in vars(dtypes).values() if isinstance(d, DType)
}


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """The NumPy dtype that holds `dtype` on the host; for bfloat16 and the floats of 8 bits, that of ml_dtypes.

    >>> numpy_dtype(dtypes.float16), numpy_dtype(dtypes.bfloat16)
    (dtype('float16'), dtype(bfloat16))
    """
    return _NUMPY[dtype]


class Storage:
    """Flat device memory of `size` elements of `dtype`; equality is identity.

    `buffer` is the device's own object, or None until something is written. `host` is an array waiting to be uploaded.
    What is computed into it stays, unless it is `reused`: then each replay of a jit function may write it anew.
    """

    __slots__ = ("__weakref__", "buffer", "device", "dtype", "host", "line", "origin", "owner", "reused", "size")

    # While a jit captures in a thread, every storage that it makes from host data is noted here: its value would be
    # frozen.
    noted: ClassVar[_Noted]
    # Bytes of device memory that storages have asked for so far.
    allocated: ClassVar[int] = 0

    def __init__(self, size: int, dtype: DType, device: str, host: Array | None = None) -> None:
        self.size, self.dtype, self.device = size, dtype, device
        self.buffer: Any = None
        self.host = host
        self.reused = False
        # The graph these values were computed from, kept only where a gradient has to go on through it.
        self.origin: UOp | None = None
        self.owner: weakref.ref[Any] | None = None  # the tensor that shows this memory
        self.line: tuple[Any, int] | None = None  # the user's code and line that computes it, where not the node's own
        if host is not None and Storage.noted.made is not None:
            Storage.noted.made.append(self)

    def ensure(self) -> Any:
        """The device buffer: allocated on first use, with `host` uploaded if there is one."""
        if self.buffer is None or self.host is not None:
            device = get_device(self.device)
            with device.lock:
                if self.buffer is None:
                    self.buffer = device.alloc(self.size, self.dtype)
                    Storage.allocated += self.size * self.dtype.itemsize
                if self.host is not None:
                    device.upload(self.buffer, self.host)
                    self.host = None
        return self.buffer

    def release(self) -> None:
        """Give the buffer back to the device's pool now."""
        buffer, self.buffer = self.buffer, None
        if buffer is not None:
            device = _OPEN.get(self.device)
            if device is not None:
                device.free(buffer)

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:
        # When the interpreter ends its modules' globals are gone: memory goes with the process.
        if self.buffer is not None and not ending():
            self.release()

    def __repr__(self) -> str:
        return f"Storage({self.size}, {self.dtype.name}, {self.device!r})"

    def __reduce__(self) -> Any:
        raise TypeError("the memory of a tensor cannot be pickled; pickle the tensor, which takes its values along")


class _Noted(threading.local):
    made: list[Storage] | None = None


Storage.noted = _Noted()


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Bytes of a device's memory: `in_use` by tensors and compiled functions, `cached` for later use, and the most that
    was `in_use` since the last `reset_peak`."""

    in_use: int
    cached: int
    peak: int


@dataclass(frozen=True, slots=True)
class Limits:
    """What one kernel may use: storage buffers, bytes of one binding, and the dtypes that can be computed with."""

    max_buffers: int
    max_binding_bytes: int
    dtypes: frozenset[DType]


class Program(ABC):
    """One compiled kernel. `name` is stable from run to run; `source` is what was generated, as text."""

    name: str
    source: str

    @property
    def opts(self) -> str:
        """How its ranges were split, for a listing; empty on a device that chooses nothing."""
        return ""


class Batch(ABC):
    """Kernel calls bound to their buffers, in order; `run` may be called any number of times.

    `lag`: how many runs after the coming one are prepared already, so that an exchange does not reach them.
    """

    lag: ClassVar[int] = 0

    @abstractmethod
    def run(self) -> None:
        """Execute every call in order. Results are visible to `Device.download` and to later batches."""

    def give(self, values: Mapping[str, int]) -> bool:
        """From the next run on variables have these values; whether that asks for a `restart`."""
        raise DeviceError(f"{type(self).__name__} has no variables")

    def exchanges(self, buffer: Any) -> bool:
        """Whether `run_and_exchange` may replace `buffer`."""
        return False

    def run_and_exchange(self, pairs: Callable[[], Sequence[tuple[Any, Any]]]) -> None:
        """`run`; after `lag` runs more the second buffer of each pair stands for the first.

        `pairs` is called once the work is under way: the device does not wait for what is made there.
        """
        self.run()

    def restart(self) -> None:
        """Prepare the coming runs anew: they use the buffers that the last exchange left."""
        return

    def seconds(self) -> float:
        """Execute every call in order and wait; the seconds that the device took, by the finest clock there is."""
        start = time.perf_counter()
        self.run()
        return time.perf_counter() - start

    def profile(self) -> list[tuple[str, float]]:
        """Execute every call once, waiting for each; (kernel name, seconds) in order."""
        raise DeviceError(f"{type(self).__name__} cannot time single kernels")


class Device(ABC):
    """Allocator, compiler and launcher of one piece of hardware.

    Any thread may use a device that holds its `lock`; what several calls do together (bind, then run) is done under one
    lock. `free` alone may be called at any time: finalisers call it.
    """

    name: str
    limits: Limits
    survives_fork: ClassVar[bool] = False

    def __init__(self, pool_bytes: int) -> None:
        self.lock = threading.RLock()
        self.pool = BufferPool(pool_bytes, self._drop)
        self._returned: deque[Any] = deque()  # freed, and not yet in the pool
        self._reclaiming = False
        self._in_use = self._peak = 0

    # -- memory

    def alloc(self, size: int, dtype: DType) -> Any:
        """Memory for `size` elements, contents undefined. Freed memory of the same kind is used first: commands run in
        order, so it may be written anew while the GPU still has to run what used it before.

        Raises OutOfMemoryError, with what holds most, where there is none left even after everything unused was
        dropped.
        """
        with self.lock:
            kind, nbytes = self._kind(size, dtype)
            self._reclaim()
            self._reclaiming = True  # a finaliser that comes while the pool is changed has to wait
            try:
                buffer = self.pool.take(kind)
            finally:
                self._reclaiming = False
            if buffer is None:
                try:
                    buffer = self._create(size, dtype)
                except MemoryError:
                    buffer = self._create_after_all(size, dtype, nbytes)
            self._in_use += nbytes
            self._peak = max(self._peak, self._in_use)
            return buffer

    def check_size(self, size: int, dtype: DType) -> None:
        """Raise DeviceError where memory for so many elements is more than the device can ever have in one piece."""
        self._kind(size, dtype)

    def _create_after_all(self, size: int, dtype: DType, nbytes: int) -> Any:
        """Drop all that nobody uses, wait until the device has let go of it, and try again."""
        arena().sweep()
        gc.collect()
        self.empty_cache()
        self.synchronize()
        try:
            return self._create(size, dtype)
        except MemoryError:
            from anneal.backend.memory import memory_report

            shape = f"{size} {dtype.name}"
            report = memory_report(self.name).text(most=8)
            raise OutOfMemoryError(
                f"device {self.name!r} has no room for {nbytes:,} bytes ({shape}): delete tensors, take smaller "
                f"batches, or compute under no_grad() what needs no gradient\n{report}"
            ) from None

    def free(self, buffer: Any) -> None:
        """Hand a buffer back. The caller must not use it again; a batch that was prepared with it may still run."""
        self._returned.append(buffer)
        if self.lock.acquire(blocking=False):  # else whoever has it looks before it allocates
            try:
                self._reclaim()
            finally:
                self.lock.release()

    def _reclaim(self) -> None:
        """Put what was freed into the pool."""
        if self._reclaiming or not self._returned:
            return
        self._reclaiming = True
        try:
            while self._returned:
                buffer = self._returned.popleft()
                if (found := self._kind_of(buffer)) is not None:
                    kind, nbytes = found
                    self._in_use -= nbytes
                    self.pool.give(kind, nbytes, buffer, self._in_use // 4)
        finally:
            self._reclaiming = False

    def memory(self) -> MemoryUse:
        """The bytes in use, those kept for later use, and the most that were in use."""
        with self.lock:
            self._reclaim()
            return MemoryUse(self._in_use, self.pool.held, self._peak)

    def held(self) -> int:
        """Bytes of the device's memory that are taken, what is kept for later use included."""
        use = self.memory()
        return use.in_use + use.cached

    def reset_peak(self) -> None:
        """Measure the peak from here on."""
        with self.lock:
            self._reclaim()
            self._peak = self._in_use

    def empty_cache(self) -> None:
        """Give back the memory that nobody uses, and scratch memory that can be made again."""
        with self.lock:
            self._reclaim()
            self._reclaiming = True
            try:
                self.pool.clear()
            finally:
                self._reclaiming = False

    @abstractmethod
    def _kind(self, size: int, dtype: DType) -> tuple[Any, int]:
        """The pool's key for memory of so many elements, and its bytes.
        Raises DeviceError where the device can have no such."""

    @abstractmethod
    def _kind_of(self, buffer: Any) -> tuple[Any, int] | None:
        """The same of a buffer; None if it is not this device's."""

    @abstractmethod
    def _create(self, size: int, dtype: DType) -> Any:
        """New memory. Raises MemoryError where there is none."""

    @abstractmethod
    def _drop(self, buffer: Any) -> None:
        """A buffer left the pool: nothing may keep it alive."""

    @abstractmethod
    def upload(self, buffer: Any, data: Array) -> None:
        """Copy `data` (any shape, the buffer's dtype and size) into the buffer."""

    @abstractmethod
    def download(self, buffer: Any, size: int, dtype: DType) -> Array:
        """A fresh flat host array with the buffer's contents, after all work submitted so far."""

    def download_all(self, pieces: Sequence[tuple[Any, int, DType]]) -> list[Array]:
        """`download` of several buffers, each with its size and dtype; waits once."""
        return [self.download(*p) for p in pieces]

    @abstractmethod
    def copy(self, source: Any, destination: Any, size: int, dtype: DType) -> None:
        """Copy `size` elements from buffer to buffer, in order with batches, uploads and downloads."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for all work submitted so far."""

    @abstractmethod
    def compile(self, sink: UOp) -> Program:
        """Compile the kernel graph `sink`. Compiling the same sink again returns the same program."""

    def compile_all(self, kernels: Sequence[Kernel]) -> list[Program]:
        """Compile the kernels of a plan; what a device keeps on disk it keeps for all of them together."""
        return [self.compile(k.sink) for k in kernels]

    @abstractmethod
    def prepare(self, calls: Sequence[Call], values: Mapping[str, int] | None = None) -> Batch:
        """Bind calls, each a program and its buffers in the order of the PARAM slots, for execution in order.

        `values` are those of the variables that the programs have.
        """

    def describe(self) -> dict[str, Any]:
        """Facts for `anneal doctor`: at least name, backend, limits and dtypes."""
        return {
            "name": self.name,
            "max_buffers": self.limits.max_buffers,
            "max_binding_bytes": self.limits.max_binding_bytes,
            "dtypes": sorted(d.name for d in self.limits.dtypes),
        }


_ENTRY_BYTES = 256


class BufferPool:
    """Freed buffers kept for reuse, by kind (a hashable key such as a size class), within a budget of bytes.

    Over budget the kinds that were longest unused go first; `drop` is told of each buffer that leaves. The buffer that was
    freed last stays, however large: a loop over large results frees one for each that it makes.
    """

    __slots__ = ("_drop", "_free", "budget", "held")

    def __init__(self, budget: int, drop: Callable[[Any], None]) -> None:
        self.budget = budget
        self.held = 0
        self._drop = drop
        self._free: dict[Any, tuple[int, list[Any]]] = {}

    def take(self, kind: Any) -> Any | None:
        """A pooled buffer of `kind`, the one freed last, or None."""
        entry = self._free.get(kind)
        if entry is None:
            return None
        nbytes, buffers = entry
        buffer = buffers.pop()
        self.held -= nbytes
        if not buffers:
            del self._free[kind]
        return buffer

    def give(self, kind: Any, nbytes: int, buffer: Any, budget: int = 0) -> None:
        """Keep `buffer`; may push others out. `budget` counts where it is larger than the pool's own."""
        # Every entry also costs the host an object, so tiny buffers are not free to keep.
        nbytes += _ENTRY_BYTES
        entry = self._free.pop(kind, None) or (nbytes, [])
        entry[1].append(buffer)
        self._free[kind] = entry  # reinserted last: most recently used
        self.held += nbytes
        budget = max(budget, self.budget)
        while self.held > budget and self.held > nbytes:
            oldest = next(iter(self._free))
            size, buffers = self._free[oldest]
            victim = buffers.pop(0)
            self.held -= size
            if not buffers:
                del self._free[oldest]
            self._drop(victim)

    def clear(self) -> None:
        """Drop everything."""
        while self._free:
            _, (_, buffers) = self._free.popitem()
            for buffer in buffers:
                self._drop(buffer)
        self.held = 0


# Devices are opened once per process, on first use, by one thread at a time.
_OPEN: dict[str, Device] = {}
_AUTO: list[str] = []
_OPENING = threading.RLock()


def open_devices() -> list[Device]:
    """The devices that this process has opened so far."""
    return list(_OPEN.values())


def get_device(name: str = "auto") -> Device:
    """The device called `name`: "cpu", "webgpu", or "auto" (webgpu if there is a hardware adapter, else cpu).

    Raises DeviceError, with what to do, for an unknown name or when WebGPU has no suitable adapter. Software adapters
    are refused unless ANNEAL_ADAPTER names one or ANNEAL_REQUIRE_WEBGPU is set.

    >>> get_device("cpu").name
    'cpu'
    """
    device = _OPEN.get(name)
    if device is not None:
        return device
    with _OPENING:
        device = _OPEN.get(name)
        if device is not None:
            return device
        if name == "auto":
            return get_device(_auto_name())
        if name in _LEFT_BEHIND:
            raise DeviceError(
                f"device {name!r} was opened before this process was forked from another, and does not work here; open it "
                'in the new process alone, or start that with multiprocessing.get_context("spawn")'
            )
        if name == "cpu":
            from anneal.backend.cpu import CpuDevice

            device = CpuDevice()
        elif name == "webgpu":
            device = _open_webgpu()
        else:
            raise DeviceError(f"unknown device {name!r}; choose one of {', '.join(DEVICE_NAMES)}")
        _OPEN[name] = device
        return device


# Devices of the process that this one was forked from: kept, since what a driver holds cannot be let go of here.
_LEFT_BEHIND: dict[str, Device] = {}


def _locks() -> list[Any]:
    """All locks, in the order in which a thread takes several."""
    return [_OPENING, BUILDING, *[d.lock for d in _OPEN.values()]]


def _before_fork() -> None:
    # the new process has this thread alone: what others are at must be finished
    for lock in _locks():
        lock.acquire()


def _after_fork() -> None:
    for lock in _locks():
        lock.release()


def _in_fork() -> None:
    _after_fork()
    for name, device in list(_OPEN.items()):
        if not device.survives_fork:
            _LEFT_BEHIND[name] = _OPEN.pop(name)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_fork)


def _open_webgpu() -> Device:
    chosen = settings.current()
    try:
        from anneal.backend.webgpu import open_device
    except ImportError as e:
        raise DeviceError(
            f"device 'webgpu' needs the wgpu package ({e}); pip install wgpu, or choose device 'cpu'"
        ) from e
    opened: Device = open_device(chosen.adapter or None, bool(chosen.adapter) or chosen.require_webgpu)
    return opened


def _auto_name() -> str:
    if not _AUTO:
        wanted = settings.current()
        if wanted.device in ("cpu", "webgpu"):
            get_device(wanted.device)
            return wanted.device
        try:
            get_device("webgpu")
            _AUTO.append("webgpu")
        except DeviceError as e:
            if wanted.require_webgpu:
                raise
            reason = str(e).splitlines()[0].split(";")[0]
            print(f"anneal: no WebGPU hardware ({reason}); using the cpu device", file=sys.stderr)
            get_device("cpu")
            _AUTO.append("cpu")
    return _AUTO[0]
