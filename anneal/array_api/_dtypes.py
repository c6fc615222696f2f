"""Dtypes: promotion, kinds and limits."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from anneal.backend import Device, device_names, get_device
from anneal.errors import DeviceError, DTypeError
from anneal.ops import as_dtype
from anneal.runtime import here
from anneal.tensor import DType, Tensor, default_device, dtypes

__all__ = ["__array_namespace_info__", "astype", "can_cast", "finfo", "iinfo", "isdtype", "result_type"]


KINDS = {
    "bool": ("bool",),
    "signed integer": ("int",),
    "unsigned integer": ("uint",),
    "integral": ("int", "uint"),
    "real floating": ("float",),
    "complex floating": (),
    "numeric": ("int", "uint", "float"),
}


@dataclass(frozen=True)
class Floats:
    """The properties of a float dtype, as `finfo` returns them: `bits`, and `eps`, `max`, `min` and `smallest_normal`
    as Python's floats, with the `dtype`.
    """

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType

    @property
    def tiny(self) -> float:
        """torch's older name of `smallest_normal`."""
        return self.smallest_normal

    @property
    def resolution(self) -> float:
        """The power of ten of the decimal digits that the dtype holds surely."""
        return 10.0 ** -int((round(-math.log2(self.eps))) * math.log10(2))


@dataclass(frozen=True)
class Integers:
    """The properties of an integer dtype, as `iinfo` returns them: `bits`, and `max` and `min` as Python's ints, with
    the `dtype`.
    """

    bits: int
    max: int
    min: int
    dtype: DType


F = TypeVar("F", bound=Callable[..., Any])


def standards(function: F) -> F:
    """A function whose integers have the standard's dtypes, which values do not decide: what does not fit wraps around,
    and warns.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        before, here.warns = here.warns, True
        try:
            return function(*args, **kwargs)
        finally:
            here.warns = before

    return call  # type: ignore[return-value]


def dtype_of(x: Any) -> DType:
    """The dtype of an array, or the dtype itself."""
    return x.dtype if isinstance(x, Tensor) else as_dtype(x)


def astype(x: Tensor, dtype: Any, /, *, copy: bool = True, device: str | None = None) -> Tensor:
    """x in another dtype, and on another device if one is named; x itself where nothing changes and `copy` is False.

    >>> from anneal.tensor import dtypes
    >>> astype(Tensor([1.7, 0.0]), dtypes.int32)
    Tensor([1, 0], dtype=int32)
    """
    y = x if device is None else x.to(device=device)
    y = y.cast(dtype)
    return y.clone() if copy and y is x else y


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The dtype of what these are operands of. Python numbers take the kind of arrays' dtypes into account alone.

    Raises DTypeError without a dtype or an array among them.

    >>> from anneal.tensor import dtypes
    >>> result_type(dtypes.int8, dtypes.uint8), result_type(Tensor([1.0]), 2)
    (dtypes.int16, dtypes.float32)
    """
    numbers = [x for x in arrays_and_dtypes if isinstance(x, (bool, int, float))]
    kinds = [dtype_of(x) for x in arrays_and_dtypes if not isinstance(x, (bool, int, float))]
    if not kinds:
        raise DTypeError("result_type: takes an array or a dtype at least; Python numbers alone have no dtype")
    total = Tensor.zeros(dtype=kinds[0], device="cpu")
    for kind in kinds[1:]:
        total = total + Tensor.zeros(dtype=kind, device="cpu") if kind is not total.dtype else total
    for number in numbers:
        if not isinstance(number, bool):
            total = total + type(number)(0)
    return total.dtype


def can_cast(from_: Any, to: Any, /) -> bool:
    """True if promotion leads from one dtype to the other, which it does only within one kind.

    >>> from anneal.tensor import dtypes
    >>> can_cast(dtypes.int8, dtypes.int16), can_cast(dtypes.int32, dtypes.float64)
    (True, False)
    """
    a, b = dtype_of(from_), dtype_of(to)
    if a.kind == b.kind:
        return result_type(a, b) is b
    return (a.kind, b.kind) == ("uint", "int") and a.bits < b.bits


def isdtype(dtype: Any, kind: Any) -> bool:
    """True if a dtype is another one, of a kind that the standard names, or one of several such.

    Raises DTypeError for an unknown kind.

    >>> from anneal.tensor import dtypes
    >>> isdtype(dtypes.uint8, "integral"), isdtype(dtypes.float32, (dtypes.bool_, "signed integer"))
    (True, False)
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    d = as_dtype(dtype)
    if isinstance(kind, str):
        if kind not in KINDS:
            raise DTypeError(f"isdtype: kinds are {', '.join(KINDS)}, not {kind!r}")
        return d.kind in KINDS[kind]
    return d is as_dtype(kind)


def finfo(type: Any = dtypes.float32, /) -> Floats:
    """The limits of `type`, a float dtype, or of that of an array.

    >>> from anneal.tensor import dtypes
    >>> finfo(dtypes.float32).eps == 2.0**-23
    True
    """
    d = dtype_of(type)
    if not d.is_float:
        raise DTypeError(f"finfo: takes a float dtype, not {d.name}; iinfo has integers")
    return Floats(d.bits, 2.0 ** (1 - d.digits), d.largest, -d.largest, 2.0**d.least, d)


def iinfo(type: Any, /) -> Integers:
    """The limits of `type`, an integer dtype, or of that of an array.

    >>> from anneal.tensor import dtypes
    >>> iinfo(dtypes.int8).max
    127
    """
    d = dtype_of(type)
    if not d.is_int:
        raise DTypeError(f"iinfo: takes an integer dtype, not {d.name}; finfo has floats")
    return Integers(d.bits, int(d.max), int(d.min), d)


# -- the namespace's description of itself ----------------------------------------------------------------------------


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
