"""The cpu device: executes the scheduler's kernels with NumPy, without opts, or as C (`in_c.py`)."""

from anneal.backend.cpu.executor import CpuDevice
from anneal.backend.cpu.workers import numpy_settings

__all__ = ["CpuDevice", "numpy_settings"]
