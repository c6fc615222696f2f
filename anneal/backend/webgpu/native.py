"""The private names of wgpu-py that we use, all of them, each with a way to do without.

wgpu-py calls a C library through cffi. Calling that library directly records a dispatch four times as fast, waits
without a detour, and makes shader modules without bounds checks (matrix products run up to twice as fast), for which
there is no public method. If any name is missing or does not fit, the public API does the same work; so it does for
shader modules with ANNEAL_TRUSTED=0.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import wgpu

from anneal import cache
from anneal.backend.webgpu.queue import Bytes, Dispatch, Queue

__all__ = ["AVAILABLE", "NativeQueue", "enumerate_adapters", "open_queue", "shader_module", "timestamp_period"]


def _sooner() -> contextlib.AbstractContextManager[None]:
    """While the library's header is read: see `declarations`."""
    with contextlib.suppress(Exception):  # another cffi
        from anneal.backend.webgpu.declarations import sooner

        return sooner()
    return contextlib.nullcontext()


_TRUST_S = 0.01  # for so long a device that was there is taken to be there

AVAILABLE = False
with contextlib.suppress(Exception):  # any failure at all means: not available
    with _sooner():
        from wgpu.backends.wgpu_native import _api
        from wgpu.backends.wgpu_native._ffi import ffi, lib
        from wgpu.backends.wgpu_native._helpers import ERROR_TYPES
    with contextlib.suppress(Exception):
        from anneal.backend.webgpu.declarations import look_up

        ffi._parser.parse_type = functools.partial(look_up, ffi._parser)

    _ERRORS = _api.error_handler
    _CAPTURE, _RELEASE = _ERRORS.capture, _ERRORS.release
    _TRUSTED = _api.libf.wgpuDeviceCreateShaderModuleTrusted
    _SET_PIPELINE = lib.wgpuComputePassEncoderSetPipeline
    _SET_GROUP = lib.wgpuComputePassEncoderSetBindGroup
    _DISPATCH = lib.wgpuComputePassEncoderDispatchWorkgroups
    _BEGIN, _END = lib.wgpuCommandEncoderBeginComputePass, lib.wgpuComputePassEncoderEnd
    _DROP_PASS = lib.wgpuComputePassEncoderRelease
    _ENCODER, _DROP_ENCODER = lib.wgpuDeviceCreateCommandEncoder, lib.wgpuCommandEncoderRelease
    _FINISH, _DROP_COMMANDS = lib.wgpuCommandEncoderFinish, lib.wgpuCommandBufferRelease
    _COPY, _WRITE = lib.wgpuCommandEncoderCopyBufferToBuffer, lib.wgpuQueueWriteBuffer
    _SUBMIT = lib.wgpuQueueSubmitForIndex
    _MAP, _RANGE, _UNMAP = lib.wgpuBufferMapAsync, lib.wgpuBufferGetConstMappedRange, lib.wgpuBufferUnmap
    _BUFFER, _DROP_BUFFER = lib.wgpuDeviceCreateBuffer, lib.wgpuBufferRelease
    _POLL = lib.wgpuDevicePoll
    _MAPPED = lib.WGPUMapAsyncStatus_Success

    def _note_status(status: Any, message: Any, where: Any, unused: Any) -> None:
        ffi.cast("int *", where)[0] = int(status)

    _ON_MAP = ffi.callback("WGPUBufferMapCallback", _note_status)
    AVAILABLE = True


def enumerate_adapters() -> list[Any]:
    """The adapters of Vulkan, Metal and DX12. OpenGL is left out: probing it is slow, and it lacks what we need."""
    with contextlib.suppress(Exception):
        from wgpu.backends.wgpu_native import extras

        extras.set_instance_extras(backends=["Primary"])
    if cache.enabled():
        # NVIDIA's driver keeps the pipelines it made on disk, for root only if it is told to
        os.environ.setdefault("__GL_SHADER_DISK_CACHE", "1")
    with _runtime_dir():
        return list(wgpu.gpu.enumerate_adapters_sync())


