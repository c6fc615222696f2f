"""Devices: `cpu` runs kernels with NumPy or as C, `webgpu` runs generated WGSL through wgpu-py or Dawn."""

from typing import TYPE_CHECKING

from anneal.backend.arrays import Array, dtype_of, numpy_dtype
from anneal.backend.device import Batch, Device, Limits, OpaqueBuffer, Program, Reader, Timed
from anneal.backend.registry import (
    DEVICES,
    HOST,
    AnyDevice,
    Place,
    device_names,
    empty_cache,
    get_device,
    is_foreign,
    memory_report,
    open_devices,
    planned_cost_model,
    register_device,
    register_host,
    set_precision,
)
from anneal.backend.storage import Storage, nothing
from anneal.doors import opened_later

if TYPE_CHECKING:
    from anneal.backend.arrays import MEANINGS, of_numpy
    from anneal.backend.cpu import numpy_settings
    from anneal.backend.memory import Holder, MemoryReport, MemoryUse
    from anneal.backend.promises import Crew
else:
    __getattr__ = opened_later(__name__)

__all__ = [
    "DEVICES", "HOST", "MEANINGS", "AnyDevice", "Array", "Batch", "Crew", "Device", "Holder", "Limits", "MemoryReport",
    "MemoryUse", "OpaqueBuffer", "Place", "Program", "Reader", "Storage", "Timed", "device_names", "dtype_of",
    "empty_cache", "get_device", "is_foreign", "memory_report", "nothing", "numpy_dtype", "numpy_settings", "of_numpy",
    "open_devices", "planned_cost_model", "register_device", "register_host", "set_precision",
]  # fmt: skip
