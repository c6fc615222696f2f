"""New arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from anneal.errors import ShapeError
from anneal.ops import as_dtype, meshgrid as _meshgrid
from anneal.tensor import Tensor, dtypes

__all__ = [
    "arange", "asarray", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like", "linspace", "meshgrid",
    "ones", "ones_like", "tril", "triu", "zeros", "zeros_like",
]  # fmt: skip


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
    """Nested lists with arrays in them as lists of numbers."""
    if isinstance(obj, (list, tuple)):
        return [_plain(x) for x in obj]
    return obj.tolist() if isinstance(obj, (Tensor, np.generic)) else obj


def from_dlpack(x: Any, /, *, device: str | None = None, copy: bool | None = None) -> Tensor:
    """A copy of an array of another library, which DLPack carries over on the cpu.

    Raises BufferError if copy is False.

    >>> from_dlpack(np.array([1.0, 2.0]))
    Tensor([1., 2.], dtype=float64)
    """
    if copy is False:
        raise BufferError("from_dlpack: a tensor has memory of its own, and copy is False; leave copy out")
    return Tensor(np.from_dlpack(x), device)


def _shape(shape: Any) -> tuple[int, ...]:
    return (shape,) if not isinstance(shape, (tuple, list)) else tuple(shape)


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """An array filled with one value, in the value's own dtype (int32, int64 if it needs that, float32, bool) unless
    one is given.

    >>> full((2,), 3.0)
    Tensor([3., 3.], dtype=float32)
    """
    value = fill_value.item() if isinstance(fill_value, Tensor) else fill_value
    kind = asarray(value).dtype if dtype is None else as_dtype(dtype)
    return Tensor.full(_shape(shape), value, dtype=kind, device=device)


def full_like(x: Tensor, /, fill_value: Any, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """An array filled with one value, in the shape, the dtype and on the device of x, unless others are given."""
    return full(x.shape, fill_value, dtype=x.dtype if dtype is None else dtype, device=device or x.device)


def zeros(shape: Any, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """Zeros, float32 unless a dtype is given."""
    return full(shape, 0, dtype=dtypes.float32 if dtype is None else dtype, device=device)


def ones(shape: Any, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """Ones, float32 unless a dtype is given."""
    return full(shape, 1, dtype=dtypes.float32 if dtype is None else dtype, device=device)


def empty(shape: Any, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """An array of unspecified values."""
    return zeros(shape, dtype=dtype, device=device)


def zeros_like(x: Tensor, /, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """Zeros in the shape, the dtype and on the device of x, unless others are given."""
    return full_like(x, 0, dtype=dtype, device=device)


def ones_like(x: Tensor, /, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """Ones in the shape, the dtype and on the device of x, unless others are given."""
    return full_like(x, 1, dtype=dtype, device=device)


def empty_like(x: Tensor, /, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """An array of unspecified values, as `zeros_like`."""
    return full_like(x, 0, dtype=dtype, device=device)


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
    # how many there are is counted exactly, or in float64, whatever the dtype
    count = max(0, -((first - end) // step) if whole else math.ceil((end - first) / step))
    kind = as_dtype(dtype)
    places = Tensor.arange(count, dtype=kind if kind.is_float else dtypes.int64, device=device)
    out: Tensor = (places * step + first).cast(kind)
    return out


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
    out: Tensor = (places * ((stop - start) / num) + start).cast(kind)
    return out


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> list[Tensor]:
    """Vectors as grids over their product; indexing "ij" keeps their order, "xy" exchanges the first two axes.

    >>> [x.shape for x in meshgrid(Tensor([1, 2]), Tensor([1, 2, 3]))]
    [(3, 2), (3, 2)]
    """
    return list(_meshgrid(*arrays, indexing=indexing))


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The lower triangles of matrices, up to the k-th diagonal; 0 above."""
    return x.tril(k)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The upper triangles of matrices, from the k-th diagonal on; 0 below."""
    return x.triu(k)
