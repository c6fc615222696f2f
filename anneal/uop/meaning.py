"""The meanings of ops for which NumPy has no function: the reference interpreter and the checks compute with them.

Each is given NumPy, which this package does not import. Where NumPy leaves a choice they fix it, and devices follow:

- integers wrap; integer division and modulo by zero give 0; both round towards minus infinity, as Python's do;
- a float outside the range of an integer dtype casts to the nearest end of that range, nan to 0; nan casts to True;
- an empty reduction gives the identity: 0, 1, or the lowest or highest value of the dtype;
- MAX and MIN give nan if either side is nan; ROUND rounds halves to even;
- GATHER reads 0 at an index out of range and SCATTER_ADD drops the row.

The cpu device and the tests' oracle for kernels have theirs on their own, so that a wrong meaning is seen.
"""

from __future__ import annotations

import math
from typing import Any

# -- elementwise: NumPy, then an array for each source -----------------------------------------------------------------


def cast(np: Any, x: Any, dtype: Any) -> Any:
    if dtype.kind == "b":
        return np.asarray(x != 0)
    if x.dtype.kind != "f" or dtype.kind not in "iu":
        return x.astype(dtype)
    info = np.iinfo(dtype)
    low, high = float(info.min), float(info.max)
    wide = np.nan_to_num(np.trunc(x.astype(np.float64)), nan=0.0, posinf=np.inf, neginf=-np.inf)
    inside = np.where((wide >= low) & (wide < high), wide, 0.0).astype(dtype)
    inside = np.where(wide < low, np.array(info.min, dtype), inside)
    return np.asarray(np.where(wide >= high, np.array(info.max, dtype), inside))


def neg(np: Any, a: Any) -> Any:
    return a if a.dtype.kind == "b" else np.negative(a)


def invert(np: Any, a: Any) -> Any:
    return np.logical_not(a) if a.dtype.kind == "b" else np.invert(a)


def subtract(np: Any, a: Any, b: Any) -> Any:
    return np.logical_xor(a, b) if a.dtype.kind == "b" else np.subtract(a, b)


def floor_divide(np: Any, a: Any, b: Any) -> Any:
    return _by_zero(np, np.floor_divide, a, b)


def mod(np: Any, a: Any, b: Any) -> Any:
    return _by_zero(np, np.mod, a, b)


def _by_zero(np: Any, f: Any, a: Any, b: Any) -> Any:
    if a.dtype.kind == "f":
        return f(a, b)
    zero = b == 0
    return np.where(zero, np.zeros((), a.dtype), f(a, np.where(zero, np.ones((), b.dtype), b)))


def erf(np: Any, a: Any) -> Any:
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(a.astype(np.float64))).astype(a.dtype)


def threefry2x32(np: Any, x0: Any, x1: Any, k0: Any, k1: Any) -> tuple[Any, Any]:
    """Twenty rounds of Threefry 2x32 (Salmon et al., SC 2011): both output words of counter (x0, x1), key (k0, k1)."""
    keys = (k0, k1, k0 ^ k1 ^ np.uint32(0x1BD11BDA))
    rotations = ((13, 15, 26, 6), (17, 29, 16, 24))
    x0, x1 = x0 + k0, x1 + k1
    for i in range(5):
        for r in rotations[i % 2]:
            x0 = x0 + x1
            x1 = ((x1 << np.uint32(r)) | (x1 >> np.uint32(32 - r))) ^ x0
        x0 = x0 + keys[(i + 1) % 3]
        x1 = x1 + keys[(i + 2) % 3] + np.uint32(i + 1)
    return x0, x1


def wave(np: Any, _value: Any, _x: Any, error: Any) -> Any:
    """The change of a sine or a cosine."""
    return np.minimum(error, 2.0)


# -- of a tensor graph: NumPy, the node, the arrays of its sources, the dtype to compute in ----------------------------


def reduce_axis(np: Any, u: Any, src: Any, dtype: Any) -> Any:
    op, axes = u.arg
    empty = {"MAX": u.dtype.min, "MIN": u.dtype.max}
    more = {"initial": empty[op.name]} if op.name in empty else {"dtype": dtype}
    return np.asarray(getattr(np, op.numpy).reduce(src[0], axis=axes, keepdims=True, **more))


def gather(np: Any, u: Any, src: Any, dtype: Any) -> Any:
    x, index = src
    n = x.shape[u.arg]
    if n == 0 or index.size == 0:
        return np.zeros(index.shape, dtype)
    window = tuple([slice(None) if i == u.arg else slice(0, s) for i, s in enumerate(index.shape)])
    inside = (index >= 0) & (index < n)
    return np.where(inside, np.take_along_axis(x[window], np.where(inside, index, 0), u.arg), np.zeros((), dtype))


def scatter_add(np: Any, u: Any, src: Any, dtype: Any) -> Any:
    index, value = src
    largest = len(u.arg) > 1
    out = np.full(u.shape, u.dtype.min if largest else 0, dtype)
    inside = (index >= 0) & (index < u.shape[0])
    (np.maximum if largest else np.add).at(out, index[inside], value[inside])
    return out


def order_shape(keys: Any, arg: Any) -> tuple[Any, ...]:
    return (keys.size // arg[0] * arg[1],) if isinstance(arg, tuple) else keys.shape


def order(np: Any, u: Any, src: Any, _dtype: Any) -> Any:
    n, k = u.arg if isinstance(u.arg, tuple) else (src[0].size, src[0].size)
    return np.argsort(src[0].reshape(-1, n or 1), 1, kind="stable")[:, :k].reshape(-1).astype(np.int32)


def scan(np: Any, u: Any, src: Any, dtype: Any) -> Any:
    op, n, after = u.arg
    return getattr(np, op.numpy).accumulate(src[0].reshape(-1, n, after), 1, dtype).reshape(src[0].shape)


def segment_sum(np: Any, u: Any, src: Any, dtype: Any) -> Any:
    value, order, starts = src
    out = np.zeros(u.shape, dtype)
    for v in range(u.shape[0]):
        out[v] = value[order[starts[v] : starts[v + 1]]].sum(axis=0, dtype=dtype)
    return out


def update(_np: Any, u: Any, src: Any, _dtype: Any) -> Any:
    out, starts = src[0].copy(), iter(src[2:])
    places, taken = [], []
    for b, n, whole in zip(u.arg, src[1].shape, out.shape, strict=True):
        begin = min(max(int(next(starts)), 0), whole - n) if b is None else int(next(starts)) if b < 0 else b
        lower, upper = min(max(-begin, 0), n), max(min(whole - begin, n), 0)
        places.append(slice(begin + lower, begin + max(lower, upper)))
        taken.append(slice(lower, max(lower, upper)))
    out[tuple(places)] = src[1][tuple(taken)]
    return out
