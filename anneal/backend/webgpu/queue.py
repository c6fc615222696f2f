"""Buffers of the GPU's memory, kernels compiled for it, and the queue, all through wgpu's public API: commands are
recorded and submitted, memory is moved, results are waited for.

Copies between buffers gather until the next submission and run before it, so that a training step with its arguments
is one submission. `native.NativeQueue` does the same with fewer detours.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from subprocess import SubprocessError
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import wgpu

from anneal.backend.arrays import Array
from anneal.backend.device import BufferPool, Program
from anneal.backend.promises import Crew, Finisher, Promise
from anneal.codegen import GeneratedKernel, opts_text
from anneal.errors import CompilerError, DeviceError, OutOfMemoryError
from anneal.uop import references


class DeviceBuffer:
    """Device memory. `nbytes` is what was asked for, rounded up to whole words."""

    __slots__ = ("gpu", "nbytes")

    def __init__(self, gpu: Any, nbytes: int) -> None:
        self.gpu, self.nbytes = gpu, nbytes


Buffers = Sequence[DeviceBuffer] | Mapping[int, DeviceBuffer]


class WebGpuProgram(Program):
    """One kernel: its WGSL, and a pipeline that is being `built` until it is first needed."""

    def __init__(self, name: str, kernel: GeneratedKernel) -> None:
        self.name, self.kernel, self.source = name, kernel, kernel.source
        self.built: Future[tuple[Any, Any]] | None = None
        self.pipeline: Any = None
        self.layout: Any = None

    @property
    def opts(self) -> str:
        return opts_text(self.kernel.opts)


# ---------------------------------------------------------------------------------------------------------------------
# wgpu's errors as ours.


def gpu_errors() -> tuple[type[Exception], ...]:
    """The classes of errors of the packages in use."""
    return tuple([m.GPUError for name in ("wgpu", "wgpudawn") if (m := sys.modules.get(name)) is not None])


class translated:
    """Errors of wgpu as ours; `what` says what was being done."""

    __slots__ = ("_what",)

    def __init__(self, what: Callable[[], str]) -> None:
        self._what = what

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, e: BaseException | None, traceback: object) -> None:
        if e is None or not isinstance(e, gpu_errors()):
            return
        what, text = self._what(), str(e)
        full = type(e).__name__ == "GPUOutOfMemoryError"
        if not full and "lost" in text.lower():
            raise DeviceError(
                f"the GPU was lost {what}: its driver reset it, or it was removed; restart the program"
            ) from e
        if full or "out of memory" in text.lower() or "not enough memory" in text.lower():
            raise OutOfMemoryError(f"out of GPU memory {what}; use a smaller batch or model, or device 'cpu'") from e
        raise CompilerError(f"WebGPU rejected a call {what}: {text}", stage="webgpu") from e


Bytes = npt.NDArray[np.uint8]
# (pipeline, bind group, x, y, z)
Dispatch = tuple[Any, Any, int, int, int]

_STAGING = wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST
_GIVING = wgpu.BufferUsage.MAP_WRITE | wgpu.BufferUsage.COPY_SRC
_WORD = wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
# Staging memory that is kept: its pages are mapped already, which makes the next read several times faster.
_SPARE_BYTES = 768 << 20
_AT_ONCE = 64 << 20  # what is read through one piece of it, unless somebody asks for more
# How far the host may run ahead of the GPU: what waits is kept in memory, commands and uploads alike.
_SUBMISSIONS_AHEAD = 128
_BYTES_AHEAD = 512 << 20
# Bytes of an upload's pieces: each is first copied whole into memory that the GPU reads.
_PIECE = 16 << 20


T = TypeVar("T")
_THREADS = 8  # the most threads that copy data read back
_SHARE = 1 << 20  # the least bytes for one of these threads
_UNUSED = 2  # references of an array that only a list has: that, and the argument of `references`
_KEPT_BYTES = 512 << 20  # of arrays that were read: one that nobody has any more is written again, its pages are there


class Transfer(NamedTuple):
    """Memory that the host reads or writes, of `room` bytes, and where in it each of several buffers' bytes are."""

    memory: Any
    room: int
    starts: list[int]
    sizes: list[int]
    after: Any = None  # the submission that copies the data
    number: int = 0  # of the submission, from 1 on
    told: Callable[[float], None] | None = None  # is called with the seconds that the host waited for the data

    def parts(self, view: Bytes) -> list[Bytes]:
        """The bytes of each buffer in those of the memory."""
        return [view[s : s + n] for s, n in zip(self.starts, self.sizes)]


