"""Devices: `cpu` interprets kernels with NumPy, `webgpu` runs generated WGSL through wgpu-py."""

from anneal.backend.device import Batch, Device, Limits, MemoryUse, Program, Storage, get_device, numpy_dtype
from anneal.backend.memory import Holder, MemoryReport, empty_cache, memory_report, register

__all__ = [
    "Batch",
    "Device",
    "Holder",
    "Limits",
    "MemoryReport",
    "MemoryUse",
    "Program",
    "Storage",
    "empty_cache",
    "get_device",
    "memory_report",
    "numpy_dtype",
    "register",
]
