"""Devices: `cpu` interprets kernels with NumPy, `webgpu` runs generated WGSL through wgpu-py."""

from anneal.backend.device import Batch, Device, Limits, Program, Storage, get_device, numpy_dtype

__all__ = ["Batch", "Device", "Limits", "Program", "Storage", "get_device", "numpy_dtype"]
