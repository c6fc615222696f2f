"""The queue by direct calls of the C library below a package: recording a dispatch takes a quarter of the time.

wgpu-native and Dawn have the same calls (webgpu.h), but for waiting and errors, which subclasses add.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import numpy.typing as npt

from anneal.backend.webgpu.queue import Bytes, Dispatch, Queue


class Calls:
    """The functions of a C library that queues call. Raises AttributeError where one is missing.

    Args:
        ffi: the package's cffi object.
        lib: the library.
    """

    def __init__(self, ffi: Any, lib: Any) -> None:
        self.ffi = ffi
        self.set_pipeline, self.set_group = (
            lib.wgpuComputePassEncoderSetPipeline,
            lib.wgpuComputePassEncoderSetBindGroup,
        )
        self.dispatch = lib.wgpuComputePassEncoderDispatchWorkgroups
        self.begin, self.end = lib.wgpuCommandEncoderBeginComputePass, lib.wgpuComputePassEncoderEnd
        self.drop_pass = lib.wgpuComputePassEncoderRelease
        self.encoder, self.drop_encoder = lib.wgpuDeviceCreateCommandEncoder, lib.wgpuCommandEncoderRelease
        self.finish, self.drop_commands = lib.wgpuCommandEncoderFinish, lib.wgpuCommandBufferRelease
        self.copy, self.write = lib.wgpuCommandEncoderCopyBufferToBuffer, lib.wgpuQueueWriteBuffer
        self.map, self.range = lib.wgpuBufferMapAsync, lib.wgpuBufferGetConstMappedRange
        self.unmap = lib.wgpuBufferUnmap
        self.mapped = lib.WGPUMapAsyncStatus_Success


class DirectQueue(Queue):
    """A queue whose command buffers are C handles that release themselves."""

    def __init__(self, gpu: Any, calls: Calls) -> None:
        super().__init__(gpu)
        self._c = calls
        self._device, self._queue = gpu._internal, gpu.queue._internal

    def _errors(self, call: str) -> AbstractContextManager[None]:
        """Raise what goes wrong in the C calls of the block as the package does, with one check for all of them."""
        raise NotImplementedError

    def handles(self, dispatches: Iterable[Dispatch]) -> list[Dispatch]:
        return [(p._internal, g._internal, x, y, z) for p, g, x, y, z in dispatches]

    def record(self, compute_pass: Any, dispatches: Sequence[Dispatch]) -> None:
        self._record(compute_pass._internal, dispatches)

    def _record(self, handle: Any, dispatches: Sequence[Dispatch]) -> None:
        c = self._c
        set_pipeline, set_group, dispatch, null = c.set_pipeline, c.set_group, c.dispatch, c.ffi.NULL
        last: Any = None
        for pipeline, group, x, y, z in dispatches:
            if pipeline is not last:
                set_pipeline(handle, pipeline)
                last = pipeline
            set_group(handle, 0, group, 0, null)
            dispatch(handle, x, y, z)

    def encode(self, dispatches: Sequence[Dispatch]) -> Any:
        c = self._c
        with self._errors("encode"):
            encoder = c.encoder(self._device, c.ffi.NULL)
            handle = c.begin(encoder, c.ffi.NULL)
            self._record(handle, dispatches)
            c.end(handle)
            c.drop_pass(handle)
            return encoder

    def finish(self, encoder: Any) -> Any:
        c = self._c
        with self._errors("finish"):
            commands = c.finish(encoder, c.ffi.NULL)
            c.drop_encoder(encoder)
            return c.ffi.gc(commands, c.drop_commands)

    def _encoder(self) -> Any:
        with self._errors("encode"):
            return self._c.encoder(self._device, self._c.ffi.NULL)

    def _copy(self, encoder: Any, source: Any, begin: int, destination: Any, offset: int, nbytes: int) -> None:
        with self._errors("copy"):
            self._c.copy(encoder, source._internal, begin, destination._internal, offset, nbytes)

    def _write(self, buffer: Any, offset: int, data: npt.NDArray[Any]) -> None:
        with self._errors("write"):
            self._c.write(self._queue, buffer._internal, offset, self._c.ffi.from_buffer(data), data.nbytes)

    def _mapped(self, handle: Any, starts: list[int], sizes: list[int]) -> list[Bytes]:
        """Copies of parts of a buffer that is mapped; then it is mapped no more."""
        c = self._c
        view = np.frombuffer(c.ffi.buffer(c.range(handle, 0, starts[-1]), starts[-1]), np.uint8)
        out = [view[s : s + n].copy() for s, n in zip(starts, sizes, strict=False)]
        del view
        c.unmap(handle)
        return out
