"""The namespace's description of itself."""

from __future__ import annotations

from typing import Any

from anneal.array_api._dtypes import isdtype
from anneal.backend import Device, device_names, get_device
from anneal.errors import DeviceError
from anneal.tensor import DType, default_device, dtypes

__all__ = ["__array_namespace_info__"]

DTYPES = {
    "bool": dtypes.bool_,
    **{f"{sign}int{bits}": getattr(dtypes, f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "float32": dtypes.float32,
    "float64": dtypes.float64,
}


def _opened(name: str) -> Device[Any] | None:
    try:
        return get_device(name)
    except DeviceError:
        return None


class Info:
    """The namespace's inspection object, from `__array_namespace_info__()`: capabilities, devices and dtypes."""

    def capabilities(self) -> dict[str, Any]:
        """Boolean indices and shapes that depend on values are there outside jit; an array has up to 64 axes."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> str:
        """The device of new arrays."""
        return default_device()

    def default_dtypes(self, *, device: str | None = None) -> dict[str, DType | None]:
        """The dtypes of Python's numbers and of indices. There are no complex dtypes."""
        return {
            "real floating": dtypes.float32,
            "complex floating": None,
            "integral": dtypes.int32,
            "indexing": dtypes.int32,
        }

    def devices(self) -> list[str]:
        """The names of the devices that open on this machine."""
        return [name for name in device_names() if name != "auto" and _opened(name) is not None]

    def dtypes(self, *, device: str | None = None, kind: Any = None) -> dict[str, DType]:
        """The standard's dtypes of a device, of a kind or several. Raises DeviceError for one that does not open."""
        there = get_device(default_device() if device is None else device).limits.dtypes
        return {name: d for name, d in DTYPES.items() if d in there and (kind is None or isdtype(d, kind))}


def __array_namespace_info__() -> Info:  # noqa: N807
    """Capabilities, devices and dtypes of the namespace.

    >>> sorted(__array_namespace_info__().dtypes(kind="real floating"))
    ['float32', 'float64']
    """
    return Info()
