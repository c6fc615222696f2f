"""Dtypes: promotion, kinds and limits."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from anneal.backend import Device, device_names, get_device
from anneal.errors import DeviceError, DTypeError, ShapeError
from anneal.ops import as_dtype, meshgrid as _meshgrid, rows_of
from anneal.runtime import F, here, mapped
from anneal.tensor import DType, Tensor, default_device, dtypes

__all__ = [
    "__array_namespace_info__", "arange", "asarray", "astype", "can_cast", "empty", "empty_like", "eye", "finfo",
    "from_dlpack", "full", "full_like", "iinfo", "isdtype", "linspace", "meshgrid", "ones", "ones_like",
    "result_type", "zeros", "zeros_like",
]  # fmt: skip

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


def standards(function: F) -> F:
    """A decorator of functions whose integer results have the standard's dtypes, whatever the values: values that do
    not fit wrap around, with a warning.
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
    """The dtype of the result of an op with these operands. Python numbers take the kind of arrays' dtypes into account
    alone.

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
    """True if a dtype equals `kind`, belongs to the kind that it names, or to one of several.

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


# -- new arrays -------------------------------------------------------------------------------------------------------
# New arrays.


def asarray(obj: Any, /, *, dtype: Any = None, device: str | None = None, copy: bool | None = None) -> Tensor:
    """An array of a number, a nested list, an array that Python or NumPy can read, or a tensor.

    Python ints become int32, int64 where they need it; floats float32. A tensor of that dtype on that device is given
    back itself, unless `copy`. With copy=False ValueError is raised for all that must be copied.

    >>> asarray([1, 2]), asarray([2**40]).dtype
    (Tensor([1, 2], dtype=int32), dtypes.int64)
    """
    if isinstance(obj, Tensor):
        out = obj.to(device=device, dtype=dtype)
        if out is obj:
            return obj.clone() if copy else obj
        if copy is False:
            raise ValueError("asarray: another dtype or device needs a copy, and copy is False")
        return out
    if copy is False:
        raise ValueError("asarray: a tensor has memory of its own, and copy is False; leave copy out")
    if dtype is None and not hasattr(obj, "dtype"):
        values = np.asarray(_plain(obj))
        if values.dtype.kind == "i" and values.size and not -(2**31) <= values.min() <= values.max() < 2**31:
            dtype = dtypes.int64
        elif values.dtype.kind == "u":
            dtype = dtypes.uint64
        return Tensor(_plain(obj), device, dtype)
    if hasattr(obj, "__dlpack__") and not isinstance(obj, (np.ndarray, np.generic)):
        obj = np.from_dlpack(obj)
    return Tensor(obj, device, dtype)


def _plain(obj: Any) -> Any:
    """Nested lists with arrays in them as nested lists of numbers."""
    return mapped(obj, lambda x: x.tolist() if isinstance(x, (Tensor, np.generic)) else x)


def from_dlpack(x: Any, /, *, device: str | None = None, copy: bool | None = None) -> Tensor:
    """A copy of an array of another library, which DLPack carries over on the cpu.

    Raises BufferError if copy is False.

    >>> from_dlpack(np.array([1.0, 2.0]))
    Tensor([1., 2.], dtype=float64)
    """
    if copy is False:
        raise BufferError("from_dlpack: a tensor has memory of its own, and copy is False; leave copy out")
    return Tensor(np.from_dlpack(x), device)


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """An array filled with one value, in the value's own dtype (int32, int64 if it needs that, float32, bool) unless
    one is given.

    >>> full((2,), 3.0)
    Tensor([3., 3.], dtype=float32)
    """
    value = fill_value.item() if isinstance(fill_value, Tensor) else fill_value
    kind = asarray(value).dtype if dtype is None else as_dtype(dtype)
    return Tensor.full(shape, value, dtype=kind, device=device)