@contextlib.contextmanager
def _runtime_dir() -> Iterator[None]:
    # Mesa looks for a display even to list adapters, and complains on stderr where a session has no runtime folder.
    if not sys.platform.startswith("linux") or "XDG_RUNTIME_DIR" in os.environ:
        yield
        return
    os.environ["XDG_RUNTIME_DIR"] = tempfile.gettempdir()
    try:
        yield
    finally:
        del os.environ["XDG_RUNTIME_DIR"]


def shader_module(device: Any, code: str, label: str, trusted: bool) -> Any:
    """A shader module; `trusted` leaves out the bounds checks if the library can."""
    if not (trusted and AVAILABLE):
        return device.create_shader_module(label=label, code=code)
    text = code.encode()
    data = ffi.new("char[]", text)
    source = ffi.new("WGPUShaderSourceWGSL *")
    source.chain.next = ffi.NULL
    source.chain.sType = lib.WGPUSType_ShaderSourceWGSL
    source.code.data = data
    source.code.length = len(text)
    name = ffi.new("char[]", label.encode())
    descriptor = ffi.new("WGPUShaderModuleDescriptor *")
    descriptor.nextInChain = ffi.cast("WGPUChainedStruct *", source)
    descriptor.label.data = name
    descriptor.label.length = len(label)
    handle = _TRUSTED(device._internal, descriptor, 0)
    return _api.GPUShaderModule(label, handle, device)


def open_queue(device: Any) -> Queue:
    """The queue of a wgpu device, the native one where it is to be had."""
    return NativeQueue(device) if AVAILABLE else Queue(device)


class _errors:
    """Raise what goes wrong in the C calls of the block as wgpu-py does, with one check for all of them."""

    __slots__ = ("call",)

    def __init__(self, call: str) -> None:
        self.call = call

    def __enter__(self) -> None:
        _CAPTURE(self.call)

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        found = _RELEASE(self.call)
        if found is not None and error is None:
            name, message = found
            raise ERROR_TYPES.get(name, wgpu.GPUError)(message)


