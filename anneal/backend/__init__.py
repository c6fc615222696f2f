"""Devices: `cpu` interprets kernels with NumPy, `webgpu` runs generated WGSL through wgpu-py."""

from anneal.backend.arrays import Array, numpy_dtype
from anneal.backend.batch import Batch, Program
from anneal.backend.device import Device, Limits, OpaqueBuffer
from anneal.backend.memory import Holder, MemoryReport, MemoryUse, register
from anneal.backend.registry import (
    HOST,
    AnyDevice,
    device_names,
    empty_cache,
    get_device,
    is_foreign,
    memory_report,
    planned_cost_model,
    register_device,
)
from anneal.backend.storage import Storage

__all__ = [
    "HOST",
    "AnyDevice",
    "Array",
    "Batch",
    "Device",
    "Holder",
    "Limits",
    "MemoryReport",
    "MemoryUse",
    "OpaqueBuffer",
    "Program",
    "Storage",
    "device_names",
    "empty_cache",
    "get_device",
    "is_foreign",
    "memory_report",
    "numpy_dtype",
    "planned_cost_model",
    "register",
    "register_device",
]