def full_like(x: Tensor, /, fill_value: Any, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """An array filled with one value, in the shape, the dtype and on the device of x, unless others are given."""
    return full(x.shape, fill_value, dtype=x.dtype if dtype is None else dtype, device=device or x.device)


def _filled(name: str, value: int, shape: Any, *, dtype: Any = None, device: str | None = None) -> Tensor:
    return full(shape, value, dtype=dtypes.float32 if dtype is None else dtype, device=device)


zeros, ones, empty = rows_of(
    _filled,
    """
    zeros:
    Zeros, float32 unless a dtype is given.

    ones:
    Ones, float32 unless a dtype is given.

    empty:
    An array of unspecified values.
    """,
    {
        "zeros": 0,
        "ones": 1,
        "empty": 0,
    },
)


def _like(name: str, value: int, x: Tensor, /, *, dtype: Any = None, device: str | None = None) -> Tensor:
    return full_like(x, value, dtype=dtype, device=device)


zeros_like, ones_like, empty_like = rows_of(
    _like,
    """
    zeros_like:
    Zeros in the shape, the dtype and on the device of x, unless others are given.

    ones_like:
    Ones in the shape, the dtype and on the device of x, unless others are given.

    empty_like:
    An array of unspecified values, as `zeros_like`.
    """,
    {
        "zeros_like": 0,
        "ones_like": 1,
        "empty_like": 0,
    },
)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = None, device: str | None = None
) -> Tensor:
    """Ones on the k-th diagonal, zeros elsewhere.

    >>> eye(2, k=1).tolist()
    [[0.0, 1.0], [0.0, 0.0]]
    """
    rows = Tensor.arange(n_rows, device=device)
    columns = Tensor.arange(n_rows if n_cols is None else n_cols, device=device)
    k = max(-n_rows, min(k, len(columns)))  # a diagonal further off is outside, too, and may not fit int32
    return (rows.unsqueeze(1) + k).eq(columns).cast(dtypes.float32 if dtype is None else dtype)


def arange(start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """start, start + step, ... before stop; 0, 1, ... before start without a stop. Ints make int32 (int64 if need be).

    >>> arange(1, 6, 2)
    Tensor([1, 3, 5], dtype=int32)
    """
    if not step:
        raise ShapeError("arange: step must not be 0")
    first, end = (0, start) if stop is None else (start, stop)
    whole = all(isinstance(x, int) for x in (first, end, step))
    if dtype is None:
        far = whole and max(abs(first), abs(end), abs(step)) >= 2**31
        dtype = (dtypes.int64 if far else dtypes.int32) if whole else dtypes.float32
    # the number of elements is counted with exact ints, or in float64, whatever the dtype
    count = max(0, -((first - end) // step) if whole else math.ceil((end - first) / step))
    kind = as_dtype(dtype)
    places = Tensor.arange(count, dtype=kind if kind.is_float else dtypes.int64, device=device)
    return (places * step + first).cast(kind)  # type: ignore[no-any-return]


def linspace(
    start: Any, stop: Any, /, num: int, *, dtype: Any = None, device: str | None = None, endpoint: bool = True
) -> Tensor:
    """`num` numbers at equal distances from start to stop, without the stop unless `endpoint`; float32 by default.

    >>> linspace(0, 1, 5).tolist()
    [0.0, 0.25, 0.5, 0.75, 1.0]
    """
    kind = dtypes.float32 if dtype is None else as_dtype(dtype)
    wide = kind if kind.is_float else dtypes.float64
    if endpoint or not num:
        return Tensor.linspace(start, stop, num, dtype=wide, device=device).cast(kind)
    places = Tensor.arange(num, dtype=wide, device=device)
    return (places * ((stop - start) / num) + start).cast(kind)  # type: ignore[no-any-return]


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> list[Tensor]:
    """Vectors as grids over their product; indexing "ij" keeps their order, "xy" exchanges the first two axes.

    >>> [x.shape for x in meshgrid(Tensor([1, 2]), Tensor([1, 2, 3]))]
    [(3, 2), (3, 2)]
    """
    return list(_meshgrid(*arrays, indexing=indexing))
