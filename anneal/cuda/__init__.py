"""The functions that programs call before they choose a device: there is no CUDA here; GPUs are "webgpu"."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from anneal.errors import DeviceError
from anneal.tensor import empty_cache as empty_cache

__all__ = [
    "device_count", "empty_cache", "get_arch_list", "ipc_collect", "is_available", "is_bf16_supported",
    "is_initialized", "manual_seed", "manual_seed_all", "max_memory_allocated", "max_memory_reserved",
    "memory_allocated", "memory_reserved", "memory_stats", "reset_max_memory_allocated", "reset_peak_memory_stats",
    "seed", "seed_all", "synchronize",
]  # fmt: skip

# Names that need a CUDA GPU: they raise, as in torch without one.
_NEEDS_ONE = (
    "CUDAGraph", "Event", "ExternalStream", "Stream", "StreamContext", "can_device_access_peer",
    "current_blas_handle", "current_device", "current_stream", "default_stream", "device", "device_of",
    "get_device_capability", "get_device_name", "get_device_properties", "get_rng_state", "get_rng_state_all",
    "graph", "init", "initial_seed", "list_gpu_processes", "mem_get_info", "memory_snapshot", "memory_summary",
    "set_device", "set_per_process_memory_fraction", "set_rng_state", "set_rng_state_all", "set_stream",
    "stream", "temperature", "utilization",
)  # fmt: skip


def is_available() -> bool:
    """False: there is none here.

    >>> "cuda" if is_available() else "cpu"
    'cpu'
    """
    return False


is_initialized = is_bf16_supported = is_available


def device_count() -> int:
    """The number of GPUs of CUDA: 0."""
    return 0


def memory_allocated(device: Any = None) -> int:
    """The bytes that tensors have on a `device` of CUDA: 0. `anneal.memory()` counts those of each device."""
    return 0


max_memory_allocated = memory_reserved = max_memory_reserved = memory_allocated


def memory_stats(device: Any = None) -> dict[str, Any]:
    """An empty dict: the memory of a CUDA `device` is not counted."""
    return {}


def get_arch_list() -> list[str]:
    """The GPUs that CUDA compiles for: none."""
    return []


def manual_seed(seed: int) -> None:
    """Does nothing: the `seed` of `anneal.manual_seed` is every device's."""


manual_seed_all = manual_seed


def synchronize(device: Any = None) -> None:
    """Does nothing: reading a value waits for it, on every `device`."""


reset_peak_memory_stats = reset_max_memory_allocated = synchronize


def ipc_collect() -> None:
    """Does nothing: there is no CUDA memory to collect."""


seed = seed_all = ipc_collect


def __getattr__(name: str) -> Any:
    if name == "amp":
        return import_module("anneal.cuda.amp")
    if name not in _NEEDS_ONE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def refused(*args: Any, **kwargs: Any) -> Any:
        raise DeviceError(
            f"cuda.{name}: there is no CUDA here: GPUs of every vendor are reached through WebGPU: move tensors and "
            'modules to the device "webgpu", and ask cuda.is_available() first'
        )

    return refused
