"""The private names of wgpu-py that we use, all of them, each with a way to do without.

wgpu-py calls a C library through cffi. Two of its functions have no public method, or a slow one: a shader module
without bounds checks (matrix products run up to twice as fast), and recording a dispatch (four times as fast). If any
name is missing or does not fit, the public API does the same work; so it does for shader modules with
ANNEAL_TRUSTED=0.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any

import wgpu

__all__ = ["AVAILABLE", "Dispatch", "enumerate_adapters", "handles", "record", "shader_module", "timestamp_period"]

# (pipeline, bind group, x, y, z)
Dispatch = tuple[Any, Any, int, int, int]

AVAILABLE = False
with contextlib.suppress(Exception):  # any failure at all means: not available
    from wgpu.backends.wgpu_native import _api
    from wgpu.backends.wgpu_native._ffi import ffi, lib

    _TRUSTED = _api.libf.wgpuDeviceCreateShaderModuleTrusted
    _SET_PIPELINE = lib.wgpuComputePassEncoderSetPipeline
    _SET_GROUP = lib.wgpuComputePassEncoderSetBindGroup
    _DISPATCH = lib.wgpuComputePassEncoderDispatchWorkgroups
    AVAILABLE = True


def enumerate_adapters() -> list[Any]:
    """The adapters of Vulkan, Metal and DX12. OpenGL is left out: probing it is slow, and it lacks what we need."""
    with contextlib.suppress(Exception):
        from wgpu.backends.wgpu_native import extras

        extras.set_instance_extras(backends=["Primary"])
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


def handles(dispatches: Iterable[Dispatch]) -> list[Dispatch]:
    """`dispatches` in the form that `record` takes; the objects in them must outlive the result."""
    if not AVAILABLE:
        return list(dispatches)
    return [(p._internal, g._internal, x, y, z) for p, g, x, y, z in dispatches]


def record(compute_pass: Any, dispatches: list[Dispatch]) -> None:
    """Record `dispatches`, as `handles` made them, into a compute pass."""
    last: Any = None
    if not AVAILABLE:
        for pipeline, group, x, y, z in dispatches:
            if pipeline is not last:
                compute_pass.set_pipeline(pipeline)
                last = pipeline
            compute_pass.set_bind_group(0, group)
            compute_pass.dispatch_workgroups(x, y, z)
        return
    handle, null = compute_pass._internal, ffi.NULL
    set_pipeline, set_group, dispatch = _SET_PIPELINE, _SET_GROUP, _DISPATCH
    for pipeline, group, x, y, z in dispatches:
        if pipeline is not last:
            set_pipeline(handle, pipeline)
            last = pipeline
        set_group(handle, 0, group, 0, null)
        dispatch(handle, x, y, z)


def timestamp_period(device: Any) -> float:
    """Nanoseconds of one tick of a timestamp query."""
    with contextlib.suppress(Exception):
        return float(lib.wgpuQueueGetTimestampPeriod(device.queue._internal))
    return 1.0