class NativeQueue(Queue):
    """The queue by direct calls; command buffers are C handles that release themselves."""

    def __init__(self, gpu: Any) -> None:
        super().__init__(gpu)
        self._device, self._queue = gpu._internal, gpu.queue._internal
        self._small = ffi.new("WGPUBufferDescriptor *")
        self._small.size, self._small.usage = 4, wgpu.BufferUsage.COPY_DST
        self._seen_alive = 0.0
        self._last = 0  # the number of the last submission
        self._mark = 0  # and of one that the host has not waited for
        self._status = ffi.new("int *")
        self._on_map = ffi.new("WGPUBufferMapCallbackInfo *")
        self._on_map.mode = lib.WGPUCallbackMode_AllowProcessEvents
        self._on_map.callback = _ON_MAP
        self._on_map.userdata1 = self._status
        self._awaited: Any = None  # what an unfinished `wait_for` waits for

    def handles(self, dispatches: Iterable[Dispatch]) -> list[Dispatch]:
        return [(p._internal, g._internal, x, y, z) for p, g, x, y, z in dispatches]

    def record(self, compute_pass: Any, dispatches: Sequence[Dispatch]) -> None:
        self._record(compute_pass._internal, dispatches)

    def _record(self, handle: Any, dispatches: Sequence[Dispatch]) -> None:
        set_pipeline, set_group, dispatch, null = _SET_PIPELINE, _SET_GROUP, _DISPATCH, ffi.NULL
        last: Any = None
        for pipeline, group, x, y, z in dispatches:
            if pipeline is not last:
                set_pipeline(handle, pipeline)
                last = pipeline
            set_group(handle, 0, group, 0, null)
            dispatch(handle, x, y, z)

    def encode(self, dispatches: Sequence[Dispatch]) -> Any:
        with _errors("encode"):
            encoder = _ENCODER(self._device, ffi.NULL)
            handle = _BEGIN(encoder, ffi.NULL)
            self._record(handle, dispatches)
            _END(handle)
            _DROP_PASS(handle)
            return encoder

    def wait(self) -> None:
        if self._copies is not None or self._written:
            self.submit()
        self._alive()
        with _errors("wait"):
            _POLL(self._device, True, ffi.NULL)

    def wait_for(self, seconds: float) -> bool:
        end = time.perf_counter() + seconds
        late = self._awaited is not None  # of an earlier wait, which did not see the end: then what came since
        return self._passed(end) and (not late or self._passed(end))

    def _passed(self, end: float) -> bool:
        """True if a word that is copied after everything else arrives in time; poll does not tell if the queue is
        empty.
        """
        if self._awaited is None:
            word = self.gpu.create_buffer(size=4, usage=wgpu.BufferUsage.COPY_SRC)
            staging = self.gpu.create_buffer(size=4, usage=wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST)
            status, on_map = ffi.new("int *"), ffi.new("WGPUBufferMapCallbackInfo *", self._on_map[0])
            on_map.userdata1 = status
            self.copy(word, staging, 4)
            self.submit()
            with _errors("wait"):
                _MAP(staging._internal, wgpu.MapMode.READ, 0, 4, on_map[0])
            self._awaited = (status, staging, word, on_map)
        status = self._awaited[0]
        self._alive()
        with _errors("wait"):
            _POLL(self._device, False, ffi.NULL)
            while status[0] == 0 and time.perf_counter() < end:
                time.sleep(2e-5)
                _POLL(self._device, False, ffi.NULL)
        if status[0] == 0:
            return False
        self._awaited = None
        if status[0] != _MAPPED:
            raise wgpu.GPUError("the device was lost while a kernel ran")
        return True

    def _alive(self) -> None:
        """Raise if the device was lost: the library ends the process if it is given work then."""
        now = time.monotonic()
        if now - self._seen_alive > _TRUST_S:
            with _errors("submit"):
                _DROP_BUFFER(_BUFFER(self._device, self._small))
            self._seen_alive = now

    def _keep_pace(self) -> None:
        mark, self._mark = self._mark, self._last
        if mark:
            earlier = ffi.new("WGPUSubmissionIndex *", mark)
            with _errors("wait"):
                _POLL(self._device, True, earlier)

    def _encoder(self) -> Any:
        with _errors("encode"):
            return _ENCODER(self._device, ffi.NULL)

    def finish(self, encoder: Any) -> Any:
        with _errors("finish"):
            commands = _FINISH(encoder, ffi.NULL)
            _DROP_ENCODER(encoder)
            return ffi.gc(commands, _DROP_COMMANDS)

    def _submit(self, commands: list[Any]) -> None:
        self._alive()
        with _errors("submit"):
            self._last = _SUBMIT(self._queue, len(commands), commands)

    def _copy(self, encoder: Any, source: Any, begin: int, destination: Any, offset: int, nbytes: int) -> None:
        with _errors("copy"):
            _COPY(encoder, source._internal, begin, destination._internal, offset, nbytes)

    def _write(self, buffer: Any, offset: int, data: npt.NDArray[Any]) -> None:
        with _errors("write"):
            _WRITE(self._queue, buffer._internal, offset, ffi.from_buffer(data), data.nbytes)

    def _map(self, staging: Any, starts: list[int], sizes: list[int]) -> list[Bytes]:
        status, handle = self._status, staging._internal
        status[0] = 0
        with _errors("read"):
            _MAP(handle, wgpu.MapMode.READ, 0, starts[-1], self._on_map[0])
            while status[0] == 0:
                _POLL(self._device, True, ffi.NULL)
        if status[0] != _MAPPED:
            raise wgpu.GPUError(f"a buffer could not be mapped (status {status[0]}): was the device lost?")
        view = np.frombuffer(ffi.buffer(_RANGE(handle, 0, starts[-1]), starts[-1]), np.uint8)
        out = [view[s : s + n].copy() for s, n in zip(starts, sizes, strict=False)]
        del view
        _UNMAP(handle)
        return out


def timestamp_period(device: Any) -> float:
    """Nanoseconds of one tick of a timestamp query."""
    with contextlib.suppress(Exception):
        return float(lib.wgpuQueueGetTimestampPeriod(device.queue._internal))
    return 1.0
