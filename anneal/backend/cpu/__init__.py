"""The NumPy device: executes kernels as the scheduler made them, before any optimisation."""

from anneal.backend.cpu.executor import CpuDevice
