"""The two implementations of WebGPU behind one device: wgpu (wgpu-native, naga) and Dawn (Tint), an extra.

An `Implementation` has what differs between their packages: how adapters are found, devices opened, shader modules and
pipelines made, and the queue. Everything else of their APIs is the same. wgpu's is in `native.py`.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from anneal import cache
from anneal.backend.webgpu.queue import DirectQueue, Queue
from anneal.codegen import SUBGROUP, MatrixShape


class Implementation:
    """One package that implements WebGPU, by its public API; subclasses do some things faster.

    Args:
        package: the imported package.
    """

    name: ClassVar[str]
    names_subgroups: ClassVar[bool]  # WGSL says `enable subgroups;` before it uses them

    def __init__(self, package: Any) -> None:
        self.package = package
        self.version: str = package.__version__

    @property
    def can_trust(self) -> bool:
        """True if it can make shaders without bounds checks."""
        return False

    def adapters(self) -> list[Any]:
        """The adapters of Vulkan, Metal and DX12. OpenGL is left out: probing it is slow, and it lacks what we need."""
        if cache.enabled():
            # NVIDIA's driver keeps the pipelines it made on disk, for root only if it is told to; drivers read the
            # environment themselves, so it is written here and below
            os.environ.setdefault("__GL_SHADER_DISK_CACHE", "1")
        with _runtime_dir():
            self._prepare()
            return list(self.package.gpu.enumerate_adapters_sync())

    def _prepare(self) -> None:
        """Set the instance up, before adapters are first asked for."""

    def features(self, adapter: Any) -> Mapping[str, str]:
        """The adapter's name of each feature that it has, by our names, which are those of wgpu."""
        return {f: f for f in adapter.features}

    def matrices(self, adapter: Any) -> tuple[MatrixShape, ...]:
        """The subgroup matrices that an adapter multiplies."""
        return ()

    def open(self, adapter: Any, features: Sequence[str], limits: Mapping[str, int], trusted: bool) -> Any:
        """A device of an adapter. `trusted`: its shaders have no bounds checks, where that is a device's property."""
        return adapter.request_device_sync(required_features=list(features), required_limits=dict(limits))

    def shader_module(self, device: Any, code: str, label: str, trusted: bool) -> Any:
        """A shader module; `trusted` leaves out the bounds checks if the library can do so for a module."""
        return device.create_shader_module(label=label, code=code)

    def pipeline(self, device: Any, label: str, layout: Any, module: Any) -> Any:
        """The compute pipeline of a module's function `main`. Several threads may make pipelines at once."""
        return device.create_compute_pipeline(
            label=label, layout=layout, compute={"module": module, "entry_point": "main"}
        )

    def queue(self, device: Any) -> Queue:
        """The queue of a device."""
        return Queue(device)

    def timestamp_period(self, device: Any) -> float:
        """Nanoseconds of one tick of a timestamp query."""
        return 1.0


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


_INSTANCE = ("allow_unsafe_apis", "vulkan_enable_f16_on_nvidia")  # what adapters have beyond the standard
_TRUSTED = ("disable_robustness", "disable_workgroup_init")  # kernels stay within memory and write before they read
_CHECKED_TOO = "timestamp_quantization"
_SYNCHRONISED = "implicit-device-synchronization"
_MATRICES = "chromium-experimental-subgroup-matrix"
_NAMES = {"subgroups": "subgroup", _MATRICES: "subgroup-matrix"}  # of features, where they differ from wgpu's
_DTYPES = {"f16": "float16", "f32": "float32"}
_SLICE = 100_000_000  # nanoseconds after which a wait lets Python look for Ctrl-C


