"""The private names of wgpu-py that we use, all of them, each with a way to do without."""

from __future__ import annotations

import contextlib
import time
from typing import Any

import wgpu

from anneal.backend.webgpu.implementation import Implementation
from anneal.backend.webgpu.queue import DirectQueue, Queue


def _sooner() -> contextlib.AbstractContextManager[None]:
    """While the library's header is read: see `declarations`."""
    with contextlib.suppress(Exception):  # another cffi
        from anneal.backend.webgpu.declarations import sooner

        return sooner()
    return contextlib.nullcontext()


_TRUST_S = 0.01  # seconds for which a check that the device is not lost counts

AVAILABLE = False
with contextlib.suppress(Exception):  # any failure at all means: not available
    with _sooner():
        from wgpu.backends.wgpu_native import _api
        from wgpu.backends.wgpu_native._ffi import ffi, lib
        from wgpu.backends.wgpu_native._helpers import ERROR_TYPES

    _SLOTS = _api.error_handler._get_proxy_stack  # of this thread
    _TRUSTED = _api.libf.wgpuDeviceCreateShaderModuleTrusted
    _MAP, _MAPPED = lib.wgpuBufferMapAsync, lib.WGPUMapAsyncStatus_Success
    _SUBMIT, _POLL = lib.wgpuQueueSubmitForIndex, lib.wgpuDevicePoll
    _BUFFER, _DROP_BUFFER = lib.wgpuDeviceCreateBuffer, lib.wgpuBufferRelease

    def _note_status(status: Any, message: Any, where: Any, unused: Any) -> None:
        ffi.cast("int *", where)[0] = int(status)

    _ON_MAP = ffi.callback("WGPUBufferMapCallback", _note_status)
    AVAILABLE = True


class Wgpu(Implementation):
    """wgpu-py, with the calls of its library made directly where they are to be had.

    wgpu-py calls a C library through cffi. Calling that library directly records a dispatch four times as fast, waits
    without a detour, and makes shader modules without bounds checks (matrix products run up to twice as fast), for
    which there is no public method. If any name is missing or does not fit, the public API does the same work; so it
    does for shader modules with ANNEAL_TRUSTED=0.
    """

    name = "wgpu"
    names_subgroups = False  # naga knows them, and not the word

    @property
    def can_trust(self) -> bool:
        return AVAILABLE

    def _prepare(self) -> None:
        with contextlib.suppress(Exception):
            from wgpu.backends.wgpu_native import extras

            extras.set_instance_extras(backends=["Primary"])

    def shader_module(self, device: Any, code: str, label: str, trusted: bool) -> Any:
        if not (trusted and AVAILABLE):
            return super().shader_module(device, code, label, trusted)
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
        return _api.GPUShaderModule(label, _TRUSTED(device._internal, descriptor, 0), device)

    def queue(self, device: Any) -> Queue:
        return NativeQueue(device) if AVAILABLE else Queue(device)

    def timestamp_period(self, device: Any) -> float:
        with contextlib.suppress(Exception):
            return float(lib.wgpuQueueGetTimestampPeriod(device.queue._internal))
        return 1.0


class _Slot:
    """A slot for an error: wgpu-py puts it into the last of a thread's."""

    name = type = ""
    message: str | None = None


class _Errors:
    """Raise what goes wrong in the C calls of the block as wgpu-py does, with one check for all of them.

    wgpu-py's own `capture` and `release` would be five calls of Python more.
    """

    def __enter__(self) -> None:
        try:
            _api.error_handler._per_thread_data.stack.append(_Slot())
        except AttributeError:  # the thread's first
            _SLOTS().append(_Slot())

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        found = _api.error_handler._per_thread_data.stack.pop()
        if found.message and error is None:
            raise ERROR_TYPES.get(found.type, wgpu.GPUError)(found.message)


class NativeQueue(DirectQueue):
    """The queue by direct calls of wgpu-native."""

    _guard = _Errors()

    def __init__(self, gpu: Any) -> None:
        super().__init__(gpu, ffi, lib)
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

    def wait(self) -> None:
        self.flush()
        self._alive()
        with self._guard:
            _POLL(self._device, True, ffi.NULL)
        self._ended = self._submissions

    def _alive(self) -> None:
        """Raise if the device was lost: the library ends the process if it is given work then."""
        now = time.monotonic()
        if now - self._seen_alive > _TRUST_S:
            with self._guard:
                _DROP_BUFFER(_BUFFER(self._device, self._small))
            self._seen_alive = now

    def _keep_pace(self) -> None:
        mark, self._mark = self._mark, self._last
        if mark:
            earlier = ffi.new("WGPUSubmissionIndex *", mark)
            with self._guard:
                _POLL(self._device, True, earlier)

    def _submit(self, commands: list[Any]) -> None:
        self._alive()
        self._last = _SUBMIT(self._queue, len(commands), commands)

    def _submitted(self) -> int:
        return self._last

    def _hold(self, handle: Any, mode: int, size: int, after: Any) -> None:
        status = self._status
        status[0] = 0
        earlier = ffi.new("WGPUSubmissionIndex *", after)
        with self._guard:
            _MAP(handle, mode, 0, size, self._on_map[0])
            _POLL(self._device, True, earlier)
            while status[0] == 0:
                _POLL(self._device, True, ffi.NULL)
        if status[0] != _MAPPED:
            raise wgpu.GPUError(f"a buffer could not be mapped (status {status[0]}): was the device lost?")