def copied(to: Bytes, crew: Crew, views: Sequence[Bytes]) -> None:
    """Copy the bytes that were read, several threads at once."""
    (source,) = views
    share = max(_SHARE, -(-to.size // _THREADS))
    parts = [slice(n, n + share) for n in range(0, to.size, share)]
    crew.each(lambda part: np.copyto(to[part], source[part]), parts)


def rounded(nbytes: int) -> int:
    """The size of the staging memory for so many bytes: few sizes, so that it is used again, an eighth more at most."""
    step = max(256, 1 << max(0, (nbytes - 1).bit_length() - 3))
    return -(-nbytes // step) * step


def _starts(sizes: Sequence[int]) -> list[int]:
    """The places of several buffers in staging memory, each one's begin, and the end of the last."""
    return [0, *itertools.accumulate([-(-n // 8) * 8 for n in sizes])]


class Handles(list[Dispatch]):
    """Dispatches as a queue takes them, and the call that records them in C, which is set to None when a dispatch
    changes.
    """

    packed: partial[Any] | None = None


class Queue:
    """The queue of a wgpu device. Buffers, pipelines and bind groups are wgpu's own objects."""

    # raises what went wrong in a block's C calls as the package does, with one check for all of them
    _guard: AbstractContextManager[None] = nullcontext()

    def __init__(self, gpu: Any) -> None:
        self.gpu = gpu
        self._spare: BufferPool[Any] = BufferPool(_SPARE_BYTES, lambda buffer: None)
        self._given: dict[int, deque[Transfer]] = {}  # by the size of their staging memory
        self._kept: list[Bytes] = []  # arrays that were read
        self._crew = Crew(min(_THREADS, max(2, (os.cpu_count() or 1) // 2)), "anneal-reads")
        self._submissions = self._ended = 0  # submissions so far, and those that are known to have ended
        self.latest: Any = None  # the batch that was submitted last, while nothing else was asked for since
        self._copies: Any = None  # the encoder of the copies that wait, and the buffers they touch
        self._touched: set[int] = set()
        self._written = False  # does data wait for a submission?
        self._ahead = self._bytes_ahead = 0  # submissions and bytes uploaded since the host last waited
        self._word: Any = None
        self._waiter = Finisher("anneal-waiter")
        self._awaited: Promise[None] | None = None  # an unfinished `wait_for`

    # -- commands

    def handles(self, dispatches: Iterable[Dispatch]) -> Handles:
        """`dispatches` in the form that `record` takes; the objects in them must outlive the result."""
        return Handles(dispatches)

    def record(self, compute_pass: Any, dispatches: Sequence[Dispatch]) -> None:
        """Record `dispatches`, as `handles` made them, into a compute pass."""
        last = None
        for pipeline, group, x, y, z in dispatches:
            if pipeline is not last:
                compute_pass.set_pipeline(pipeline)
                last = pipeline
            compute_pass.set_bind_group(0, group)
            compute_pass.dispatch_workgroups(x, y, z)

    def encode(self, dispatches: Handles) -> Any:
        """A pass over `dispatches`, as an encoder to be finished once."""
        encoder = self._encoder()
        compute_pass = encoder.begin_compute_pass()
        self.record(compute_pass, dispatches)
        compute_pass.end()
        return encoder

    def finish(self, encoder: Any) -> Any:
        """The command buffer of an encoder, to be submitted once. Any thread may do this: it is half of the work."""
        with self._guard:
            return self._finish(encoder)

    def submit(self, *commands: Any) -> None:
        """Submit the copies that wait and then `commands`."""
        waiting, self._copies, self.latest = self._copies, None, None
        self._touched.clear()
        self._written = False
        # blocks of their own: wgpu-native ends the process if it is given commands that were not finished
        ready = [] if waiting is None else [self.finish(waiting)]
        with self._guard:
            self._submit([*ready, *commands])
        self._submissions += 1
        self._ahead += 1
        if self._ahead >= _SUBMISSIONS_AHEAD:
            self._ahead = 0
            self._keep_pace()

    # -- memory

    def copy(self, source: Any, destination: Any, nbytes: int) -> None:
        """Copy the first `nbytes` from buffer to buffer, before whatever is submitted next."""
        self.latest = None
        self._touched |= {id(source), id(destination)}
        with self._guard:
            self._copy(self._gathered(), source, 0, destination, 0, nbytes)

    def write(self, buffer: Any, data: Array) -> None:
        """Copy contiguous host data in, before whatever is submitted next. `data` may change afterwards."""
        if id(buffer) in self._touched:
            self.submit()  # data goes in before the copies that wait, whatever was asked for first
        self._written, self.latest = True, None
        if data.nbytes > _PIECE:
            data = data.reshape(-1).view(np.uint8)
            pieces = [(start, data[start : start + _PIECE]) for start in range(0, data.size, _PIECE)]
        else:
            pieces = [(0, data)]
        for start, piece in pieces:
            with self._guard:
                self._write(buffer, start, piece)
            self._bytes_ahead += piece.nbytes
            if self._bytes_ahead > _BYTES_AHEAD:
                self._bytes_ahead = 0
                self.wait()

    def read(self, pieces: Sequence[tuple[Any, int]]) -> list[Bytes]:
        """The first bytes of each of several buffers as fresh arrays, after all work submitted so far."""
        sizes = [n for _, n in pieces]
        if sum(sizes) > _AT_ONCE or max(sizes, default=0) > _PIECE:
            return [self._read_long(*p) if p[1] > _PIECE else self.read([p])[0] for p in pieces]
        return self.end_read(self.start_read(pieces), lambda views: [v.copy() for v in views])

    def start_read(self, pieces: Sequence[tuple[Any, int]], begin: int = 0) -> Transfer:
        """Submit copies of the first bytes of several buffers into staging memory; `end_read` waits for them. A batch
        that was just submitted may have made them.

        Args:
            begin: the byte of each buffer from which on it is read.
        """
        if self.latest is not None and begin == 0 and (made := self.latest.copied(pieces)):
            return made  # type: ignore[no-any-return]
        made = self.staged(pieces, begin)
        self.submit()
        return self.submitted(made)

    def staged(self, pieces: Sequence[tuple[Any, int]], begin: int = 0, encoder: Any = None) -> Transfer:
        """Copy the bytes into staging memory, by `encoder` or before whatever is submitted next."""
        sizes = [nbytes for _, nbytes in pieces]
        starts = _starts(sizes)
        room = rounded(starts[-1])
        staging = self._spare.take(room) or self.gpu.create_buffer(size=room, usage=_STAGING)
        with self._guard:
            for start, (buffer, nbytes) in zip(starts, pieces):
                self._copy(encoder or self._gathered(), buffer, begin, staging, start, nbytes)
        return Transfer(staging, room, starts, sizes)

    def submitted(self, made: Transfer) -> Transfer:
        """`made`, whose copies are in the last submission."""
        return made._replace(after=self._submitted(), number=self._submissions)

    def let_go(self, made: Transfer) -> None:
        """Have the staging memory used again."""
        self._spare.give(made.room, made.room, made.memory)

    def end_read(self, reading: Transfer, use: Callable[[list[Bytes]], T]) -> T:
        """Give what `use` makes of the bytes that were read: it looks at them until it returns. Work that was submitted
        after the read is not waited for, where the library can tell."""
        begun = time.perf_counter()
        made = self._map(reading, use)
        if reading.told:
            reading.told(time.perf_counter() - begun)
        self._ended = max(self._ended, reading.number)
        self.let_go(reading)
        return made

    def _read_long(self, buffer: Any, nbytes: int) -> Bytes:
        """`read` of one buffer piece by piece: the next is copied off the device while threads copy one out."""
        out = self._room(nbytes)
        begins = range(0, nbytes, _PIECE)
        readings: deque[Transfer] = deque()
        for n in range(len(begins) + 1):
            if n < len(begins):
                readings.append(self.start_read([(buffer, min(_PIECE, nbytes - begins[n]))], begins[n]))
            if n:
                to = out[begins[n - 1] : begins[n - 1] + _PIECE]
                self.end_read(readings.popleft(), partial(copied, to, self._crew))
        return out

    def _room(self, nbytes: int) -> Bytes:
        """An array to read into: one that was read before and that nobody has any more, or a new one."""
        for n in range(len(self._kept)):
            if self._kept[n].size == nbytes and references(self._kept[n]) == _UNUSED:
                self._kept.append(self._kept.pop(n))
                return self._kept[-1]
        made = np.empty(nbytes, np.uint8)
        self._kept.append(made)
        while sum([a.size for a in self._kept]) > _KEPT_BYTES:
            del self._kept[0]
        return made

    def flush(self) -> None:
        """Submit what waits for a submission, if anything does."""
        if self._copies is not None or self._written:
            self.submit()

    def wait(self) -> None:
        """Wait until everything asked for so far has been done."""
        # Transfer a word back: wgpu-py's own wait is broken in some versions.
        if self._word is None:
            self._word = self.gpu.create_buffer(size=4, usage=_WORD)
        self.read([(self._word, 4)])

    def wait_for(self, seconds: float) -> bool:
        """Wait, but no longer than that; True once everything has been done that was asked for by the first of such
        waits. Another thread waits, since a library's own waits have no end."""
        if self._awaited is None:
            self._awaited = self._waiter.submit(self.wait)
        if not self._awaited.wait(seconds):
            return False
        awaited, self._awaited = self._awaited, None
        awaited.result()
        return True

    def empty_cache(self) -> None:
        """Give back the staging memory that is kept."""
        self.latest = None
        self._spare.clear()
        self._given.clear()
        self._kept.clear()

    # -- what the native queue does its own way

    def _keep_pace(self) -> None:
        """Wait for work of some time ago."""
        self.wait()

    def _finish(self, encoder: Any) -> Any:
        return encoder.finish()

    def _submit(self, commands: list[Any]) -> None:
        self.gpu.queue.submit(commands)

    def _encoder(self) -> Any:
        return self.gpu.create_command_encoder()

    def _gathered(self) -> Any:
        """The encoder of the copies that go before whatever is submitted next."""
        if self._copies is None:
            self._copies = self._encoder()
        return self._copies

    def _copy(self, encoder: Any, source: Any, begin: int, destination: Any, offset: int, nbytes: int) -> None:
        encoder.copy_buffer_to_buffer(source, begin, destination, offset, nbytes)

    def _write(self, buffer: Any, offset: int, data: Array) -> None:
        self.gpu.queue.write_buffer(buffer, offset, data)

    def _submitted(self) -> Any:
        """The mark of the last submission, if the library has marks."""
        return None

    def _map(self, reading: Transfer, use: Callable[[list[Bytes]], T]) -> T:
        staging, size = reading.memory, reading.starts[-1]
        staging.map_sync(wgpu.MapMode.READ, 0, size)
        try:
            view = np.frombuffer(staging.read_mapped(0, size, copy=False), np.uint8)
            return use(reading.parts(view))
        finally:
            del view
            staging.unmap()


# ---------------------------------------------------------------------------------------------------------------------
# The queue by direct calls of the C library below a package: recording a dispatch takes a quarter of the time.
#
# wgpu-native and Dawn have the same calls (webgpu.h), but for waiting and errors, which subclasses add.


class DirectQueue(Queue):
    """A queue whose command buffers are C handles that release themselves."""

    _recorder: Callable[[Iterable[Dispatch]], partial[Any]] | None = None  # once it is compiled (`recorder.py`)

    def __init__(self, gpu: Any, ffi: Any, lib: Any) -> None:
        super().__init__(gpu)
        self._ffi, self._lib = ffi, lib
        self._device, self._queue = gpu._internal, gpu.queue._internal

    def record_in_c(self) -> None:
        """Record in C from now on, where there is a compiler. Any thread may ask for it."""
        from anneal.backend.webgpu.recorder import recorder

        with suppress(OSError, SubprocessError):
            self._recorder = recorder(self._ffi, self._lib, self._device)

    def handles(self, dispatches: Iterable[Dispatch]) -> Handles:
        return Handles([(p._internal, g._internal, x, y, z) for p, g, x, y, z in dispatches])

    def record(self, compute_pass: Any, dispatches: Sequence[Dispatch]) -> None:
        self._record(compute_pass._internal, dispatches)

    def _record(self, handle: Any, dispatches: Sequence[Dispatch]) -> None:
        lib, null = self._lib, self._ffi.NULL
        set_pipeline, set_group = lib.wgpuComputePassEncoderSetPipeline, lib.wgpuComputePassEncoderSetBindGroup
        dispatch = lib.wgpuComputePassEncoderDispatchWorkgroups
        last = None
        for pipeline, group, x, y, z in dispatches:
            if pipeline is not last:
                set_pipeline(handle, pipeline)
                last = pipeline
            set_group(handle, 0, group, 0, null)
            dispatch(handle, x, y, z)

    def encode(self, dispatches: Handles) -> Any:
        lib, null = self._lib, self._ffi.NULL
        with self._guard:
            if self._recorder:
                if dispatches.packed is None:
                    dispatches.packed = self._recorder(dispatches)
                return self._ffi.cast("WGPUCommandEncoder", dispatches.packed())
            encoder = self._encoder()
            handle = lib.wgpuCommandEncoderBeginComputePass(encoder, null)
            self._record(handle, dispatches)
            lib.wgpuComputePassEncoderEnd(handle)
            lib.wgpuComputePassEncoderRelease(handle)
            return encoder

    def _finish(self, encoder: Any) -> Any:
        lib = self._lib
        commands = lib.wgpuCommandEncoderFinish(encoder, self._ffi.NULL)
        lib.wgpuCommandEncoderRelease(encoder)
        return self._ffi.gc(commands, lib.wgpuCommandBufferRelease)

    def _encoder(self) -> Any:
        return self._lib.wgpuDeviceCreateCommandEncoder(self._device, self._ffi.NULL)

    def _copy(self, encoder: Any, source: Any, begin: int, destination: Any, offset: int, nbytes: int) -> None:
        self._lib.wgpuCommandEncoderCopyBufferToBuffer(
            encoder, source._internal, begin, destination._internal, offset, nbytes
        )

    def _write(self, buffer: Any, offset: int, data: Array) -> None:
        given = self._ffi.from_buffer(data)
        self._lib.wgpuQueueWriteBuffer(self._queue, buffer._internal, offset, given, data.nbytes)

    def start_giving(self, sizes: list[int]) -> tuple[Transfer, list[Bytes]]:
        """Memory of the host, of so many bytes for each of several buffers, and views of it to be written, for
        `end_giving`."""
        starts = _starts(sizes)
        room = rounded(starts[-1])
        given = self._given.get(room)
        if given and given[0].number <= self._ended:
            memory, _, _, _, after, *_ = given.popleft()
            self._hold(memory._internal, wgpu.MapMode.WRITE, room, after)
        else:
            memory = self.gpu.create_buffer(size=room, usage=_GIVING, mapped_at_creation=True)
        made = Transfer(memory, room, starts, sizes)
        return made, made.parts(self._bytes(self._lib.wgpuBufferGetMappedRange, memory._internal, room))

    def end_giving(self, given: Transfer, buffers: Sequence[Any]) -> None:
        """Copy what was written into the buffers, before whatever is submitted next."""
        self._lib.wgpuBufferUnmap(given.memory._internal)
        with self._guard:
            for start, size, buffer in zip(given.starts, given.sizes, buffers):
                self._copy(self._gathered(), given.memory, start, buffer, 0, -(-size // 4) * 4)
        self.submit()
        if sum([size * len(kept) for size, kept in self._given.items()]) + given.room <= _SPARE_BYTES:
            self._given.setdefault(given.room, deque()).append(self.submitted(given))

    def _bytes(self, mapped: Callable[..., Any], handle: Any, size: int) -> Bytes:
        """The first bytes of a buffer that is mapped."""
        return np.frombuffer(self._ffi.buffer(mapped(handle, 0, size), size), np.uint8)

    def _hold(self, handle: Any, mode: int, size: int, after: Any) -> None:
        """Map the first bytes of a buffer, once the submission `after` has ended. Raises GPUError where that fails."""
        raise NotImplementedError

    def _map(self, reading: Transfer, use: Callable[[list[Bytes]], T]) -> T:
        handle, size = reading.memory._internal, reading.starts[-1]
        self._hold(handle, wgpu.MapMode.READ, size, reading.after)
        try:
            view = self._bytes(self._lib.wgpuBufferGetConstMappedRange, handle, size)
            return use(reading.parts(view))
        finally:
            del view
            self._lib.wgpuBufferUnmap(handle)