class Dawn(Implementation):
    """Dawn, Chromium's implementation, by wgpudawn: wgpu-py's API, and tensor cores; its library is called directly.

    Its objects are not safe between threads unless their device has the feature `implicit-device-synchronization`: a
    collection of garbage ends them in any thread. Timestamps are rounded to nothing unless it is told not to. An
    adapter gives one device.
    """

    name = "dawn"
    names_subgroups = True

    @property
    def can_trust(self) -> bool:
        return True

    def _prepare(self) -> None:
        from wgpudawn.backends.dawn import _helpers, extras

        if _helpers._the_instance is None:
            extras.set_instance_extras(backends=["Primary"], enable_toggles=list(_INSTANCE))

    def features(self, adapter: Any) -> Mapping[str, str]:
        return {_NAMES.get(f, f): f for f in adapter.features}

    def matrices(self, adapter: Any) -> tuple[MatrixShape, ...]:
        from wgpudawn.backends.dawn import extras

        if _MATRICES not in adapter.features:
            return ()
        return shapes_of(extras.get_adapter_properties(adapter).get("subgroup_matrix_configs", ()))

    def open(self, adapter: Any, features: Sequence[str], limits: Mapping[str, int], trusted: bool) -> Any:
        from wgpudawn.backends.dawn import extras

        if getattr(adapter, "anneal_opened", False):
            adapter = next(a for a in self.adapters() if a.info == adapter.info)
        adapter.anneal_opened = True
        wanted = [*features, *([_SYNCHRONISED] if _SYNCHRONISED in adapter.features else [])]
        return extras.request_device_sync(
            adapter,
            required_features=wanted,
            required_limits=dict(limits),
            enable_toggles=list(_TRUSTED) if trusted else [],
            disable_toggles=[_CHECKED_TOO],
        )

    def pipeline(self, device: Any, label: str, layout: Any, module: Any) -> Any:
        # the synchronous call holds the device's lock while the driver compiles
        compute = {"module": module, "entry_point": "main"}
        try:
            return device.create_compute_pipeline_async(label=label, layout=layout, compute=compute).sync_wait()
        except RuntimeError as e:
            raise self.package.GPUPipelineError(str(e)) from e

    def queue(self, device: Any) -> Queue:
        return DawnQueue(device, self.package)


def shapes_of(configs: Sequence[Mapping[str, Any]]) -> tuple[MatrixShape, ...]:
    """The matrices of floats that `configs` of an adapter tell of, as far as subgroups are as kernels have them."""
    return tuple(
        MatrixShape(_DTYPES[c["component_type"]], _DTYPES[c["result_component_type"]], c["m"], c["n"], c["k"])
        for c in configs
        if c["component_type"] in _DTYPES
        and c["result_component_type"] in _DTYPES
        and c["min_subgroup_size"] == c["max_subgroup_size"] == SUBGROUP
    )


class _Errors:
    """Raise the errors that Dawn noted in the C calls of the block."""

    __slots__ = ("_handler",)

    def __init__(self, handler: Any) -> None:
        self._handler = handler

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        if self._handler.pending and error is None:
            self._handler.raise_pending()


class DawnQueue(DirectQueue):
    """The queue by direct calls of Dawn."""

    def __init__(self, gpu: Any, package: Any) -> None:
        from wgpudawn.backends.dawn import _api, _ffi, _helpers

        ffi, lib = _ffi.ffi, _ffi.lib
        super().__init__(gpu, ffi, lib)
        self._package = package
        self._instance = _helpers.get_wgpu_instance()
        self._guard = _Errors(_api.error_handler)
        self._done, self._on_map = (
            ffi.new("WGPUQueueWorkDoneCallbackInfo *"),
            ffi.new("WGPUBufferMapCallbackInfo *"),
        )
        for info, name in ((self._done, "QueueWorkDone"), (self._on_map, "BufferMap")):
            info.mode = lib.WGPUCallbackMode_WaitAnyOnly
            info.callback = _ffi.c_callback(f"WGPU{name}Callback")  # it finds nothing under no name, and returns
        self._waiting = lib.WGPUWaitStatus_Success, lib.WGPUWaitStatus_TimedOut
        self._mark: Any = None  # the end of work that the host has not waited for

    def _end(self) -> Any:
        """The end of everything that was asked for so far, as a future."""
        self.flush()
        with self._guard:
            return self._lib.wgpuQueueOnSubmittedWorkDone(self._queue, self._done[0])

    def _wait_until(self, future: Any) -> None:
        """Wait for a future."""
        info = self._ffi.new("WGPUFutureWaitInfo *")
        info.future = future
        while not info.completed:
            with self._guard:
                status = self._lib.wgpuInstanceWaitAny(self._instance, 1, info, _SLICE)
            if not info.completed and status not in self._waiting:
                raise self._package.GPUError(f"waiting failed (status {status}): was the device lost?")

    def wait(self) -> None:
        self._wait_until(self._end())
        self._ended = self._submissions

    def _keep_pace(self) -> None:
        mark, self._mark = self._mark, self._end()
        if mark is not None:
            self._wait_until(mark)

    def _submit(self, commands: list[Any]) -> None:
        self._lib.wgpuQueueSubmit(self._queue, len(commands), commands)

    def _hold(self, handle: Any, mode: int, size: int, after: Any) -> None:
        with self._guard:
            future = self._lib.wgpuBufferMapAsync(handle, mode, 0, size, self._on_map[0])
        self._wait_until(future)
        if self._lib.wgpuBufferGetMapState(handle) != self._lib.WGPUBufferMapState_Mapped:
            raise self._package.GPUError("a buffer could not be mapped: was the device lost?")
